/* _weave: rows interleaved into one (zip) and dealt out again (unzip), in vectors. A part of _lanes.h: once per
 * vector size. */

/* -- two vectors interleaved into two, and back -------------------------------------------------- */

/* Within each lane, interleaves the lower halves, a0 b0 a1 b1 ..., and the upper halves. */
INLINE void N(unpack)(int width, VEC a, VEC b, VEC *low, VEC *high)
{
    switch (width) {
    case 1: *low = MM(unpacklo_epi8)(a, b), *high = MM(unpackhi_epi8)(a, b); break;
    case 2: *low = MM(unpacklo_epi16)(a, b), *high = MM(unpackhi_epi16)(a, b); break;
    case 4: *low = MM(unpacklo_epi32)(a, b), *high = MM(unpackhi_epi32)(a, b); break;
    case 8: *low = MM(unpacklo_epi64)(a, b), *high = MM(unpackhi_epi64)(a, b); break;
    default: *low = a, *high = b; /* a lane is one element, or a part of one */
    }
}

/* The inverse of unpack. */
INLINE void N(pack)(int width, VEC low, VEC high, VEC *a, VEC *b)
{
    if (width >= 16) {
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

/* Alternates the lanes of both: low0 high0 low1 high1 ...; or pairs of lanes, if an element is one. */
INLINE void N(weave)(int width, VEC low, VEC high, VEC *x, VEC *y)
{
    if (width >= V) {
        *x = low, *y = high;
        return;
    }
#if LANES == 1
    *x = low, *y = high;
#elif LANES == 2
    *x = _mm256_permute2x128_si256(low, high, 0x20);
    *y = _mm256_permute2x128_si256(low, high, 0x31);
#else
    if (width == 32) {
        *x = _mm512_shuffle_i64x2(low, high, 0x44), *y = _mm512_shuffle_i64x2(low, high, 0xee);
        return;
    }
    *x = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    *y = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
#endif
}

/* The inverse of weave. */
INLINE void N(unweave)(int width, VEC x, VEC y, VEC *low, VEC *high)
{
#if LANES < 4
    N(weave)(width, x, y, low, high);
#else
    if (width == 32) {
        N(weave)(width, x, y, low, high);
        return;
    }
    *low = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), y);
    *high = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15), y);
#endif
}

/* -- zip and unzip ------------------------------------------------------------------------------- */

/* Interleaves vectors, in log2(ways) rounds that pair number i with i + ways/2. */
INLINE void N(zip_loaded)(VEC *v, int ways, int width)
{
    VEC w[8];
    for (int round = ways; round > 1; round /= 2) {
        for (int k = 0; k < ways / 2; k++) {
            VEC low, high;
            N(unpack)(width, v[k], v[k + ways / 2], &low, &high);
            N(weave)(width, low, high, &w[2 * k], &w[2 * k + 1]);
        }
        for (int k = 0; k < ways; k++) v[k] = w[k];
    }
}

/* Loads a vector from each of `ways` rows and interleaves them. */
INLINE void N(zip_vectors)(VEC *v, const uint8_t *from, int64_t row_in, int ways, int width)
{
    for (int k = 0; k < ways; k++) v[k] = LOAD(from + k * row_in);
    N(zip_loaded)(v, ways, width);
}

/* The inverse: takes vectors from one row of groups apart into a vector of each of `ways` rows. */
INLINE void N(unzip_vectors)(VEC *v, const uint8_t *from, int ways, int width)
{
    VEC w[8];
    for (int k = 0; k < ways; k++) v[k] = LOAD(from + k * V);
    for (int round = ways; round > 1; round /= 2) {
        for (int k = 0; k < ways / 2; k++) {
            VEC low, high;
            N(unweave)(width, v[2 * k], v[2 * k + 1], &low, &high);
            N(pack)(width, low, high, &w[k], &w[k + ways / 2]);
        }
        for (int k = 0; k < ways; k++) v[k] = w[k];
    }
}

/* Streams part of what vectors hold: less than a line, or starting on one. Unlike stores through the caches,
 * streamed vectors may not overlap earlier ones: a line that was just streamed would have to be read back.
 *
 * The two functions below run once or twice per row, so they are not specialised for every width and number of
 * ways.
 */
INLINE void N(stream_part)(uint8_t *to, const uint8_t *made, int64_t count)
{
    for (; count >= LINE; count -= LINE, to += LINE, made += LINE) N(stream_line)(to, made);
    move_short(to, made, count);
}

NOINLINE TARGET static void N(zip_part)(const uint8_t *from, uint8_t *to, const Box *b, int ways, int width,
                                        int64_t at, int64_t count)
{
    const int64_t c = min(at, b->columns * width - V);
    uint8_t made[8 * V];
    VEC v[8];
    N(zip_vectors)(v, from + c, b->row_in, ways, width);
    for (int k = 0; k < ways; k++) STORE(made + k * V, v[k]);
    N(stream_part)(to + at * ways, made + (at - c) * ways, count * ways);
}

