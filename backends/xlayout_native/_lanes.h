/* _lanes: the kernels, for vectors of LANES x 16 bytes. Included once per size, with TARGET set to
 * the instruction set and NARROWER(kernel) to what serves a box too small for these vectors.
 *
 * The instructions of AVX2 and AVX-512 work within lanes of 16 bytes. Here that is a help: a
 * transpose is LANES small ones side by side, and each column it makes is one full store.
 */
#define V (16 * LANES)
#define N(name) JOIN(name, JOIN(_, LANES))
#define INLINE static inline __attribute__((always_inline)) TARGET

#if LANES == 1
#define MM(name) JOIN(_mm_, name)
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
#define EVERY_LANE(v) (v)
typedef __m128i vec_1;
#elif LANES == 2
#define MM(name) JOIN(_mm256_, name)
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define STREAM(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define EVERY_LANE(v) _mm256_broadcastsi128_si256(v)
typedef __m256i vec_2;
#else
#define MM(name) JOIN(_mm512_, name)
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define EVERY_LANE(v) _mm512_broadcast_i32x4(v)
typedef __m512i vec_4;
#endif
#define VEC N(vec)

/* Past the caches, or through them. */
INLINE void N(put)(uint8_t *to, VEC v, bool past)
{
    if (past) STREAM(to, v);
    else STORE(to, v);
}

#if LANES > 1
/* -- streaming --------------------------------------------------------------------------------- */

TARGET static void N(stream)(uint8_t *to, const uint8_t *from, int64_t count)
{
    int64_t head = -(intptr_t)to & (LINE - 1);
    if (head > count) head = count;
    move_short(to, from, head);
    to += head, from += head, count -= head;
    for (; count >= 4 * V; count -= 4 * V, to += 4 * V, from += 4 * V) {
        VEC a = LOAD(from), b = LOAD(from + V), c = LOAD(from + 2 * V), d = LOAD(from + 3 * V);
        STREAM(to, a);
        STREAM(to + V, b);
        STREAM(to + 2 * V, c);
        STREAM(to + 3 * V, d);
    }
    for (; count >= V; count -= V, to += V, from += V) STREAM(to, LOAD(from));
    move_short(to, from, count);
}

TARGET static void N(stream_runs)(const Box *b, const uint8_t *from, uint8_t *to)
{
    for (int64_t k = 0; k < b->batch; k++)
        N(stream)(to + k * b->batch_out, from + k * b->batch_in, b->rows);
}

/* Blocks of whole lines that start on a line: no stage is needed. */
TARGET static void N(stream_blocks)(const Box *b, const uint8_t *from, uint8_t *to)
{
    for (int64_t k = 0; k < b->batch; k++)
        for (int64_t r = 0; r < b->rows; r++) {
            const uint8_t *s = from + k * b->batch_in + r * b->row_in;
            uint8_t *d = to + k * b->batch_out + r * b->row_out;
            for (int64_t c = 0; c < b->columns; c++, s += b->column_in, d += b->column_out)
                for (int64_t x = 0; x < b->width; x += V) STREAM(d + x, LOAD(s + x));
        }
}

#endif
/* -- two vectors woven into two, and back -------------------------------------------------------- */

/* In each lane: a0 b0 a1 b1 ... of the lower halves, and of the upper ones. */
INLINE void N(unpack)(int width, VEC a, VEC b, VEC *low, VEC *high)
{
    switch (width) {
    case 1: *low = MM(unpacklo_epi8)(a, b), *high = MM(unpackhi_epi8)(a, b); break;
    case 2: *low = MM(unpacklo_epi16)(a, b), *high = MM(unpackhi_epi16)(a, b); break;
    case 4: *low = MM(unpacklo_epi32)(a, b), *high = MM(unpackhi_epi32)(a, b); break;
    case 8: *low = MM(unpacklo_epi64)(a, b), *high = MM(unpackhi_epi64)(a, b); break;
    default: *low = a, *high = b; /* a lane is one element */
    }
}

/* The inverse of unpack. */
INLINE void N(pack)(int width, VEC low, VEC high, VEC *a, VEC *b)
{
    if (width == 16) {
        *a = low, *b = high;
        return;
    }
    if (width < 8) {
        const __m128i apart =
            width == 1   ? _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)
            : width == 2 ? _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
                         : _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15);
        low = MM(shuffle_epi8)(low, EVERY_LANE(apart));
        high = MM(shuffle_epi8)(high, EVERY_LANE(apart));
    }
    *a = MM(unpacklo_epi64)(low, high), *b = MM(unpackhi_epi64)(low, high);
}

