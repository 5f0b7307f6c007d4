/* _blocks: blocks past the caches. A part of _lanes.h: once per vector size.
 *
 * Those of whole lines go to lines. Others, of a line and more, start anywhere: where one begins at the byte
 * after the one before it, the line of the seam is put together of both. Else its parts are stored at their
 * times.
 */

/* The line that holds the end of one block, and the start of the next. */
INLINE void N(put_seam)(const Seam *seam, const uint8_t *from, int64_t part)
{
#if LANES == 4
    const __mmask64 after = ~0ULL << part;
    const VEC before = _mm512_maskz_loadu_epi8(~after, seam->from - part);
    STREAM(seam->to - part, _mm512_mask_loadu_epi8(before, after, from - part));
#else
    _Alignas(LINE) uint8_t line[LINE];
    move_short(line, seam->from - part, part);
    move_short(line + part, from, LINE - part);
    N(put_line)(seam->to - part, line, true);
#endif
}

/* A block. Meanwhile, what lies at `soon` from `then` is fetched. */
INLINE void N(put_block)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *then, int64_t soon,
                         Seam *seam, bool past)
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
        FETCH_ONCE(then, soon + x);
        N(put_line)(to + x, from + x, past);
    }
    if (!seam) {
        if (!past) move_short(to + x, from + x, count - x);
        return;
    }
    FETCH_ONCE(then, soon + x);
    *seam = (Seam){to + count, from + count};
}

TARGET static void N(block)(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *then, Seam *seam)
{
    N(put_block)(to, from, count, then, 0, seam, true);
}

/* Seams: none, one, or one of each column. */
INLINE void N(rows_of_blocks)(const Box *b, const uint8_t *from, uint8_t *to, Seam *seams, bool each,
                              bool past)
{
    const int64_t blocks = ((past ? SOON : LATER) + b->width - 1) / b->width, turn = b->columns - blocks;
    for (int64_t k = 0; k < b->batch; k++)
        for (int64_t r = 0; r < b->rows; r++) {
            const uint8_t *s = from + k * b->batch_in + r * b->row_in;
            const uint8_t *next = r + 1 < b->rows ? s + b->row_in
                                  : k + 1 < b->batch ? from + (k + 1) * b->batch_in : b->next;
            uint8_t *d = to + k * b->batch_out + r * b->row_out;
            for (int64_t c = 0; c < b->columns; c++, s += b->column_in, d += b->column_out) {
                const uint8_t *then = each || c < turn ? s : next;
                const int64_t soon = each ? SOON : (c < turn ? blocks : c - most(turn, 0)) * b->column_in;
                if (seams && !each && b->column_out != b->width)
                    FETCH_TO_WRITE(d + b->column_out), FETCH_TO_WRITE(d + b->column_out + b->width);
                N(put_block)(d, s, b->width, then, soon, each ? seams + c : seams, past);
            }
        }
}

TARGET static void N(stream_blocks)(const Box *b, const uint8_t *from, uint8_t *to)
{
    N(rows_of_blocks)(b, from, to, NULL, false, true);
}

#if LANES == 4
/* Blocks of one line too are best put together in a vector; but where four and more are dealt out in turn, it is
 * quicker to read them as they lie. */
static bool fill_vectors(const Box *b)
{
    return b->width < LINE || (b->width == LINE && (b->columns < 4 || !has_seams(b)));
}
#endif

TARGET static void N(blocks_across)(const Box *b, const uint8_t *from, uint8_t *to)
{
#if LANES == 4
    if (fill_vectors(b)) {
        N(short_blocks)(b, from, to, true);
        return;
    }
#endif
    Seam seams[SEAMS];
    const bool each = has_seams(b);
    for (int k = 0; k < (each ? b->columns : 1); k++) seams[k] = (Seam){0};
    N(rows_of_blocks)(b, from, to, seams, each, true);
    for (int k = 0; k < (each ? b->columns : 1); k++) close_seam(&seams[k]);
}

/* Through the caches. */
TARGET static void N(blocks)(const Box *b, const uint8_t *from, uint8_t *to)
{
    if (b->width > LINE && b->width <= ALONE) {
        N(rows_of_blocks)(b, from, to, NULL, false, false);
        return;
    }
#if LANES == 4
    const bool fit = b->width & (b->width - 1) && b->width < LINE;
    if (fit && (b->row_out == b->width || b->column_out == b->width)) {
        N(short_blocks)(b, from, to, false);
        return;
    }
#endif
    plain_blocks(b, from, to);
}
