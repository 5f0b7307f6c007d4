/* _tiles: a tile, run by one thread.
 *
 * A result that is too large for the caches is written with streaming stores, in whole lines. A kernel that
 * makes whole lines writes them itself; otherwise tiles go through the thread's stages (_stage.h).
 */

enum {
    STAGE = 3 * TILE,  /* holds a tile of any copy: its bytes, and two lines for each segment */
    AHEAD_LINES = 128, /* prefetched before a transpose needs them */
    CARRY_LINES = TILE / LINE /* a line for each column of a tile, which has no more columns */
};
_Static_assert(RUN + 2 * LINE <= STAGE, "a stage must hold a block");
_Static_assert(LINE + (ROWS + 2 * LINE) * BYTES <= STAGE, "a stage must hold a transpose's tile of single bytes");
_Static_assert(LINE + (FEWER_ROWS * 8 + 2 * LINE) * MORE_BYTES / 8 <= STAGE, "and of wide elements");

typedef struct {
    const Isa *isa;
    bool stream;
    uint8_t *stages[2]; /* the one being filled, and the one being written; or NULL */
    uint8_t *carry;     /* a line for each column of a transpose's tile; or the rows of a compound one */
    Pending pending;
} Worker;

typedef struct {
    const Copy *copy;
    Worker *worker;
    bool staged;
    int64_t extent[MAX_RANK];
    int64_t out[MAX_RANK]; /* output strides: the target's, or the stage's */
    Kernel kernel;
    Turn turn;             /* instead of the kernel, if the box is large enough */
    Store store;           /* of the lines that it makes, except for the first and the last */
    Packing packing;       /* of squares, before they are transposed */
    bool by_rows;          /* squares go across all columns before the next rows */
    bool first, last;      /* whether the tile has the start, and the end, of the output's rows */
    int64_t lead;          /* rows before the tile that are also read, for lines that began there */
    Box box;
    int batch;             /* the loop inside the box besides rows and columns, or -1 */
} Tile;

static inline void write_pending(Worker *worker, int64_t bytes)
{
    if (worker->pending.copy) worker->isa->write(&worker->pending, bytes);
}

/* Makes the tile that was assembled the pending one. */
static void hand_over(Worker *worker, const Copy *c, const int64_t *extent, uint8_t *to, bool first, bool last)
{
    uint8_t *filled = worker->stages[0];
    write_pending(worker, INT64_MAX);
    make_pending(&worker->pending, c, extent, filled + LINE, to, first, last);
    worker->stages[0] = worker->stages[1], worker->stages[1] = filled;
}

/* -- a box of a transpose ---------------------------------------------------------------------- */

typedef struct { int64_t band, row, column; } Spot;

/* Down the band, across, then on to the next band; false past the end. A cached result is a single band, so that
 * its rows, which are the box's columns, are finished before others are begun. When reading by rows, a band is
 * one square high, so that the lines of a row are read together. */
static inline bool step(Spot *s, const Tile *t)
{
    const int64_t side = LINE / t->box.width;
    const int64_t band = t->by_rows ? side : t->worker->stream ? t->copy->band : t->box.rows;
    s->row += side;
    if (s->row < min(s->band + band, t->box.rows)) return true;
    s->row = s->band, s->column += side;
    if (s->column < t->box.columns) return true;
    s->column = 0, s->band += band, s->row = s->band;
    return s->band < t->box.rows;
}

/* Transposes one block. `row` is where it would begin if it did not overlap its neighbour at the end. */
static inline void turn_one(const Tile *t, const Block *block, uint8_t *to, int64_t r, int64_t row,
                            uint8_t *carry)
{
    const int64_t side = LINE / t->box.width, out = t->box.column_out;
    if (t->store != SPLICED) {
        t->turn(block, to, out, r < row ? CACHED : t->store, carry);
        return;
    }
    if (r == row) t->turn(block, to, out, r ? SPLICED : CARRIED, carry);
    const bool start = t->first && !r, end = t->last && r + 2 * side > t->box.rows;
    if (start || end || r < row) t->turn(block, to, out, CACHED, carry); /* no other block completes this line */
}