/* Lanes of both in turn: low0 high0 low1 high1 ... */
INLINE void N(weave)(VEC low, VEC high, VEC *x, VEC *y)
{
#if LANES == 1
    *x = low, *y = high;
#elif LANES == 2
    *x = _mm256_permute2x128_si256(low, high, 0x20);
    *y = _mm256_permute2x128_si256(low, high, 0x31);
#else
    *x = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    *y = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
#endif
}

/* The inverse of weave. */
INLINE void N(unweave)(VEC x, VEC y, VEC *low, VEC *high)
{
#if LANES < 4
    N(weave)(x, y, low, high);
#else
    *low = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), y);
    *high = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15), y);
#endif
}

/* -- zip and unzip ------------------------------------------------------------------------------- */

/* `ways` rows become one, in log2(ways) rounds that pair row i with row i + ways/2. The last step
 * may overlap the one before: it writes the same bytes again. The next box's rows are fetched along
 * the way: rows are short, and prefetchers lose track where they end. */
INLINE void N(zip_row)(const uint8_t *from, uint8_t *to, const Box *b, int ways, int width, bool past)
{
    const int64_t step = V / width;
    for (int64_t at = 0; at < b->columns; at += step) {
        const bool edge = at + step > b->columns;
        const int64_t c = edge ? b->columns - step : at;
        VEC v[8], w[8];
        for (int k = 0; k < ways; k++) {
            v[k] = LOAD(from + k * b->row_in + c * width);
            AHEAD(from + k * b->row_in + c * width, b->batch_in, 3);
        }
        for (int round = ways; round > 1; round /= 2) {
            for (int k = 0; k < ways / 2; k++) {
                VEC low, high;
                N(unpack)(width, v[k], v[k + ways / 2], &low, &high);
                N(weave)(low, high, &w[2 * k], &w[2 * k + 1]);
            }
            for (int k = 0; k < ways; k++) v[k] = w[k];
        }
        for (int k = 0; k < ways; k++) N(put)(to + c * width * ways + k * V, v[k], past && !edge);
    }
}

/* The inverse: one row of `rows` groups becomes `ways` rows. */
INLINE void N(unzip_row)(const uint8_t *from, uint8_t *to, const Box *b, int ways, int width,
                         bool past)
{
    const int64_t step = V / width;
    for (int64_t at = 0; at < b->rows; at += step) {
        const bool edge = at + step > b->rows;
        const int64_t r = edge ? b->rows - step : at;
        VEC v[8], w[8];
        for (int k = 0; k < ways; k++) v[k] = LOAD(from + r * width * ways + k * V);
        for (int round = ways; round > 1; round /= 2) {
            for (int k = 0; k < ways / 2; k++) {
                VEC low, high;
                N(unweave)(v[2 * k], v[2 * k + 1], &low, &high);
                N(pack)(width, low, high, &w[k], &w[k + ways / 2]);
            }
            for (int k = 0; k < ways; k++) v[k] = w[k];
        }
        for (int k = 0; k < ways; k++)
            N(put)(to + k * b->column_out + r * width, v[k], past && !edge);
    }
}

/* -- transpose ----------------------------------------------------------------------------------- */

/* 16 bytes of one row a lane. */
INLINE VEC N(gather)(const uint8_t *from, int64_t stride)
{
#define PART(k) _mm_loadu_si128((const __m128i *)(from + (k) * stride))
#if LANES == 1
    (void)stride;
    return PART(0);
#elif LANES == 2
    return _mm256_inserti128_si256(_mm256_castsi128_si256(PART(0)), PART(1), 1);
#else
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(PART(0)), PART(1), 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(PART(2)), PART(3), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#endif
#undef PART
}

/* One square a lane, n x n elements, n = 16 / width: lane k holds rows k*n to k*n + n - 1, so that
 * a column of all lanes is V bytes in a row. */
INLINE void N(turn)(const uint8_t *from, int64_t row_in, uint8_t *to, int64_t column_out, int width,
                    bool past)
{
    const int n = 16 / width;
    VEC v[16], w[16];
    for (int k = 0; k < n; k++) v[k] = N(gather)(from + k * row_in, n * row_in);
    for (int round = n; round > 1; round /= 2) {
        for (int k = 0; k < n / 2; k++)
            N(unpack)(width, v[k], v[k + n / 2], &w[2 * k], &w[2 * k + 1]);
        for (int k = 0; k < n; k++) v[k] = w[k];
    }
    for (int k = 0; k < n; k++) N(put)(to + k * column_out, v[k], past);
}

/* Squares down the rows, then across. At the edges they overlap what is there already.
 *
 * The rows of the next squares are fetched while these turn, since no prefetcher follows so many
 * rows at once. Rows a multiple of CROWDED apart compete for the same few places of the cache: those
 * are first laid side by side, a strip at a time. */
