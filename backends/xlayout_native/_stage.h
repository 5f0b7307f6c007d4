/* _stage: a tile that was assembled in a thread's own memory, on its way to the target.
 *
 * It is written line by line, with streaming stores, while the next tile is being read: a processor that loads,
 * shuffles and stores at the same time takes only as long as the slowest of the three.
 *
 * A segment is a piece of the tile that is contiguous in the output. Segments that are parts of rows are written
 * from line to line, because a partly written line would have to be read first. What is left over at the end of
 * one is written with the next, whose tile for that purpose also holds the line before its start.
 */

typedef struct {
    const Copy *copy;        /* NULL: nothing is pending */
    const uint8_t *from;
    uint8_t *to;
    int64_t at, end;         /* bytes of this segment: written so far, and to be written */
    int64_t segments;        /* left in the innermost loop over them, this one included */
    int64_t from_step, to_step;
    int64_t extent[MAX_RANK], index[MAX_RANK], bytes;
    bool first, last;        /* whether the tile has the start, and the end, of the rows that segments are parts of */
} Pending;

static inline void open_segment(Pending *w)
{
    w->at = w->first ? 0 : -((intptr_t)w->to & (LINE - 1));
    w->end = w->last ? w->bytes : w->bytes - (int64_t)((uintptr_t)(w->to + w->bytes) & (LINE - 1));
}

/* Moves to the first segment of the next row of segments; after the last row, nothing is pending. */
static void next_segments(Pending *w)
{
    const Copy *c = w->copy;
    const int inner = c->outside - 1;
    if (inner >= 0) {
        w->segments = w->extent[inner];
        w->from -= (w->extent[inner] - 1) * w->from_step, w->to -= (w->extent[inner] - 1) * w->to_step;
    }
    for (int k = inner - 1; k >= 0; k--) {
        w->from += c->staged[k], w->to += c->loop[k].out;
        if (++w->index[k] < w->extent[k]) {
            open_segment(w);
            return;
        }
        w->from -= w->extent[k] * c->staged[k], w->to -= w->extent[k] * c->loop[k].out;
        w->index[k] = 0;
    }
    w->copy = NULL;
}

static inline void next_segment(Pending *w)
{
    if (--w->segments <= 0) {
        next_segments(w);
        return;
    }
    w->from += w->from_step, w->to += w->to_step;
    open_segment(w);
}

static int64_t bytes_of_segment(const Copy *c, const int64_t *extent)
{
    int64_t bytes = c->width;
    for (int k = c->outside; k < c->rank; k++) bytes *= extent[k];
    return bytes;
}

/* Registers a finished tile of these extents, to be written from now on. */
static void make_pending(Pending *w, const Copy *c, const int64_t *extent, const uint8_t *stage, uint8_t *to,
                         bool first, bool last)
{
    const int inner = c->outside - 1;
    *w = (Pending){.copy = c, .from = stage, .to = to, .segments = 1, .bytes = bytes_of_segment(c, extent),
                   .first = first, .last = last};
    for (int k = 0; k < c->rank; k++) w->extent[k] = extent[k];
    if (inner >= 0)
        w->segments = extent[inner], w->from_step = c->staged[inner], w->to_step = c->loop[inner].out;
    open_segment(w);
}
