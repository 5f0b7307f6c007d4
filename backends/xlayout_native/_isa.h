/* _isa: the kernels of each instruction set, and which of them this processor runs. */

/* Where a line goes that was made: */
typedef enum {
    CACHED,   /* to any address, through the caches */
    STREAMED, /* to a line of the target, past them */
    CARRIED,  /* nowhere: it is kept, for the line that its end is part of */
    SPLICED,  /* with what was kept to the line that it begins in, past the caches; and is kept, */
    SPLICED_BYTES, /* which takes fewer steps with AVX512_VBMI */
} Store;

/* A line of each of LINE / width rows: a square. They are laid side by side first, so that each is read
 * once, and rows that compete for the same few places of a cache do so once; or turned where they are. */
typedef struct {
    const uint8_t *from;   /* the square to be turned now, */
    const uint8_t *packed; /* and where it is laid, or NULL */
    uint8_t *packed_next;  /* where the next is laid meanwhile, */
    const uint8_t *next;   /* from here, */
    const uint8_t *ahead;  /* and from here on lines are fetched; */
    int together;          /* of a row at a time, by log2 */
    int64_t row_in;
    const uint8_t *result_ahead; /* and here, lines of a result that stays in the caches; or NULL */
} Block;

typedef void (*Turn)(const Block *, uint8_t *to, int64_t column_out, Store, uint8_t *carry);

/* Where a block has ended: all of it is written but for what is in a line with what may follow. */
typedef struct { uint8_t *to; const uint8_t *from; } Seam;

enum {
    SEAMS = L1_SHARE / LINE, /* at a time */
    FEW_COLUMNS = 32,        /* that may be written in turn where their blocks are longer: */
    FEW_LONG = 1 << 16,      /* bytes of a row of those */
};

/* Bytes of a column that are written in turn, where columns meet; of no more columns than these. Processors with
 * AVX-512 have not been seen to gain by it. */
#define BURST(lanes) ((lanes) < 4 ? 8 * LINE : 0)
enum { FEW_BURSTS = 8 };

/* Whether some of these columns lie whole pages apart. A processor that writes a line of one and a line of the other
 * in turn, past the caches, takes up to twice as long. */
static inline bool columns_alias(int64_t columns, int64_t column_out)
{
    for (int64_t k = 1; k < columns; k++)
        if (k * column_out % PAGE == 0) return true;
    return false;
}

/* Whether each column goes on in the next row, so that rows may be read as they lie: not where columns
 * follow one another, and are short; nor long rows of many, as the block before each seam is read again. */
static inline bool has_seams(const Box *b)
{
    const int64_t column = b->rows * b->width, row = b->columns * b->width;
    return b->row_out == b->width && b->column_in == b->width && b->columns > 1 &&
           row <= (b->columns <= FEW_COLUMNS ? FEW_LONG : L1_SHARE) && column >= LONG &&
           (b->column_out != column || b->rows > b->columns);
}

static inline void close_seam(const Seam *s)
{
    const int64_t part = (int64_t)((uintptr_t)s->to & (LINE - 1));
    if (part) move_short(s->to - part, s->from - part, part);
}

/* A block of a line and more past the caches, after the one that ended at the seam, if that is where this
 * begins; meanwhile as much is fetched from `then` on. */
typedef void (*PutBlock)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *upcoming, Seam *);

typedef struct {
    const char *name;
    Kernel kernels[KINDS];
    Kernel streaming[KINDS];                  /* to whole lines; or NULL */
    Kernel dense[KINDS];                      /* of copies that are dense, to any address; or NULL */
    Kernel unaligned[KINDS];                  /* of long rows, each to any address; or NULL */
    int64_t narrowest;                        /* bytes of a block that it takes there */
    PutBlock block;                           /* or NULL */
    Turn turn[5];                             /* by log2 of the width; or NULL */
    bool whole_lines;                         /* they go, for a vector is a line; else HERE alone */
    void (*write)(Pending *, int64_t bytes);  /* about so many; or NULL */
} Isa;

static const Isa PLAIN = {
    "plain", {plain_runs, plain_blocks, plain_zip, plain_unzip, plain_transpose},
    {NULL}, {NULL}, {NULL}, 0, NULL, {NULL}, false, NULL,
};

enum { NARROW = 15 }; /* elements in the short rows of a narrow transpose, at the most */

/* Elements of so many bytes from which rows are too long to be turned by tables, in vectors of so many lanes. */
static inline int64_t table_limit(int64_t width, int lanes) { return max(16 / width, 2 * lanes); }

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

/* A line that is used once: for the first cache alone, or by way of the second. The first is best on
 * processors of AMD's; on Intel's such fetches wait for one another, and copies take twice as long. */
static bool prefetch_via_l2;
#define PREFETCH_ONCE(p, by) (prefetch_via_l2 ? PREFETCH(p, by, 2) : PREFETCH(p, by, 0))

