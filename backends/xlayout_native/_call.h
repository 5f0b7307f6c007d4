/* _call: a prepared plan, run on what Python passes: addresses, or arrays that expose theirs. */

enum { RELEASE_FROM = 1 << 16 }; /* bytes from which the interpreter lock is released */

/* The plan, a call's first argument, provided that the call has as many buffers as the plan. */
static const Plan *plan_of(PyObject *const *args, Py_ssize_t count, const char *name, const char *buffers)
{
    const Plan *plan = count ? PyCapsule_GetPointer(args[0], CAPSULE) : NULL;
    if (!plan) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s: wanted a plan first", name);
        return NULL;
    }
    if (count - 2 == plan->inputs + plan->outputs) return plan;
    PyErr_Format(PyExc_TypeError, "%s: %zd arguments; wanted the plan, threads, %d + %d %s", name, count,
                 plan->inputs, plan->outputs, buffers);
    return NULL;
}

/* The number of threads that a call asks for, within the limits; 0 with an error. */
static int wanted_threads(PyObject *number)
{
    const long threads = PyLong_AsLong(number);
    if (threads == -1 && PyErr_Occurred()) return 0;
    return threads < 1 ? atomic_load(&default_threads) : (int)min(threads, MAX_THREADS);
}

static void run_between(const Plan *plan, uint8_t **pointers, int threads)
{
    if (plan->bytes < min(RELEASE_FROM, atomic_load(&threads_from))) {
        run_plan(plan, pointers, 1);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    run_plan(plan, pointers, threads);
    Py_END_ALLOW_THREADS
}

enum { FEW = 16 }; /* buffers of a call whose addresses fit on the stack */

static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    uint8_t *few[FEW], **pointers = few;
    const Plan *plan = plan_of(args, count, "run", "addresses");
    const int threads = plan ? wanted_threads(args[1]) : 0;
    if (!threads) return NULL;
    if (count - 2 > FEW && !(pointers = malloc((size_t)(count - 2) * sizeof *pointers)))
        return PyErr_NoMemory();
    for (Py_ssize_t k = 2; k < count; k++) pointers[k - 2] = PyLong_AsVoidPtr(args[k]);
    if (!PyErr_Occurred()) run_between(plan, pointers, threads);
    if (pointers != few) free(pointers);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* Whether the last of some buffers overlaps an earlier one. */
static bool overlaps_earlier(const Py_buffer *views, Py_ssize_t last)
{
    const uint8_t *start = views[last].buf, *end = start + views[last].len;
    for (Py_ssize_t k = 0; k < last; k++) {
        const uint8_t *other = views[k].buf;
        if (other < end && start < other + views[k].len) return true;
    }
    return false;
}

static PyObject *run_arrays(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer few[FEW], *views = few;
    uint8_t *few_pointers[FEW], **pointers = few_pointers;
    const Plan *plan = plan_of(args, count, "run_arrays", "arrays");
    const int threads = plan ? wanted_threads(args[1]) : 0;
    if (!threads) return NULL;
    const Py_ssize_t arrays = count - 2;
    if (arrays > FEW) {
        views = malloc((size_t)arrays * sizeof *views);
        pointers = malloc((size_t)arrays * sizeof *pointers);
        if (!views || !pointers) PyErr_NoMemory();
    }
    Py_ssize_t held = 0;
    bool fits = !PyErr_Occurred();
    while (fits && held < arrays) {
        const bool written = held >= plan->inputs;
        if (PyObject_GetBuffer(args[held + 2], views + held, PyBUF_STRIDES)) break;
        pointers[held] = views[held].buf;
        fits = PyBuffer_IsContiguous(views + held, 'C') &&
               !(written && (views[held].readonly || overlaps_earlier(views, held)));
        held++;
    }
    fits = fits && held == arrays;
    if (fits) run_between(plan, pointers, threads);
    while (held--) PyBuffer_Release(views + held);
    if (views != few) free(views);
    if (pointers != few_pointers) free(pointers);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(fits);
}

static PyObject *run_inside(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule, *number, *where;
    if (!PyArg_ParseTuple(args, "OOO:run_in_place", &capsule, &number, &where)) return NULL;
    const Plan *plan = PyCapsule_GetPointer(capsule, CAPSULE);
    const int threads = plan ? wanted_threads(number) : 0;
    if (!threads) return NULL;
    uint8_t *address = PyLong_AsVoidPtr(where);
    if (PyErr_Occurred()) return NULL;
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = run_in_place(plan, address, threads);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}

static PyObject *address(PyObject *module, PyObject *array)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES)) return NULL;
    PyObject *found = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return found;
}
