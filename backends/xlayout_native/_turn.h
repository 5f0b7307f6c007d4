/* _turn: transposes of squares, in vector registers. A part of _lanes.h: once per vector size. */

/* Loads 16 bytes into each lane, from a row of its own. */
INLINE VEC N(gather)(const uint8_t *from, int64_t stride)
{
#define PART(k) _mm_loadu_si128((const __m128i *)(from + (k) * stride))
#if LANES == 1
    (void)stride;
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

/* Stores a finished column as `store` says. `carry` holds the vector that precedes it in the output, made from
 * the rows above. */
INLINE void N(put_column)(uint8_t *to, VEC v, int width, Store store, uint8_t *carry)
{
#if LANES == 4
    if (store == STREAMED) {
        STREAM(to, v);
        return;
    }
    const int64_t part = (int64_t)((uintptr_t)to & (LINE - 1));
    if (store == SPLICED) STREAM(to - part, N(splice)(LOAD(carry), v, LINE - part, width));
    if (store == SPLICED_BYTES) STREAM(to - part, N(splice_bytes)(LOAD(carry), v, LINE - part));
    if (store != CACHED) {
        STORE(carry, v);
        return;
    }
#endif
    (void)width, (void)store, (void)carry;
    STORE(to, v);
}

/* Transposes one square per lane, n x n elements, n = 16 / width. Lane k holds rows k*n to k*n + n - 1, so that
 * a column of all lanes is V contiguous bytes. */
INLINE void N(turn)(const uint8_t *from, int64_t row_in, uint8_t *to, int64_t column_out, int width,
                    Store store, uint8_t *carry)
{
    const int n = 16 / width;
    VEC v[16], w[16];
    for (int k = 0; k < n; k++) v[k] = N(gather)(from + k * row_in, n * row_in);
    for (int round = n; round > 1; round /= 2) {
        for (int k = 0; k < n / 2; k++)
            N(unpack)(width, v[k], v[k + n / 2], &w[2 * k], &w[2 * k + 1]);
        for (int k = 0; k < n; k++) v[k] = w[k];
    }
    for (int k = 0; k < n; k++)
        N(put_column)(to + k * column_out, v[k], width, store, carry + k * LINE);
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
    N(turn)(rows + (COLUMN) * width, b->row_in, target + (COLUMN) * b->column_out, b->column_out, width, CACHED, NULL)
                if (end - line == side)
                    for (int x = 0; x < 4; x++) SQUARE(line + x * n);
                else
                    for (int64_t column = line; column < end; column += n) SQUARE(min(column, b->columns - n));
#undef SQUARE
            }
        }
}

/* Transposes a block. Meanwhile packs the next one, or prefetches it, and prefetches lines of a later one, so
 * that waiting for memory, shuffles and stores overlap.
 *
 * If rows do not begin on lines, a square takes two lines of each row, and shares one of them with its
 * neighbour. Both are prefetched, since that neighbour may have been done long before. If rows do begin on
 * lines, the second prefetch would ask for the same line again, which costs a twentieth of the time.
 *
 * A store through the caches waits for its line as a load does, so lines of the result are prefetched too.
 */
INLINE void N(turn_block)(const Block *block, uint8_t *to, int64_t column_out, Store store, uint8_t *carry,
                          int width, bool packed)
{
    const int n = 16 / width, rows = LINE / width;
    const uint8_t *from = packed ? block->packed : block->from;
    const int64_t row_in = packed ? LINE : block->row_in;
    const int rest = (1 << block->together) - 1;
    const int64_t to_next_row = block->row_in - ((int64_t)LINE << block->together);
    const uint8_t *ahead = block->ahead;
    const bool split = ((uintptr_t)block->ahead | (uintptr_t)block->row_in) % LINE;
    for (int x = 0; x < 4; x++) {
        for (int r = x * rows / 4; r < (x + 1) * rows / 4; r++) {
            PREFETCH(ahead, 0, 2);
            if (split) PREFETCH(ahead, LINE - 1, 2);
            ahead = (const uint8_t *)((uintptr_t)ahead + (uintptr_t)(LINE + ((r & rest) == rest ? to_next_row : 0)));
            if (!packed) PREFETCH(block->next, r * block->row_in + LINE - 1, 3);
            for (int y = 0; packed && y < LINE; y += V)
                STORE(block->packed_next + r * LINE + y, LOAD(block->next + r * block->row_in + y));
        }
        if (store == CACHED && block->result_ahead)
            for (int r = x * rows / 4; r < (x + 1) * rows / 4; r++)
                PREFETCH_FOR_WRITE((uintptr_t)block->result_ahead + (uintptr_t)(r * column_out));
        for (int r = 0; r < rows; r += n * LANES)
            N(turn)(from + r * row_in + x * 16, row_in, to + x * n * column_out + r * width, column_out,
                    width, store, carry + x * n * LINE);
    }
}

#if LANES == 4
#define STORES(W, SPLICE, PACKED)                                                                  \
    switch (store) {                                                                               \
    case STREAMED: N(turn_block)(block, to, column_out, STREAMED, carry, W, PACKED); break;        \
    case CARRIED: N(turn_block)(block, to, column_out, CARRIED, carry, W, PACKED); break;          \
    case SPLICED: N(turn_block)(block, to, column_out, SPLICE, carry, W, PACKED); break;           \
    default: N(turn_block)(block, to, column_out, CACHED, carry, W, PACKED);                       \
    }
#else
#define STORES(W, SPLICE, PACKED)                                                                  \
    (void)store;                                                                                   \
    N(turn_block)(block, to, column_out, CACHED, carry, W, PACKED);
#endif
#define TURN(NAME, W, SPLICE)                                                                      \
    TARGET static void N(NAME)(const Block *block, uint8_t *to, int64_t column_out, Store store,   \
                               uint8_t *carry)                                                     \
    {                                                                                              \
        if (block->packed) {                                                                       \
            STORES(W, SPLICE, true)                                                                \
        } else {                                                                                   \
            STORES(W, SPLICE, false)                                                               \
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
