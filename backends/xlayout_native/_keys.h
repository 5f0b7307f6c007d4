/* _keys: a cache of functions, looked up by the type, shape and options of a call.
 *
 * In Python, the lookup takes as long as the copy of a kilobyte that follows it. keys.py does it that way where
 * there is no compiler.
 *
 * A key is (type, shape, args, name, value, name, value, ...). Several arrays must agree in type and dtype; the
 * second item is then the tuple of their shapes. "By place", the type of the sharding stands in for the shape,
 * and dtypes may differ: the function that is found tells them apart itself, as it does shapes. Equal numbers
 * may mean different things (2.0 is not a valid block, -0.0 is another fill than 0), so floats, complex numbers
 * and bools are in the key with their type; with any other object among its options, a call has no key. The key
 * says whether `out` is given, not which array it is: the function is told that.
 *
 * By place, most of a program's calls of an op share one key. So the entry kept last is compared item by item
 * before a key is made and looked up: that takes half as long.
 */

static PyObject *dtype_name, *shape_name, *sharding_name, *out_name;

static int name_attributes(void)
{
    if (!dtype_name) dtype_name = PyUnicode_InternFromString("dtype");
    if (!shape_name) shape_name = PyUnicode_InternFromString("shape");
    if (!sharding_name) sharding_name = PyUnicode_InternFromString("sharding");
    if (!out_name) out_name = PyUnicode_InternFromString("out");
    return dtype_name && shape_name && sharding_name && out_name ? 0 : -1;
}

/* Whether anything equal to this value also means the same; tuples are examined to this depth. */
static int is_plain_within(PyObject *value, int depth)
{
    if (value == Py_None || PyLong_CheckExact(value) || PyUnicode_CheckExact(value)) return 1;
    if (!PyTuple_CheckExact(value) || !depth) return 0;
    for (Py_ssize_t k = PyTuple_Size(value); k--;)
        if (!is_plain_within(PyTuple_GetItem(value, k), depth - 1)) return 0;
    return 1;
}

static int is_plain(PyObject *value) { return is_plain_within(value, 16); }

/* An option's value as it stands in a key; NULL without an error if it has no place in one. (The names of
 * keyword arguments are interned.) */
static PyObject *part_of(PyObject *name, PyObject *value)
{
    if (name == out_name && value != Py_None) return Py_NewRef(Py_True);
    if (is_plain(value)) return Py_NewRef(value);
    if (!PyFloat_CheckExact(value) && !PyComplex_CheckExact(value) && !PyBool_Check(value)) return NULL;
    PyObject *text = PyObject_Repr(value);
    PyObject *part = text ? PyTuple_Pack(2, (PyObject *)Py_TYPE(value), text) : NULL;
    Py_XDECREF(text);
    return part;
}

/* The second item of a key for one array. */
static PyObject *mark_of(PyObject *x, int place)
{
    PyObject *found = PyObject_GetAttr(x, place ? sharding_name : shape_name);
    if (!place || !found) return found;
    PyObject *cls = Py_NewRef((PyObject *)Py_TYPE(found));
    Py_DECREF(found);
    return cls;
}

/* Whether all arrays of a tuple have the same type. */
static int of_one_type(PyObject *arrays)
{
    for (Py_ssize_t k = PyTuple_Size(arrays); k-- > 1;)
        if (Py_TYPE(PyTuple_GetItem(arrays, k)) != Py_TYPE(PyTuple_GetItem(arrays, 0))) return 0;
    return 1;
}

/* Whether all arrays of a tuple have the same dtype; 0 with an error if one has none. */
static int of_one_dtype(PyObject *arrays)
{
    PyObject *first = NULL;
    int same = 1;
    for (Py_ssize_t k = 0; k < PyTuple_Size(arrays) && same; k++) {
        PyObject *dtype = PyObject_GetAttr(PyTuple_GetItem(arrays, k), dtype_name);
        same = dtype && (!k || PyObject_RichCompareBool(dtype, first, Py_EQ) == 1);
        if (k)
            Py_XDECREF(dtype);
        else
            first = dtype;
    }
    Py_XDECREF(first);
    return same;
}

/* The second item for a tuple of arrays; NULL, perhaps without an error, if they have none. */
static PyObject *marks_of(PyObject *arrays, int place)
{
    Py_ssize_t count = PyTuple_Size(arrays);
    if (!count || !of_one_type(arrays) || (!place && !of_one_dtype(arrays))) return NULL;
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t k = 0; made && k < count; k++) {
        PyObject *mark = mark_of(PyTuple_GetItem(arrays, k), place);
        if (mark)
            PyTuple_SetItem(made, k, mark); /* takes the reference */
        else
            Py_CLEAR(made);
    }
    return made;
}

/* The key of a call, with a tuple of arrays if `args` is None; NULL, perhaps without an error, if it has none. */
static PyObject *key_of(PyObject *x, PyObject *args, PyObject *options, int place)
{
    int several = args == Py_None;
    if (!PyDict_Check(options) || (several && !PyTuple_CheckExact(x)) || !is_plain(args)) return NULL;
    PyObject *mark = several ? marks_of(x, place) : mark_of(x, place), *name, *value;
    if (!mark) return NULL;
    Py_ssize_t at = 0, k = 3;
    PyObject *made = PyTuple_New(3 + 2 * PyDict_Size(options));
    if (!made) {
        Py_DECREF(mark);
        return NULL;
    }
    PyTuple_SetItem(made, 0, Py_NewRef((PyObject *)Py_TYPE(several ? PyTuple_GetItem(x, 0) : x)));
    PyTuple_SetItem(made, 1, mark);
    PyTuple_SetItem(made, 2, Py_NewRef(args));
    while (PyDict_Next(options, &at, &name, &value)) {
        PyObject *part = part_of(name, value);
        if (!part) {
            Py_DECREF(made);
            return NULL;
        }
        PyTuple_SetItem(made, k++, Py_NewRef(name));
        PyTuple_SetItem(made, k++, part);
    }
    return made;
}

