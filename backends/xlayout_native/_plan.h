/* _plan: a copy in normal form, cut into tiles and windows.
 *
 * Everything that does not depend on addresses is decided here, once per plan. The sizes were found by
 * measurement; the decision records in docs/adr have the figures.
 */

enum {
    RUN = 1 << 16,                /* bytes from which a contiguous run is cut by bytes, not by loops */
    FEW_TILES = 8,                /* a cached result of two such tiles or more is cut into at least so many */
    STAGED = 1 << 14,             /* bytes of a tile that is staged first: it fits in L1 */
    WINDOW = 4 << 20,             /* bytes of the output in a window */
    /* Bytes of each row of the input in a window of a transpose, if its tiles have no more. With fewer, its pages are
     * returned to too often; with more, a thread waits longer for pages of a fresh result that another touches. */
    WINDOW_IN = 1 << 10,
};

/* Bytes of a tile of any other kind. */
static int64_t bytes_of_tile(const Copy *c, bool lines)
{
    if (!lines) return STAGED;
    if (!c->cached) return TILE;
    const int64_t all = bytes_of(c);
    return all < 2 * TILE ? TILE : min(all / FEW_TILES, TILE);
}

/* A row of the output, or enough of one, then whatever else fits. Cached blocks take whole rows, so that a
 * thread's share of the result is in one piece, as it is for the framework's own threads. Returns how many such
 * pieces fit in a tile. */
static int64_t shape_rows(Copy *c, bool lines)
{
    const int last = c->rank - 1;
    const bool whole_rows = c->along == last || (c->cached && c->kind == BLOCKS && c->width >= LINE);
    const int64_t bytes = bytes_of_tile(c, lines);
    int64_t room = bytes / min(c->width, bytes);
    c->tile[last] = min(c->loop[last].n, whole_rows ? room : (ROW + c->width - 1) / c->width);
    if (c->along != last) {
        c->tile[c->along] = min(c->loop[c->along].n, round_to_lines(room / c->tile[last], c->width));
        c->tile[last] = min(c->loop[last].n, max(c->tile[last], round_to_lines(room / c->tile[c->along], c->width)));
        room /= c->tile[c->along];
    }
    return room / c->tile[last];
}

static void shape_tiles(Copy *c, bool lines)
{
    for (int k = 0; k < c->rank; k++) c->tile[k] = 1;
    int64_t room = 1;
    if (is_compound(c)) shape_compound(c);
    else room = c->kind == TRANSPOSE ? shape_transpose(c) : shape_rows(c, lines);
    for (int k = c->rank - 2; k >= 0 && room > 1; k--) {
        if (k == c->along) continue;
        c->tile[k] = min(c->loop[k].n, room);
        room /= c->tile[k];
    }
    c->count = 1;
    for (int k = 0; k < c->rank; k++) {
        c->tiles[k] = (c->loop[k].n + c->tile[k] - 1) / c->tile[k];
        c->count *= c->tiles[k];
    }
}

/* Where a tile's elements lie in the stage: as in the output, but without gaps. Between long segments there is
 * room for the line before one and for its last line, which also keeps them out of the same set of the cache. */
static void shape_stage(Copy *c)
{
    if (is_compound(c)) {
        stage_compound(c);
        return;
    }
    c->segment = c->width, c->outside = c->rank;
    for (int k = c->rank - 1; k >= 0 && c->loop[k].out == c->segment; k--) {
        c->segment *= c->tile[k], c->outside = k;
        if (c->tile[k] != c->loop[k].n) break;
    }
    int64_t step = c->width;
    for (int k = c->rank - 1; k >= 0; k--) {
        if (k == c->outside - 1 && c->segment >= LINE)
            step = (step + LINE - 1) / LINE * LINE + LINE;
        c->staged[k] = step;
        step *= c->tile[k];
    }
}

/* Whether segments are short and something is left out behind each. Then few lines are whole: the others would be
 * read, changed and written to memory one by one, so all are left to the caches. Not if a transpose leaves out more
 * than it writes: it writes some of each segment in turn, and would come back to too many lines. */
static bool has_gaps(const Copy *c)
{
    const int k = c->outside;
    if (!k || c->segment >= LONG || (k < c->rank && c->tile[k] < c->loop[k].n)) return false;
    const int64_t step = c->loop[k - 1].out;
    return step > c->segment && (c->kind != TRANSPOSE || step <= 2 * c->segment);
}

/* Whether it zips or unzips pairs, in short rows that are adjacent in the output. */
static bool is_dense(const Copy *c)
{
    const int last = c->rank - 1;
    if (last < 2 || (c->kind != ZIP && c->kind != UNZIP) || c->width > 8) return false;
    const Loop *row = &c->loop[last], *column = &c->loop[c->along];
    const int64_t ways = c->kind == ZIP ? row->n : column->n, half = row->n * column->n / ways * c->width;
    const int64_t step = c->kind == ZIP ? ways * c->width : half, run = c->kind == ZIP ? 2 * half : half;
    const bool line = half == LINE / 2 && (c->kind == UNZIP || row->in == half);
    return ways == 2 && (line || half > LINE / 2) && run < LONG && column->out == step &&
           c->loop[last - 2].out == 2 * half;
}

