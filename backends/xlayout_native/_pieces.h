/* _pieces: a tile of a compound transpose with few columns, as of patches whose pixels have three channels.
 *
 * Its rows are contiguous in the output, but not in the input. There, the innermost loop of a row steps over short rows
 * that lie side by side, one element for each column; the others lead to more of these. A table says where pieces of
 * them are, from which the long rows are made at once, where they belong.
 */

/* Whether its rows are long, and short rows of the input have all of its columns. */
static bool has_few_columns(const Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    return c->rows.count > 1 && c->columns.count == 1 && column->n < table_limit(c->width, LINE / 16) &&
           c->tile[c->along] == column->n && row->in == column->n * c->width &&
           count_of(&c->rows, c->tile) * c->width >= LONG;
}

static int64_t rows_of_piece(const Copy *c) { return max(16 / c->width, 1); }

/* Whether its tiles consist of whole pieces, and not of too many. */
static bool has_pieces(const Copy *c)
{
    const int64_t unit = rows_of_piece(c);
    return c->loop[c->rank - 1].n % unit == 0 && c->tile[c->rank - 1] % unit == 0 &&
           count_of(&c->rows, c->tile) / unit <= SIDE;
}

/* Notes where the pieces of a tile are. As in _places.h, a tile at the edge has the first of these. */
static void note_pieces(const Copy *c, int64_t *places)
{
    const Side *rows = &c->rows;
    int64_t count = 1, unit = rows_of_piece(c);
    places[0] = 0;
    for (int j = 0; j < rows->count; j++, unit = 1) {
        const int k = rows->loop[j];
        const int64_t all = count * (c->tile[k] / unit), step = c->loop[k].in * unit;
        for (int64_t p = count; p < all; p++) places[p] = places[p - count] + step;
        count = all;
    }
}

/* Makes such a tile; false if it is too small. */
static bool split_tile(Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const Copy *c = t->copy;
    Worker *worker = t->worker;
    if (!worker->isa->split || !has_few_columns(c) || !has_pieces(c) || t->box.rows * c->width < LINE) return false;
    if (worker->placed != c) note_pieces(c, worker->places[0]), worker->placed = c;
    t->box.column_out = c->loop[c->along].out, t->box.next = next;
    worker->isa->split(&t->box, worker->places[0], from, to, worker->stream);
    return true;
}
