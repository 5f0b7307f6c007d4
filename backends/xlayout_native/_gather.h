/* _gather: a tile of a compound transpose, run by one thread.
 *
 * Its rows are gathered side by side in the thread's own memory. From there on they are those of any matrix:
 * squares of them are transposed into the stage, from where each column goes to its place.
 */

_Static_assert(2 * COMPOUND <= CARRY_LINES * LINE, "rows must fit where other transposes carry lines");
_Static_assert(LINE + 2 * COMPOUND <= STAGE, "a stage must hold their columns; either is at most doubled by gaps");

static int64_t count_of(const Side *side, const int64_t *extent)
{
    int64_t count = 1;
    for (int j = 0; j < side->count; j++) count *= extent[side->loop[j]];
    return count;
}

/* Gathers rows of so many bytes, `pitch` apart, and prefetches those of the tile that begins at `next`. */
static void gather_rows(const Tile *t, const uint8_t *from, int64_t bytes, uint8_t *to, int64_t pitch,
                        const uint8_t *next)
{
    const Copy *c = t->copy;
    const uintptr_t ahead = (uintptr_t)next - (uintptr_t)from;
    int64_t index[MAX_RANK] = {0};
    for (int64_t r = t->box.rows; r--; to += pitch) {
        for (int64_t x = 0; x < bytes; x += LINE) PREFETCH(from + x, ahead, 2);
        move(to, from, bytes);
        for (int j = 0; j < c->rows.count; j++) {
            const int k = c->rows.loop[j];
            from += c->loop[k].in;
            if (++index[j] < t->extent[k]) break;
            from -= t->extent[k] * c->loop[k].in, index[j] = 0;
        }
    }
}

/* Without memory for stages, it runs as any other tile: slowly, as several loops have few steps. */
static void run_compound(Worker *worker, const Copy *c, const int64_t *at, const uint8_t *from, uint8_t *to,
                         const uint8_t *next)
{
    if (!worker->stages[0]) {
        run_tile(worker, c, at, from, to, next);
        return;
    }
    Tile t = {.copy = c, .worker = worker};
    from = input_at(c, at, from), to += c->to;
    for (int k = 0; k < c->rank; k++) {
        t.extent[k] = min(c->tile[k], c->loop[k].n - at[k]);
        to += at[k] * c->loop[k].out;
    }
    t.box = (Box){.width = c->width, .batch = 1, .rows = count_of(&c->rows, t.extent),
                  .columns = count_of(&c->columns, t.extent), .row_in = c->loop[c->rank - 1].in,
                  .row_out = c->width, .column_in = c->width, .column_out = c->staged[c->along]};
    if (c->rows.count > 1) {
        t.box.row_in = apart(t.box.columns * c->width);
        gather_rows(&t, from, t.box.columns * c->width, worker->carry, t.box.row_in, next);
        from = next = worker->carry;
    } else {
        t.pack = needs_packing(c, from);
    }
    uint8_t *stage = worker->stages[0] + LINE;
    if (min(t.box.rows, t.box.columns) >= LINE / c->width)
        t.turn = worker->isa->turn[__builtin_ctzll((uint64_t)c->width)];
    if (t.turn) turn_box(&t, from, stage, next);
    else worker->isa->kernels[TRANSPOSE](&t.box, from, stage);
    hand_over(worker, c, t.extent, to, true, true);
    if (worker->stream) return;
    Pending *w = &worker->pending;
    for (; w->copy; next_segment(w)) move(w->to, w->from, w->bytes);
}
