/* _prepare: a plan, read from Python's description of its copies. Every number in it is checked here. */

#define CAPSULE "xlayout_native.plan"

static void drop(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, CAPSULE)); }

/* Strides and addresses stay below 2^61 in total, so that no sum or product of them can overflow. */
static const int64_t FAR = (int64_t)1 << 61;

static bool extend_reach(int64_t *reach, int64_t n, int64_t stride)
{
    int64_t span;
    return !__builtin_mul_overflow(n, magnitude(stride), &span) &&
           !__builtin_add_overflow(*reach, span, reach) && *reach < FAR;
}

static bool read_number(PyObject *number, int64_t scale, int64_t *to)
{
    const long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) return false;
    if (__builtin_mul_overflow(value, scale, to) || *to <= -FAR || *to >= FAR) {
        PyErr_Format(PyExc_OverflowError, "copies: %R elements; wanted less than 2**61 bytes", number);
        return false;
    }
    return true;
}

static bool is_tuple(PyObject *given, const char *what)
{
    if (!PyTuple_Check(given)) PyErr_Format(PyExc_TypeError, "%s: %R; wanted a tuple", what, given);
    return PyTuple_Check(given);
}

/* Reads the loops ((n, in stride, out stride), ...), in elements. Sets `empty` if some n is 0. */
static bool read_loops(Copy *c, PyObject *loops, int64_t itemsize, bool *empty)
{
    const Py_ssize_t rank = PyTuple_Size(loops);
    if (rank < 0) return false;
    if (rank > MAX_RANK - 1) {
        PyErr_Format(PyExc_ValueError, "loops: %zd of them; wanted at most %d", rank, MAX_RANK - 1);
        return false;
    }
    int64_t in = magnitude(c->from), out = magnitude(c->to), bytes = itemsize;
    for (Py_ssize_t k = 0; k < rank; k++) {
        PyObject *n, *x, *z, *triple = PyTuple_GetItem(loops, k);
        Loop *loop = &c->loop[k];
        if (!is_tuple(triple, "loop")) return false;
        if (!PyArg_ParseTuple(triple, "OOO;a loop is (n, in stride, out stride)", &n, &x, &z) ||
            !read_number(n, 1, &loop->n) || !read_number(x, itemsize, &loop->in) ||
            !read_number(z, itemsize, &loop->out))
            return false;
        if (loop->n < 0 || (loop->n > 1 && !loop->out)) {
            PyErr_Format(PyExc_ValueError, "loops: %R; wanted n >= 0 and an out stride other than 0",
                         triple);
            return false;
        }
        *empty = *empty || !loop->n;
        if (!extend_reach(&in, loop->n, loop->in) || !extend_reach(&out, loop->n, loop->out) ||
            __builtin_mul_overflow(bytes, loop->n ? loop->n : 1, &bytes) || bytes >= FAR) {
            PyErr_Format(PyExc_OverflowError, "loops: %R; wanted less than 2**61 bytes", loops);
            return false;
        }
    }
    c->rank = (int)rank;
    return true;
}

static bool read_copy(Plan *plan, PyObject *move, int64_t itemsize)
{
    Copy *c = &plan->copies[plan->count];
    PyObject *place, *from, *to, *loops;
    bool empty = false;
    if (!is_tuple(move, "move")) return false;
    if (!PyArg_ParseTuple(move, "iiO!;a move is (input, output, (from, to, loops))", &c->source, &c->target,
                          &PyTuple_Type, &place) ||
        !PyArg_ParseTuple(place, "OOO!;a copy is (from, to, loops)", &from, &to, &PyTuple_Type, &loops))
        return false;
    if (c->source < 0 || c->source >= plan->inputs || c->target < 0 || c->target >= plan->outputs) {
        PyErr_Format(PyExc_ValueError, "moves: from input %d to output %d; there are %d and %d",
                     c->source, c->target, plan->inputs, plan->outputs);
        return false;
    }
    c->width = itemsize;
    if (!read_number(from, itemsize, &c->from) || !read_number(to, itemsize, &c->to) ||
        !read_loops(c, loops, itemsize, &empty))
        return false;
    if (empty) return true;
    plan->bytes += bytes_of(c);
    if (plan->bytes >= FAR) {
        PyErr_SetString(PyExc_OverflowError, "moves: wanted less than 2**61 bytes in all");
        return false;
    }
    plan->count++;
    return true;
}

/* Prepares the copies of a plan once all are read, since their total size says whether results stay in the
 * caches. */
static void prepare_plan(Plan *plan)
{
    const bool cached = plan->bytes < atomic_load(&stream_from);
    for (int k = 0; k < plan->count; k++) {
        plan->copies[k].cached = cached;
        prepare_copy(&plan->copies[k], false);
    }
    finish_plan(plan);
}

static PyObject *prepare(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *moves;
    long long itemsize;
    int inputs, outputs;
    if (!PyArg_ParseTuple(args, "OLii:prepare", &moves, &itemsize, &inputs, &outputs)) return NULL;
    if (itemsize < 1 || itemsize > 1 << 20)
        return PyErr_Format(PyExc_ValueError, "itemsize: %lld; wanted 1 to 2**20", itemsize);
    if (inputs < 0 || outputs < 0 || inputs > 1 << 20 || outputs > 1 << 20)
        return PyErr_Format(PyExc_ValueError, "inputs, outputs: %d, %d; wanted 0 to 2**20", inputs,
                            outputs);
    PyObject *listed = PySequence_Tuple(moves);
    if (!listed) return NULL;
    const Py_ssize_t count = PyTuple_Size(listed);
    Plan *plan = calloc(1, sizeof(Plan) + (size_t)count * sizeof(Copy));
    PyObject *capsule = NULL;
    if (!plan) {
        PyErr_NoMemory();
        goto end;
    }
    plan->inputs = inputs, plan->outputs = outputs;
    for (Py_ssize_t k = 0; k < count; k++)
        if (!read_copy(plan, PyTuple_GetItem(listed, k), itemsize)) goto end;
    prepare_plan(plan);
    capsule = PyCapsule_New(plan, CAPSULE, drop);
end:
    if (!capsule) free(plan);
    Py_DECREF(listed);
    return capsule;
}
