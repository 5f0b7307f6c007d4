/* _isa: the kernels of each instruction set, and which of them this processor runs. */

/* How a line of a transpose is stored: */
typedef enum {
    CACHED,   /* to any address, through the caches */
    STREAMED, /* to a line of the target, with a streaming store */
    CARRIED,  /* not yet: it is kept, for the line that its end is part of */
    SPLICED,  /* streamed to the line that it begins in, joined to what was carried; then carried itself */
    SPLICED_BYTES, /* the same with AVX512_VBMI, in fewer steps */
    /* The same at edges, where no other square completes a line; a part of it is stored through the caches: */
    START,    /* what lies in the line that it begins in, and all is carried, */
    END,      /* what lies in the line that it ends in, and all before that is spliced, */
    REST,     /* or only what Block says is left */
} Store;

/* Whether squares are transposed into whole lines: */
typedef enum {
    NO_LINES,    /* no: they are staged */
    SOME_LINES,  /* if that pays, see pays_directly() */
    ALL_LINES,
} Lines;

/* How squares are packed: */
typedef enum {
    NOT_PACKED, /* they are transposed where they are */
    BY_ROWS,    /* one row after another */
    BY_LANES,   /* half transposed, in lanes; BY_ROWS if a vector is less than a line or elements are wide */
    BY_TABLE,   /* the same; the others take rows and columns for equally far apart, and need fewer steps */
} Packing;

/* Where rows or columns are: `step` bytes apart; or where a table says, if they belong to several loops. With a table,
 * `step` has the bits of all their steps. */
typedef struct { const int64_t *at; int64_t step; } Places;

static inline Places every(int64_t step) { return (Places){NULL, step}; }

static inline int64_t place(Places p, int64_t k) { return p.at ? p.at[k] : k * p.step; }

/* Leaves out the first k places. Returns what the others are relative to; it need not exist, if it is prefetched. */
static inline uint8_t *skip(Places *p, int64_t k, const uint8_t *base)
{
    if (p->at) p->at += k;
    return (uint8_t *)((uintptr_t)base + (uintptr_t)(p->at ? 0 : k * p->step));
}

/* A square: a line of each of LINE / width rows. Most are packed first, so that each line is read once, and rows that
 * compete for the same few sets of a cache do so only once. */
typedef struct {
    const uint8_t *from;   /* the square to be transposed now, if it is not packed */
    const uint8_t *packed; /* its packed copy; NULL if there is none yet, and the next one is only packed */
    uint8_t *packed_next;  /* where the next square is packed meanwhile */
    Packing packing;
    const uint8_t *next;   /* the next square, which is packed or prefetched meanwhile */
    const uint8_t *ahead;  /* lines of later squares, to be prefetched */
    int together;          /* log2 of how many of them are prefetched per row */
    int64_t row_in;
    int64_t rest;          /* bytes of each column that the square before it, which it overlaps, does not have */
    const uint8_t *result_ahead; /* lines of a cached result, to be prefetched for writing; or NULL */
    const int64_t *rows, *rows_ahead, *columns_ahead; /* tables for `next`, `ahead` and `result_ahead`; or NULL */
} Block;

typedef void (*Turn)(const Block *, uint8_t *to, Places columns, Store, uint8_t *carry);

/* Packs a square, while none is transposed. */
static void pack_first(Turn turn, const uint8_t *from, Places rows, uint8_t *packed, Packing packing)
{
    const Block block = {.packed_next = packed, .packing = packing, .next = from, .row_in = rows.step,
                         .rows = rows.at};
    turn(&block, NULL, every(0), CACHED, NULL);
}

/* Where a block ended: all of it is written but what shares a line with whatever may follow. */
typedef struct { uint8_t *to; const uint8_t *from; } Seam;

enum {
    SEAMS = L1_SHARE / LINE, /* most that are open at a time */
    FEW_COLUMNS = 32,        /* so many columns may be written in turn even if rows are longer, */
    FEW_LONG = 1 << 16,      /* up to so many bytes */
};

/* Bytes that are written to one column before the next, where columns alias. AMD's processors with AVX-512 have not
 * been seen to gain from it. */
#define BURST(lanes) ((lanes) < 4 ? 8 * LINE : 0)

/* The same for blocks on Intel's processors, wherever columns lie. */
enum { INTEL_BURST = 16 * LINE };

/* Whether each column goes on in the next row, so that rows can be read in order. Not if columns are adjacent in
 * the output, and short; nor for long rows of many columns, since the block before each seam is read again. */
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

/* Streams a block of a line or more. If it begins where the block at the seam ended, the two are joined.
 * Meanwhile as much is prefetched from `upcoming` on. */
typedef void (*PutBlock)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *upcoming, Seam *);

/* Pieces of rows: where each begins, in the first row. */
typedef struct {
    const int64_t *at;
    int64_t bytes;
    const int64_t *ahead; /* where lines of the next tile are, in the order in which they lie, */
    int64_t lines, step;  /* how many, and how many of them are prefetched for each line of a row */
} Pieces;

/* Long rows that are joined into one. */
typedef struct {
    const uint8_t *at[SEVERAL];
    int64_t bytes;        /* of each */
    int64_t ahead;        /* how far they are prefetched ahead, */
    int64_t next;         /* and how far on from them the next ones are */
    const Pieces *pieces; /* or NULL */
} Rows;

/* Splits short rows into long ones, or merges these. One side is read in pieces, and is a line at least. Through the
 * caches or past them. */
typedef void (*Reshape)(const Box *, const Pieces *, const uint8_t *from, uint8_t *to, bool stream);

