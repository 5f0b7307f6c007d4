/* _narrow: transposes with one side that is shorter than a lane and contiguous in memory. A part of _lanes.h:
 * once per vector size.
 *
 * One lane of each of the n long rows corresponds to 16 * n contiguous bytes of the short ones. So n vectors
 * become n others, each collected from all of them by shuffle tables.
 */

/* Turns a small number into a constant, so that its vectors and tables stay in registers. */
#define EACH_NUMBER(NUMBER, CASE)                                                                  \
    switch (NUMBER) {                                                                              \
    case 3: CASE(3); break;                                                                        \
    case 5: CASE(5); break;                                                                        \
    case 6: CASE(6); break;                                                                        \
    case 7: CASE(7); break;                                                                        \
    default: CASE((int)(NUMBER));                                                                  \
    }

/* Stores each lane at an address of its own, `stride` apart. */
INLINE void N(scatter)(uint8_t *to, int64_t stride, VEC v)
{
#define PART(k, x) _mm_storeu_si128((__m128i *)(to + (k) * stride), x)
#if LANES == 1
    (void)stride;
    PART(0, v);
#elif LANES == 2
    PART(0, _mm256_castsi256_si128(v)), PART(1, _mm256_extracti128_si256(v, 1));
#else
    PART(0, _mm512_castsi512_si128(v)), PART(1, _mm512_extracti32x4_epi32(v, 1));
    PART(2, _mm512_extracti32x4_epi32(v, 2)), PART(3, _mm512_extracti32x4_epi32(v, 3));
#endif
#undef PART
}

INLINE VEC N(shuffle)(VEC v, const uint8_t *table)
{
    return MM(shuffle_epi8)(v, EVERY_LANE(_mm_loadu_si128((const __m128i *)table)));
}

/* Makes n vectors, each from bytes of all the given ones. */
INLINE void N(shuffle_all)(VEC *made, const VEC *v, int n, const uint8_t (*tables)[16])
{
    for (int j = 0; j < n; j++, tables += n) {
        VEC all = N(shuffle)(v[0], tables[0]);
        for (int i = 1; i < n; i++) all = OR(all, N(shuffle)(v[i], tables[i]));
        made[j] = all;
    }
}

/* Splits short rows of `n` elements into `n` long rows, or the inverse. */
INLINE void N(narrow_rows)(const Box *b, const uint8_t *from, uint8_t *to, bool apart, int n)
{
    const int width = (int)b->width;
    const int64_t count = apart ? b->rows : b->columns, step = V / width, whole = count / step * step;
    uint8_t tables[NARROW * NARROW][16];
    get_tables(tables, n, width, apart);
    for (int64_t k = 0; k < b->batch; k++) {
        const uint8_t *s = from + k * b->batch_in;
        uint8_t *d = to + k * b->batch_out;
        for (int64_t at = 0; at < whole; at += step) {
            const int64_t at_long = at * width, at_short = n * at_long;
            VEC v[NARROW], made[NARROW];
            for (int j = 0; j < n; j++) {
                if (b->next) PREFETCH_ONCE(apart ? s + at_short + V * j : s + at_long + j * b->row_in, AHEAD);
                v[j] = apart ? N(gather)(s + at_short + 16 * j, every(16 * n)) : LOAD(s + at_long + j * b->row_in);
            }
            N(shuffle_all)(made, v, n, tables);
            for (int j = 0; j < n; j++) {
                if (apart) STORE(d + at_long + j * b->column_out, made[j]);
                else N(scatter)(d + at_short + 16 * j, 16 * n, made[j]);
            }
        }
        Box rest = *b;
        rest.batch = 1;
        if (apart) rest.rows -= whole;
        else rest.columns -= whole;
        plain_blocks(&rest, s + whole * (apart ? b->row_in : b->column_in),
                     d + whole * (apart ? b->row_out : b->column_out));
    }
}

INLINE void N(narrow)(const Box *b, const uint8_t *from, uint8_t *to, bool apart)
{
#define CASE(n) N(narrow_rows)(b, from, to, apart, n)
    EACH_NUMBER(apart ? b->columns : b->rows, CASE)
#undef CASE
}
