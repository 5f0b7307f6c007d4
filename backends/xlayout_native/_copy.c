/* _copy: strided copies between buffers, at the speed of memcpy.
 *
 * A plan is a list of strided copies, brought into normal form once and cut into tiles. Running it
 * deals the tiles out to a few threads. A tile is a box of the loops, shaped so that it reads whole
 * cache lines, writes whole lines, and fits the second-level cache. Inside, one of these runs:
 *
 *     run         contiguous on both sides: memcpy, or streaming stores
 *     blocks      short runs of `width` bytes, from anywhere to anywhere
 *     zip, unzip  2, 4 or 8 rows woven into one, or one dealt out to as many
 *     transpose   rows become columns, in vector registers
 *
 * A result too large for the caches is put together in a small buffer of the thread, the stage, and
 * written from there with streaming stores: they do not read the lines that they overwrite.
 *
 * The kernels with vectors are in _lanes.h, compiled once per vector size and chosen at run time.
 * Whether addresses lie inside the buffers is the caller's affair: this file never sees a length.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/mman.h>
#endif

/* -- 1. numbers that were measured ------------------------------------------------------------ */

enum {
    MAX_RANK = 16,             /* loops of one copy, after fusing; layouts in use have 2 to 5 */
    MAX_THREADS = 64,
    LINE = 64,                 /* bytes of a cache line */
    CROWDED = 1024,            /* strides a multiple of this meet in few sets of caches and banks */
    RUN = 4096,                /* from here on a contiguous run is cut by bytes, not by loops */
    ROW = 1024,                /* bytes of an output row of a transpose's tile: sixteen lines */
    TILE = 1 << 18,            /* bytes of a transpose's tile: stays in the second-level cache */
    SMALL_TILE = 1 << 14,      /* of one that is staged, and read in order: stays in the first */
    RELEASE_FROM = 1 << 16,    /* bytes from which the interpreter lock is let go */
};
static atomic_llong stream_from = 8 << 20;  /* bytes of a result that streaming stores serve better */
static atomic_llong threads_from = 1 << 20; /* bytes from which a second thread pays for its waking */

/* -- 2. what a kernel is told ----------------------------------------------------------------- */

/* A box: `batch` x `rows` x `columns` elements of `width` bytes. The output is contiguous along
 * the rows, if along anything; the input along the columns, if along anything. */
typedef struct {
    int64_t width, batch, rows, columns;
    int64_t batch_in, row_in, column_in;
    int64_t batch_out, row_out, column_out;
} Box;

typedef void (*Kernel)(const Box *, const uint8_t *from, uint8_t *to);

typedef enum { RUNS, BLOCKS, ZIP, UNZIP, TRANSPOSE, KINDS } Kind;

typedef struct {
    const char *name;
    Kernel kernels[KINDS];
    Kernel streaming[KINDS];                                         /* to whole lines; or NULL */
    void (*stream)(uint8_t *to, const uint8_t *from, int64_t count); /* or NULL */
    void (*fence)(void);                                             /* streamed bytes are there */
} Isa;

/* -- 3. plain C: right for every box, and all there is where the others do not apply ----------- */

typedef uint16_t __attribute__((aligned(1), may_alias)) u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) u32;
typedef uint64_t __attribute__((aligned(1), may_alias)) u64;
typedef struct { uint8_t bytes[16]; } u128;
typedef struct { uint8_t bytes[32]; } u256;
typedef struct { uint8_t bytes[64]; } u512;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Any number of bytes below 64, by two moves that may overlap: cheaper than a call. */
static inline void move_short(uint8_t *to, const uint8_t *from, int64_t count)
{
#define TWICE(T) do { T first, last; memcpy(&first, from, sizeof(T));                              \
        memcpy(&last, from + count - sizeof(T), sizeof(T)); memcpy(to, &first, sizeof(T));         \
        memcpy(to + count - sizeof(T), &last, sizeof(T)); } while (0)
    if (count >= 32) TWICE(u256);
    else if (count >= 16) TWICE(u128);
    else if (count >= 8) TWICE(u64);
    else if (count >= 4) TWICE(u32);
    else if (count >= 2) TWICE(u16);
    else if (count) *to = *from;
