/* _store: a column of a square, written to the target. A part of _lanes.h: once per vector size. */

#if LANES >= 2
/* Stores, through the caches, what no other square has of a column at the edge of the output, and no more: a line next
 * to it is streamed, and would have to be read back. */
INLINE void N(store_edge)(uint8_t *to, const uint8_t *line, Store store, int64_t rest)
{
    const int64_t part = (int64_t)((uintptr_t)to & (LINE - 1)), tail = store == END ? part : rest;
#if LANES == 4
    const VEC v = LOAD(line), turned = N(splice)(v, v, LINE - part, 1);
    const __mmask64 own = store == START ? ~0ULL >> part : tail ? ~0ULL << (LINE - tail) : 0;
    if (own << part) _mm512_mask_storeu_epi8(to - part, own << part, turned);
    if (part && own >> (LINE - part)) _mm512_mask_storeu_epi8(to - part + LINE, own >> (LINE - part), turned);
#else
    const int64_t at = store == START ? 0 : LINE - tail;
    N(stream_part)(to + at, line + at, store == START ? LINE - part : tail);
#endif
}
#endif

/* Stores a finished column as `store` says. `carry` holds the vector that precedes it in the output, made from
 * the rows above. */
INLINE void N(store_column)(uint8_t *to, VEC v, int width, Store store, uint8_t *carry, int64_t rest)
{
#if LANES == 4
    if (store == STREAMED) {
        STREAM(to, v);
        return;
    }
    const int64_t part = (int64_t)((uintptr_t)to & (LINE - 1));
    if (store == SPLICED || store == END) STREAM(to - part, N(splice)(LOAD(carry), v, LINE - part, width));
    if (store == SPLICED_BYTES) STREAM(to - part, N(splice_bytes)(LOAD(carry), v, LINE - part));
    if (store != CACHED) {
        STORE(carry, v);
        if (store >= START) N(store_edge)(to, carry, store, rest);
        return;
    }
#endif
    (void)width, (void)store, (void)carry, (void)rest;
    STORE(to, v);
}

#if LANES == 2
/* The same for a line of two vectors, a and b. They are stored one right after the other: of lines that are begun
 * side by side, each half would go to memory by itself. `carry` holds both vectors of the line before. */
INLINE void N(store_line)(uint8_t *to, VEC a, VEC b, int width, Store store, uint8_t *carry, int64_t rest)
{
    const bool spliced = store == SPLICED || store == END;
    const int64_t part = spliced ? (int64_t)((uintptr_t)to & (LINE - 1)) : 0;
    VEC first = a, second = b;
    if (part) {
        const VEC before = LOAD(carry + V);
        const bool far = part > V;
        const VEC x = far ? LOAD(carry) : before, y = far ? before : a, z = far ? a : b;
        first = N(splice)(x, y, -part & (V - 1), width), second = N(splice)(y, z, -part & (V - 1), width);
    }
    if (store == STREAMED || spliced) STREAM(to - part, first), STREAM(to - part + V, second);
    if (store != STREAMED) STORE(carry, a), STORE(carry + V, b);
    if (store >= START) N(store_edge)(to, carry, store, rest);
}
#endif