/* Joins or deals elements of a few sources, or results, of a line and more, which a table has. */
typedef void (*Several)(const Box *, const int64_t *places, const uint8_t *from, uint8_t *to, bool stream);

typedef struct {
    const char *name;
    Kernel kernels[KINDS];
    Kernel streaming[KINDS];                  /* with streaming stores of whole lines; or NULL */
    Kernel dense[KINDS];                      /* of dense copies, to any address; or NULL */
    Kernel unaligned[KINDS];                  /* of long rows, each to any address; or NULL */
    Reshape split, merge;                     /* or NULL */
    Several join, deal;                       /* or NULL */
    int64_t narrowest;                        /* bytes of a block that `unaligned` takes, at least */
    PutBlock block;                           /* or NULL */
    Turn turn[5];                             /* by log2 of the width; or NULL */
    Lines lines;                              /* how `turn` may store other than CACHED */
    void (*write)(Pending *, int64_t bytes);  /* writes about so many of what is pending; or NULL */
} Isa;

static const Isa PLAIN = {
    "plain", {plain_runs, plain_blocks, plain_zip, plain_unzip, plain_transpose},
    {NULL}, {NULL}, {NULL}, NULL, NULL, NULL, NULL, 0, NULL, {NULL}, NO_LINES, NULL,
};

static Turn turn_of(const Isa *isa, const Copy *c) { return isa->turn[__builtin_ctzll((uint64_t)c->width)]; }


static bool intel; /* whether the processor is one of Intel's */

/* How far unzips prefetch ahead, in bytes; where rows are so long, twice as far on Intel's processors. */
static inline int64_t ahead_in(int64_t row) { return intel && row >= 2 * AHEAD ? 2 * AHEAD : AHEAD; }

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

/* Prefetches a line that is used once. On AMD's processors it is best fetched into L1 alone; on Intel's such
 * fetches wait for one another, and copies take twice as long, so there it comes by way of L2. */
#define PREFETCH_ONCE(p, by) (intel ? PREFETCH(p, by, 2) : PREFETCH(p, by, 0))

static bool is_intel(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

/* Makes everything streamed so far visible to other threads. */
static void fence(void) { _mm_sfence(); }
#else
static bool is_intel(void) { return false; }
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

#include "_tables.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define LANES 1
#define NARROWER(name) plain_blocks
#include "_lanes.h"
#undef TARGET

#define VECTORS(NAME, L, DENSE, LONG_ROWS, SPLIT, MERGE, JOIN, DEAL, NARROWEST, TURN_1, LINES)    \
    {NAME, {plain_runs, blocks##L, zip##L, unzip##L, transpose##L},                                \
     {stream_runs##L, stream_blocks##L, stream_zip##L, stream_unzip##L, NULL}, DENSE, LONG_ROWS,   \
     SPLIT, MERGE, JOIN, DEAL, NARROWEST, block##L,                                                 \
     {TURN_1##L, turn_2##L, turn_4##L, turn_8##L, turn_16##L}, LINES, write##L}
#define THESE(...) {__VA_ARGS__}
#define SMALLER_THAN_LINES(NAME, L)                                                                \
    VECTORS(NAME, L, THESE(NULL), THESE(NULL, blocks_unaligned##L), NULL, NULL, NULL, NULL, LINE, turn_1, NO_LINES)
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
static const Isa AVX2 =
    VECTORS("avx2", _2, THESE(NULL),
            THESE(NULL, blocks_unaligned_2, zip_unaligned_2, unzip_unaligned_2, narrow_unaligned_2),
            split_pieces_2, merge_pieces_2, join_several_2, deal_several_2, LINE, turn_1, SOME_LINES);
#define AVX512_WITH(NAME, TURN_1)                                                                  \
    VECTORS(NAME, _4, THESE(NULL, NULL, zip_dense, unzip_dense),                                   \
            THESE(NULL, blocks_unaligned_4, zip_unaligned_4, unzip_unaligned_4, narrow_unaligned_4), \
            split_pieces_4, merge_pieces_4, join_several_4, deal_several_4, 8, TURN_1, ALL_LINES)
static const Isa AVX512 = AVX512_WITH("avx512", turn_1);
static const Isa AVX512_VBMI = AVX512_WITH("avx512vbmi", turn_bytes);
#undef AVX512_WITH

/* <cpuid.h> rather than __builtin_cpu_supports, which needs a symbol from the compiler's runtime that not every
 * linker finds. The system must save the wider registers too, hence xgetbv. */
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

/* Whether a few long rows are joined, or split, without a stage. */
static bool joins(void) { return atomic_load(&chosen)->join; }

/* Whether transposes write whole lines without a stage: all of them, or this one; */
static bool makes_all_lines(void) { return atomic_load(&chosen)->lines == ALL_LINES; }

static bool makes_lines_with(const Isa *isa, const Copy *c)
{
    return isa->lines == ALL_LINES || (isa->lines == SOME_LINES && pays_directly(c));
}

static bool makes_lines(const Copy *c) { return makes_lines_with(atomic_load(&chosen), c); }

/* and whether it then reads long pieces of a few rows, not a line of each of many. On Intel's processors that takes
 * half to three quarters of the time; with vectors of half a line it takes less too, if no lines alias. */
static bool reads_along(const Copy *c)
{
    const bool unlike = c->unlike == LINE / c->width && !is_compound(c) && !makes_all_lines();
    return makes_lines(c) && (intel || unlike);
}

/* Whether blocks are read from many places as well as from one, as Intel's processors do. */
static bool reads_apart(void) { return intel; }
