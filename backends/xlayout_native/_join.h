/* _join: a few long rows, whose elements alternate in one result. A part of _lanes.h, for vectors of a line, or of half
 * of one.
 *
 * The result is written in order, so it may start anywhere. Rows are as long as a vector at least, and lie anywhere; or
 * a table says where pieces of them are.
 */

#if LANES == 4
INLINE VEC load_halves(const uint8_t *low, const uint8_t *high)
{
    const __m256i first = _mm256_loadu_si256((const __m256i *)low);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256((const __m256i *)high), 1);
}
#endif

/* Loads a vector of each row. */
INLINE void N(load_rows)(VEC *v, const Rows *rows, int64_t at, int n)
{
    const Pieces *pieces = rows->pieces;
    const int64_t bytes = pieces ? pieces->bytes : INT64_MAX, inside = pieces ? at & (bytes - 1) : 0;
    const int64_t *p = pieces ? pieces->at + (at >> __builtin_ctzll((uint64_t)bytes)) : &at;
    for (int k = 0; k < n; k++) {
        const uint8_t *row = rows->at[k];
        if (bytes >= V) v[k] = LOAD(row + *p + inside);
#if LANES == 4
        else if (bytes == V / 2) v[k] = load_halves(row + p[0], row + p[1]);
#endif
        else v[k] = N(gather)(row, (Places){p, 0});
    }
}

INLINE void N(prefetch_lines)(const Pieces *pieces, const uint8_t *next, int64_t at)
{
    if (at % LINE) return;
    const int64_t first = at / LINE * pieces->step, end = min(first + pieces->step, pieces->lines);
    for (int64_t k = first; k < end; k++) PREFETCH(next, pieces->ahead[k], 2);
}

/* Prefetches what is further on; of pieces, lines of the next tile, in the order in which they lie. */
INLINE void N(prefetch_rows)(const Rows *rows, int64_t at, int n)
{
    if (rows->pieces) {
        N(prefetch_lines)(rows->pieces, (const uint8_t *)((uintptr_t)rows->at[0] + (uintptr_t)rows->next), at);
        return;
    }
    if (at % LINE) return;
    const int64_t by = at + rows->ahead, beyond = by < rows->bytes ? by : by - rows->bytes + rows->next;
    for (int k = 0; k < n; k++) PREFETCH_ONCE(rows->at[k], beyond);
}

/* As many rows as are a power of two are zipped; a single one is copied. */
INLINE void N(zip_long)(const Rows *rows, uint8_t *to, bool stream, int ways, int width)
{
    const int64_t count = rows->bytes;
    int64_t at = 0;
    VEC v[SEVERAL];
    DENSE d;
    N(begin_dense)(&d, to);
    if (stream) PREFETCH_FOR_WRITE(to + count * ways);
    for (; at < count; at += V) {
        const int64_t here = min(at, count - V);
        N(prefetch_rows)(rows, at, ways);
        N(load_rows)(v, rows, here, ways);
        N(zip_loaded)(v, ways, width);
        if (stream && at + V > count) break;
        for (int k = 0; k < ways; k++) {
            if (stream) N(put_dense)(&d, v[k], V, width);
            else STORE(to + here * ways + k * V, v[k]);
        }
    }
    if (stream) N(end_dense)(&d, v, at < count ? ways : 0, (count - at) * ways);
}

/* Others are shuffled. Lanes of a vector are n lanes apart in the result, so they go through memory; what was put there
 * is loaded a step later, when it has arrived. */
INLINE void N(join_long)(const Rows *rows, uint8_t *to, bool stream, int n, int width)
{
    const int64_t count = rows->bytes;
    uint8_t tables[NARROW * NARROW][16];
    _Alignas(LINE) uint8_t made[2][SEVERAL * V];
    VEC v[SEVERAL], w[SEVERAL];
    DENSE d;
    get_tables(tables, n, width, false);
    N(begin_dense)(&d, to);
    if (stream) PREFETCH_FOR_WRITE(to + count * n);
    int now = 0;
    for (int64_t at = 0; at < count; at += V, now ^= 1) {
        const int64_t here = min(at, count - V);
        N(prefetch_rows)(rows, at, n);
        N(load_rows)(v, rows, here, n);
        N(shuffle_all)(w, v, n, tables);
        for (int k = 0; k < n; k++) N(scatter)((stream ? made[now] : to + here * n) + 16 * k, 16 * n, w[k]);
        for (int k = 0; stream && at && k < n; k++) N(put_dense)(&d, LOAD(made[!now] + k * V), V, width);
    }
    if (!stream) return;
    const int64_t rest = count % V;
    for (int k = 0; k < n; k++) v[k] = LOAD(made[!now] + k * V);
    for (int k = 0; !rest && k < n; k++) N(put_dense)(&d, v[k], V, width);
    N(end_dense)(&d, v, rest ? n : 0, rest * n);
}

/* Joins as many rows as the box has, of which `next` are the next ones. */
TARGET static NOINLINE void N(join_rows)(const Box *b, Places places, const Pieces *pieces, const uint8_t *from,
                                         const uint8_t *next, int64_t ahead, uint8_t *to, bool stream)
{
    Rows rows = {.bytes = b->columns * b->width, .ahead = ahead, .next = distance(from, next), .pieces = pieces};
    for (int k = 0; k < b->rows; k++) rows.at[k] = from + place(places, k);
#define ZIP_OF(W)                                                                                  \
    switch (b->rows) {                                                                             \
    case 1: N(zip_long)(&rows, to, stream, 1, W); break;                                           \
    case 2: N(zip_long)(&rows, to, stream, 2, W); break;                                           \
    case 4: N(zip_long)(&rows, to, stream, 4, W); break;                                           \
    default: N(zip_long)(&rows, to, stream, 8, W);                                                 \
    }
#define JOIN_OF(n) N(join_long)(&rows, to, stream, n, (int)b->width)
    if (b->rows & (b->rows - 1)) EACH_NUMBER(b->rows, JOIN_OF)
    else EACH_WIDTH(ZIP_OF, 32)
#undef ZIP_OF
#undef JOIN_OF
}

/* Rows of a matrix, or of several, each of which is joined into one long row. */
TARGET static void N(join_unaligned)(const Box *b, const uint8_t *from, uint8_t *to)
{
    const int64_t ahead = AHEAD / b->rows;
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        const uint8_t *next = k + 1 < b->batch ? from + b->batch_in : b->next;
        N(join_rows)(b, every(b->row_in), NULL, from, next, ahead, to, true);
    }
}

TARGET static void N(zip_unaligned)(const Box *b, const uint8_t *from, uint8_t *to)
{
    if (b->columns * b->width < V) NARROWER(zip)(b, from, to);
    else N(join_unaligned)(b, from, to);
}

TARGET static void N(join_several)(const Box *b, const int64_t *rows, const uint8_t *from, uint8_t *to, bool stream)
{
    N(join_rows)(b, (Places){rows, 0}, NULL, from, from + b->columns * b->width, AHEAD, to, stream);
}

TARGET static void N(merge_pieces)(const Box *b, const Pieces *pieces, const uint8_t *from, uint8_t *to, bool stream)
{
    N(join_rows)(b, every(b->row_in), pieces, from, b->next, 0, to, stream);
}
