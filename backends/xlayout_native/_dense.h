/* _dense: results that are written strictly in order, in whole vectors, each spliced from two. So the result may start
 * anywhere. A part of _lanes.h, for vectors of a line, or of half of one. */

/* The state of one such result: where the next bytes go, how far past the start of a vector that is, how much of
 * that vector is not ours, and what was appended last. */
#define DENSE N(dense)
typedef struct { uint8_t *to; int64_t part, first; VEC before; } DENSE;

INLINE void N(begin_dense)(DENSE *d, uint8_t *to)
{
    *d = (DENSE){.to = to, .part = (int64_t)((uintptr_t)to & (V - 1))};
    d->first = d->part;
    if (d->part) PREFETCH_FOR_WRITE(to);
}

/* Appends the first `count` bytes of a vector of elements of `width` bytes. */
INLINE void N(put_dense)(DENSE *d, VEC v, int64_t count, int width)
{
    const int64_t end = d->part + count;
    uint8_t made[LINE], *start = d->to - d->part;
    if (!d->part && count == V) {
        STREAM(start, v);
    } else if (end >= V && !d->first) {
        STREAM(start, N(splice)(d->before, v, V - d->part, 1));
    } else if (end >= V) {
        STORE(made, N(splice)(d->before, v, V - d->part, 1));
        move_short(start + d->first, made + d->first, V - d->first);
        d->first = 0;
    }
    d->before = count == V ? v : N(splice)(d->before, v, count, width);
    d->to += count, d->part = end & (V - 1);
}

/* Writes what is left of the vector appended last, then the last `rest` bytes of the vectors `v`, which do not
 * fill all of them. At least one vector was appended before. */
INLINE void N(end_dense)(DENSE *d, const VEC *v, int count, int64_t rest)
{
    uint8_t made[9 * V], *tail = made + (count + 1) * V - rest;
    for (int k = 0; k < count; k++) STORE(made + (k + 1) * V, v[k]);
    STORE(tail - V, d->before);
    N(stream_part)(d->to - d->part, tail - d->part, d->part + rest);
}
