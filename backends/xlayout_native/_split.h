/* _split: short rows, each of which gives an element to one of a few long ones. A part of _lanes.h, for vectors of a
 * line, or of half of one.
 *
 * So many short rows as make 16 bytes of each long one are a piece: one lane of every vector.
 */

#if LANES == 4
#define COLUMN DENSE
#define BEGIN(columns, j, to) N(begin_dense)((columns) + (j), to)
#define PUT(d, v, at, width) N(put_dense)(d, v, V, width)
#define END(d, v, at, rest) N(end_dense)(d, v, rest > 0, rest)
#else
/* A long row of the result. Some lines of it are held back, so that lines of several rows that lie whole pages apart
 * are not written one soon after another; and since they are loaded again from where they lie, rows may begin anywhere.
 * What is stored meanwhile takes room among the stores that wait for memory, so it should be little. */
enum { HELD = 16 * LINE };
#define COLUMN N(column)
typedef struct {
    uint8_t *to;
    int64_t back;            /* how far behind what is made a vector is written */
    _Alignas(V) uint8_t held[HELD + V]; /* the first vector again at the end */
} COLUMN;

/* Holds back as many lines as keep this row two lines clear of each before it. */
INLINE void N(begin_column)(COLUMN *columns, int j, uint8_t *to)
{
    int64_t lines = 1;
    for (int k = 0; k < j && lines < HELD / LINE - 2; k++) {
        const int64_t apart = (distance(columns[k].to, to) - lines * LINE + columns[k].back) / LINE;
        if (((apart + 1) & (PAGE / LINE - 1)) <= 2) lines++, k = -1;
    }
    columns[j].to = to, columns[j].back = lines * LINE + (int64_t)((uintptr_t)to & (V - 1));
}

/* Appends a vector, `at` bytes into the row. */
INLINE void N(put_column)(COLUMN *d, VEC v, int64_t at)
{
    const int64_t slot = at & (HELD - 1), x = at - d->back;
    STORE(d->held + slot, v);
    if (!slot) STORE(d->held + HELD, v);
    if (x >= 0) STREAM(d->to + x, LOAD(d->held + (x & (HELD - 1))));
    else if (x > -V) move_short(d->to, d->held, V + x);
}

/* Writes what is held, then the last `rest` bytes of a vector, if there is one. */
INLINE void N(end_column)(COLUMN *d, const VEC *v, int64_t at, int64_t rest)
{
    uint8_t made[HELD + 3 * V], *last = made + V;
    const int64_t start = at - d->back, ours = max(-start, 0);
    for (int64_t x = start; x < at; x += V) STORE(last + x - start, LOAD(d->held + (x & (HELD - 1))));
    if (rest) STORE(last + d->back + rest - V, *v);
    uint8_t *to = d->to + max(start, 0);
    const int64_t head = min(-(intptr_t)to & (V - 1), d->back + rest - ours);
    move_short(to, last + ours, head);
    N(stream_part)(to + head, last + ours + head, d->back + rest - ours - head);
}
#define BEGIN(columns, j, to) N(begin_column)(columns, j, to)
#define PUT(d, v, at, width) N(put_column)(d, v, at)
#define END(d, v, at, rest) N(end_column)(d, v, at, rest)
#endif

/* Makes a vector of each of n rows. Without a table, pieces follow one another. */
INLINE void N(split_vectors)(VEC *made, const Pieces *pieces, const uint8_t *from, int64_t at, int n,
                             const uint8_t (*tables)[16])
{
    int64_t lanes[LANES];
    VEC v[NARROW];
    for (int x = 0; x < LANES; x++) lanes[x] = pieces ? pieces->at[at / 16 + x] : (at + 16 * x) * n;
    for (int j = 0; j < n; j++) {
        if (!pieces) PREFETCH_ONCE(from + lanes[0], j * V + AHEAD);
        v[j] = N(gather)(from + 16 * j, (Places){lanes, 0});
    }
    N(shuffle_all)(made, v, n, tables);
}

INLINE void N(split_rows)(const Box *b, const Pieces *pieces, Places columns, const uint8_t *from, uint8_t *to,
                          bool stream, int n)
{
    const int width = (int)b->width;
    const int64_t count = b->rows * width, last = count - V;
    uint8_t tables[NARROW * NARROW][16];
    get_tables(tables, n, width, true);
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        VEC made[NARROW], rest[NARROW];
        COLUMN d[NARROW];
        int64_t at = 0;
        for (int j = 0; stream && j < n; j++) BEGIN(d, j, to + place(columns, j));
        for (; at <= last; at += V) {
            if (pieces) N(prefetch_lines)(pieces, b->next, at);
            N(split_vectors)(made, pieces, from, at, n, tables);
            for (int j = 0; j < n; j++) {
                if (stream) PUT(&d[j], made[j], at, width);
                else STORE(to + place(columns, j) + at, made[j]);
            }
        }
        if (at < count) N(split_vectors)(rest, pieces, from, last, n, tables);
        for (int j = 0; j < n; j++) {
            if (stream) END(&d[j], &rest[j], at, count - at);
            else if (at < count) STORE(to + place(columns, j) + last, rest[j]);
        }
    }
}

