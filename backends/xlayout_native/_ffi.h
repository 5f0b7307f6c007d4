/* _ffi: the copies as a call that XLA makes on its own buffers, without Python.
 *
 * The plan travels with the call, as numbers in its attributes, and is prepared anew each time: that takes a
 * microsecond, and a stored executable holds nothing from the process that it was made in. `moves` is a list of
 * int64: input, output, from, to, rank, then rank times (n, in stride, out stride), counted in elements; then
 * the next move. One more input than there are is a row of zeros, for what no input goes to.
 *
 * Unlike elsewhere, the sizes of the buffers are known, so every address is checked before a byte is written.
 */
#include "xla/ffi/api/c_api.h"

enum { OLDEST_MINOR = 3 };     /* of the API, with JAX 0.10; nothing here needs a newer one */
enum { HUGE_FROM = 4 << 20 }; /* bytes of a result from which huge pages pay */

static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *call, const char *message)
{
    XLA_FFI_Error_Create_Args args = {
        .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
        .message = message,
        .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT,
    };
    return call->api->XLA_FFI_Error_Create(&args);
}

/* The attribute of this name and type, or NULL. */
static void *attribute(const XLA_FFI_CallFrame *call, const char *name, XLA_FFI_AttrType type)
{
    const size_t length = strlen(name);
    for (int64_t k = 0; k < call->attrs.size; k++) {
        const XLA_FFI_ByteSpan *given = call->attrs.names[k];
        if (given->len == length && !memcmp(given->ptr, name, length))
            return call->attrs.types[k] == type ? call->attrs.attrs[k] : NULL;
    }
    return NULL;
}

/* Bytes of an element; 0 if that is not a whole number, or not known here. */
static int64_t width_of(const XLA_FFI_Buffer *buffer)
{
    switch (buffer->dtype) {
    case XLA_FFI_DataType_PRED:
    case XLA_FFI_DataType_S8:
    case XLA_FFI_DataType_U8:
    case XLA_FFI_DataType_F8E5M2:
    case XLA_FFI_DataType_F8E3M4:
    case XLA_FFI_DataType_F8E4M3:
    case XLA_FFI_DataType_F8E4M3FN:
    case XLA_FFI_DataType_F8E4M3B11FNUZ:
    case XLA_FFI_DataType_F8E5M2FNUZ:
    case XLA_FFI_DataType_F8E4M3FNUZ:
    case XLA_FFI_DataType_F8E8M0FNU: return 1;
    case XLA_FFI_DataType_S16:
    case XLA_FFI_DataType_U16:
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16: return 2;
    case XLA_FFI_DataType_S32:
    case XLA_FFI_DataType_U32:
    case XLA_FFI_DataType_F32: return 4;
    case XLA_FFI_DataType_S64:
    case XLA_FFI_DataType_U64:
    case XLA_FFI_DataType_F64:
    case XLA_FFI_DataType_C64: return 8;
    case XLA_FFI_DataType_C128: return 16;
    default: return 0;
    }
}

static const uint8_t zeros[4096 * 16]; /* ZEROS in strided.py, of the widest elements */

static int64_t elements(const XLA_FFI_Buffer *buffer)
{
    int64_t count = 1;
    for (int64_t k = 0; k < buffer->rank; k++) count *= buffer->dims[k];
    return count;
}

/* Whether every address that the loops reach from `at` is among `count` elements. */
static bool inside(int64_t at, int64_t count, const int64_t *loops, int64_t rank, int side)
{
    int64_t low = at, high = at;
    for (int64_t k = 0; k < rank; k++) {
        int64_t span;
        if (__builtin_mul_overflow(loops[3 * k] - 1, loops[3 * k + side], &span) ||
            __builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high))
            return false;
    }
    return low >= 0 && high < count;
}

