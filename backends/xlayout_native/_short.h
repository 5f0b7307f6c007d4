/* _short: blocks of at most a line, of any width and to any address, with streaming stores. A part of _lanes.h, for
 * vectors of a line.
 *
 * A masked load puts each block in its place in a vector, which is stored once it is full. Longer blocks are in
 * _blocks.h.
 */

/* A line of the output that is being filled. */
typedef struct {
    uint8_t *line;
    int64_t part;   /* bytes already filled, or owned by what precedes the first block */
    __mmask64 ours; /* mask of the bytes that are not owned by that */
    VEC held;
} Filling;

enum { FILLINGS = 64 }; /* most lines being filled at a time */

INLINE void N(flush_partial)(const Filling *f)
{
    if (f->part) _mm512_mask_storeu_epi8(f->line, f->ours & ((1ULL << f->part) - 1), f->held);
}

/* Appends blocks that are adjacent in the output, prefetching what lies `ahead` bytes after each. */
INLINE void N(fill)(Filling *filling, const Box *b, const uint8_t *from, uint8_t *to, int64_t count,
                    int64_t ahead)
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
        PREFETCH_ONCE(from, ahead);
        f.held = _mm512_mask_loadu_epi8(f.held, whole << f.part, from - f.part);
        f.part += width;
        if (f.part < LINE) continue;
        if (f.ours == ~0ULL) STREAM(f.line, f.held);
        else _mm512_mask_storeu_epi8(f.line, f.ours, f.held);
        f.line += LINE, f.part -= LINE, f.ours = ~0ULL;
        f.held = _mm512_maskz_loadu_epi8((1ULL << f.part) - 1, from + width - f.part);
    }
    *filling = f;
}

/* Every output row takes a part of each input line, so that lines are read once per output row. To read them
 * from L1, a band of columns is done for all rows before the next band; the line that each row has begun stays
 * open meanwhile. */
INLINE void N(fill_in_bands)(const Box *b, const uint8_t *from, uint8_t *to)
{
    Filling open[FILLINGS];
    const int64_t band = max(L1_SHARE / 2 / (b->rows * b->width), 1), ahead = band * b->column_in;
    for (int r = 0; r < b->rows; r++) open[r] = (Filling){.held = _mm512_setzero_si512()};
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out)
        for (int64_t c = 0; c < b->columns; c += band)
            for (int64_t r = 0; r < b->rows; r++)
                N(fill)(&open[r], b, from + r * b->row_in + c * b->column_in,
                        to + r * b->row_out + c * b->width, min(band, b->columns - c), ahead);
    for (int r = 0; r < b->rows; r++) N(flush_partial)(&open[r]);
}

/* If the rows of a batch item fit in L1 together, they are copied while the next item is prefetched. */
INLINE void N(short_blocks)(const Box *box, const uint8_t *from, uint8_t *to)
{
    Box in_turn = *box, *b = &in_turn;
    if (b->column_out != b->width) flip(b);
    const bool together = b->rows * b->columns * b->width <= L1_SHARE;
    if (!together && b->rows <= FILLINGS) {
        N(fill_in_bands)(b, from, to);
        return;
    }
    Filling f = {.held = _mm512_setzero_si512()};
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        const int64_t ahead = !together ? AHEAD : k + 1 < b->batch ? b->batch_in : b->next - from;
        for (int64_t r = 0; r < b->rows; r++)
            N(fill)(&f, b, from + r * b->row_in, to + r * b->row_out, b->columns, ahead);
    }
    N(flush_partial)(&f);
}