#undef TWICE
}

static inline void move(uint8_t *to, const uint8_t *from, int64_t count)
{
    for (; count >= LINE; count -= LINE, to += LINE, from += LINE) memcpy(to, from, LINE);
    move_short(to, from, count);
}

static void plain_blocks(const Box *b, const uint8_t *from, uint8_t *to)
{
#define EACH(STATEMENT)                                                                            \
    for (int64_t k = 0; k < b->batch; k++)                                                         \
        for (int64_t r = 0; r < b->rows; r++) {                                                    \
            const uint8_t *s = from + k * b->batch_in + r * b->row_in;                             \
            uint8_t *d = to + k * b->batch_out + r * b->row_out;                                   \
            for (int64_t c = 0; c < b->columns; c++, s += b->column_in, d += b->column_out)        \
                STATEMENT;                                                                         \
        }
#define MOVE(T) EACH(*(T *)d = *(const T *)s) break
    switch (b->width) {
    case 1: MOVE(uint8_t);
    case 2: MOVE(u16);
    case 4: MOVE(u32);
    case 8: MOVE(u64);
    case 16: MOVE(u128);
    case 32: MOVE(u256);
    case 64: MOVE(u512);
    default: EACH(move(d, s, b->width))
    }
#undef MOVE
#undef EACH
}

static void plain_runs(const Box *b, const uint8_t *from, uint8_t *to)
{
    for (int64_t k = 0; k < b->batch; k++)
        memcpy(to + k * b->batch_out, from + k * b->batch_in, (size_t)b->rows);
}

static void no_fence(void) {}

static const Isa PLAIN = {
    "plain", {plain_runs, plain_blocks, plain_blocks, plain_blocks, plain_blocks}, {NULL}, NULL,
    no_fence,
};

/* -- 4. vectors -------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_VECTORS
#include <cpuid.h>
#include <immintrin.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

/* Fetch what lies `by` bytes further on, into the first (3) or the second (2) cache. It may lie past
 * the end of the buffer: a fetch never faults, and numbers are not bound to arrays as pointers are. */
#define AHEAD(p, by, level)                                                                        \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(by)), 0, level)

#define TARGET __attribute__((target("avx2")))
#define LANES 1
#define NARROWER(name) plain_blocks
#include "_lanes.h"
#define LANES 2
#define NARROWER(name) JOIN(name, _1)
#include "_lanes.h"
#undef TARGET
#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES 4
#define NARROWER(name) JOIN(name, _2)
#include "_lanes.h"
#undef TARGET

static void fence(void) { _mm_sfence(); }

static const Isa AVX2 = {
    "avx2", {plain_runs, plain_blocks, zip_2, unzip_2, transpose_2},
    {stream_runs_2, stream_blocks_2, stream_zip_2, stream_unzip_2, NULL}, stream_2, fence,
};
static const Isa AVX512 = {
    "avx512", {plain_runs, plain_blocks, zip_4, unzip_4, transpose_4},
    {stream_runs_4, stream_blocks_4, stream_zip_4, stream_unzip_4, stream_transpose_4}, stream_4,
    fence,
};

/* <cpuid.h> rather than __builtin_cpu_supports, which needs a symbol of the compiler's runtime that
 * not every linker finds. The system must save the registers too, hence xgetbv. */
static bool supports(const Isa *isa)
{
    unsigned a, b, c, d, low, high;
    if (isa == &PLAIN) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const bool avx2 = (low & 0x06) == 0x06 && (b & bit_AVX2);
    return avx2 && (isa == &AVX2 || ((low & 0xe6) == 0xe6 && (b & wanted) == wanted));
}

static const Isa *const ISAS[] = {&AVX512, &AVX2, &PLAIN};
#else
static bool supports(const Isa *isa) { return isa == &PLAIN; }
static const Isa *const ISAS[] = {&PLAIN};
#endif

static _Atomic(const Isa *) chosen = &PLAIN;

