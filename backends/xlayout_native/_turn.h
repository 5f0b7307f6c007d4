/* _turn: transposes of squares, in vector registers. A part of _lanes.h: once per vector size. */

/* Loads 16 bytes into each lane, from a place of its own. */
INLINE VEC N(gather)(const uint8_t *from, Places lanes)
{
#define PART(k) _mm_loadu_si128((const __m128i *)(from + place(lanes, k)))
#if LANES == 1
    return PART(0);
#elif LANES == 2
    return _mm256_inserti128_si256(_mm256_castsi128_si256(PART(0)), PART(1), 1);
#else
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(PART(0)), PART(1), 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(PART(2)), PART(3), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#endif
#undef PART
}

/* Transposes one square per lane, n x n elements, n = 16 / width. */
INLINE void N(turn_in_lanes)(VEC *v, int width)
{
    const int n = 16 / width;
    VEC w[16];
    for (int round = n; round > 1; round /= 2) {
        for (int k = 0; k < n / 2; k++)
            N(unpack)(width, v[k], v[k + n / 2], &w[2 * k], &w[2 * k + 1]);
        for (int k = 0; k < n; k++) v[k] = w[k];
    }
}

#if LANES == 2
/* Transposes n columns of a line each. */
INLINE void N(turn_lines)(const uint8_t *from, int64_t row_in, uint8_t *to, Places columns, int width, Store store,
                          uint8_t *carry, int64_t rest)
{
    const int n = 16 / width;
    VEC v[2][16];
    for (int h = 0; h < 2; h++) {
        for (int k = 0; k < n; k++) v[h][k] = N(gather)(from + (2 * h * n + k) * row_in, every(n * row_in));
        N(turn_in_lanes)(v[h], width);
    }
    for (int k = 0; k < n; k++)
        N(store_line)(to + place(columns, k), v[0][k], v[1][k], width, store, carry + k * LINE, rest);
}
#endif

/* Transposes n columns. Lane k holds rows k*n to k*n + n - 1, so that a column of all lanes is V contiguous bytes. */
INLINE void N(turn)(const uint8_t *from, int64_t row_in, uint8_t *to, Places columns, int width, Store store,
                    uint8_t *carry, int64_t rest)
{
    const int n = 16 / width;
    VEC v[16];
    for (int k = 0; k < n; k++) v[k] = N(gather)(from + k * row_in, every(n * row_in));
    N(turn_in_lanes)(v, width);
    for (int k = 0; k < n; k++)
        N(store_column)(to + place(columns, k), v[k], width, store, carry + k * LINE, rest);
}

/* Squares: across a line and down all rows, then on to the next line. Meanwhile that line is fetched, and lines of
 * the result a few squares further down. Where the input is read from memory, as `next` says, a few rows go across
 * all lines first: the processor follows no more of them at a time. Squares at the edges overlap their neighbours
 * and write the same bytes again. */
INLINE void N(transpose_box)(const uint8_t *from, uint8_t *to, const Box *b, int width)
{
    const int64_t n = 16 / width, high = n * LANES, side = LINE / width, below = 4 * side;
    const bool across = b->next && b->rows < side;
    const int64_t together = across ? high : b->rows, ahead = (across ? 4 : 1) * LINE;
    for (int64_t top = 0; top < b->rows; top += together)
        for (int64_t line = 0; line < b->columns; line += side) {
            const int64_t end = min(line + side, b->columns);
            for (int64_t row = top; row < min(top + together, b->rows); row += high) {
                const int64_t r = min(row, b->rows - high);
                const uint8_t *rows = from + r * b->row_in;
                uint8_t *target = to + r * width;
                for (int64_t k = 0; k < high; k++) PREFETCH(rows, k * b->row_in + line * width + ahead, 3);
                if (row % side == 0 && row + below < b->rows)
                    for (int64_t k = line; k < end; k++)
                        PREFETCH_FOR_WRITE(target + k * b->column_out + below * width);
#define SQUARE(COLUMN)                                                                             \
    N(turn)(rows + (COLUMN) * width, b->row_in, target + (COLUMN) * b->column_out, every(b->column_out), width,    \
            CACHED, NULL, 0)
                if (end - line == side)
                    for (int x = 0; x < 4; x++) SQUARE(line + x * n);
                else
                    for (int64_t column = line; column < end; column += n) SQUARE(min(column, b->columns - n));
#undef SQUARE
            }
        }
}

