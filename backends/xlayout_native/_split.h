/* _split: short rows, each of which gives an element to one of a few long ones. A part of _lanes.h, for vectors of a
 * line.
 *
 * So many short rows as make 16 bytes of each long one are a piece: one lane of every vector.
 */

/* Without a table, pieces follow one another, and the last need not be whole. */
INLINE void split_rows(const Box *b, const Pieces *pieces, Places columns, const uint8_t *from, uint8_t *to,
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
            const int64_t here = min(at, last);
            int64_t lanes[4];
            for (int x = 0; x < 4; x++) lanes[x] = pieces ? pieces->at[here / 16 + x] : (here + 16 * x) * n;
            if (pieces) prefetch_lines(pieces, b->next, at);
            for (int j = 0; j < n; j++) {
                if (!pieces) PREFETCH_ONCE(from + lanes[0], j * LINE + AHEAD);
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

/* Into as many as are a power of two they are unzipped. */
INLINE void unzip_long(const Box *b, Places columns, const uint8_t *from, const uint8_t *next, uint8_t *to, int ways,
                       int width)
{
    const int64_t count = b->rows * width, ahead = ahead_in(count * ways), wrap = count * ways - ahead;
    int64_t at = 0;
    __m512i v[SEVERAL];
    Dense d[SEVERAL];
    for (int k = 0; k < ways; k++) {
        begin_dense(&d[k], to + place(columns, k));
        PREFETCH_FOR_WRITE(to + place(columns, k) + count);
    }
    for (; at + LINE <= count; at += LINE) {
        const int64_t x = at * ways;
        const uintptr_t later = x < wrap ? (uintptr_t)from + (uintptr_t)ahead : (uintptr_t)next - (uintptr_t)wrap;
        for (int k = 0; k < ways; k++) PREFETCH_ONCE(later, x + k * LINE);
        unzip_vectors_4(v, from + x, ways, width);
        for (int k = 0; k < ways; k++) put_dense(&d[k], v[k], LINE, width);
    }
    if (at < count) unzip_vectors_4(v, from + (count - LINE) * ways, ways, width);
    for (int k = 0; k < ways; k++) end_dense(&d[k], &v[k], at < count, count - at);
}

TARGET static NOINLINE void unzip_rows(const Box *b, Places columns, const uint8_t *from, const uint8_t *next,
                                       uint8_t *to)
{
#define WAYS(W)                                                                                    \
    switch (b->columns) {                                                                          \
    case 2: unzip_long(b, columns, from, next, to, 2, W); break;                                   \
    case 4: unzip_long(b, columns, from, next, to, 4, W); break;                                   \
    default: unzip_long(b, columns, from, next, to, 8, W);                                         \
    }
    EACH_WIDTH(WAYS, 32)
#undef WAYS
}

TARGET static void unzip_unaligned(const Box *b, const uint8_t *from, uint8_t *to)
{
    if (b->rows * b->width < LINE) {
        unzip_2(b, from, to);
        return;
    }
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out)
        unzip_rows(b, every(b->column_out), from, k + 1 < b->batch ? from + b->batch_in : b->next, to);
}

TARGET static void deal_several(const Box *b, const int64_t *columns, const uint8_t *from, uint8_t *to)
{
    const Places places = {columns, 0};
#define CASE(n) split_rows(b, NULL, places, from, to, true, n)
    if (b->columns & (b->columns - 1)) EACH_NUMBER(b->columns, CASE)
    else unzip_rows(b, places, from, from + b->rows * b->row_in, to);
#undef CASE
}

/* A transpose with a few rows, or a few columns. */
TARGET static void narrow_unaligned(const Box *b, const uint8_t *from, uint8_t *to)
{
#define CASE(n) split_rows(b, NULL, every(b->column_out), from, to, true, n)
    const bool apart = b->columns <= NARROW && b->row_in == b->columns * b->width;
    if ((apart ? b->rows : b->columns) * b->width < LINE) transpose_2(b, from, to);
    else if (apart) EACH_NUMBER(b->columns, CASE)
    else join_unaligned(b, from, to);
#undef CASE
}

/* At least four pieces; and there must be a next box. */
#define STREAMED_CASE(n) split_rows(b, pieces, every(b->column_out), from, to, true, n)
#define CACHED_CASE(n) split_rows(b, pieces, every(b->column_out), from, to, false, n)
TARGET static void split_pieces(const Box *b, const Pieces *pieces, const uint8_t *from, uint8_t *to, bool stream)
{
    if (stream) EACH_NUMBER(b->columns, STREAMED_CASE)
    else EACH_NUMBER(b->columns, CACHED_CASE)
}
#undef STREAMED_CASE
#undef CACHED_CASE