/* log2 of how many squares lie side by side, if each can prefetch that many lines of some rows; else 0. */
static inline int side_by_side(const Tile *t)
{
    const int64_t side = LINE / t->box.width, squares = (t->box.columns + side - 1) / side;
    return t->by_rows && squares <= side && !(squares & (squares - 1)) ? __builtin_ctzll((uint64_t)squares) : 0;
}

/* Where a square starts prefetching when reading by rows: its share of the rows below, with all lines of each. */
static inline const uint8_t *below(const Tile *t, const Spot *at, const uint8_t *from, const uint8_t *after,
                                   int together)
{
    const int64_t side = LINE / t->box.width, row_in = t->box.row_in;
    const uintptr_t row = at->row + side < t->box.rows ? (uintptr_t)from + (uintptr_t)((at->row + side) * row_in)
                                                       : (uintptr_t)after;
    const int64_t share = together ? at->column / side * (side >> together) * row_in : at->column * t->box.width;
    return (const uint8_t *)(row + (uintptr_t)share);
}

/* Squares of whole lines, which overlap at the edges. Between them the pending tile is written, and lines for
 * later squares are prefetched into L2: the hardware prefetchers do not follow so many rows, and L1 waits for
 * too few lines at a time. */
static void turn_box(const Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const Box *b = &t->box;
    const int64_t side = LINE / b->width;
    const int together = side_by_side(t);
    _Alignas(LINE) uint8_t packed[2][LINE * LINE];
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        const uint8_t *after = k + 1 < b->batch ? from + b->batch_in : next, *source = from;
        Spot at = {0, 0, 0}, following = at, ahead = at;
        for (int64_t j = 0; j < AHEAD_LINES; j += side)
            if (!step(&ahead, t)) ahead = (Spot){0, 0, 0}, source = after;
        if (t->packing) pack_first(t->turn, from, b->row_in, packed[0], t->packing);
        int now = 0;
        for (bool more = true; more; at = following, now ^= 1) {
            more = step(&following, t);
            const Spot *p = more ? &following : &at;
            const int64_t r = min(at.row, b->rows - side), c = min(at.column, b->columns - side);
            const Block block = {
                .from = from + r * b->row_in + c * b->width, .packed = packed[now], .packed_next = packed[!now],
                .packing = t->packing, .row_in = b->row_in,
                .next = from + min(p->row, b->rows - side) * b->row_in +
                        min(p->column, b->columns - side) * b->width,
                .ahead = t->by_rows ? below(t, &at, from, after, together)
                                   : (const uint8_t *)((uintptr_t)source + (uintptr_t)(
                                         ahead.row * b->row_in + ahead.column * b->width)),
                .together = together,
                .result_ahead = t->worker->stream || source != from ? NULL : (const uint8_t *)(
                    (uintptr_t)to + (uintptr_t)(ahead.row * b->width + ahead.column * b->column_out)),
            };
            turn_one(t, &block, to + r * b->width + c * b->column_out, r, at.row,
                     t->worker->carry + at.column * LINE);
            write_pending(t->worker, side * LINE);
            if (!step(&ahead, t)) ahead = (Spot){0, 0, 0}, source = after;
        }
    }
}

/* -- a tile ------------------------------------------------------------------------------------ */

