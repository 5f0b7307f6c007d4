/* _tiles: a tile, run by one thread.
 *
 * A result that is too large for the caches is written with streaming stores, in whole lines. A kernel that
 * makes whole lines writes them itself; otherwise tiles go through the thread's stages (_stage.h).
 */

/* Makes the tile that was assembled the pending one. */
static void hand_over(Worker *worker, const Copy *c, const int64_t *extent, uint8_t *to, bool first, bool last)
{
    uint8_t *filled = worker->stages[0];
    write_pending(worker, INT64_MAX);
    make_pending(&worker->pending, c, extent, filled + LINE, to, first, last);
    worker->stages[0] = worker->stages[1], worker->stages[1] = filled;
}

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

/* Notes how large a tile is, and returns where it goes. */
static uint8_t *place_tile(Tile *t, const int64_t *at, uint8_t *to)
{
    const Copy *c = t->copy;
    to += c->to;
    for (int k = 0; k < c->rank; k++) {
        t->extent[k] = min(c->tile[k], c->loop[k].n - at[k]);
        to += at[k] * c->loop[k].out;
    }
    return to;
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
    const int64_t row = bytes_of_side(c, &c->rows);
    return row % LINE == 0 && c->segment > row;
}

/* Whether tiles have few columns and long rows. */
static bool is_narrow(const Copy *c)
{
    return has_few_columns(c) && c->tile[c->along] == c->loop[c->along].n &&
           count_of(&c->rows, c->tile) * c->width >= LONG;
}

/* Whether they have few rows and long columns, each of one loop. */
static bool is_low(const Copy *c)
{
    const int last = c->rank - 1;
    return !is_compound(c) && has_few_rows(c) && c->tile[last] == c->loop[last].n &&
           c->tile[c->along] * c->loop[c->along].out >= LONG;
}

/* Whether tiles of a transpose begin at multiples of a line of its rows. Any loop of these may be cut. */
static bool cut_on_lines(const Copy *c)
{
    for (int j = 0; j < c->rows.count; j++) {
        const int k = c->rows.loop[j];
        if (c->tile[k] < c->loop[k].n && c->tile[k] * c->loop[k].out % LINE) return false;
    }
    return true;
}

/* How a transpose writes whole lines of this target; CACHED if it cannot, so that it is best staged: straight to the
 * target if its rows begin on lines, or spliced across lines if rows are long. A single run that begins off a line is
 * not spliced: the lines at the ends of its rows would be made in two parts, far apart in time. */
static Store store_of(const Isa *isa, const Copy *c, const uint8_t *start)
{
    if (!makes_lines_with(isa, c)) return CACHED;
    const int64_t row = count_of(&c->rows, c->tile) * c->width;
    if (cut_on_lines(c) && begin_at(c, start, LINE)) return STREAMED;
    const bool long_rows = row >= ROW && !is_run(c);
    return long_rows && begin_at(c, start, c->width) ? SPLICED : CACHED; /* an element may stand for several */
}

/* Decides how a transpose's tile is made. What stays in the caches is left to the kernel, unless the lines of a square
 * compete there. Otherwise by squares, if the tile holds one, and staged if that takes whole lines. Of wide tiles a
 * stage holds only what is too narrow for squares. */
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
        t->turn = turn_of(worker->isa, c);
    if (!worker->stream || !worker->stages[0]) return;
    if (worker->isa->unaligned[TRANSPOSE] && (is_narrow(c) || is_low(c))) {
        t->kernel = worker->isa->unaligned[TRANSPOSE], t->turn = NULL;
        return;
    }
    if (t->turn) t->store = store_of(worker->isa, c, start);
    t->staged = t->store == CACHED && !c->gaps && !(c->wide && t->turn);
    const bool far_apart = magnitude(c->loop[last].in) >= PAGE;
    t->by_rows = t->turn && (worker->isa->lines < ALL_LINES || (reads_along(c) && (c->wide || far_apart)));
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
    from = input_at(c, at, from), to = place_tile(&t, at, to);
    for (int k = last - 1; k >= 0 && t.batch < 0; k--)
        if (k != along) t.batch = k;
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
    if (c->kind == BLOCKS && t.staged && !makes_all_lines()) flip(&t.box); /* a stage is best filled along the input */
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