/* Whether squares that are packed in this way are half transposed. */
INLINE bool N(by_lanes)(Packing packing, int width) { return LANES == 4 && width <= 2 && packing >= BY_LANES; }

INLINE void N(pack_row)(const Block *block, Places rows, int r)
{
    const uint8_t *from = block->next + place(rows, r);
    uint8_t *to = block->packed_next + r * LINE;
    for (int y = 0; y < LINE; y += V) STORE(to + y, LOAD(from + y));
}

#if LANES == 4
/* Packs a quarter of the rows of a square, transposed in lanes. */
INLINE void pack_by_lanes(const Block *block, Places rows, int width, int quarter)
{
    const int n = 16 / width;
    VEC v[16];
    for (int k = 0; k < n; k++) v[k] = LOAD(block->next + place(rows, quarter * n + k));
    N(turn_in_lanes)(v, width);
    for (int k = 0; k < n; k++) STORE(block->packed_next + (4 * k + quarter) * LINE, v[k]);
}

/* Writes a quarter of the columns of such a square: a column has a lane of each of the four quarters. */
INLINE void turn_by_lanes(const uint8_t *packed, uint8_t *to, Places columns, int width, int quarter, Store store,
                          uint8_t *carry, int64_t rest)
{
    const int n = 16 / width;
    for (int j = quarter * n / 4; j < (quarter + 1) * n / 4; j++) {
        const uint8_t *lanes = packed + 4 * j * LINE;
        const VEC a = LOAD(lanes), b = LOAD(lanes + LINE), c = LOAD(lanes + 2 * LINE), d = LOAD(lanes + 3 * LINE);
        const VEC even = _mm512_shuffle_i32x4(a, b, 0x88), odd = _mm512_shuffle_i32x4(a, b, 0xdd);
        const VEC even_too = _mm512_shuffle_i32x4(c, d, 0x88), odd_too = _mm512_shuffle_i32x4(c, d, 0xdd);
        const VEC v[4] = {_mm512_shuffle_i32x4(even, even_too, 0x88), _mm512_shuffle_i32x4(odd, odd_too, 0x88),
                          _mm512_shuffle_i32x4(even, even_too, 0xdd), _mm512_shuffle_i32x4(odd, odd_too, 0xdd)};
        for (int k = 0; k < 4; k++)
            N(store_column)(to + place(columns, k * n + j), v[k], width, store, carry + (k * n + j) * LINE, rest);
    }
}
#endif

/* Packs the next square, while none is transposed. */
INLINE void N(pack_next)(const Block *block, int width)
{
    const Places rows = {block->rows, block->row_in};
#if LANES == 4
    const bool lanes = N(by_lanes)(block->packing, width);
    for (int x = 0; lanes && x < 4; x++) pack_by_lanes(block, rows, width, x);
    if (lanes) return;
#endif
    for (int r = 0; r < LINE / width; r++) N(pack_row)(block, rows, r);
}

/* Transposes a block. Meanwhile packs the next one, or prefetches it, and prefetches lines of a later one, so
 * that waiting for memory, shuffles and stores overlap.
 *
 * If rows do not begin on lines, a square takes two lines of each row, and shares one of them with its
 * neighbour. Both are prefetched, since that neighbour may have been done long before. If rows do begin on
 * lines, the second prefetch would ask for the same line again, which costs a twentieth of the time.
 *
 * A store through the caches waits for its line as a load does, so lines of the result are prefetched too. Rows are
 * then best packed one by one, and otherwise all those of a quarter at once.
 */
