/* _keys: what finds a recipe again, the type, shape and options of a call as one tuple.
 *
 * In Python this takes as long as the copy of a kilobyte that comes after it. keys.py says the same
 * for where there is no compiler. */

static PyObject *dtype_name, *shape_name;

static int name_attributes(void)
{
    if (!dtype_name) dtype_name = PyUnicode_InternFromString("dtype");
    if (!shape_name) shape_name = PyUnicode_InternFromString("shape");
    return dtype_name && shape_name ? 0 : -1;
}

/* The shapes of a tuple of arrays; None where classes or dtypes differ, or one is no array. */
static PyObject *shapes_of(PyObject *arrays)
{
    Py_ssize_t count = PyTuple_Size(arrays);
    PyObject *made = count < 0 ? NULL : PyTuple_New(count), *first = NULL;
    int same = made ? 1 : -1;
    for (Py_ssize_t k = 0; k < count && same == 1; k++) {
        PyObject *x = PyTuple_GetItem(arrays, k); /* borrowed */
        PyObject *dtype = PyObject_GetAttr(x, dtype_name);
        PyObject *shape = dtype ? PyObject_GetAttr(x, shape_name) : NULL;
        if (!shape)
            same = PyErr_ExceptionMatches(PyExc_AttributeError) ? (PyErr_Clear(), 0) : -1;
        else if (k)
            same = Py_TYPE(x) == Py_TYPE(PyTuple_GetItem(arrays, 0))
                       ? PyObject_RichCompareBool(dtype, first, Py_EQ)
                       : 0;
        if (shape) PyTuple_SetItem(made, k, shape); /* takes the reference */
        if (k || !dtype)
            Py_XDECREF(dtype);
        else
            first = dtype;
    }
    Py_XDECREF(first);
    if (same == 1) return made;
    Py_XDECREF(made);
    if (same < 0) return NULL;
    Py_RETURN_NONE;
}

/* (type of x, mark, args, name, value, name, value, ...); takes the reference to mark. */
static PyObject *key_of(PyObject *x, PyObject *mark, PyObject *args, PyObject *options)
{
    Py_ssize_t count = mark ? PyDict_Size(options) : -1, at = 0, k = 3;
    PyObject *made = count < 0 ? NULL : PyTuple_New(3 + 2 * count), *name, *value;
    if (!made) {
        Py_XDECREF(mark);
        return NULL;
    }
    PyTuple_SetItem(made, 0, Py_NewRef((PyObject *)Py_TYPE(x)));
    PyTuple_SetItem(made, 1, mark);
    PyTuple_SetItem(made, 2, Py_NewRef(args));
    while (PyDict_Next(options, &at, &name, &value)) {
        PyTuple_SetItem(made, k++, Py_NewRef(name));
        PyTuple_SetItem(made, k++, Py_NewRef(value));
    }
    return made;
}

static PyObject *key_of_one(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "key_of_one(x, args, options)");
        return NULL;
    }
    return key_of(given[0], PyObject_GetAttr(given[0], shape_name), given[1], given[2]);
}

static PyObject *key_of_many(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || PyTuple_Size(given[0]) < 1) {
        PyErr_SetString(PyExc_TypeError, "key_of_many(arrays, options): arrays are a tuple");
        return NULL;
    }
    PyObject *shapes = shapes_of(given[0]);
    if (shapes == Py_None) return shapes;
    return key_of(PyTuple_GetItem(given[0], 0), shapes, Py_None, given[1]);
}