/* -- 5. plans ---------------------------------------------------------------------------------- */

typedef struct { int64_t n, in, out; } Loop; /* strides in bytes */

typedef struct {
    int source, target;           /* which pointers */
    int64_t from, to;             /* bytes past them */
    int64_t width;                /* bytes of an element: contiguous on both sides */
    int rank, along;              /* loops; `along`: the one that the input is contiguous along */
    Loop loop[MAX_RANK];          /* by output stride, largest first */
    int64_t tile[MAX_RANK];       /* the shape of a tile */
    int64_t tiles[MAX_RANK];      /* how many there are, per loop and in all */
    int64_t count;
    int64_t staged[MAX_RANK];     /* output strides within the stage */
    int64_t segment;              /* bytes of a full tile that are contiguous in the output */
    int outside;                  /* loops that walk over segments; the rest are inside one */
    bool lines;                   /* the kernel writes whole lines, if the target starts on one */
    Kind kind;
} Copy;

typedef struct {
    int inputs, outputs, count;
    int64_t bytes;                /* written by one run */
    int64_t tiles;
    Copy copies[];
} Plan;

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Output strides positive and descending, loops that chain fused, contiguous bytes in `width`. */
static void normalise(Copy *c)
{
    Loop *loop = c->loop;
    int rank = 0;
    for (int k = 0; k < c->rank; k++) {
        Loop x = loop[k];
        if (x.n == 1) continue;
        if (x.out < 0) { /* backwards in the output: from the other end, backwards in the input */
            c->from += (x.n - 1) * x.in, c->to += (x.n - 1) * x.out;
            x.in = -x.in, x.out = -x.out;
        }
        int at = rank++;
        for (; at > 0 && loop[at - 1].out < x.out; at--) loop[at] = loop[at - 1];
        loop[at] = x;
    }
    int fused = 0;
    for (int k = 0; k < rank; k++) {
        Loop *outer = &loop[fused - 1];
        if (fused && outer->in == loop[k].n * loop[k].in && outer->out == loop[k].n * loop[k].out)
            *outer = (Loop){outer->n * loop[k].n, loop[k].in, loop[k].out};
        else
            loop[fused++] = loop[k];
    }
    if (fused && loop[fused - 1].in == c->width && loop[fused - 1].out == c->width)
        c->width *= loop[--fused].n;
    c->rank = fused;
}

static Kind kind_of(const Copy *c)
{
    const int last = c->rank - 1;
    const Loop *row = &c->loop[last], *column = &c->loop[c->along];
    const int64_t w = c->width;
    if (c->along == last || w > 16 || (w & (w - 1)) || row->out != w || column->in != w)
        return BLOCKS;
    if ((row->n == 2 || row->n == 4 || row->n == 8) && column->out == row->n * w) return ZIP;
    if ((column->n == 2 || column->n == 4 || column->n == 8) && row->in == column->n * w)
        return UNZIP;
    return TRANSPOSE;
}

/* The largest count up to n whose elements fill whole lines, where there is one. */
static int64_t whole(int64_t n, int64_t width)
{
    const int64_t line = width < LINE ? LINE / width : 1;
    return n < line ? n : n / line * line;
}

/* Tile: a row of the output, as long a stretch of the input as fits, then what else fits. */
static void shape_tiles(Copy *c, bool lines)
{
    const int last = c->rank - 1;
    const int64_t bytes = c->kind == TRANSPOSE || c->kind == RUNS || lines ? TILE : SMALL_TILE;
    int64_t room = bytes / least(c->width, bytes);
    for (int k = 0; k < c->rank; k++) c->tile[k] = 1;
    int64_t row = c->along == last ? room : ROW / least(c->width, ROW);
    c->tile[last] = least(c->loop[last].n, row);
    if (c->along != last) {
        c->tile[c->along] = least(c->loop[c->along].n, whole(room / c->tile[last], c->width));
        c->tile[last] = least(c->loop[last].n, whole(room / c->tile[c->along], c->width));
    }
    room /= c->tile[last] * (c->along != last ? c->tile[c->along] : 1);
    for (int k = last - 1; k >= 0 && room > 1; k--) {
        if (k == c->along) continue;
        c->tile[k] = least(c->loop[k].n, room);
        room /= c->tile[k];
    }
    c->count = 1;
    for (int k = 0; k < c->rank; k++) {
        c->tiles[k] = (c->loop[k].n + c->tile[k] - 1) / c->tile[k];
        c->count *= c->tiles[k];
    }
}