/* The loops outside the box, then the box. `next` is where the input continues afterwards. */
static void each_box(Tile *t, int k, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const Copy *c = t->copy;
    while (k == c->along || k == t->batch) k++;
    if (k >= c->rank - 1) {
        if (t->turn) {
            turn_box(t, from, to, next);
            return;
        }
        /* In the caches, the hardware prefetches a single row well enough, but not reads in several places. */
        t->box.next = t->worker->stream || c->kind == ZIP ? next : NULL;
        t->kernel(&t->box, from, to);
        const Box *b = &t->box;
        if (t->staged) write_pending(t->worker, b->width * b->batch * b->rows * b->columns);
        return;
    }
    for (int64_t j = 0; j < t->extent[k]; j++) {
        const uint8_t *here = from + j * c->loop[k].in;
        each_box(t, k + 1, here, to + j * t->out[k], j + 1 < t->extent[k] ? here + c->loop[k].in : next);
    }
}

static const uint8_t *input_at(const Copy *c, const int64_t *at, const uint8_t *from)
{
    from += c->from;
    for (int k = 0; k < c->rank; k++) from += at[k] * c->loop[k].in;
    return from;
}

/* Whether all rows of the output begin at multiples of so many bytes, a power of two. */
static bool begin_at(const Copy *c, const uint8_t *to, int64_t multiple)
{
    uintptr_t all = (uintptr_t)to;
    for (int k = 0; k < c->rank - 1; k++)
        if (c->loop[k].n > 1) all |= (uintptr_t)c->loop[k].out;
    return all % (uintptr_t)multiple == 0;
}

/* How the squares of a transpose are packed: not unless their lines take more than half of a set, since each is read in
 * four parts. By lanes, columns are not made in order, which is slower if they are written into one set of a cache;
 * `to` is NULL if they cannot be: if they are streamed, or staged. */
static Packing packing_of(const uint8_t *from, int64_t row_in, int64_t side, const uint8_t *to, int64_t column_out)
{
    if (!compete(from, row_in, side, L1_WAYS / 2)) return NOT_PACKED;
    return to && compete(to, column_out, side, side / 2) ? BY_ROWS : BY_LANES;
}

/* Whether rows of whole lines are adjacent in the output, so that a tile is one long run of it. */
static bool is_run(const Copy *c)
{
    const int64_t row = c->loop[c->rank - 1].n * c->width;
    return row % LINE == 0 && c->segment > row;
}

/* Whether it has few columns, contiguous in the input, in tiles of long rows. */
static bool is_narrow(const Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    return column->n < table_limit(c->width, LINE / 16) && row->in == column->n * c->width &&
           c->tile[c->rank - 1] * c->width >= LONG;
}

/* Decides how a transpose's tile is made. What stays in the caches is left to the kernel, unless the lines of a square
 * compete there. Otherwise by squares, if the tile holds one. They are written straight to the target if its rows begin
 * on lines, or spliced across lines if the processor can do that and rows are long; otherwise the tile is staged, as is
 * a single run that begins off a line: the lines at the ends of its rows would be made in two parts, far apart in
 * time. */
static void choose_transpose(Tile *t, const int64_t *at, const uint8_t *from, const uint8_t *start)
{
    const Copy *c = t->copy;
    const Worker *worker = t->worker;
    const int last = c->rank - 1;
    const int64_t side = LINE / c->width, rows = t->extent[last], columns = t->extent[c->along];
    const bool cut = c->tile[last] < c->loop[last].n, off_line = !begin_at(c, start, LINE);
    const int64_t column_out = c->loop[c->along].out;
    t->packing = packing_of(from, c->loop[last].in, side, worker->stream ? NULL : start, column_out);
    t->first = !cut || !at[last], t->last = !cut || at[last] + rows == c->loop[last].n;
    if (rows >= side && columns >= side &&
        (worker->stream || compete(from, c->loop[last].in, side, L1_WAYS) ||
         compete(start, column_out, side, L1_WAYS)))
        t->turn = worker->isa->turn[__builtin_ctzll((uint64_t)c->width)];
    if (!worker->stream || !worker->stages[0]) return;
    if (worker->isa->unaligned[TRANSPOSE] && is_narrow(c)) {
        t->kernel = worker->isa->unaligned[TRANSPOSE], t->turn = NULL;
        return;
    }
    const bool whole_lines = t->turn && worker->isa->whole_lines;
    if (whole_lines && !off_line)
        t->store = STREAMED;
    else if (whole_lines && c->tile[last] * c->width >= ROW && !is_run(c) &&
             begin_at(c, start, c->width)) /* an element may stand for several, aligned as one of those */
        t->store = SPLICED;
    else
        t->staged = !c->gaps;
    t->by_rows = t->turn && !whole_lines && (c->width < 4 || !off_line); /* wide elements off lines: bands are faster */
    t->lead = off_line && !t->first ? side : 0;
}

