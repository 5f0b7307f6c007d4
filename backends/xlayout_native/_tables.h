/* _tables: shuffles within 16 bytes, by table. Included once, for all vector sizes. */

#define LOAD_16(p) _mm_loadu_si128((const __m128i *)(p))

/* Shuffle tables that turn n vectors into n others: for every pair of a result and a source, which byte goes
 * where. One side is n rows, a vector of each; the other holds an element of each row in turn. */
static void build_tables(uint8_t (*tables)[16], int n, int width, bool apart)
{
    memset(tables, 0x80, (size_t)(16 * n * n)); /* a shuffle writes zero for 0x80 */
    for (int at = 0; at < 16 * n; at++) {
        const int element = at / width, row = element % n, place = element / n * width + at % width;
        if (apart) tables[row * n + at / 16][place] = (uint8_t)(at % 16);
        else tables[at / 16 * n + row][at % 16] = (uint8_t)place;
    }
}

/* The same, copied from tables that are kept: to build them takes longer than to transpose a small box. They are the
 * caller's own, and so can stay in registers. */
ALWAYS_INLINE void get_tables(uint8_t (*tables)[16], int n, int width, bool apart)
{
    static _Atomic(void *) kept[2][5][NARROW + 1];
    _Atomic(void *) *place = &kept[apart][__builtin_ctz((unsigned)width)][n];
    const size_t bytes = (size_t)(16 * n * n);
    void *there = atomic_load_explicit(place, memory_order_acquire);
    if (there) {
        memcpy(tables, there, bytes);
        return;
    }
    build_tables(tables, n, width, apart);
    void *copy = malloc(bytes);
    if (copy) memcpy(copy, tables, bytes);
    if (copy && !atomic_compare_exchange_strong(place, &there, copy)) free(copy);
}

/* 16 bytes from here, at some offset, are a shuffle that moves bytes by that distance; for 128 it writes zero. */
static const uint8_t PLACES[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};