/* Where a tile's elements lie in the stage: as in the output, with the gaps left out. A gap of one
 * line keeps the rows of a transpose from falling into the same set of the cache. */
static void shape_stage(Copy *c)
{
    c->segment = c->width, c->outside = c->rank;
    for (int k = c->rank - 1; k >= 0 && c->loop[k].out == c->segment; k--) {
        c->segment *= c->tile[k], c->outside = k;
        if (c->tile[k] != c->loop[k].n) break;
    }
    int64_t step = c->width;
    for (int k = c->rank - 1; k >= 0; k--) {
        if (k == c->outside - 1 && c->segment >= LINE)
            step = (step + LINE - 1) / LINE * LINE + LINE;
        c->staged[k] = step;
        step *= c->tile[k];
    }
}

/* Whether the kernel's stores fall on whole lines, in a target that starts on one. A transpose has
 * them far apart; where they would be crowded too, long rows from a stage serve memory better. */
static bool writes_lines(const Copy *c)
{
    const int last = c->rank - 1;
    if (c->kind == TRANSPOSE &&
        (c->loop[last].in % CROWDED == 0 || c->loop[c->along].out % CROWDED == 0))
        return false;
    if (c->to % LINE || (c->kind == BLOCKS && c->width % LINE)) return false;
    for (int k = 0; k <= last; k++) {
        const bool inside = c->kind != BLOCKS && (k == last || (c->kind == ZIP && k == c->along));
        const int64_t step = inside ? c->tile[k] * c->loop[k].out : c->loop[k].out;
        if (step % LINE && !(inside && c->tiles[k] == 1)) return false;
    }
    return true;
}

/* From loops in bytes to a copy that is ready to run. */
static void prepare_copy(Copy *c)
{
    normalise(c);
    const bool bytes = c->rank == 0 || c->width >= RUN;
    if (bytes) {
        c->loop[c->rank++] = (Loop){c->width, 1, 1};
        c->width = 1;
    }
    c->along = c->rank - 1;
    for (int k = c->rank - 2; k >= 0; k--) {
        const int64_t here = magnitude(c->loop[k].in), best = magnitude(c->loop[c->along].in);
        if (here && (!best || here < best)) c->along = k;
    }
    c->kind = bytes ? RUNS : kind_of(c);
    shape_tiles(c, true);
    c->lines = c->kind == RUNS || writes_lines(c);
    if (!c->lines) shape_tiles(c, false);
    shape_stage(c);
}

/* The stage holds a full tile of any copy: its bytes, and two lines for each segment. */
enum { STAGE = 3 * TILE };

/* -- 6. running a tile ------------------------------------------------------------------------- */

typedef struct {
    const Copy *copy;
    int64_t extent[MAX_RANK];
    int64_t out[MAX_RANK]; /* output strides: the target's, or the stage's */
    Kernel kernel;
    Box box;
    int batch; /* the loop inside the box besides rows and columns, or -1 */
} Tile;

/* The loops outside the box, then the box. */
static void each_box(const Tile *t, int k, const uint8_t *from, uint8_t *to)
{
    const Copy *c = t->copy;
    while (k == c->along || k == t->batch) k++;
    if (k >= c->rank - 1) {
        t->kernel(&t->box, from, to);
        return;
    }
    for (int64_t j = 0; j < t->extent[k]; j++)
        each_box(t, k + 1, from + j * c->loop[k].in, to + j * t->out[k]);
}

