/* _blocks: blocks of a line and more, with streaming stores. A part of _lanes.h: once per vector size.
 *
 * Blocks that are whole lines are streamed as they are. Others start anywhere: where one begins right behind the
 * previous one, the line at the seam is assembled from both; elsewhere each stores its own part of that line.
 */

#if LANES < 4
/* 16 bytes of a seam: `count` from the block that ends at `end + count`, the rest from the one that starts at
 * `start + count`. Only the blocks themselves are read, each being at least that long: what lies outside them
 * may not be ours to read. */
INLINE __m128i N(end_and_start_16)(const uint8_t *end, const uint8_t *start, int64_t count)
{
    if (count <= 0) return LOAD_16(start);
    if (count >= 16) return LOAD_16(end);
    const __m128i last = _mm_shuffle_epi8(LOAD_16(end + count - 16), LOAD_16(PLACES + 32 - count));
    return _mm_or_si128(last, _mm_shuffle_epi8(LOAD_16(start + count), LOAD_16(PLACES + 16 - count)));
}

/* The same for a whole vector. */
INLINE VEC N(end_and_start)(const uint8_t *end, const uint8_t *start, int64_t count)
{
#if LANES == 1
    return N(end_and_start_16)(end, start, count);
#else
    if (count <= 0) return LOAD(start);
    if (count >= V) return LOAD(end);
    const __m256i low = _mm256_castsi128_si256(N(end_and_start_16)(end, start, count));
    return _mm256_inserti128_si256(low, N(end_and_start_16)(end + 16, start + 16, count - 16), 1);
#endif
}
#endif

/* Streams the line that holds the end of one block and the start of the next. */
INLINE void N(put_seam)(const Seam *seam, const uint8_t *from, int64_t part)
{
#if LANES == 4
    const __mmask64 after = ~0ULL << part;
    const VEC before = _mm512_maskz_loadu_epi8(~after, seam->from - part);
    STREAM(seam->to - part, _mm512_mask_loadu_epi8(before, after, from - part));
#else
    const uint8_t *ends = seam->from - part, *starts = from - part;
    for (int64_t k = 0; k < LINE; k += V)
        STREAM(seam->to - part + k, N(end_and_start)(ends + k, starts + k, part - k));
#endif
}

/* Streams a block while prefetching as many bytes from `upcoming + ahead`. Without a seam, blocks are whole lines. */
INLINE void N(put_block)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *upcoming, int64_t ahead,
                         Seam *seam)
{
    const int64_t part = seam ? (int64_t)((uintptr_t)to & (LINE - 1)) : 0;
    int64_t x = -part & (LINE - 1);
    if (seam && seam->to != to) {
        close_seam(seam);
        move_short(to, from, x);
    } else if (part) {
        N(put_seam)(seam, from, part);
    }
    for (; x + LINE <= count; x += LINE) {
        PREFETCH_ONCE(upcoming, ahead + x);
        N(stream_line)(to + x, from + x);
    }
    if (!seam) return;
    PREFETCH_ONCE(upcoming, ahead + x);
    *seam = (Seam){to + count, from + count};
}

TARGET static void N(block)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *upcoming, Seam *seam)
{
    N(put_block)(to, from, count, upcoming, 0, seam);
}

INLINE void N(rows_of_blocks)(const Box *b, const uint8_t *from, uint8_t *to, Seam *seam)
{
    const int64_t blocks = (AHEAD + b->width - 1) / b->width, wrap = b->columns - blocks;
    for (int64_t k = 0; k < b->batch; k++)
        for (int64_t r = 0; r < b->rows; r++) {
            const uint8_t *s = from + k * b->batch_in + r * b->row_in;
            const uint8_t *next = r + 1 < b->rows ? s + b->row_in
                                  : k + 1 < b->batch ? from + (k + 1) * b->batch_in : b->next;
            uint8_t *d = to + k * b->batch_out + r * b->row_out;
            for (int64_t c = 0; c < b->columns; c++, s += b->column_in, d += b->column_out) {
                const uint8_t *upcoming = c < wrap ? s : next;
                const int64_t ahead = (c < wrap ? blocks : c - max(wrap, 0)) * b->column_in;
                if (seam && b->column_out != b->width)
                    PREFETCH_FOR_WRITE(d + b->column_out), PREFETCH_FOR_WRITE(d + b->column_out + b->width);
                N(put_block)(d, s, b->width, upcoming, ahead, seam);
            }
        }
}

/* Bytes of blocks that are written to one of these columns before the next; 0: a single block. */
INLINE int64_t N(burst_of)(const Box *b)
{
    if (intel) return INTEL_BURST;
    return lines_unlike(b->columns, b->column_out) < b->columns ? BURST(LANES) : 0;
}

/* Each column continues in the next row, so except in the first row every block follows the one before it. Without
 * seams, blocks are whole lines. Prefetching looks as far ahead as a burst reads. */
INLINE void N(rows_dealt)(const Box *b, const uint8_t *from, uint8_t *to, Seam *seams)
{
    const int64_t width = b->width, high = max(N(burst_of)(b) / width, 1);
    const int64_t ahead = high > 1 ? high * b->row_in : AHEAD;
    for (int64_t k = 0; k < b->batch; k++) {
        const uint8_t *s = from + k * b->batch_in;
        uint8_t *d = to + k * b->batch_out;
        for (int64_t band = 0, end; band < b->rows; band = end) {
            end = band || !seams ? min(band + high, b->rows) : 1;
            for (int64_t c = 0; c < b->columns; c++) {
                const uint8_t *x = s + band * b->row_in + c * width;
                uint8_t *y = d + c * b->column_out + band * width;
                if (seams && !band) PREFETCH_FOR_WRITE(y + b->rows * width);
                for (int64_t r = band; r < end; r++, x += b->row_in, y += width)
                    N(put_block)(y, x, width, x, ahead, seams ? seams + c : NULL);
            }
        }
    }
}

#if LANES == 4
/* A block of exactly a line is also best assembled in a vector; but if four or more are dealt out in turn, it is
 * faster to read them in order. */
static bool fill_vectors(const Box *b)
{
    return b->width < LINE || (b->width == LINE && (b->columns < 4 || !has_seams(b)));
}
#endif

TARGET static void N(blocks_unaligned)(const Box *b, const uint8_t *from, uint8_t *to)
{
#if LANES == 4
    if (fill_vectors(b)) {
        N(short_blocks)(b, from, to);
        return;
    }
#endif
    const bool each = has_seams(b);
    const int64_t count = each ? b->columns : 1;
    Seam seams[SEAMS];
    for (int64_t k = 0; k < count; k++) seams[k] = (Seam){0};
    if (each) N(rows_dealt)(b, from, to, seams);
    else N(rows_of_blocks)(b, from, to, seams);
    for (int64_t k = 0; k < count; k++) close_seam(&seams[k]);
}

TARGET static void N(stream_blocks)(const Box *b, const uint8_t *from, uint8_t *to)
{
    if ((BURST(LANES) || intel) && has_seams(b)) {
        N(rows_dealt)(b, from, to, NULL);
        return;
    }
#if LANES == 4
    if (intel && b->width == LINE && (b->row_out == LINE || b->column_out == LINE)) {
        N(short_blocks)(b, from, to);
        return;
    }
#endif
    N(rows_of_blocks)(b, from, to, NULL);
}

/* Blocks of any width that stay in the caches. */
TARGET static void N(blocks)(const Box *b, const uint8_t *from, uint8_t *to) { each_block(b, from, to); }