/* The key of the last entry kept by place; its value is (run, whether the place matters, key). */
#define LATEST Py_None

static int has_place(PyObject *x, PyObject *place)
{
    PyObject *mark = mark_of(x, 1);
    Py_XDECREF(mark); /* safe to compare: the array's class outlives this, and keeps that type alive */
    return mark == place;
}

/* Whether arguments and options are the very objects in a key. */
static int same_objects(PyObject *key, PyObject *args, PyObject *options)
{
    PyObject *before = PyTuple_GetItem(key, 2), *name, *value; /* all borrowed */
    Py_ssize_t at = 0, k = 3;
    if (!PyDict_Check(options) || PyTuple_Size(key) != k + 2 * PyDict_Size(options)) return 0;
    if (before != args) { /* () is always the same object, other tuples are not */
        if (before == Py_None || !PyTuple_CheckExact(args)) return 0;
        Py_ssize_t count = PyTuple_Size(args);
        if (PyTuple_Size(before) != count) return 0;
        while (count--)
            if (PyTuple_GetItem(before, count) != PyTuple_GetItem(args, count)) return 0;
    }
    for (; PyDict_Next(options, &at, &name, &value); k += 2)
        if (PyTuple_GetItem(key, k) != name || PyTuple_GetItem(key, k + 1) != value) return 0;
    return 1;
}

/* Whether a call is like the one that a key was made from; with `check_place`, also in where arrays lie. */
static int matches(PyObject *key, int check_place, PyObject *x, PyObject *args, PyObject *options)
{
    if (!same_objects(key, args, options)) return 0;
    int several = args == Py_None;
    PyObject *cls = PyTuple_GetItem(key, 0), *places = PyTuple_GetItem(key, 1);
    if (several && (!PyTuple_CheckExact(x) || PyTuple_Size(x) != PyTuple_Size(places))) return 0;
    for (Py_ssize_t k = several ? PyTuple_Size(x) : 1; k--;) {
        PyObject *one = several ? PyTuple_GetItem(x, k) : x;
        PyObject *place = several ? PyTuple_GetItem(places, k) : places;
        if ((PyObject *)Py_TYPE(one) != cls || (check_place && !has_place(one, place))) return 0;
    }
    return 1;
}

/* The function kept last by place, if this call is like its own. Asking an array for its sharding runs Python,
 * during which another thread may replace the entry: hence the reference to it. */
static PyObject *latest_run(PyObject *runs, PyObject *x, PyObject *args, PyObject *options)
{
    PyObject *latest = PyDict_GetItemWithError(runs, LATEST);
    if (!latest) return NULL;
    Py_INCREF(latest);
    const int check_place = PyTuple_GetItem(latest, 1) == Py_True;
    PyObject *run = matches(PyTuple_GetItem(latest, 2), check_place, x, args, options)
                        ? PyTuple_GetItem(latest, 0) : NULL;
    Py_XINCREF(run);
    Py_DECREF(latest);
    return run;
}

static int keep_latest(PyObject *runs, PyObject *key, PyObject *run, int check_place)
{
    PyObject *latest = PyTuple_Pack(3, run, check_place ? Py_True : Py_False, key);
    int kept = latest ? PyDict_SetItem(runs, LATEST, latest) : -1;
    Py_XDECREF(latest);
    return kept;
}

/* None, if the error only says that such a call has no key: something is no array, a size cannot be hashed, or a
 * nested tensor has many shapes. */
static PyObject *none_without_key(void)
{
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_TypeError) &&
            !PyErr_ExceptionMatches(PyExc_RuntimeError))
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

/* Takes runs, x or a tuple of arrays, args or None, and options. Returns what was kept for such a call, or None. */
static PyObject *find(PyObject *const *given, Py_ssize_t count, int place)
{
    if (count != 4 || !PyDict_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "find(runs, x, args, options)");
        return NULL;
    }
    PyObject *key = key_of(given[1], given[2], given[3], place);
    PyObject *found = key ? PyDict_GetItemWithError(given[0], key) : NULL; /* borrowed */
    Py_XINCREF(found);
    Py_XDECREF(key);
    return found ? found : none_without_key();
}

/* Takes the same and a function, which such a call finds from now on, if it has a key. */
static PyObject *keep(PyObject *const *given, Py_ssize_t count, int place)
{
    if (count != 5 + place || !PyDict_Check(given[0])) {
        PyErr_Format(PyExc_TypeError, "keep(runs, x, args, options, run%s)", place ? ", anywhere" : "");
        return NULL;
    }
    PyObject *key = key_of(given[1], given[2], given[3], place);
    int kept = key ? PyDict_SetItem(given[0], key, given[4]) : -1;
    if (!kept && place) kept = keep_latest(given[0], key, given[4], given[5] != Py_True);
    Py_XDECREF(key);
    if (!kept) Py_RETURN_NONE;
    return none_without_key();
}

static PyObject *find_by_shape(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    return find(given, count, 0);
}

static PyObject *find_by_place(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    PyObject *run = count == 4 && PyDict_Check(given[0]) ? latest_run(given[0], given[1], given[2], given[3]) : NULL;
    if (run) return run;
    return PyErr_Occurred() ? none_without_key() : find(given, count, 1);
}

static PyObject *keep_by_shape(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    return keep(given, count, 0);
}

static PyObject *keep_by_place(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    return keep(given, count, 1);
}