/* Segment by segment from the stage to the target. */
static void each_segment(const Tile *t, const Isa *isa, int k, int64_t bytes, const uint8_t *from,
                         uint8_t *to)
{
    const Copy *c = t->copy;
    if (k == c->outside) {
        isa->stream(to, from, bytes);
        return;
    }
    for (int64_t j = 0; j < t->extent[k]; j++)
        each_segment(t, isa, k + 1, bytes, from + j * c->staged[k], to + j * c->loop[k].out);
}

/* Rows for columns: the inner loop should be the long one. */
static void flip(Box *b)
{
    const Box was = *b;
    b->rows = was.columns, b->row_in = was.column_in, b->row_out = was.column_out;
    b->columns = was.rows, b->column_in = was.row_in, b->column_out = was.row_out;
}

static void run_tile(const Copy *c, const Isa *isa, int64_t number, const uint8_t *from,
                     uint8_t *to, bool stream, uint8_t *stage)
{
    Tile t = {.copy = c, .batch = -1, .kernel = isa->kernels[c->kind]};
    const int last = c->rank - 1, along = c->along;
    from += c->from, to += c->to;
    for (int k = last; k >= 0; k--) {
        const int64_t at = number % c->tiles[k] * c->tile[k];
        number /= c->tiles[k];
        t.extent[k] = least(c->tile[k], c->loop[k].n - at);
        from += at * c->loop[k].in, to += at * c->loop[k].out;
        if (k != along && k != last && t.batch < 0) t.batch = k;
    }
    bool staged = false;
    if (stream) {
        const bool direct = isa->streaming[c->kind] && c->lines;
        if (direct && (c->kind == RUNS || (uintptr_t)to % LINE == 0))
            t.kernel = isa->streaming[c->kind];
        else
            staged = stage;
    }
    for (int k = 0; k < c->rank; k++) t.out[k] = staged ? c->staged[k] : c->loop[k].out;
    t.box = (Box){.width = c->width, .batch = 1, .rows = t.extent[last], .columns = 1,
                  .row_in = c->loop[last].in, .row_out = t.out[last]};
    if (along != last) {
        t.box.columns = t.extent[along];
        t.box.column_in = c->loop[along].in, t.box.column_out = t.out[along];
    }
    if (t.batch >= 0) {
        t.box.batch = t.extent[t.batch];
        t.box.batch_in = c->loop[t.batch].in, t.box.batch_out = t.out[t.batch];
    }
    if (c->kind == BLOCKS && !stream && t.box.columns < 8 && t.box.columns < t.box.rows)
        flip(&t.box);
    each_box(&t, 0, from, staged ? stage : to);
    if (staged) {
        int64_t bytes = c->width;
        for (int k = c->outside; k < c->rank; k++) bytes *= t.extent[k];
        each_segment(&t, isa, 0, bytes, stage, to);
    }
}

/* -- 7. threads -------------------------------------------------------------------------------- */

typedef struct {
    const Plan *plan;
    const Isa *isa;
    uint8_t *const *pointers;
    bool stream;
    atomic_llong next;
} Job;

/* A thread's stage lives as long as the thread. Without memory for one, tiles go straight to the
 * target: slower, and right. */
static pthread_key_t stages;

static uint8_t *own_stage(void)
{
    void *stage = pthread_getspecific(stages);
    if (!stage && !posix_memalign(&stage, 4096, STAGE) && pthread_setspecific(stages, stage)) {
        free(stage);
        stage = NULL;
    }
    return stage;
}

/* Tiles until there are none left; whoever takes a number runs that tile. */
static void work(Job *job)
{
    const Plan *plan = job->plan;
    uint8_t *stage = job->stream ? own_stage() : NULL;
    int64_t before = 0;
    int at = 0;
    for (;;) {
        const int64_t number = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (number >= plan->tiles) break;
        while (number - before >= plan->copies[at].count) before += plan->copies[at++].count;
        const Copy *c = &plan->copies[at];
        run_tile(c, job->isa, number - before, job->pointers[c->source],
                 job->pointers[plan->inputs + c->target], job->stream, stage);
    }
    if (job->stream) job->isa->fence();
}

