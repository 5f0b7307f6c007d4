/* _short: blocks of a line at the most, of any width, to any address. A part of _lanes.h for vectors of a line.
 *
 * Each goes to its place in a vector, by a load under a mask, and the vector to memory once it is full.
 */

/* A line that is being filled. */
typedef struct {
    uint8_t *line;
    int64_t part;   /* bytes of it that are there, or are another's before the first block */
    __mmask64 ours; /* those that are not */
    VEC held;
} Filling;

enum { FILLINGS = 64 }; /* at a time */

INLINE void N(flush_partial)(const Filling *f)
{
    if (f->part) _mm512_mask_storeu_epi8(f->line, f->ours & ((1ULL << f->part) - 1), f->held);
}

/* Blocks that follow one another in the output. Meanwhile, what lies at `soon` from each is fetched. */
INLINE void N(fill)(Filling *filling, const Box *b, const uint8_t *from, uint8_t *to, int64_t count,
                    int64_t ahead, bool stream)
{
    const int64_t width = b->width;
    const __mmask64 whole = ~0ULL >> (LINE - width);
    Filling f = *filling;
    if (to != f.line + f.part) {
        N(flush_partial)(&f);
        f.part = (int64_t)((uintptr_t)to & (LINE - 1));
        f.line = to - f.part, f.ours = ~0ULL << f.part;
    }
    for (; count--; from += b->column_in) {
        if (stream) PREFETCH_ONCE(from, ahead);
        f.held = _mm512_mask_loadu_epi8(f.held, whole << f.part, from - f.part);
        f.part += width;
        if (f.part < LINE) continue;
        if (f.ours == ~0ULL) N(put)(f.line, f.held, stream);
        else _mm512_mask_storeu_epi8(f.line, f.ours, f.held);
        f.line += LINE, f.part -= LINE, f.ours = ~0ULL;
        f.held = _mm512_maskz_loadu_epi8((1ULL << f.part) - 1, from + width - f.part);
    }
    *filling = f;
}

/* Rows that are read again and again, as each takes a part of every line: from the first cache, so some
 * columns at a time. All of them stay open. */
INLINE void N(fill_in_bands)(const Box *b, const uint8_t *from, uint8_t *to, bool stream)
{
    Filling open[FILLINGS];
    const int64_t band = max(L1_SHARE / 2 / (b->rows * b->width), 1), ahead = band * b->column_in;
    for (int r = 0; r < b->rows; r++) open[r] = (Filling){.held = _mm512_setzero_si512()};
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out)
        for (int64_t c = 0; c < b->columns; c += band)
            for (int64_t r = 0; r < b->rows; r++)
                N(fill)(&open[r], b, from + r * b->row_in + c * b->column_in,
                        to + r * b->row_out + c * b->width, min(band, b->columns - c), ahead, stream);
    for (int r = 0; r < b->rows; r++) N(flush_partial)(&open[r]);
}

/* A short row of the batch is read while the next is fetched. */
INLINE void N(short_blocks)(const Box *box, const uint8_t *from, uint8_t *to, bool stream)
{
    Box in_turn = *box, *b = &in_turn;
    if (b->column_out != b->width) flip(b);
    const bool together = b->rows * b->columns * b->width <= L1_SHARE;
    if (!together && b->rows <= FILLINGS) {
        N(fill_in_bands)(b, from, to, stream);
        return;
    }
    Filling f = {.held = _mm512_setzero_si512()};
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        const int64_t ahead = !together ? AHEAD : k + 1 < b->batch ? b->batch_in : b->next - from;
        for (int64_t r = 0; r < b->rows; r++)
            N(fill)(&f, b, from + r * b->row_in, to + r * b->row_out, b->columns, ahead, stream);
    }
    N(flush_partial)(&f);
}
