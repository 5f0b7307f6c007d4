/* _gather: a tile of a compound transpose, run by one thread.
 *
 * It is read in pieces (_pieces.h), or made by squares (_places.h). What is too small for these has its rows gathered
 * side by side in the thread's own memory. From there on they are those of any matrix, which is transposed, zipped or
 * unzipped into the stage, from where each column goes to its place.
 */

_Static_assert((int)COMPOUND <= TILE && 2 * TILE <= CARRY_LINES * LINE, "rows must fit where other transposes carry lines");
_Static_assert(LINE + 2 * TILE <= STAGE, "a stage must hold their columns; either is at most doubled by gaps");
_Static_assert((LINE - 1) * (WIDE_BYTES + LINE) <= CARRY_LINES * LINE, "and the rest of a wide one, too few for a square");

enum { SHORT_BLOCK = 256 }; /* bytes of pieces and segments up to which they are copied as blocks */

/* Adds a loop to a box of blocks; false if there is no place for it. Columns have to be adjacent in the output. */
static bool add_loop(Box *b, int64_t n, int64_t in, int64_t out)
{
    if (n == 1) return true;
    if (b->columns * b->rows * b->batch == 1 && out == b->width) b->columns = n, b->column_in = in;
    else if (b->rows * b->batch == 1) b->rows = n, b->row_in = in, b->row_out = out;
    else if (b->batch == 1) b->batch = n, b->batch_in = in, b->batch_out = out;
    else return false;
    return true;
}

static Box box_of_blocks(int64_t bytes, const uint8_t *from)
{
    return (Box){.width = bytes, .column_out = bytes, .batch = 1, .rows = 1, .columns = 1, .next = from};
}

/* Visits pieces of rows, which the loops from `inner` on step through: prefetches what is as far `ahead` of each, and
 * copies it if it is to go somewhere. */
static void visit_pieces(const Tile *t, int inner, const uint8_t *from, int64_t bytes, uint8_t *to, int64_t pitch,
                         uintptr_t ahead)
{
    const Copy *c = t->copy;
    int64_t index[MAX_RANK] = {0};
    for (;;) {
        for (int64_t x = 0; x < bytes; x += LINE) PREFETCH(from + x, ahead, 2);
        if (to) move(to, from, bytes), to += pitch;
        int j = inner;
        for (; j < c->rows.count; j++) {
            const int k = c->rows.loop[j];
            from += c->loop[k].in;
            if (++index[j] < t->extent[k]) break;
            from -= t->extent[k] * c->loop[k].in, index[j] = 0;
        }
        if (j == c->rows.count) return;
    }
}

/* Gathers rows of so many bytes, `pitch` apart, and prefetches those of the tile that begins at `next`. Rows that are
 * adjacent in the input too are one piece; short pieces are blocks, for which there is a kernel. */
static void gather_rows(const Tile *t, const uint8_t *from, int64_t bytes, uint8_t *to, int64_t pitch,
                        const uint8_t *next)
{
    const Copy *c = t->copy;
    const Side *rows = &c->rows;
    const uintptr_t ahead = (uintptr_t)next - (uintptr_t)from;
    int inner = 0;
    for (; inner < rows->count && pitch == bytes && c->loop[rows->loop[inner]].in == bytes; inner++)
        pitch = bytes *= t->extent[rows->loop[inner]];
    Box b = box_of_blocks(bytes, from);
    bool blocks = bytes <= SHORT_BLOCK;
    int64_t step = pitch;
    for (int j = inner; blocks && j < rows->count; step *= t->extent[rows->loop[j++]])
        blocks = add_loop(&b, t->extent[rows->loop[j]], c->loop[rows->loop[j]].in, step);
    if (!blocks) {
        visit_pieces(t, inner, from, bytes, to, pitch, ahead);
        return;
    }
    if (t->worker->stream && bytes > LINE / 2) /* of shorter ones, the processor sees the order sooner than we do */
        visit_pieces(t, inner, from, bytes, NULL, 0, ahead);
    t->worker->isa->kernels[BLOCKS](&b, from, to);
}

