/* _lanes: the vector kernels, for vectors of LANES x 16 bytes.
 *
 * Included once per size, with TARGET set to the instruction set and NARROWER(kernel) to the kernel for boxes
 * that are too small for these vectors.
 *
 * The instructions of AVX2 and AVX-512 work within lanes of 16 bytes. That is an advantage here: a transpose is
 * LANES small ones side by side, and each column it makes is one full store.
 */
#define V (16 * LANES)
#define N(name) JOIN(name, JOIN(_, LANES))
#define INLINE ALWAYS_INLINE TARGET

#if LANES == 1
#define MM(name) JOIN(_mm_, name)
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
#define EVERY_LANE(v) (v)
#define OR(x, y) _mm_or_si128(x, y)
typedef __m128i vec_1;
#elif LANES == 2
#define MM(name) JOIN(_mm256_, name)
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define STREAM(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define EVERY_LANE(v) _mm256_broadcastsi128_si256(v)
#define OR(x, y) _mm256_or_si256(x, y)
typedef __m256i vec_2;
#else
#define MM(name) JOIN(_mm512_, name)
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define EVERY_LANE(v) _mm512_broadcast_i32x4(v)
#define OR(x, y) _mm512_or_si512(x, y)
typedef __m512i vec_4;
#define COUNT_WORDS                                                                                \
    _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,   \
                     12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_BYTES                                                                                \
    _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130, 0x2f2e2d2c2b2a2928, 0x2726252423222120, \
                     0x1f1e1d1c1b1a1918, 0x1716151413121110, 0x0f0e0d0c0b0a0908, 0x0706050403020100)
#endif
#define VEC N(vec)

INLINE void N(put)(uint8_t *to, VEC v, bool stream)
{
    if (stream) STREAM(to, v);
    else STORE(to, v);
}

INLINE void N(stream_line)(uint8_t *to, const uint8_t *from)
{
    VEC v[LINE / V];
    for (int k = 0; k < LINE / V; k++) v[k] = LOAD(from + k * V);
    for (int k = 0; k < LINE / V; k++) STREAM(to + k * V, v[k]);
}

/* -- streaming --------------------------------------------------------------------------------- */

/* Copies a run with streaming stores. Prefetches `ahead` bytes ahead, first within the run and then in `next`:
 * left to itself, the hardware would start over at each page and at each run. */
INLINE void N(streamed)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *next, int64_t ahead)
{
    const int64_t head = min(-(intptr_t)to & (LINE - 1), count), wrap = count - ahead;
    move_short(to, from, head);
    int64_t at = head;
    for (; at + LINE <= count; at += LINE) {
        if (ahead) PREFETCH_ONCE(at < wrap ? from + at + ahead : next, at < wrap ? 0 : at - wrap);
        N(stream_line)(to + at, from + at);
    }
    move_short(to + at, from + at, count - at);
}

/* Streams about `bytes` bytes of what is pending in the stage, stopping at the end of a line. */
TARGET static void N(write)(Pending *w, int64_t bytes)
{
    for (; w->copy && bytes > 0; next_segment(w)) {
        const uint8_t *from = w->from;
        uint8_t *to = w->to;
        int64_t at = w->at;
        const int64_t head = min(-(intptr_t)(to + at) & (LINE - 1), w->end - at);
        if (head > 0) move_short(to + at, from + at, head), at += head;
        const int64_t stop = w->end - at > bytes ? at + bytes : w->end;
        bytes -= stop - at;
        for (; at + LINE <= stop; at += LINE) N(stream_line)(to + at, from + at);
        if (stop < w->end) {
            w->at = at;
            return;
        }
        if (at < stop) move_short(to + at, from + at, stop - at);
    }
}

/* The lines at a run's ends may be written only in part. They are prefetched while the run before is copied;
 * otherwise the streaming stores would wait for them. */
TARGET static void N(stream_runs)(const Box *b, const uint8_t *from, uint8_t *to)
{
    for (int64_t k = 0; k < b->batch; k++) {
        const bool more = k + 1 < b->batch;
        const uint8_t *s = from + k * b->batch_in;
        uint8_t *d = to + k * b->batch_out;
        if (more && ((uintptr_t)(d + b->batch_out) | (uintptr_t)b->rows) % LINE)
            PREFETCH_FOR_WRITE(d + b->batch_out), PREFETCH_FOR_WRITE(d + b->batch_out + b->rows);
        N(streamed)(d, s, b->rows, more ? s + b->batch_in : b->next, AHEAD);
    }
}

/* One vector out of two: `before` from byte `skip` on, then as much of `v` as fits. */
#if LANES == 4
INLINE VEC N(splice)(VEC before, VEC v, int64_t skip, int width)
{
    const VEC at = _mm512_add_epi16(COUNT_WORDS, _mm512_set1_epi16((short)(skip / 2)));
    const VEC line = _mm512_permutex2var_epi16(before, at, v);
    if (width > 1 || skip % 2 == 0) return line;
    const VEC after = _mm512_add_epi16(at, _mm512_set1_epi16(1));
    return _mm512_or_si512(_mm512_srli_epi16(line, 8),
                           _mm512_slli_epi16(_mm512_permutex2var_epi16(before, after, v), 8));
}

