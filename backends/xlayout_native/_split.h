/* _split: short rows, each of which gives an element to one of a few long ones. A part of _lanes.h, for vectors of a
 * line.
 *
 * So many short rows as make 16 bytes of each long one are a piece: one lane of every vector.
 */

enum { PIECES_AHEAD = 64 }; /* how far they are prefetched ahead */

/* Prefetches four pieces of so many bytes. After the last of `count` follow those of the next box. */
INLINE void prefetch_pieces(const uint8_t *from, const uint8_t *next, const int64_t *places, int64_t first,
                            int64_t count, int64_t bytes)
{
    const bool over = first >= count;
    const int64_t *at = places + min(over ? first - count : first, count - 4);
    for (int k = 0; k < 4; k++)
        for (int64_t x = 0; x < bytes; x += LINE) PREFETCH_ONCE((over ? next : from) + at[k], x);
}

/* Without a table, pieces follow one another, and the last need not be whole. */
INLINE void split_rows(const Box *b, const int64_t *places, Places columns, const uint8_t *from, uint8_t *to,
                       bool stream, int n)
{
    const int width = (int)b->width;
    const int64_t count = b->rows * width, last = count - LINE;
    uint8_t tables[NARROW * NARROW][16];
    get_tables(tables, n, width, true);
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        __m512i v[NARROW], made[NARROW];
        Dense d[NARROW];
        int64_t at = 0;
        for (int j = 0; stream && j < n; j++) begin_dense(&d[j], to + place(columns, j));
        for (; at < count; at += LINE) {
            const int64_t here = min(at, last), piece = here / 16;
            int64_t lanes[4];
            for (int x = 0; x < 4; x++) lanes[x] = places ? places[piece + x] : (here + 16 * x) * n;
            if (places) prefetch_pieces(from, b->next, places, piece + PIECES_AHEAD, count / 16, 16 * n);
            for (int j = 0; j < n; j++) {
                if (!places) PREFETCH_ONCE(from + lanes[0], j * LINE + AHEAD);
                v[j] = gather_4(from + 16 * j, (Places){lanes, 0});
            }
            shuffle_all_4(made, v, n, tables);
            if (stream && at > last) break;
            for (int j = 0; j < n; j++) {
                if (stream) put_dense(&d[j], made[j], LINE, width);
                else STORE(to + place(columns, j) + here, made[j]);
            }
        }
        for (int j = 0; stream && j < n; j++) end_dense(&d[j], &made[j], at < count, count - at);
    }
}

#define CASE(n) split_rows(b, NULL, every(b->column_out), from, to, true, n)
TARGET static void narrow_unaligned(const Box *b, const uint8_t *from, uint8_t *to)
{
    if (b->rows * b->width < LINE) transpose_2(b, from, to);
    else EACH_NUMBER(b->columns, CASE)
}
#undef CASE

/* At least four pieces; and there must be a next box. */
#define STREAMED_CASE(n) split_rows(b, places, every(b->column_out), from, to, true, n)
#define CACHED_CASE(n) split_rows(b, places, every(b->column_out), from, to, false, n)
TARGET static void split_pieces(const Box *b, const int64_t *places, const uint8_t *from, uint8_t *to, bool stream)
{
    if (stream) EACH_NUMBER(b->columns, STREAMED_CASE)
    else EACH_NUMBER(b->columns, CACHED_CASE)
}
#undef STREAMED_CASE
#undef CACHED_CASE
