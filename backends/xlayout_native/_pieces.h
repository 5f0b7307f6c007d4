/* _pieces: a tile of a compound transpose with few columns, or few rows, as of patches whose pixels have three
 * channels.
 *
 * In patches to images, rows are contiguous in the output, but not in the input. There, the innermost loop of a row
 * steps over short rows that lie side by side, one element for each column; the others lead to more of these. A table
 * says where pieces of them are, from which the long rows are made at once, where they belong. In images to patches, it
 * says where pieces of the long rows are. Short blocks are pieces of a single row.
 *
 * Pieces are read in the order of the output, memory best in its own. So the lines of the next tile are prefetched
 * meanwhile, in theirs.
 */

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

/* Notes where the lines of a tile are, in the order in which they lie; or some of them, if they are too many. Returns
 * how many. */
static int64_t note_lines(const Copy *c, int64_t *lines)
{
    int order[MAX_RANK], loops = 0, j = 0;
    for (int k = 0; k < c->rank; k++) {
        const int64_t step = magnitude(c->loop[k].in);
        if (c->tile[k] == 1 || !step) continue;
        int at = loops++;
        for (; at > 0 && magnitude(c->loop[order[at - 1]].in) > step; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    int64_t bytes = c->width, count = 0;
    for (; j < loops && c->loop[order[j]].in == bytes; j++) bytes *= c->tile[order[j]];
    for (; count * LINE < min(bytes, SIDE * LINE); count++) lines[count] = count * LINE;
    for (int64_t all; j < loops && (all = count * c->tile[order[j]]) <= SIDE; j++)
        for (; count < all; count++) lines[count] = lines[count - all / c->tile[order[j]]] + c->loop[order[j]].in;
    return count;
}

/* Makes a tile of which one side is read in pieces; false if it is too small, or there is no kernel. */
static bool make_of_pieces(Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    const Copy *c = t->copy;
    Worker *worker = t->worker;
    const Reshape kernel = c->split ? worker->isa->split : c->merged ? worker->isa->merge : NULL;
    const Side *side = c->split ? &c->rows : &c->columns;
    Pieces *p = &worker->pieces;
    if (!kernel || count_of(side, t->extent) * c->width < LINE) return false;
    if (worker->placed != c) {
        const Loop *inner = &c->loop[c->along];
        const int64_t all = count_of(side, c->tile) * c->width;
        const int64_t piece = (inner->in == c->width ? inner->n : 1) * c->width;
        *p = (Pieces){.at = worker->places[0], .bytes = c->split ? VECTOR : min(piece & -piece, LINE),
                      .ahead = worker->places[1], .lines = note_lines(c, worker->places[1])};
        p->step = (p->lines * LINE + all - 1) / all;
        note_steps(c, side, false, p->bytes / c->width, worker->places[0]);
        worker->placed = c;
    }
    t->box.column_out = c->loop[c->along].out, t->box.next = next;
    kernel(&t->box, p, from, to, worker->stream);
    return true;
}