/* Reads one move from the numbers at `at`. Returns how many it took, or 0 if they are invalid. */
static int64_t read_move(Plan *plan, const XLA_FFI_CallFrame *call, const int64_t *at, int64_t left)
{
    if (left < 5 || at[4] < 0 || at[4] > MAX_RANK - 1 || left < 5 + 3 * at[4]) return 0;
    if (at[0] < 0 || at[0] >= plan->inputs || at[1] < 0 || at[1] >= plan->outputs) return 0;
    const int64_t rank = at[4], *loops = at + 5, used = 5 + 3 * rank;
    const XLA_FFI_Buffer *target = call->rets.rets[at[1]];
    const XLA_FFI_Buffer *source = at[0] < call->args.size ? call->args.args[at[0]] : NULL;
    const int64_t itemsize = width_of(target);
    if (!itemsize || (source && width_of(source) != itemsize)) return 0;
    const int64_t readable = source ? elements(source) : (int64_t)sizeof zeros / itemsize;
    int64_t bytes = itemsize;
    for (int64_t k = 0; k < rank; k++) {
        if (loops[3 * k] < 1) return loops[3 * k] ? 0 : used; /* n is 0: nothing to copy */
        if (loops[3 * k] > 1 && !loops[3 * k + 2]) return 0;
    }
    if (!inside(at[2], readable, loops, rank, 1) ||
        !inside(at[3], elements(target), loops, rank, 2))
        return 0;
    Copy *c = &plan->copies[plan->count];
    *c = (Copy){.source = (int)at[0], .target = (int)at[1], .from = at[2] * itemsize,
                .to = at[3] * itemsize, .width = itemsize, .rank = (int)rank};
    for (int64_t k = 0; k < rank; k++) {
        const int64_t n = loops[3 * k];
        if (n > 1) c->loop[k] = (Loop){n, loops[3 * k + 1] * itemsize, loops[3 * k + 2] * itemsize};
        else c->loop[k] = (Loop){1, 0, 0}; /* its strides may be anything, as they lead nowhere */
        if (__builtin_mul_overflow(bytes, n, &bytes) || bytes / itemsize > elements(target)) return 0;
    }
    plan->bytes += bytes;
    plan->count++;
    return used;
}

/* As many threads as XLA itself would use, but no more than this module may. */
static int threads_of(const XLA_FFI_CallFrame *call)
{
    int64_t count = 1;
    XLA_FFI_ThreadPool_NumThreads_Args args = {
        .struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
        .ctx = call->ctx,
        .num_threads = &count,
    };
    XLA_FFI_Error *none = call->api->XLA_FFI_ThreadPool_NumThreads(&args);
    if (none) { /* XLA runs on one thread */
        XLA_FFI_Error_Destroy_Args gone = {
            .struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = none};
        call->api->XLA_FFI_Error_Destroy(&gone);
        return 1;
    }
    return (int)min(count, atomic_load(&default_threads));
}

static XLA_FFI_Error *copy_for_xla(XLA_FFI_CallFrame *call)
{
    /* Cast, because the type of `extension_start` differs between versions of the header. */
    const XLA_FFI_Metadata_Extension *asked = (const void *)call->extension_start;
    if (asked && asked->extension_base.type == XLA_FFI_Extension_Metadata) { /* at registration */
        XLA_FFI_Metadata *told = asked->metadata;
        told->api_version.major_version = XLA_FFI_API_MAJOR;
        told->api_version.minor_version = (int)min(XLA_FFI_API_MINOR, OLDEST_MINOR);
        told->traits = 0;
        return NULL;
    }
    if (call->stage != XLA_FFI_ExecutionStage_EXECUTE) return NULL;
    const XLA_FFI_Array *moves = attribute(call, "moves", XLA_FFI_AttrType_ARRAY);
    if (!moves || moves->dtype != XLA_FFI_DataType_S64)
        return refuse(call, "xlayout: wanted moves, an array of int64");
    const int64_t *numbers = moves->data, count = (int64_t)moves->size;
    const int64_t max_moves = count / 5, buffers = call->args.size + call->rets.size;
    const int threads = threads_of(call);
    Plan *plan = calloc(1, sizeof(Plan) + (size_t)max_moves * sizeof(Copy));
    uint8_t **pointers = malloc((size_t)(buffers + 1) * sizeof *pointers);
    XLA_FFI_Error *error = NULL;
    if (!plan || !pointers) {
        error = refuse(call, "xlayout: no memory for the plan");
        goto end;
    }
    plan->inputs = (int)call->args.size + 1, plan->outputs = (int)call->rets.size;
    for (int64_t at = 0, used; at < count; at += used)
        if (!(used = read_move(plan, call, numbers + at, count - at))) {
            error = refuse(call, "xlayout: moves that are malformed, or leave the buffers");
            goto end;
        }
    prepare_plan(plan);
    for (int64_t k = 0; k < call->args.size; k++)
        pointers[k] = ((XLA_FFI_Buffer *)call->args.args[k])->data;
    pointers[call->args.size] = (uint8_t *)zeros;
    for (int64_t k = 0; k < call->rets.size; k++) {
        const XLA_FFI_Buffer *result = call->rets.rets[k];
        pointers[plan->inputs + k] = result->data;
        const int64_t bytes = elements(result) * width_of(result);
        if (bytes >= HUGE_FROM) ask_huge_pages((uintptr_t)result->data, bytes);
    }
    run_plan(plan, pointers, threads);
end:
    free(pointers);
    free(plan);
    return error;
}

static PyObject *ffi_handler(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyCapsule_New((void *)copy_for_xla, NULL, NULL);
}
