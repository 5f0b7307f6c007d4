/* _pieces: a tile of a compound transpose with few columns, as of patches whose pixels have three channels.
 *
 * Its rows are contiguous in the output, but not in the input. There, the innermost loop of a row steps over short rows
 * that lie side by side, one element for each column; the others lead to more of these. A table says where pieces of
 * them are, from which the long rows are made at once, where they belong.
 */

static int64_t rows_of_piece(const Copy *c) { return max(16 / c->width, 1); }

/* Whether its tiles consist of whole pieces, and not of too many. */
static bool has_pieces(const Copy *c)
{
    const int64_t unit = rows_of_piece(c);
    return c->loop[c->rank - 1].n % unit == 0 && c->tile[c->rank - 1] % unit == 0 &&
           count_of(&c->rows, c->tile) / unit <= SIDE;
}

/* Notes where the steps of a side are in a tile: every one, or every `unit` of its first loop. In a tile at the edge,
 * which has fewer, they are the first of these: only the outermost loop with several steps is cut. Returns how many. */
static int64_t note_steps(const Copy *c, const Side *side, bool out, int64_t unit, int64_t *places)
{
    int64_t count = 1;
    places[0] = 0;
    for (int j = 0; j < side->count; j++, unit = 1) {
        const Loop *loop = &c->loop[side->loop[j]];
        const int64_t all = count * (c->tile[side->loop[j]] / unit), step = (out ? loop->out : loop->in) * unit;
        for (int64_t k = count; k < all; k++) places[k] = places[k - count] + step;
        count = all;
    }
    return count;
}

/* Makes such a tile; false if it is too small. */
static bool split_tile(Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const Copy *c = t->copy;
    Worker *worker = t->worker;
    if (!worker->isa->split || !is_narrow(c) || !has_pieces(c) || t->box.rows * c->width < LINE) return false;
    if (worker->placed != c) {
        note_steps(c, &c->rows, false, rows_of_piece(c), worker->places[0]);
        worker->placed = c;
    }
    t->box.column_out = c->loop[c->along].out, t->box.next = next;
    worker->isa->split(&t->box, worker->places[0], from, to, worker->stream);
    return true;
}
