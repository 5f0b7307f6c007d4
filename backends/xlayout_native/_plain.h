/* _plain: the box that a kernel works on, and a kernel in plain C for each kind.
 *
 * These are correct for any box, so the vector kernels leave to them what is too small or too irregular for
 * vectors.
 */

enum {
    MAX_RANK = 16,          /* loops of one copy, after fusing; layouts in use have 2 to 5 */
    MAX_THREADS = 64,
    LINE = 64,              /* bytes of a cache line */
    AHEAD = 1024,           /* how far streaming kernels prefetch ahead, in bytes */
    MEMCPY_FROM = 1 << 13,  /* bytes of a block from which a call of memcpy pays */
    L1_SHARE = 1 << 14,     /* bytes that may be prefetched into L1 at a time: half of it */
    L1_WAY = 4096,          /* bytes of one of the ways of L1 in most processors, */
    L1_WAYS = 8,            /* and their number */
};

/* A box: `batch` x `rows` x `columns` elements of `width` bytes. `rows` is the axis along which the output is
 * contiguous, `columns` the one along which the input is, if they are contiguous along any. */
typedef struct {
    int64_t width, batch, rows, columns;
    int64_t batch_in, row_in, column_in;
    int64_t batch_out, row_out, column_out;
    const uint8_t *next; /* start of the next box, to be prefetched; NULL in the caches, but for zips */
} Box;

typedef void (*Kernel)(const Box *, const uint8_t *from, uint8_t *to);

/* Exchanges rows and columns. */
static void flip(Box *b)
{
    const Box was = *b;
    b->rows = was.columns, b->row_in = was.column_in, b->row_out = was.column_out;
    b->columns = was.rows, b->column_in = was.row_in, b->column_out = was.row_out;
}

typedef uint16_t __attribute__((aligned(1), may_alias)) u16;
typedef uint32_t __attribute__((aligned(1), may_alias)) u32;
typedef uint64_t __attribute__((aligned(1), may_alias)) u64;
typedef uint8_t __attribute__((vector_size(16), aligned(1), may_alias)) u128;
typedef uint8_t __attribute__((vector_size(32), aligned(1), may_alias)) u256;

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Between addresses in whatever buffers. */
static inline int64_t distance(const uint8_t *from, const uint8_t *to)
{
    return (int64_t)((uintptr_t)to - (uintptr_t)from);
}

static inline int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Prefetches the line that lies `by` bytes further on: to be used once (level 0), into L2 (2) or into L1 (3). It
 * may lie past the end of the buffer: prefetching never faults, and the address is computed as an integer
 * because a pointer must not leave its array. */
#define PREFETCH(p, by, level)                                                                     \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(by)), 0, level)

#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Prefetches the line that holds this address, of which only a part will be written. */
#define PREFETCH_FOR_WRITE(p) __builtin_prefetch((const void *)(uintptr_t)(p), 1, 3)

/* Copies from one to two times as many bytes as a T has, by two moves that may overlap. */
#define TWICE(T, to, from, count)                                                                  \
    do {                                                                                           \
        T first, last;                                                                             \
        memcpy(&first, from, sizeof(T)), memcpy(&last, (from) + (count) - sizeof(T), sizeof(T));   \
        memcpy(to, &first, sizeof(T)), memcpy((to) + (count) - sizeof(T), &last, sizeof(T));       \
    } while (0)

/* Copies fewer than 64 bytes, cheaper than a call of memcpy. */
static inline void move_short(uint8_t *to, const uint8_t *from, int64_t count)
{
    if (count >= 32) TWICE(u256, to, from, count);
    else if (count >= 16) TWICE(u128, to, from, count);
    else if (count >= 8) TWICE(u64, to, from, count);
    else if (count >= 4) TWICE(u32, to, from, count);
    else if (count >= 2) TWICE(u16, to, from, count);
    else if (count) *to = *from;
}

static inline void move(uint8_t *to, const uint8_t *from, int64_t count)
{
    for (; count >= LINE; count -= LINE, to += LINE, from += LINE) memcpy(to, from, LINE);
    move_short(to, from, count);
}

/* Blocks of a line and more by half lines: a store to two lines takes longer than two to one, and off a line every
 * store of a whole one is to two.
 *
 * Four columns at a time: rows and columns that lie a large power of two apart fall into few sets of the caches, which
 * hold the lines of four columns, but not of many. Compiled once for each vector size. */
ALWAYS_INLINE void each_block(const Box *b, const uint8_t *from, uint8_t *to)
{
    const int64_t width = b->width, x = b->column_in, z = b->column_out;
#define EACH(MOVE, T)                                                                              \
    for (int64_t k = 0; k < b->batch; k++)                                                         \
        for (int64_t c = 0, n; c < b->columns; c += n) {                                           \
            const uint8_t *s = from + k * b->batch_in + c * x;                                     \
            uint8_t *d = to + k * b->batch_out + c * z;                                            \
            n = b->columns - c < 4 ? 1 : 4;                                                        \
            for (int64_t r = 0; r < b->rows; r++, s += b->row_in, d += b->row_out) {               \
                MOVE(T, d, s, width);                                                              \
                if (n == 1) continue;                                                              \
                MOVE(T, d + z, s + x, width);                                                      \
                MOVE(T, d + 2 * z, s + 2 * x, width);                                              \
                MOVE(T, d + 3 * z, s + 3 * x, width);                                              \
            }                                                                                      \
        }
#define ONCE(T, to, from, count) memcpy(to, from, sizeof(T))
#define ANY(T, to, from, count) memcpy(to, from, (size_t)(count))
#define LONGER(T, to, from, count)                                                                  \
    for (int64_t at = 0; at < (count) - 32; at += 32) memcpy((to) + at, (from) + at, 32);          \
    memcpy((to) + (count) - 32, (from) + (count) - 32, 32)
    if (width >= MEMCPY_FROM) EACH(ANY, )
    else if (width > LINE) EACH(LONGER, )
    else if (width > 32) EACH(TWICE, u256)
    else if (width == 32) EACH(ONCE, u256)
    else if (width > 16) EACH(TWICE, u128)
    else if (width == 16) EACH(ONCE, u128)
    else if (width > 8) EACH(TWICE, u64)
    else if (width == 8) EACH(ONCE, u64)
    else if (width > 4) EACH(TWICE, u32)
    else if (width == 4) EACH(ONCE, u32)
    else if (width == 3) EACH(TWICE, u16)
    else if (width == 2) EACH(ONCE, u16)
    else EACH(ONCE, uint8_t)
#undef EACH
#undef ONCE
#undef ANY
#undef LONGER
}

