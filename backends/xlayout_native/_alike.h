/* _alike: whether arrays are of one class and dtype, and their shapes; asked before every call.
 *
 * In Python the same loop takes as long as the copy of a kilobyte that it comes before. */

/* The shapes of a tuple of arrays; None where classes or dtypes differ, or one is no array. */
static PyObject *shapes(PyObject *module, PyObject *arrays)
{
    (void)module;
    static PyObject *dtype_name, *shape_name;
    if (!dtype_name) dtype_name = PyUnicode_InternFromString("dtype");
    if (!shape_name) shape_name = PyUnicode_InternFromString("shape");
    if (!dtype_name || !shape_name) return NULL;
    if (!PyTuple_Check(arrays)) {
        PyErr_SetString(PyExc_TypeError, "shapes: wanted a tuple of arrays");
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(arrays);
    PyObject *made = PyTuple_New(count), *first = NULL;
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