static void detect_processor(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    prefetch_via_l2 = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx &&
                      c == signature_INTEL_ecx && d == signature_INTEL_edx;
}

/* What was streamed is there. */
static void fence(void) { _mm_sfence(); }
#else
static void detect_processor(void) {}
static void fence(void) {}
#endif

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__AARCH64EL__))
#ifdef __x86_64__
#define TARGET __attribute__((target("ssse3")))
#else
#include "_neon.h"
#define PREFETCH_ONCE(p, by) PREFETCH(p, by, 0)
#define TARGET
#endif

/* Where each byte of n vectors is found in n others: by the vector that is made, and the one it is made of.
 * One side is n rows, of a vector each; the other has an element of each in turn. */
static void build_tables(uint8_t (*tables)[16], int n, int width, bool apart)
{
    memset(tables, 0x80, (size_t)(16 * n * n)); /* of a shuffle: nothing from there */
    for (int at = 0; at < 16 * n; at++) {
        const int element = at / width, row = element % n, place = element / n * width + at % width;
        if (apart) tables[row * n + at / 16][place] = (uint8_t)(at % 16);
        else tables[at / 16 * n + row][at % 16] = (uint8_t)place;
    }
}

#define LOAD_16(p) _mm_loadu_si128((const __m128i *)(p))

/* Of a shuffle: to any place of 16, and nothing from 128. */
static const uint8_t PLACES[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define LANES 1
#define NARROWER(name) plain_blocks
#include "_lanes.h"
#undef TARGET

#define VECTORS(NAME, L, DENSE, LONG_ROWS, NARROWEST, TURN_1, WHOLE_LINES)                         \
    {NAME, {plain_runs, blocks##L, zip##L, unzip##L, transpose##L},                                \
     {stream_runs##L, stream_blocks##L, stream_zip##L, stream_unzip##L, NULL}, DENSE, LONG_ROWS,   \
     NARROWEST, block##L,                                                                          \
     {TURN_1##L, turn_2##L, turn_4##L, turn_8##L, turn_16##L}, WHOLE_LINES, write##L}
#define THESE(...) {__VA_ARGS__}
#define SMALLER_THAN_LINES(NAME, L)                                                                \
    VECTORS(NAME, L, THESE(NULL), THESE(NULL, blocks_unaligned##L), LINE, turn_1, false)
#ifdef __x86_64__
#define TARGET __attribute__((target("avx2")))
#define LANES 2
#define NARROWER(name) JOIN(name, _1)
#include "_lanes.h"
#undef TARGET
#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES 4
#define NARROWER(name) JOIN(name, _2)
#include "_lanes.h"
#undef TARGET

static const Isa SSSE3 = SMALLER_THAN_LINES("ssse3", _1);
static const Isa AVX2 = SMALLER_THAN_LINES("avx2", _2);
#define AVX512_WITH(NAME, TURN_1)                                                                  \
    VECTORS(NAME, _4, THESE(NULL, NULL, zip_dense, unzip_dense),                                   \
            THESE(NULL, blocks_unaligned_4, zip_unaligned, unzip_unaligned, narrow_unaligned), 1, TURN_1, true)
static const Isa AVX512 = AVX512_WITH("avx512", turn_1);
static const Isa AVX512_VBMI = AVX512_WITH("avx512vbmi", turn_bytes);
#undef AVX512_WITH

/* <cpuid.h> rather than __builtin_cpu_supports, which needs a symbol of the compiler's runtime that
 * not every linker finds. The system must save the registers too, hence xgetbv. */
static bool supports(const Isa *isa)
{
    unsigned a, b, c, d, low, high;
    if (isa == &PLAIN) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3)) return false;
    if (isa == &SSSE3) return true;
    if (!(c & bit_OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const bool avx2 = (low & 0x06) == 0x06 && (b & bit_AVX2);
    const bool avx512 = avx2 && (low & 0xe6) == 0xe6 && (b & wanted) == wanted;
    return isa == &AVX2 ? avx2 : avx512 && (isa == &AVX512 || (c & bit_AVX512VBMI));
}

static const Isa *const ISAS[] = {&AVX512_VBMI, &AVX512, &AVX2, &SSSE3, &PLAIN};
#else
static const Isa NEON = SMALLER_THAN_LINES("neon", _1);
static bool supports(const Isa *isa) { return isa == &NEON || isa == &PLAIN; }
static const Isa *const ISAS[] = {&NEON, &PLAIN};
#endif
#undef SMALLER_THAN_LINES
#undef THESE
#undef VECTORS
#else
static bool supports(const Isa *isa) { return isa == &PLAIN; }
static const Isa *const ISAS[] = {&PLAIN};
#endif

static _Atomic(const Isa *) chosen = &PLAIN;

/* Whether transposes write whole lines by themselves. */
static bool makes_lines(void) { return atomic_load(&chosen)->whole_lines; }