/* Into as many as are a power of two they are unzipped. */
INLINE void N(unzip_long)(const Box *b, Places columns, const uint8_t *from, const uint8_t *next, uint8_t *to,
                          int ways, int width)
{
    const int64_t count = b->rows * width, ahead = ahead_in(count * ways), wrap = count * ways - ahead;
    int64_t at = 0;
    VEC v[SEVERAL];
    COLUMN d[SEVERAL];
    for (int k = 0; k < ways; k++) {
        BEGIN(d, k, to + place(columns, k));
        PREFETCH_FOR_WRITE(to + place(columns, k) + count);
    }
    for (; at + V <= count; at += V) {
        const int64_t x = at * ways;
        const uintptr_t later = x < wrap ? (uintptr_t)from + (uintptr_t)ahead : (uintptr_t)next - (uintptr_t)wrap;
        for (int k = 0; k < ways; k++) PREFETCH_ONCE(later, x + k * V);
        N(unzip_vectors)(v, from + x, ways, width);
        for (int k = 0; k < ways; k++) PUT(&d[k], v[k], at, width);
    }
    if (at < count) N(unzip_vectors)(v, from + (count - V) * ways, ways, width);
    for (int k = 0; k < ways; k++) END(&d[k], &v[k], at, count - at);
}

TARGET static NOINLINE void N(unzip_rows)(const Box *b, Places columns, const uint8_t *from, const uint8_t *next,
                                          uint8_t *to)
{
#define WAYS(W)                                                                                    \
    switch (b->columns) {                                                                          \
    case 2: N(unzip_long)(b, columns, from, next, to, 2, W); break;                                \
    case 4: N(unzip_long)(b, columns, from, next, to, 4, W); break;                                \
    default: N(unzip_long)(b, columns, from, next, to, 8, W);                                      \
    }
    EACH_WIDTH(WAYS, 32)
#undef WAYS
}

TARGET static void N(unzip_unaligned)(const Box *b, const uint8_t *from, uint8_t *to)
{
    if (b->rows * b->width < V) {
        NARROWER(unzip)(b, from, to);
        return;
    }
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out)
        N(unzip_rows)(b, every(b->column_out), from, k + 1 < b->batch ? from + b->batch_in : b->next, to);
}

TARGET static void N(deal_several)(const Box *b, const int64_t *columns, const uint8_t *from, uint8_t *to, bool stream)
{
    const Places places = {columns, 0};
#define CASE(n) N(split_rows)(b, NULL, places, from, to, stream, n)
    if (!stream || (b->columns & (b->columns - 1))) EACH_NUMBER(b->columns, CASE)
    else N(unzip_rows)(b, places, from, from + b->rows * b->row_in, to);
#undef CASE
}

/* A transpose with a few rows, or a few columns. */
TARGET static void N(narrow_unaligned)(const Box *b, const uint8_t *from, uint8_t *to)
{
#define CASE(n) N(split_rows)(b, NULL, every(b->column_out), from, to, true, n)
    const bool apart = b->columns <= NARROW && b->row_in == b->columns * b->width;
    if ((apart ? b->rows : b->columns) * b->width < V) NARROWER(transpose)(b, from, to);
    else if (apart) EACH_NUMBER(b->columns, CASE)
    else N(join_unaligned)(b, from, to);
#undef CASE
}

/* At least four pieces; and there must be a next box. */
#define STREAMED_CASE(n) N(split_rows)(b, pieces, every(b->column_out), from, to, true, n)
#define CACHED_CASE(n) N(split_rows)(b, pieces, every(b->column_out), from, to, false, n)
TARGET static void N(split_pieces)(const Box *b, const Pieces *pieces, const uint8_t *from, uint8_t *to, bool stream)
{
    if (stream) EACH_NUMBER(b->columns, STREAMED_CASE)
    else EACH_NUMBER(b->columns, CACHED_CASE)
}
#undef STREAMED_CASE
#undef CACHED_CASE
#undef COLUMN
#undef BEGIN
#undef PUT
#undef END
