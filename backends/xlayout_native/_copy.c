/* _copy: strided copies between buffers, at the speed of memcpy.
 *
 * A plan is a list of strided copies, brought into normal form once and cut into tiles. Running it hands the
 * tiles out to a few threads. A tile is a box of a copy's loops, shaped so that it reads and writes whole cache
 * lines and fits in a cache. It is copied by one of these:
 *
 *     runs        contiguous on both sides: memcpy, or streaming stores
 *     blocks      short runs of `width` bytes, from anywhere to anywhere
 *     zip, unzip  2, 4 or 8 rows interleaved into one, or one row dealt out to as many
 *     transpose   rows become columns, in vector registers
 *
 * The files, from the bottom up:
 *
 *     _plain.h    boxes, and a kernel in plain C for each kind
 *     _normal.h   copies, their normal form and kinds
 *     _compound.h transposes whose rows or columns are made of several loops
 *     _transpose.h  tiles of transposes
 *     _plan.h     the tiles of all copies
 *     _stage.h    tiles that are assembled before they are written
 *     _windows.h  the order of the tiles
 *     _tables.h   shuffles by table
 *     _lanes.h    the vector kernels, included once per vector size,
 *     _short.h      of blocks of a line at most
 *     _blocks.h     of longer ones
 *     _weave.h      of zips and unzips
 *     _store.h      of what squares write
 *     _turn.h       of transposes
 *     _narrow.h     of transposes with rows of a few elements
 *     _dense.h    of results that are written in order, each vector spliced from two
 *     _join.h     of elements of a few rows, or sources, that alternate in one result,
 *     _split.h      and the inverse
 *     _pairs.h    of pairs in short rows
 *     _neon.h     the instructions that they use, on ARM
 *     _isa.h      the kernels of each instruction set, and the choice between them
 *     _squares.h  a tile of a transpose, square by square
 *     _tiles.h    any tile, run by one thread
 *     _pieces.h   a tile of a compound transpose, from pieces of its rows,
 *     _places.h     by squares,
 *     _gather.h     or from rows that are first gathered
 *     _alternate.h  elements that alternate between several results or sources
 *     _deal.h     rows dealt out to several results, or joined from several sources
 *     _pool.h     the other threads
 *     _pages.h    memory for large results
 *     _touch.h    which thread touches it, and when
 *     _shift.h    transposes cut so that most of each begins on a line
 *     _run.h      a plan, run by several threads
 *     _place.h    permutations of one buffer in its own memory
 *     _prepare.h  a plan, read from Python
 *     _call.h     a plan, run on what Python passes
 *     _ffi.h      the same as a call of XLA's
 *     _keys.h     a cache of functions, by the arguments of a call
 *
 * The terms they use:
 *
 *     line        a cache line, 64 bytes; an address is "on a line" if it is a multiple of that
 *     stream      to write past the caches, by non-temporal stores, which do not read the line first
 *     cached      of results: small enough to stay in the caches, and so written through them
 *     splice      to make a line of two vectors, where results do not begin on one
 *     carry       the vector that is kept for the next line to be spliced
 *     dense       of results: written strictly in the order in which they lie
 *     seam        the line that holds the end of one block and the start of the next
 *     stage       a thread's own memory, where a tile is assembled before it is streamed
 *     pack        to copy a square before it is transposed, row after row or half transposed
 *     turn        to transpose a square in vector registers
 *     touch       to write to a page first, so that the system provides it (pre-fault)
 *
 * Nothing but _ffi.h checks that addresses lie inside the buffers: that is up to the caller, as a plan knows no
 * lengths.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

#include "_plain.h"
#include "_normal.h"
#include "_compound.h"
#include "_transpose.h"
#include "_plan.h"
#include "_stage.h"
#include "_windows.h"
#include "_isa.h"
#include "_squares.h"
#include "_tiles.h"
#include "_pieces.h"
#include "_places.h"
#include "_gather.h"
#include "_alternate.h"
#include "_deal.h"
#include "_pool.h"
#include "_pages.h"
#include "_touch.h"
#include "_shift.h"
#include "_run.h"
#include "_place.h"
#include "_prepare.h"
#include "_call.h"

static PyObject *huge_pages(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *where;
    long long bytes;
    if (!PyArg_ParseTuple(args, "OL:huge_pages", &where, &bytes)) return NULL;
    const void *address = PyLong_AsVoidPtr(where);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(ask_huge_pages((uintptr_t)address, bytes));
}

static PyObject *set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    const long threads = PyLong_AsLong(number);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    if (threads < 1)
        return PyErr_Format(PyExc_ValueError, "threads: %ld; wanted at least 1", threads);
    atomic_store(&default_threads, (int)min(threads, MAX_THREADS));
    Py_RETURN_NONE;
}

static PyObject *get_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(atomic_load(&default_threads));
}

static PyObject *share_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(share_openmp());
}

static PyObject *threads_awake(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(awake_threads() != NULL);
}

static PyObject *set_thresholds(PyObject *module, PyObject *args)
{
    (void)module;
    long long stream, threads;
    if (!PyArg_ParseTuple(args, "LL:set_thresholds", &stream, &threads)) return NULL;
    atomic_store(&stream_from, stream);
    atomic_store(&threads_from, threads);
    Py_RETURN_NONE;
}

static PyObject *set_intel(PyObject *module, PyObject *whether)
{
    (void)module;
    const int yes = PyObject_IsTrue(whether);
    if (yes < 0) return NULL;
    intel = yes;
    Py_RETURN_NONE;
}

static PyObject *get_intel(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(intel);
}

static PyObject *set_isa(PyObject *module, PyObject *name)
{
    (void)module;
    for (size_t k = 0; PyUnicode_Check(name) && k < sizeof ISAS / sizeof *ISAS; k++)
        if (PyUnicode_CompareWithASCIIString(name, ISAS[k]->name) == 0 && supports(ISAS[k])) {
            atomic_store(&chosen, ISAS[k]);
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_ValueError, "isa: %R; this machine has no such kernel", name);
}

static PyObject *get_isas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *names = PyList_New(0);
    for (size_t k = 0; names && k < sizeof ISAS / sizeof *ISAS; k++) {
        if (!supports(ISAS[k])) continue;
        PyObject *name = PyUnicode_FromString(ISAS[k]->name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *get_isa(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(atomic_load(&chosen)->name);
}

#ifdef XLAYOUT_FFI
#include "_ffi.h"
#else
static PyObject *ffi_handler(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_RETURN_NONE;
}
#endif

#include "_keys.h"

static PyMethodDef METHODS[] = {
    {"prepare", prepare, METH_VARARGS, "prepare(moves, itemsize, inputs, outputs): a plan."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "run(plan, threads, *addresses)."},
    {"run_arrays", (PyCFunction)(void (*)(void))run_arrays, METH_FASTCALL,
     "run_arrays(plan, threads, *arrays): whether it could."},
    {"run_in_place", run_inside, METH_VARARGS, "run_in_place(plan, threads, address): whether it could."},
    {"address", address, METH_O, "address(array): where its first element is."},
    {"huge_pages", huge_pages, METH_VARARGS, "huge_pages(address, bytes): whether granted."},
    {"find_by_shape", (PyCFunction)(void (*)(void))find_by_shape, METH_FASTCALL,
     "find_by_shape(runs, x, args, options)."},
    {"find_by_place", (PyCFunction)(void (*)(void))find_by_place, METH_FASTCALL,
     "find_by_place(runs, x, args, options)."},
    {"keep_by_shape", (PyCFunction)(void (*)(void))keep_by_shape, METH_FASTCALL,
     "keep_by_shape(runs, x, args, options, run)."},
    {"keep_by_place", (PyCFunction)(void (*)(void))keep_by_place, METH_FASTCALL,
     "keep_by_place(runs, x, args, options, run, anywhere)."},
    {"set_threads", set_threads, METH_O, "set_threads(n): what threads=0 means."},
    {"get_threads", get_threads, METH_NOARGS, "What threads=0 means."},
    {"share_threads", share_threads, METH_NOARGS, "Work with OpenMP's threads from now on; whether it is there."},
    {"threads_awake", threads_awake, METH_NOARGS, "Whether this thread works with OpenMP's."},
    {"set_thresholds", set_thresholds, METH_VARARGS, "set_thresholds(stream_from, threads_from)."},
    {"set_intel", set_intel, METH_O, "set_intel(whether): whether to copy as is best on Intel's processors."},
    {"get_intel", get_intel, METH_NOARGS, "Whether it copies as is best on Intel's processors."},
    {"set_isa", set_isa, METH_O, "set_isa(name): which kernels run."},
    {"get_isa", get_isa, METH_NOARGS, "Which kernels run."},
    {"get_isas", get_isas, METH_NOARGS, "The kernels this machine can run, widest first."},
    {"ffi_handler", ffi_handler, METH_NOARGS, "The copies as a call of XLA's: a capsule, or None."},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module)
{
    (void)module;
    static bool started;
    if (started) return 0;
    if (name_attributes()) return -1;
    if (pthread_key_create(&own, free) || pthread_atfork(NULL, NULL, forget_threads)) {
        PyErr_SetString(PyExc_ImportError, "xlayout_native: no thread storage left");
        return -1;
    }
    started = true;
    atomic_store(&default_threads, initial_threads());
    intel = is_intel();
    for (size_t k = 0; k < sizeof ISAS / sizeof *ISAS; k++)
        if (supports(ISAS[k])) {
            atomic_store(&chosen, ISAS[k]);
            break;
        }
    return 0;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)start}, {0, NULL}};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "_copy", .m_doc = "Strided copies between buffers.",
    .m_methods = METHODS, .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit__copy(void) { return PyModuleDef_Init(&MODULE); }