static void plain_blocks(const Box *b, const uint8_t *from, uint8_t *to) { each_block(b, from, to); }

static void plain_runs(const Box *b, const uint8_t *from, uint8_t *to)
{
    for (int64_t k = 0; k < b->batch; k++)
        memcpy(to + k * b->batch_out, from + k * b->batch_in, (size_t)b->rows);
}

/* Interleaves `ways` rows into one, or deinterleaves one into as many. With the number a constant, compilers
 * vectorise the loop. */
#define EACH_WAYS(WAYS, ROW)                                                                        \
    if (WAYS == 2) ROW(2);                                                                         \
    else if (WAYS == 4) ROW(4);                                                                    \
    else ROW(8)
#define EACH_PLAIN_WIDTH(ROWS)                                                                     \
    switch (b->width) {                                                                            \
    case 1: ROWS(uint8_t); break;                                                                  \
    case 2: ROWS(u16); break;                                                                      \
    case 4: ROWS(u32); break;                                                                      \
    case 8: ROWS(u64); break;                                                                      \
    case 16: ROWS(u128); break;                                                                    \
    default: plain_blocks(b, from, to);                                                            \
    }

static void plain_zip(const Box *b, const uint8_t *from, uint8_t *to)
{
#define ROW(WAYS)                                                                                  \
    for (int64_t c = 0; c < b->columns; c++)                                                       \
        for (int r = 0; r < WAYS; r++) d[c * WAYS + r] = s[r * step + c]
#define ROWS(T)                                                                                    \
    for (int64_t k = 0; k < b->batch; k++) {                                                       \
        const T *restrict s = (const T *)(from + k * b->batch_in);                                 \
        T *restrict d = (T *)(to + k * b->batch_out);                                              \
        const int64_t step = b->row_in / (int64_t)sizeof(T);                                       \
        EACH_WAYS(b->rows, ROW);                                                                   \
    }
    if (b->row_in % b->width) plain_blocks(b, from, to);
    else EACH_PLAIN_WIDTH(ROWS)
#undef ROW
#undef ROWS
}

static void plain_unzip(const Box *b, const uint8_t *from, uint8_t *to)
{
#define ROW(WAYS)                                                                                  \
    for (int c = 0; c < WAYS; c++)                                                                 \
        for (int64_t r = 0; r < b->rows; r++) d[c * step + r] = s[r * WAYS + c]
#define ROWS(T)                                                                                    \
    for (int64_t k = 0; k < b->batch; k++) {                                                       \
        const T *restrict s = (const T *)(from + k * b->batch_in);                                 \
        T *restrict d = (T *)(to + k * b->batch_out);                                              \
        const int64_t step = b->column_out / (int64_t)sizeof(T);                                   \
        EACH_WAYS(b->columns, ROW);                                                                \
    }
    if (b->column_out % b->width) plain_blocks(b, from, to);
    else EACH_PLAIN_WIDTH(ROWS)
#undef ROW
#undef ROWS
}

/* Square by square, each a line wide. A square's rows are first packed one after another, so that each line is
 * read once even where rows compete for the same few sets of a cache. At the edges squares overlap. */
static void plain_transpose(const Box *b, const uint8_t *from, uint8_t *to)
{
    const int64_t side = LINE / b->width;
    _Alignas(LINE) uint8_t packed[LINE * LINE];
#define ROWS(T)                                                                                    \
    for (int64_t x = 0; x < side; x++) {                                                           \
        T *restrict z = (T *)(d + x * b->column_out);                                              \
        for (int64_t y = 0; y < LINE / (int64_t)sizeof(T); y++) z[y] = ((const T *)(packed + y * LINE))[x];   \
    }
    if (b->rows < side || b->columns < side) {
        plain_blocks(b, from, to);
        return;
    }
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out)
        for (int64_t column = 0; column < b->columns; column += side)
            for (int64_t row = 0; row < b->rows; row += side) {
                const int64_t r = min(row, b->rows - side), c = min(column, b->columns - side);
                const uint8_t *s = from + r * b->row_in + c * b->width;
                uint8_t *d = to + r * b->width + c * b->column_out;
                for (int64_t y = 0; y < side; y++) memcpy(packed + y * LINE, s + y * b->row_in, LINE);
                EACH_PLAIN_WIDTH(ROWS)
            }
#undef ROWS
}
#undef EACH_WAYS
#undef EACH_PLAIN_WIDTH
