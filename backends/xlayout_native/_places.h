/* _places: a tile of a compound transpose, made by squares.
 *
 * Its rows, or its columns, are not equally far apart, so a table says where they are. Otherwise the tile is one of any
 * transpose. What is left for _gather.h is too small for squares.
 */

/* Notes where the steps of a side are in a tile, and for prefetching some more. */
static void note_places(const Copy *c, const Side *side, bool out, int64_t *places)
{
    const int64_t count = note_steps(c, side, out, 1, places);
    for (int64_t k = count; k < count + LINE; k++) places[k] = places[count - 1];
}

/* Notes where the rows before a tile at `at` are. */
static void note_rows_before(const Copy *c, const int64_t *at, int64_t count, int64_t *places)
{
    int64_t left[MAX_RANK], place = 0; /* steps of each loop before this row */
    for (int j = 0; j < c->rows.count; j++) left[j] = at[c->rows.loop[j]];
    for (int64_t k = 1; k <= count; k++) {
        for (int j = 0; j < c->rows.count; j++) {
            const Loop *loop = &c->loop[c->rows.loop[j]];
            place -= loop->in;
            if (left[j]--) break;
            place += loop->n * loop->in, left[j] = loop->n - 1;
        }
        places[-k] = place;
    }
}

/* Places of the rows, or columns, of a tile: every so many bytes, or by table. */
static Places places_of(const Copy *c, const Side *side, bool out, const int64_t *table)
{
    Places p = every(0);
    for (int j = 0; j < side->count; j++) p.step |= out ? c->loop[side->loop[j]].out : c->loop[side->loop[j]].in;
    if (side->count > 1) p.at = table;
    return p;
}

/* Whether a tile begins with the first row. */
static bool begins_rows(const Copy *c, const int64_t *at)
{
    int64_t before = 0;
    for (int j = 0; j < c->rows.count; j++) before |= at[c->rows.loop[j]];
    return !before;
}

/* How many rows the tile has whose rows follow; 0 after the last. A loop that is cut may have few steps left in any
 * round of those outside it. */
static int64_t rows_of_next(const Copy *c, const int64_t *at, const int64_t *extent)
{
    int64_t rows = 1;
    for (int j = 0; j < c->rows.count; j++) {
        const int k = c->rows.loop[j];
        const int64_t left = c->loop[k].n - at[k] - extent[k];
        if (left) return rows * min(c->tile[k], left);
        rows *= c->tile[k];
    }
    return 0;
}

/* Readies a tile to be made by squares, where it belongs. False if it is too small for them, or if that does not pay: a
 * stage is best filled from rows that lie side by side. */
static bool find_squares(Tile *t, const int64_t *at, const uint8_t *start)
{
    const Copy *c = t->copy;
    Worker *worker = t->worker;
    const int64_t side = LINE / c->width;
    const Turn turn = turn_of(worker->isa, c);
    const Store store = worker->stream ? store_of(worker->isa, c, start) : CACHED;
    const bool pays = c->wide || (makes_lines_with(worker->isa, c) && (!worker->stream || store != CACHED || c->gaps));
    if (!pays || !turn || min(t->box.rows, t->box.columns) < side || max(t->box.rows, t->box.columns) > SIDE)
        return false;
    if (worker->placed != c) {
        note_places(c, &c->rows, false, worker->places[0]);
        note_places(c, &c->columns, true, worker->places[1]);
        worker->placed = c;
    }
    t->rows = places_of(c, &c->rows, false, worker->places[0]);
    t->columns = places_of(c, &c->columns, true, worker->places[1]);
    t->turn = turn, t->store = store, t->packing = BY_TABLE, t->by_rows = worker->stream && reads_along(c);
    /* A tile too small for squares writes only its own rows. */
    t->first = begins_rows(c, at), t->last = rows_of_next(c, at, t->extent) < side;
    t->lead = t->store == SPLICED && !t->first ? side : 0;
    return true;
}

/* Makes such a tile. */
static void turn_directly(Tile *t, const int64_t *at, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const int64_t lead = t->lead;
    if (t->rows.at) note_rows_before(t->copy, at, lead, t->worker->places[0]), t->rows.at -= lead;
    else from -= lead * t->rows.step;
    t->box.rows += lead;
    turn_box(t, from, to - lead * t->box.width, next);
}