/* Writes the segments of a tile at once, as blocks; false if they are long, or in too many loops. Those for which there
 * is no streaming kernel go through the caches. */
static bool put_segments(const Worker *worker, const Copy *c, const int64_t *extent, const uint8_t *stage, uint8_t *to)
{
    const int64_t bytes = bytes_of_segment(c, extent);
    if (bytes > SHORT_BLOCK) return false;
    Box b = box_of_blocks(bytes, stage);
    for (int k = c->outside - 1; k >= 0; k--)
        if (!add_loop(&b, extent[k], c->staged[k], c->loop[k].out)) return false;
    const Isa *isa = worker->isa;
    const bool streams = worker->stream && !c->gaps && isa->unaligned[BLOCKS] && bytes >= isa->narrowest;
    (streams ? isa->unaligned : isa->kernels)[BLOCKS](&b, stage, to);
    return true;
}

/* The kernel for a box that is a matrix in memory of our own. */
static Kind kind_of_box(const Box *b)
{
    if (is_zip(b->rows, b->column_out, b->width)) return ZIP;
    return is_zip(b->columns, b->row_in, b->width) ? UNZIP : TRANSPOSE;
}

/* Without memory for stages, or if it is too large for them, it runs as any other tile: slowly, as several loops have
 * few steps. */
static void run_compound(Worker *worker, const Copy *c, const int64_t *at, const uint8_t *from, uint8_t *to,
                         const uint8_t *next)
{
    if (!worker->stages[0] || (c->wide && !worker->stream)) {
        run_tile(worker, c, at, from, to, next);
        return;
    }
    Tile t = {.copy = c, .worker = worker};
    const uint8_t *start = to + c->to, *source = from;
    uint8_t *target = to;
    from = input_at(c, at, from), to = place_tile(&t, at, to);
    t.box = (Box){.width = c->width, .batch = 1, .rows = count_of(&c->rows, t.extent),
                  .columns = count_of(&c->columns, t.extent), .row_in = c->loop[c->rank - 1].in,
                  .row_out = c->width, .column_in = c->width, .column_out = c->staged[c->along]};
    if (make_of_pieces(&t, from, to, next)) return;
    if (c->merged) { /* its columns are not contiguous in the input */
        run_tile(worker, c, at, source, target, next);
        return;
    }
    if (find_squares(&t, at, start)) {
        turn_directly(&t, at, from, to, next);
        return;
    }
    uint8_t *stage = worker->stages[0] + LINE;
    if (c->rows.count > 1) { /* what was gathered is in the caches, where the kernel is faster */
        t.box.row_in = apart(t.box.columns * c->width);
        gather_rows(&t, from, t.box.columns * c->width, worker->carry, t.box.row_in, next);
        from = worker->carry;
        const Kernel direct = worker->stream ? worker->isa->unaligned[TRANSPOSE] : NULL;
        if (direct && is_narrow(c) && t.box.row_in == t.box.columns * c->width) { /* else it has many columns to it */
            t.box.column_out = c->loop[c->along].out;
            direct(&t.box, from, to);
            return;
        }
    } else if (min(t.box.rows, t.box.columns) >= LINE / c->width) {
        t.packing = packing_of(from, t.box.row_in, LINE / c->width, NULL, 0);
        t.turn = turn_of(worker->isa, c);
    }
    if (t.turn) turn_box(&t, from, stage, next);
    else worker->isa->kernels[kind_of_box(&t.box)](&t.box, from, stage);
    if (put_segments(worker, c, t.extent, stage, to)) return;
    hand_over(worker, c, t.extent, to, true, true);
    if (worker->stream && !c->gaps) return;
    Pending *w = &worker->pending;
    for (; w->copy; next_segment(w)) move(w->to, w->from, w->bytes);
}