/* The kernel that can write whole lines of this target directly; NULL: the copy must be staged. */
static Kernel writer(const Isa *isa, const Copy *c, const uint8_t *to)
{
    const uintptr_t offset = (uintptr_t)to % LINE;
    if (c->dense && isa->dense[c->kind]) return isa->dense[c->kind];
    if (!c->lines) return NULL;
    if (c->kind == RUNS || (c->aligned && !offset)) return isa->streaming[c->kind];
    if (!has_long_rows(c)) return NULL;
    if (c->kind == BLOCKS && c->width < isa->narrowest) return NULL;
    const bool whole = c->kind != BLOCKS && c->aligned && offset % (uintptr_t)step_of_rows(c) == 0;
    return (whole ? isa->streaming : isa->unaligned)[c->kind];
}

static void run_tile(Worker *worker, const Copy *c, const int64_t *at, const uint8_t *from,
                     uint8_t *to, const uint8_t *next)
{
    const Isa *isa = worker->isa;
    Tile t = {.copy = c, .worker = worker, .batch = -1, .kernel = isa->kernels[c->kind]};
    const int last = c->rank - 1, along = c->along;
    const uint8_t *start = to + c->to;
    from = input_at(c, at, from), to += c->to;
    for (int k = last; k >= 0; k--) {
        t.extent[k] = min(c->tile[k], c->loop[k].n - at[k]);
        to += at[k] * c->loop[k].out;
        if (k != along && k != last && t.batch < 0) t.batch = k;
    }
    if (c->kind == TRANSPOSE) {
        choose_transpose(&t, at, from, start);
    } else if (worker->stream) {
        const Kernel direct = writer(isa, c, to);
        if (direct) t.kernel = direct;
        else t.staged = worker->stages[0] && !c->gaps;
        t.first = t.last = true;
    }
    for (int k = 0; k < c->rank; k++) t.out[k] = t.staged ? c->staged[k] : c->loop[k].out;
    t.box = (Box){.width = c->width, .batch = 1, .rows = t.extent[last], .columns = 1,
                  .row_in = c->loop[last].in, .row_out = t.out[last]};
    if (along != last)
        t.box.columns = t.extent[along], t.box.column_in = c->loop[along].in, t.box.column_out = t.out[along];
    if (t.batch >= 0) {
        t.box.batch = t.extent[t.batch];
        t.box.batch_in = c->loop[t.batch].in, t.box.batch_out = t.out[t.batch];
    }
    if (c->kind == BLOCKS && worker->stream && !t.staged) {
        /* splicing needs blocks that are adjacent in the output to follow one another */
        const bool unaligned = t.kernel == isa->unaligned[BLOCKS];
        const bool adjacent_rows = t.box.rows > 1 && t.box.row_out == c->width && !has_seams(&t.box);
        if (unaligned ? adjacent_rows : t.box.columns < 2) flip(&t.box);
    }
    uint8_t *target = t.staged ? worker->stages[0] + LINE : to;
    t.box.rows += t.lead, from -= t.lead * t.box.row_in, target -= t.lead * c->width;
    each_box(&t, 0, from, target, next);
    if (t.staged) hand_over(worker, c, t.extent, to, t.first, t.last);
}