/* Helpers sleep until a job is posted. A job that ends before a helper wakes is not missed: the
 * helper finds none and sleeps on. */
static struct {
    pthread_mutex_t turn;   /* held by the thread whose job it is */
    pthread_mutex_t lock;   /* over everything below */
    pthread_cond_t posted, left;
    Job *job;
    int helpers;            /* threads that were started */
    int wanted;             /* helpers that may still join the job */
    int inside;             /* helpers at work on it */
} pool = {
    .turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER,
};

static void *help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.job || !pool.wanted) pthread_cond_wait(&pool.posted, &pool.lock);
        Job *job = pool.job;
        pool.wanted--, pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        work(job);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.inside) pthread_cond_signal(&pool.left);
    }
    return NULL;
}

static void start_helpers(int wanted)
{
    pthread_attr_t detached;
    if (pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.helpers < wanted && !pthread_create(&thread, &detached, help, NULL)) pool.helpers++;
    pthread_attr_destroy(&detached);
}

/* The job with up to `threads` threads, this one included. Another thread's job in the pool is not
 * waited for: this one works alone then. */
static void run_job(Job *job, int threads)
{
    if (threads < 2 || pthread_mutex_trylock(&pool.turn)) {
        work(job);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    start_helpers(threads - 1);
    pool.job = job;
    pool.wanted = (int)least(threads - 1, pool.helpers);
    pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
    work(job);
    pthread_mutex_lock(&pool.lock);
    pool.job = NULL;
    while (pool.inside) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.turn);
}

static void run_plan(const Plan *plan, uint8_t *const *pointers, int threads)
{
    Job job = {.plan = plan, .isa = atomic_load(&chosen), .pointers = pointers};
    job.stream = plan->bytes >= atomic_load(&stream_from) && job.isa->stream;
    if (plan->bytes < atomic_load(&threads_from)) threads = 1;
    run_job(&job, (int)least(threads, plan->tiles));
}

/* Threads do not survive a fork: the child starts its own when it needs them. */
static void forget_helpers(void)
{
    pthread_mutex_init(&pool.turn, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.posted, NULL);
    pthread_cond_init(&pool.left, NULL);
    pool.job = NULL;
    pool.helpers = pool.wanted = pool.inside = 0;
}

static atomic_int default_threads = 1;

static int processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    return (int)least(sysconf(_SC_NPROCESSORS_ONLN), MAX_THREADS);
}

static int initial_threads(void)
{
    const char *given = getenv("OMP_NUM_THREADS");
    const long wanted = given ? strtol(given, NULL, 10) : 0;
    const int there = wanted > 0 ? (int)least(wanted, MAX_THREADS) : processors();
    return there < 1 ? 1 : (int)least(there, MAX_THREADS);
}

static bool ask_huge_pages(uintptr_t address, int64_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, first = (address + page - 1) & -page;
    const uintptr_t end = (address + (uintptr_t)bytes) & -page;
    if (bytes > 0 && end > first) return !madvise((void *)first, end - first, MADV_HUGEPAGE);
#endif
    return false;
}

/* -- 8. Python --------------------------------------------------------------------------------- */

#define CAPSULE "xlayout_native.plan"

static void drop(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, CAPSULE)); }

/* Strides and addresses stay below 2^61 in all, so no sum or product here can overflow. */
static const int64_t FAR = (int64_t)1 << 61;

static bool reach_grows(int64_t *reach, int64_t n, int64_t stride)
{
    int64_t span;
    return !__builtin_mul_overflow(n, magnitude(stride), &span) &&
           !__builtin_add_overflow(*reach, span, reach) && *reach < FAR;
}

static bool read_number(PyObject *number, int64_t scale, int64_t *to)
{
    const long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) return false;
    if (value <= -FAR || value >= FAR || __builtin_mul_overflow(value, scale, to)) {
        PyErr_Format(PyExc_OverflowError, "copies: %R elements; wanted less than 2**61 bytes", number);
        return false;
    }
    return true;
}