NOINLINE TARGET static void N(unzip_part)(const uint8_t *from, uint8_t *to, const Box *b, int ways, int width,
                                          int64_t at, int64_t count)
{
    const int64_t r = min(at, b->rows * width - V);
    uint8_t made[V];
    VEC v[8];
    N(unzip_vectors)(v, from + r * ways, ways, width);
    for (int k = 0; k < ways; k++) {
        STORE(made, v[k]);
        N(stream_part)(to + k * b->column_out + at, made + (at - r), count);
    }
}

/* Zips `ways` rows into one. Through the caches, the last step may overlap the one before it and write the same
 * bytes again. Prefetches short, adjacent rows in memory order, well ahead; in long rows, what comes next in
 * each; and for writing, the line that the end of the result shares with something else. */
INLINE void N(zip_row)(const uint8_t *from, const uint8_t *next, uint8_t *to, const Box *b, int ways,
                       int width, bool stream, bool prefetch)
{
    const int64_t count = b->columns * width, wrap = count - AHEAD / ways;
    const bool together = b->row_in == count && count * ways <= L1_SHARE;
    const int64_t ahead = max(AHEAD - count * ways, 0);
    const int64_t head = stream ? min((int64_t)(-(uintptr_t)to & (LINE - 1)) / ways, count) : 0;
    if (stream && (uintptr_t)(to + count * ways) % LINE) PREFETCH_FOR_WRITE(to + count * ways);
    for (int64_t x = 0; x < head; x += V)
        N(zip_part)(from, to, b, ways, width, x, min(head - x, V));
    int64_t at = head;
    for (; at < count; at += V) {
        const bool edge = at + V > count;
        if (stream && edge) break;
        const int64_t c = edge ? count - V : at;
        VEC v[8];
        N(zip_vectors)(v, from + c, b->row_in, ways, width);
        for (int k = 0; prefetch && k < ways; k++) {
            if (together) PREFETCH(next, ahead + c * ways + k * V, 3);
            else if ((c - head) % LINE == 0)
                PREFETCH_ONCE(c < wrap ? from : next, k * b->row_in + (c < wrap ? c + AHEAD / ways : c - wrap));
        }
        for (int k = 0; k < ways; k++) N(put)(to + c * ways + k * V, v[k], stream);
    }
    if (stream && at < count) N(zip_part)(from, to, b, ways, width, at, count - at);
}

/* Streams `count` bytes to each of `ways` rows, from where they were assembled. */
INLINE void N(put_burst)(uint8_t *to, int64_t column_out, uint8_t (*made)[BURST(LANES) + LINE], int ways, int64_t count)
{
    for (int k = 0; k < ways; k++)
        for (int64_t x = 0; x < count; x += LINE) N(stream_line)(to + k * column_out + x, made[k] + x);
}

/* Unzips one row of `rows` groups into `ways` rows. When streaming, all of these start equally far past a line.
 * If they alias, several lines of each are assembled and then written in turn (see BURST). */
INLINE void N(unzip_row)(const uint8_t *from, const uint8_t *next, uint8_t *to, const Box *b, int ways,
                         int width, bool stream, bool prefetch)
{
    const int64_t count = b->rows * width, ahead = ahead_in(count * ways), wrap = count * ways - ahead;
    const int64_t head = stream ? min((int64_t)(-(uintptr_t)to & (LINE - 1)), count) : 0;
    if (stream && (uintptr_t)(to + count) % LINE)
        for (int k = 0; k < ways; k++) PREFETCH_FOR_WRITE(to + k * b->column_out + count);
    for (int64_t x = 0; x < head; x += V)
        N(unzip_part)(from, to, b, ways, width, x, min(head - x, V));
    const int64_t burst = BURST(LANES), lines = (count - head) / LINE * LINE;
    const int64_t bursts = stream && burst && lines_unlike(ways, b->column_out) < ways ? head + lines : 0;
    _Alignas(LINE) uint8_t made[8][BURST(LANES) + LINE];
    int64_t at = head;
    for (; at < count; at += V) {
        const bool edge = at + V > count;
        if (stream && edge) break;
        const int64_t r = edge ? count - V : at;
        VEC v[8];
        N(unzip_vectors)(v, from + r * ways, ways, width);
        for (int k = 0; prefetch && k < ways; k++) {
            const int64_t x = r * ways + k * V;
            if ((x - head * ways) % LINE == 0) PREFETCH_ONCE(x < wrap ? from : next, x < wrap ? x + ahead : x - wrap);
        }
        if (at >= bursts) {
            for (int k = 0; k < ways; k++) N(put)(to + k * b->column_out + r, v[k], stream);
            continue;
        }
        const int64_t filled = (at - head) & (burst - 1);
        for (int k = 0; k < ways; k++) STORE(made[k] + filled, v[k]);
        uint8_t *start = to + at - filled;
        if (filled + V == burst) N(put_burst)(start, b->column_out, made, ways, burst);
        else if (at + V == bursts) N(put_burst)(start, b->column_out, made, ways, filled + V);
    }
    if (stream && at < count) N(unzip_part)(from, to, b, ways, width, at, count - at);
}