/* Whether the kernel's stores fall on whole lines of a target that starts on one. */
static bool is_aligned(const Copy *c)
{
    const int last = c->rank - 1;
    if (c->kind == TRANSPOSE || (c->kind == BLOCKS && c->width % LINE)) return false;
    const bool halves = c->dense && c->loop[c->along].out == LINE / 2;
    for (int k = 0; k <= last; k++) {
        const bool inside = c->kind != BLOCKS && (k == last || ((c->kind == ZIP || halves) && k == c->along));
        const int64_t step = inside ? c->tile[k] * c->loop[k].out : c->loop[k].out;
        if (step % LINE && !(inside && c->tiles[k] == 1)) return false;
    }
    return true;
}

/* How far apart the elements of a row are in the output, as one kernel writes it. */
static int64_t step_of_rows(const Copy *c)
{
    return c->loop[c->kind == ZIP ? c->along : c->rank - 1].out;
}

/* How many contiguous bytes the kernel writes in a tile. */
static int64_t contiguous_bytes(const Copy *c)
{
    const int last = c->rank - 1;
    if (c->kind == ZIP || c->kind == UNZIP) return step_of_rows(c) * c->tile[c->kind == ZIP ? c->along : last];
    int64_t bytes = c->width;
    for (int k = last; k >= 0 && k >= last - 1 && c->loop[k].out == bytes && (k == last || c->along >= k); k--) {
        bytes *= c->tile[k];
        if (c->tile[k] < c->loop[k].n) break;
    }
    return bytes;
}

/* Whether rows are so long that it does not matter if the line at either end is written in parts. */
static bool has_long_rows(const Copy *c)
{
    if (c->kind == BLOCKS) return contiguous_bytes(c) >= LONG;
    return (c->kind == ZIP || c->kind == UNZIP) && step_of_rows(c) <= LINE && contiguous_bytes(c) >= LONG;
}

/* Runs can be written in any order at the same cost, but are best read in the order in which they lie. */
static void order_by_input(Copy *c)
{
    for (int k = 1; k < c->rank - 1; k++) {
        const Loop x = c->loop[k];
        int at = k;
        for (; at > 0 && magnitude(c->loop[at - 1].in) < magnitude(x.in); at--)
            c->loop[at] = c->loop[at - 1];
        c->loop[at] = x;
    }
}

/* Whether tiles that lie side by side read parts of the same pages. */
static bool returns_to_pages(const Copy *c)
{
    if (c->kind != TRANSPOSE || c->merged) return false;
    for (int j = 0; j < c->columns.count; j++)
        if (c->tiles[c->columns.loop[j]] > 1) return true;
    return false;
}

/* A window has as many tiles along each loop as span a few megabytes of the output, in all of its rows that are
 * far apart; of what returns to pages, whole rows of the output, for so much of each row of the input. */
static void shape_windows(Copy *c)
{
    for (int k = 0; k < c->rank; k++) {
        int at = k;
        for (; at > 0 && c->loop[c->by_out[at - 1]].out < c->loop[k].out; at--)
            c->by_out[at] = c->by_out[at - 1];
        c->by_out[at] = k;
        c->window[k] = c->tiles[k];
    }
    const bool returns = returns_to_pages(c);
    int64_t rows = 1;
    c->windows = 1;
    for (int j = 0; j < c->rank; j++) {
        const int k = c->by_out[j];
        if (returns && has_loop(&c->rows, k)) break;
        const bool column = returns && has_loop(&c->columns, k);
        const int64_t steps = column ? WINDOW_IN / c->loop[k].in : WINDOW / rows / c->loop[k].out;
        const int64_t room = steps / c->tile[k];
        c->window[k] = min(max(room, 1), c->tiles[k]);
        c->windows *= (c->tiles[k] + c->window[k] - 1) / c->window[k];
        if (room) break; /* the remaining loops are inside */
        if (!column) rows *= c->tile[k];
    }
}

static void shape(Copy *c, bool lines)
{
    shape_tiles(c, lines);
    shape_stage(c);
    shape_windows(c);
}

/* Readies a copy to run, from its loops in bytes. `staged` says that its tiles go through the stage. */
static void prepare_copy(Copy *c, bool staged)
{
    normalise(c);
    const bool bytes = c->rank == 0 || c->width >= RUN;
    if (bytes) {
        c->loop[c->rank++] = (Loop){c->width, 1, 1};
        c->width = 1;
    }
    c->along = c->rank - 1;
    for (int k = c->rank - 2; k >= 0; k--) {
        const int64_t here = magnitude(c->loop[k].in), best = magnitude(c->loop[c->along].in);
        if (here && (!best || here < best)) c->along = k;
    }
    c->kind = bytes ? RUNS : kind_of(c);
    if (c->kind == RUNS) order_by_input(c);
    find_sides(c);
    c->unlike = lines_unlike(LINE / c->width, c->loop[c->along].out);
    c->split = joins() && is_split(c), c->merged = false;
    if (is_compound(c)) c->kind = TRANSPOSE;
    c->wide = !staged && c->kind == TRANSPOSE; /* if its shape allows it */
    c->dense = is_dense(c);
    shape(c, true);
    c->aligned = c->kind == RUNS || is_aligned(c);
    c->lines = !staged && (c->aligned || c->dense || has_long_rows(c));
    c->merged = joins() && (find_merged(c) || find_gathered(c));
    if (c->merged) {
        c->split = c->dense = c->aligned = c->lines = false;
        shape(c, true);
    }
    c->gaps = has_gaps(c);
    if (!c->merged && !c->lines && !c->gaps) shape(c, false);
}