/* The same in one permutation of bytes (AVX512_VBMI). It is inline assembly because a function compiled for that
 * extension cannot be inlined into one compiled for all of AVX-512. */
INLINE VEC N(splice_bytes)(VEC before, VEC v, int64_t skip)
{
    const VEC at = _mm512_add_epi8(COUNT_BYTES, _mm512_set1_epi8((char)skip));
    __asm__("vpermt2b %2, %1, %0" : "+v"(before) : "v"(at), "v"(v));
    return before;
}
#elif LANES == 2
INLINE VEC N(splice)(VEC before, VEC v, int64_t skip, int width)
{
    (void)width;
    const VEC middle = _mm256_permute2x128_si256(before, v, 0x21);
    const uint8_t *places = PLACES + skip % 16;
    if (skip & 16) before = middle;
    else v = middle;
    before = _mm256_shuffle_epi8(before, EVERY_LANE(LOAD_16(places + 16)));
    return OR(before, _mm256_shuffle_epi8(v, EVERY_LANE(LOAD_16(places))));
}
#endif

#if LANES == 4
#include "_short.h"
#endif
#include "_blocks.h"
#include "_weave.h"
#include "_store.h"
#include "_turn.h"
#include "_narrow.h"

/* -- kernels, with the width, the ways and the kind of store as constants ------------------------ */

#define EACH_ROW(ROW, ...)                                                                         \
    for (int64_t k = 0; k < b->batch; k++) {                                                       \
        const uint8_t *s = from + k * b->batch_in;                                                 \
        ROW(s, k + 1 < b->batch ? s + b->batch_in : b->next, to + k * b->batch_out, b, __VA_ARGS__);\
    }
#define EACH_WAYS(WAYS, ROW, ...)                                                                  \
    switch (WAYS) {                                                                                \
    case 2: EACH_ROW(ROW, 2, __VA_ARGS__) break;                                                   \
    case 4: EACH_ROW(ROW, 4, __VA_ARGS__) break;                                                   \
    default: EACH_ROW(ROW, 8, __VA_ARGS__)                                                         \
    }
#define EACH_WIDTH(CASE, WIDEST)                                                                   \
    switch (b->width) {                                                                            \
    case 1: CASE(1); break;                                                                        \
    case 2: CASE(2); break;                                                                        \
    case 4: CASE(4); break;                                                                        \
    case 8: CASE(8); break;                                                                        \
    case 16: CASE(16); break;                                                                      \
    default: CASE(WIDEST);                                                                         \
    }

/* An element that is two vectors wide goes to a narrower kernel too: plain C moves it in one piece. */
INLINE void N(zip_to)(const Box *b, const uint8_t *from, uint8_t *to, bool stream, bool prefetch)
{
#define CASE(W) EACH_WAYS(b->rows, N(zip_row), W, stream, prefetch)
    if (b->columns * b->width < V || b->width > V) NARROWER(zip)(b, from, to);
    else EACH_WIDTH(CASE, 32)
#undef CASE
}

INLINE void N(unzip_to)(const Box *b, const uint8_t *from, uint8_t *to, bool stream, bool prefetch)
{
#define CASE(W) EACH_WAYS(b->columns, N(unzip_row), W, stream, prefetch)
    if (b->rows * b->width < V || b->width > V) NARROWER(unzip)(b, from, to);
    else EACH_WIDTH(CASE, 32)
#undef CASE
}

TARGET static void N(transpose)(const Box *b, const uint8_t *from, uint8_t *to)
{
#define CASE(W)                                                                                    \
    for (int64_t k = 0; k < b->batch; k++)                                                         \
        N(transpose_box)(from + k * b->batch_in, to + k * b->batch_out, b, W)
    const int64_t high = b->rows * b->width, wide = b->columns * b->width, limit = table_limit(b->width, LANES);
    const bool apart = b->columns < limit && b->row_in == wide;
    const bool together = b->rows < limit && b->column_out == high;
    if (apart && high >= V) N(narrow)(b, from, to, true);
    else if (together && wide >= V) N(narrow)(b, from, to, false);
    else if (high < V || wide < 16) NARROWER(transpose)(b, from, to);
    else EACH_WIDTH(CASE, 16)
#undef CASE
}

#define KERNEL(NAME, TO, STREAMS)                                                                  \
    TARGET static void N(NAME)(const Box *b, const uint8_t *from, uint8_t *to)                     \
    {                                                                                              \
        if (STREAMS || b->next) N(TO)(b, from, to, STREAMS, true);                                 \
        else N(TO)(b, from, to, STREAMS, false);                                                   \
    }
KERNEL(zip, zip_to, false)
KERNEL(unzip, unzip_to, false)
KERNEL(stream_zip, zip_to, true)
KERNEL(stream_unzip, unzip_to, true)
#if LANES >= 2
#include "_dense.h"
#include "_join.h"
#include "_split.h"
#endif
#if LANES == 4
#include "_pairs.h"
#endif

#undef KERNEL
#undef V
#undef N
#undef INLINE
#undef MM
#undef LOAD
#undef STORE
#undef STREAM
#undef EVERY_LANE
#undef OR
#undef VEC
#undef DENSE
#undef EACH_ROW
#undef EACH_WAYS
#undef EACH_WIDTH
#undef EACH_NUMBER
#undef LANES
#undef NARROWER