INLINE void N(transpose_box)(const uint8_t *from, uint8_t *to, const Box *b, int width, bool past)
{
    enum { STRIP = 512, PITCH = STRIP + LINE };
    const int n = 16 / width, high = n * LANES;
    const bool crowded = b->row_in % CROWDED == 0;
    uint8_t strip[16 * LANES * PITCH];
    for (int64_t row = 0; row < b->rows; row += high) {
        const bool edge = row + high > b->rows;
        const int64_t r = edge ? b->rows - high : row;
        const int64_t next = least(r + high, b->rows - high) - r;
        for (int64_t first = 0; first < b->columns; first += STRIP / width) {
            const int64_t end = least(first + STRIP / width, b->columns);
            const uint8_t *rows = from + r * b->row_in;
            int64_t row_in = b->row_in;
            if (crowded) {
                const int64_t start = end - first < n ? end - n : first;
                for (int k = 0; k < high; k++) {
                    const uint8_t *s = rows + k * row_in + start * width;
                    move(strip + k * PITCH, s, (end - start) * width);
                    for (int64_t x = 0; x < (end - start) * width; x += LINE)
                        AHEAD(s + x, next * row_in, 2);
                }
                rows = strip - start * width;
                row_in = PITCH;
            }
            for (int64_t column = first; column < end; column += n) {
                const int64_t c = column + n > end ? end - n : column;
                if (!crowded) {
                    const int part = (int)(column / n % 4);
                    for (int k = part * high / 4; k < (part + 1) * high / 4; k++)
                        AHEAD(rows + k * row_in + c * width, next * row_in, 3);
                }
                N(turn)(rows + c * width, row_in, to + c * b->column_out + r * width, b->column_out,
                        width, past && !edge);
            }
        }
    }
}

/* -- kernels: the width, the ways and the kind of store as constants ----------------------------- */

#define EACH_BOX(ROW, ...)                                                                         \
    for (int64_t k = 0; k < b->batch; k++)                                                         \
        N(ROW)(from + k * b->batch_in, to + k * b->batch_out, b, __VA_ARGS__)
#define EACH_WIDTH(CASE)                                                                           \
    switch (b->width) {                                                                            \
    case 1: CASE(1); break;                                                                        \
    case 2: CASE(2); break;                                                                        \
    case 4: CASE(4); break;                                                                        \
    case 8: CASE(8); break;                                                                        \
    default: CASE(16);                                                                             \
    }

INLINE void N(zip_to)(const Box *b, const uint8_t *from, uint8_t *to, bool past)
{
#define CASE(W)                                                                                    \
    if (b->rows == 2) EACH_BOX(zip_row, 2, W, past);                                               \
    else if (b->rows == 4) EACH_BOX(zip_row, 4, W, past);                                          \
    else EACH_BOX(zip_row, 8, W, past)
    if (b->columns * b->width < V) NARROWER(zip)(b, from, to);
    else EACH_WIDTH(CASE)
#undef CASE
}

INLINE void N(unzip_to)(const Box *b, const uint8_t *from, uint8_t *to, bool past)
{
#define CASE(W)                                                                                    \
    if (b->columns == 2) EACH_BOX(unzip_row, 2, W, past);                                          \
    else if (b->columns == 4) EACH_BOX(unzip_row, 4, W, past);                                     \
    else EACH_BOX(unzip_row, 8, W, past)
    if (b->rows * b->width < V) NARROWER(unzip)(b, from, to);
    else EACH_WIDTH(CASE)
#undef CASE
}

INLINE void N(transpose_to)(const Box *b, const uint8_t *from, uint8_t *to, bool past)
{
#define CASE(W) EACH_BOX(transpose_box, W, past)
    if (b->rows * b->width < V || b->columns * b->width < 16) NARROWER(transpose)(b, from, to);
    else EACH_WIDTH(CASE)
#undef CASE
}

#define KERNEL(NAME, TO, PAST)                                                                     \
    TARGET static void N(NAME)(const Box *b, const uint8_t *from, uint8_t *to)                     \
    {                                                                                              \
        N(TO)(b, from, to, PAST);                                                                  \
    }
KERNEL(zip, zip_to, false)
KERNEL(unzip, unzip_to, false)
KERNEL(transpose, transpose_to, false)
#if LANES > 1
KERNEL(stream_zip, zip_to, true)
KERNEL(stream_unzip, unzip_to, true)
#endif
#if LANES == 4 /* a smaller vector is part of a line, and the other part comes much later */
KERNEL(stream_transpose, transpose_to, true)
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
#undef VEC
#undef EACH_BOX
#undef EACH_WIDTH
#undef LANES
#undef NARROWER