INLINE void N(turn_block)(const Block *block, uint8_t *to, Places columns, Store store, uint8_t *carry, int width,
                          Packing packing)
{
    const int n = 16 / width, rows = LINE / width;
    const int together = block->together, others = (1 << together) - 1;
    const int64_t to_next_row = block->row_in - ((int64_t)LINE << together);
    int64_t ahead = 0;
    const bool split = ((uintptr_t)block->ahead | (uintptr_t)block->row_in) % LINE;
    const bool table = packing == BY_TABLE, lanes = N(by_lanes)(packing, width), by_rows = packing && !lanes;
    const Places next_rows = {table ? block->rows : NULL, block->row_in};
    const Places rows_ahead = {table ? block->rows_ahead : NULL, block->row_in};
    if (!table) columns.at = NULL;
    const Places columns_ahead = {table ? block->columns_ahead : NULL, columns.step};
    for (int x = 0; x < 4; x++) {
        for (int r = x * rows / 4; r < (x + 1) * rows / 4; r++) {
            if (table) ahead = place(rows_ahead, r >> together) + (r & others) * LINE;
            PREFETCH(block->ahead, ahead, 2);
            if (split) PREFETCH(block->ahead, ahead + LINE - 1, 2);
            ahead += LINE + ((r & others) == others ? to_next_row : 0);
            if (packing == NOT_PACKED) PREFETCH(block->next, place(next_rows, r) + LINE - 1, 3);
            if (by_rows && store == CACHED) N(pack_row)(block, next_rows, r);
        }
        for (int r = x * rows / 4; by_rows && store != CACHED && r < (x + 1) * rows / 4; r++)
            N(pack_row)(block, next_rows, r);
#if LANES == 4
        if (lanes) {
            pack_by_lanes(block, next_rows, width, x);
            turn_by_lanes(block->packed, to, columns, width, x, store, carry, block->rest);
            continue;
        }
#endif
        if (store == CACHED && block->result_ahead)
            for (int r = x * rows / 4; r < (x + 1) * rows / 4; r++)
                PREFETCH_FOR_WRITE((uintptr_t)block->result_ahead + (uintptr_t)place(columns_ahead, r));
        const uint8_t *from = packing == NOT_PACKED ? block->from : block->packed;
        const int64_t row_in = packing == NOT_PACKED ? next_rows.step : LINE;
        Places own = columns;
        uint8_t *target = skip(&own, x * n, to);
#if LANES == 2
        if (store != CACHED) {
            N(turn_lines)(from + x * 16, row_in, target, own, width, store, carry + x * n * LINE, block->rest);
            continue;
        }
#endif
        for (int r = 0; r < rows; r += n * LANES)
            N(turn)(from + r * row_in + x * 16, row_in, target + r * width, own, width, store, carry + x * n * LINE,
                    block->rest);
    }
}

/* Edges are few: what is stored there is not a constant. */
#if LANES >= 2
#define STORES(W, SPLICE, PACKING)                                                                 \
    switch (store) {                                                                               \
    case STREAMED: N(turn_block)(block, to, columns, STREAMED, carry, W, PACKING); break;          \
    case CARRIED: N(turn_block)(block, to, columns, CARRIED, carry, W, PACKING); break;            \
    case SPLICED: N(turn_block)(block, to, columns, SPLICE, carry, W, PACKING); break;             \
    case CACHED: N(turn_block)(block, to, columns, CACHED, carry, W, PACKING); break;              \
    default: N(turn_block)(block, to, columns, store, carry, W, PACKING);                          \
    }
#else
#define STORES(W, SPLICE, PACKING)                                                                 \
    (void)store;                                                                                   \
    N(turn_block)(block, to, columns, CACHED, carry, W, PACKING);
#endif
#define TURN(NAME, W, SPLICE)                                                                      \
    TARGET static void N(NAME)(const Block *block, uint8_t *to, Places columns, Store store,       \
                               uint8_t *carry)                                                     \
    {                                                                                              \
        const bool lanes = N(by_lanes)(block->packing, W);                                         \
        if (!block->packing) {                                                                     \
            STORES(W, SPLICE, NOT_PACKED)                                                          \
        } else if (!block->packed) {                                                               \
            N(pack_next)(block, W);                                                                \
        } else if (block->packing == BY_TABLE) {                                                   \
            STORES(W, SPLICE, BY_TABLE)                                                            \
        } else if (lanes) {                                                                        \
            STORES(W, SPLICE, BY_LANES)                                                            \
        } else {                                                                                   \
            STORES(W, SPLICE, BY_ROWS)                                                             \
        }                                                                                          \
    }
TURN(turn_1, 1, SPLICED)
TURN(turn_2, 2, SPLICED)
TURN(turn_4, 4, SPLICED)
TURN(turn_8, 8, SPLICED)
TURN(turn_16, 16, SPLICED)
#if LANES == 4
TURN(turn_bytes, 1, SPLICED_BYTES)
#endif
#undef TURN
#undef STORES
