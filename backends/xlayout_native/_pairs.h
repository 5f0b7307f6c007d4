/* _pairs: pairs in short rows, that are zipped or unzipped; elements, or halves of a line. A part of _lanes.h, for
 * vectors of a line. */

INLINE __m512i load_part(const uint8_t *from, int64_t count)
{
    if (count >= LINE) return LOAD(from);
    return count > 0 ? _mm512_maskz_loadu_epi8((1ULL << count) - 1, from) : _mm512_setzero_si512();
}

typedef enum {
    EVEN, ODD, /* the even, or the odd, elements of two vectors */
    APART,     /* of one vector: the even elements, then the odd ones */
    WOVEN,     /* of one vector: elements of both halves alternately */
} Pick;

INLINE __m512i pick_index(Pick pick, int width)
{
    _Alignas(LINE) uint8_t made[LINE];
    const int64_t half = LINE / width / 2;
    for (int64_t k = 0; k < 2 * half; k++) {
        const int64_t at = pick == EVEN ? 2 * k : pick == ODD ? 2 * k + 1
                           : pick == APART ? 2 * (k % half) + k / half : k / 2 + k % 2 * half;
        memcpy(made + k * width, &at, (size_t)width); /* its low bytes: x86 is little-endian */
    }
    return LOAD(made);
}

INLINE __m512i picked(int width, Pick pick, __m512i index, __m512i x, __m512i y)
{
    switch (width) {
    case 2: return _mm512_permutex2var_epi16(x, index, y);
    case 4: return _mm512_permutex2var_epi32(x, index, y);
    case 8: return _mm512_permutex2var_epi64(x, index, y);
    }
    if (pick == WOVEN) {
        x = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
        return _mm512_unpacklo_epi8(x, _mm512_bsrli_epi128(x, 8));
    }
    const __m512i low = _mm512_set1_epi16(0xff);
    const __m512i a = pick == ODD ? _mm512_srli_epi16(x, 8) : _mm512_and_si512(x, low);
    const __m512i b = pick == EVEN ? _mm512_and_si512(y, low) : _mm512_srli_epi16(y, 8);
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packus_epi16(a, b));
}

/* Appends the even or the odd elements of a row of pairs. */
INLINE void put_half(DENSE *d, const uint8_t *from, int64_t half, Pick pick, __m512i index, int width)
{
    int64_t x = 0;
    for (; x + LINE <= half; x += LINE, from += 2 * LINE)
        put_dense_4(d, picked(width, pick, index, LOAD(from), LOAD(from + LINE)), LINE, width);
    const int64_t rest = half - x;
    if (!rest) return;
    const __m512i last = load_part(from + LINE, 2 * rest - LINE);
    put_dense_4(d, picked(width, pick, index, load_part(from, 2 * rest), last), rest, width);
}

/* Unzips rows of pairs into two halves each, which are adjacent in the output. */
INLINE void unzip_pairs(const Box *b, const uint8_t *from, uint8_t *to, int width)
{
    const int64_t half = b->rows * width;
    const int64_t ahead = ahead_in(b->batch_in == 2 * half ? INT64_MAX : 2 * half);
    const __m512i even = pick_index(EVEN, width), odd = pick_index(ODD, width);
    const __m512i apart = pick_index(APART, width);
    DENSE d;
    begin_dense_4(&d, to);
    for (int64_t k = 0; k < b->batch; k++) {
        const uint8_t *s = from + k * b->batch_in;
        for (int64_t x = 0; x < 2 * half; x += LINE) PREFETCH_ONCE(s, x + ahead);
        if (2 * half == LINE) {
            const __m512i v = LOAD(s);
            put_dense_4(&d, picked(width, APART, apart, v, v), LINE, width);
            continue;
        }
        put_half(&d, s, half, EVEN, even, width);
        put_half(&d, s, half, ODD, odd, width);
    }
    end_dense_4(&d, NULL, 0, 0);
}

/* Zips the first vectors of two halves, or `count` bytes of each. */
INLINE void put_woven(DENSE *d, __m512i a, __m512i b, int64_t count, int width)
{
    __m512i low, high, first, second;
    unpack_4(width, a, b, &low, &high);
    weave_4(width, low, high, &first, &second);
    put_dense_4(d, first, min(2 * count, LINE), width);
    if (2 * count > LINE) put_dense_4(d, second, 2 * count - LINE, width);
}

/* The inverse: zips two halves into each row. */
INLINE void zip_pairs(const Box *b, const uint8_t *from, uint8_t *to, int width)
{
    const int64_t half = b->columns * width;
    const __m512i woven = pick_index(WOVEN, width);
    DENSE d;
    begin_dense_4(&d, to);
    for (int64_t k = 0; k < b->batch; k++) {
        const uint8_t *s = from + k * b->batch_in, *other = s + b->row_in;
        if (2 * half == LINE) {
            const __m512i v = LOAD(s);
            PREFETCH_ONCE(s, AHEAD);
            put_dense_4(&d, picked(width, WOVEN, woven, v, v), LINE, width);
            continue;
        }
        for (int64_t x = 0; x < half; x += LINE) PREFETCH_ONCE(s, x + AHEAD), PREFETCH_ONCE(other, x + AHEAD);
        int64_t x = 0;
        for (; x + LINE <= half; x += LINE) put_woven(&d, LOAD(s + x), LOAD(other + x), LINE, width);
        const int64_t rest = half - x;
        if (rest) put_woven(&d, load_part(s + x, rest), load_part(other + x, rest), rest, width);
    }
    end_dense_4(&d, NULL, 0, 0);
}

#define PAIRS(NAME)                                                                                \
    TARGET static void NAME##_dense(const Box *b, const uint8_t *from, uint8_t *to)                \
    {                                                                                              \
        switch (b->width) {                                                                        \
        case 1: NAME##_pairs(b, from, to, 1); break;                                               \
        case 2: NAME##_pairs(b, from, to, 2); break;                                               \
        case 4: NAME##_pairs(b, from, to, 4); break;                                               \
        default: NAME##_pairs(b, from, to, 8);                                                     \
        }                                                                                          \
    }
PAIRS(zip)
PAIRS(unzip)
#undef PAIRS