/* The loops ((n, in stride, out stride), ...) in elements; `empty` when some n is 0. */
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
        if (!reach_grows(&in, loop->n, loop->in) || !reach_grows(&out, loop->n, loop->out) ||
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
    PyObject *from, *to, *loops;
    bool empty = false;
    if (!PyArg_ParseTuple(move, "ii(OOO!);a move is (input, output, (from, to, loops))", &c->source,
                          &c->target, &from, &to, &PyTuple_Type, &loops))
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
    int64_t bytes = itemsize;
    for (int k = 0; k < c->rank; k++) bytes *= c->loop[k].n;
    prepare_copy(c);
    plan->bytes += bytes;
    if (plan->bytes >= FAR) {
        PyErr_SetString(PyExc_OverflowError, "moves: wanted less than 2**61 bytes in all");
        return false;
    }
    plan->tiles += c->count;
    plan->count++;
    return true;
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
    capsule = PyCapsule_New(plan, CAPSULE, drop);
end:
    if (!capsule) free(plan);
    Py_DECREF(listed);
    return capsule;
}

static PyObject *run(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    enum { FEW = 16 };
    uint8_t *few[FEW], **pointers = few;
    const Plan *plan = count ? PyCapsule_GetPointer(args[0], CAPSULE) : NULL;
    if (!plan)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "run: wanted a plan first");
    if (count - 2 != plan->inputs + plan->outputs)
        return PyErr_Format(PyExc_TypeError,
                            "run: %zd arguments; wanted the plan, threads, %d + %d addresses", count,
                            plan->inputs, plan->outputs);
    long threads = PyLong_AsLong(args[1]);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    if (threads < 1 || threads > MAX_THREADS) threads = atomic_load(&default_threads);
    if (count - 2 > FEW && !(pointers = malloc((size_t)(count - 2) * sizeof *pointers)))
        return PyErr_NoMemory();
    for (Py_ssize_t k = 2; k < count; k++) pointers[k - 2] = PyLong_AsVoidPtr(args[k]);
    if (PyErr_Occurred()) goto end;
    if (plan->bytes < least(RELEASE_FROM, atomic_load(&threads_from))) {
        run_plan(plan, pointers, 1);
    } else {
        Py_BEGIN_ALLOW_THREADS
        run_plan(plan, pointers, (int)threads);
        Py_END_ALLOW_THREADS
    }
end:
    if (pointers != few) free(pointers);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *huge_pages(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    long long bytes;
    if (!PyArg_ParseTuple(args, "KL:huge_pages", &address, &bytes)) return NULL;
    return PyBool_FromLong(ask_huge_pages((uintptr_t)address, bytes));
}

static PyObject *set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    const long threads = PyLong_AsLong(number);
    if (threads == -1 && PyErr_Occurred()) return NULL;
    if (threads < 1)
        return PyErr_Format(PyExc_ValueError, "threads: %ld; wanted at least 1", threads);
    atomic_store(&default_threads, (int)least(threads, MAX_THREADS));
    Py_RETURN_NONE;
}

static PyObject *get_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(atomic_load(&default_threads));
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

#include "_alike.h"

static PyMethodDef METHODS[] = {
    {"prepare", prepare, METH_VARARGS, "prepare(moves, itemsize, inputs, outputs): a plan."},
    {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, "run(plan, threads, *addresses)."},
    {"huge_pages", huge_pages, METH_VARARGS, "huge_pages(address, bytes): whether they were granted."},
    {"shapes", shapes, METH_O, "shapes(arrays): of arrays of one class and dtype, or None."},
    {"set_threads", set_threads, METH_O, "set_threads(n): what threads=0 means."},
    {"get_threads", get_threads, METH_NOARGS, "What threads=0 means."},
    {"set_thresholds", set_thresholds, METH_VARARGS, "set_thresholds(stream_from, threads_from)."},
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
    if (pthread_key_create(&stages, free) || pthread_atfork(NULL, NULL, forget_helpers)) {
        PyErr_SetString(PyExc_ImportError, "xlayout_native: no thread storage left");
        return -1;
    }
    started = true;
    atomic_store(&default_threads, initial_threads());
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
