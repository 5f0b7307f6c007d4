/* _several: elements of several sources that alternate in one result, and the inverse. A part of _lanes.h, for vectors
 * of a line.
 *
 * Sources are rows of a matrix, and results columns of one, that lie anywhere, so a table says where. A row, or column,
 * has a line of elements at least.
 */

/* As many as are a power of two are zipped. */
INLINE void zip_several(const Box *b, const int64_t *rows, const uint8_t *from, uint8_t *to, int ways, int width)
{
    const int64_t count = b->columns * width;
    int64_t at = 0;
    __m512i v[SEVERAL];
    Dense d;
    begin_dense(&d, to);
    for (; at < count; at += LINE) {
        for (int k = 0; k < ways; k++) {
            const uint8_t *s = from + rows[k] + min(at, count - LINE);
            PREFETCH_ONCE(s, AHEAD);
            v[k] = LOAD(s);
        }
        zip_loaded_4(v, ways, width);
        if (at + LINE > count) break;
        for (int k = 0; k < ways; k++) put_dense(&d, v[k], LINE, width);
    }
    end_dense(&d, v, at < count ? ways : 0, (count - at) * ways);
}

INLINE void unzip_several(const Box *b, const int64_t *columns, const uint8_t *from, uint8_t *to, int ways, int width)
{
    const int64_t count = b->rows * width;
    int64_t at = 0;
    __m512i v[SEVERAL];
    Dense d[SEVERAL];
    for (int k = 0; k < ways; k++) begin_dense(&d[k], to + columns[k]);
    for (; at < count; at += LINE) {
        const uint8_t *s = from + min(at, count - LINE) * ways;
        for (int k = 0; k < ways; k++) PREFETCH_ONCE(s + k * LINE, AHEAD);
        unzip_vectors_4(v, s, ways, width);
        if (at + LINE > count) break;
        for (int k = 0; k < ways; k++) put_dense(&d[k], v[k], LINE, width);
    }
    for (int k = 0; k < ways; k++) end_dense(&d[k], &v[k], at < count, count - at);
}

/* Others are shuffled. Lanes of a vector are n lanes apart in the result, so they go through memory; what was put there
 * is loaded a step later, when it has arrived. */
INLINE void join_rows(const Box *b, const int64_t *rows, const uint8_t *from, uint8_t *to, int n)
{
    const int width = (int)b->width;
    const int64_t count = b->columns * width;
    uint8_t tables[NARROW * NARROW][16];
    _Alignas(LINE) uint8_t made[2][SEVERAL * LINE];
    __m512i v[SEVERAL], w[SEVERAL];
    Dense d;
    get_tables(tables, n, width, false);
    begin_dense(&d, to);
    int now = 0;
    for (int64_t at = 0; at < count; at += LINE, now ^= 1) {
        for (int k = 0; k < n; k++) {
            const uint8_t *s = from + rows[k] + min(at, count - LINE);
            PREFETCH_ONCE(s, AHEAD);
            v[k] = LOAD(s);
        }
        shuffle_all_4(w, v, n, tables);
        for (int k = 0; k < n; k++) scatter_4(made[now] + 16 * k, 16 * n, w[k]);
        for (int k = 0; at && k < n; k++) put_dense(&d, LOAD(made[!now] + k * LINE), LINE, width);
    }
    const int64_t rest = count % LINE;
    for (int k = 0; k < n; k++) v[k] = LOAD(made[!now] + k * LINE);
    for (int k = 0; !rest && k < n; k++) put_dense(&d, v[k], LINE, width);
    end_dense(&d, v, rest ? n : 0, rest * n);
}

TARGET static void join_several(const Box *b, const int64_t *rows, const uint8_t *from, uint8_t *to)
{
#define WAYS(W)                                                                                    \
    switch (b->rows) {                                                                             \
    case 2: zip_several(b, rows, from, to, 2, W); break;                                           \
    case 4: zip_several(b, rows, from, to, 4, W); break;                                           \
    default: zip_several(b, rows, from, to, 8, W);                                                 \
    }
#define CASE(n) join_rows(b, rows, from, to, n)
    if (b->rows & (b->rows - 1)) EACH_NUMBER(b->rows, CASE)
    else EACH_WIDTH(WAYS, 16)
#undef WAYS
#undef CASE
}

TARGET static void deal_several(const Box *b, const int64_t *columns, const uint8_t *from, uint8_t *to)
{
    const Places places = {columns, 0};
#define WAYS(W)                                                                                    \
    switch (b->columns) {                                                                          \
    case 2: unzip_several(b, columns, from, to, 2, W); break;                                      \
    case 4: unzip_several(b, columns, from, to, 4, W); break;                                      \
    default: unzip_several(b, columns, from, to, 8, W);                                            \
    }
#define CASE(n) split_rows(b, NULL, places, from, to, true, n)
    if (b->columns & (b->columns - 1)) EACH_NUMBER(b->columns, CASE)
    else EACH_WIDTH(WAYS, 16)
#undef WAYS
#undef CASE
}
