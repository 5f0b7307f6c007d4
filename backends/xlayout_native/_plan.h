/* _plan: a copy in normal form, cut into tiles and windows.
 *
 * Everything that does not depend on addresses is decided here, once per plan. The sizes were found by
 * measurement; the decision records in docs/adr have the figures.
 */

enum {
    RUN = 1 << 16,                /* bytes from which a contiguous run is cut by bytes, not by loops */
    TILE = 1 << 17,               /* bytes of a tile that is written straight to the target */
    FEW_TILES = 8,                /* a cached result of two such tiles or more is cut into at least so many */
    STAGED = 1 << 14,             /* bytes of a tile that is staged first: it fits in L1 */
    ROW = 1024,                   /* bytes of an output row in a tile, if the input runs across it */
    /* Rows of the input in a transpose's tile. Together they make long runs in the output, but each is read from
     * pages of its own: so ROWS of single bytes, whose runs would be short, or if there are no more rows; else
     * FEWER_ROWS. Half of either where is_staged_by_lines, to keep the stages and the input in L2. */
    ROWS = 1024,
    FEWER_ROWS = 512,
    BYTES = 256,                  /* bytes of each row in such a tile; */
    MORE_BYTES = 512,             /* and of wide elements, of which these would be too few */
    BAND = 64,                    /* rows that are read across such a tile before the next ones, if L2 holds them; */
    BAND_SQUARES = 2,             /* at least so many squares, whose stores then alternate between neighbouring lines */
    SMALL = 1 << 16,              /* bytes of such a tile if there are fewer rows or columns */
    L2_BYTES = 1 << 20,           /* bytes of L2, and lines in one of its sets: */
    L2_WAYS = 8,                  /* fewer than most processors have */
    SHORT = 512,                  /* bytes up to which half a row of pairs is best written in order (dense) */
    LONG = 16 * LINE,             /* bytes of a row from which its first and last line may be written in parts */
    WINDOW = 4 << 20,             /* bytes of the output in a window */
    /* Bytes of each row of the input in a window of a transpose. With fewer, its pages are returned to too often;
     * with more, a thread waits longer for pages of a fresh result that another touches. */
    WIDE = 1 << 10,
    PAGE = 4096,                  /* bytes of a page of memory */
};

/* The largest count up to n whose elements fill whole lines; n itself if it is less than a line. */
static int64_t round_to_lines(int64_t n, int64_t width)
{
    const int64_t line = width < LINE ? LINE / width : 1;
    return n < line ? n : n / line * line;
}

/* How many rows this far apart, up to `most`, can be read side by side so that L2 still holds the lines that one square
 * reads of each. Rows that are a large power of two apart, or nearly so, fall into few of its sets. */
static int64_t rows_held(int64_t stride, int64_t most)
{
    uint8_t held[L2_BYTES / L2_WAYS / LINE] = {0};
    const uint64_t step = (uint64_t)magnitude(stride);
    uint64_t line = 0; /* the first one not counted yet */
    for (uint64_t r = 0; r < (uint64_t)most; r++) {
        if (line < r * step / LINE) line = r * step / LINE;
        for (; line <= (r * step + LINE - 1) / LINE; line++)
            if (++held[line % sizeof held] > L2_WAYS) return (int64_t)r;
    }
    return most;
}

static bool makes_lines(void);

/* Whether a transpose is staged although its output rows begin on lines, because a vector is less than a line. */
static bool is_staged_by_lines(const Copy *c)
{
    int64_t all = 0;
    for (int k = 0; k < c->rank - 1; k++) all |= c->loop[k].out;
    return all % LINE == 0 && !makes_lines();
}

/* A transpose's tile: enough rows for long runs in the output and a few lines of each, read in bands of rows. If
 * one side is short, the other grows. Returns how many such pieces fit in a tile. */
static int64_t shape_transpose(Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    const int64_t side = LINE / c->width, room = SMALL / c->width;
    const bool large = c->width >= 8, more = !large && (c->width == 1 || row->n <= ROWS);
    const int64_t columns = (large ? MORE_BYTES : BYTES) / c->width;
    const int64_t rows = (more ? ROWS : FEWER_ROWS) / (is_staged_by_lines(c) ? 2 : 1);
    int64_t *high = &c->tile[c->rank - 1], *wide = &c->tile[c->along];
    *high = min(row->n, rows);
    *wide = min(column->n, round_to_lines(max(columns, room / *high), c->width));
    *high = min(row->n, round_to_lines(max(rows, room / *wide), c->width));
    /* Where a side is less than a line, the same lines are met again in the next box, unless L1 lost them. */
    if (c->cached && row->n < side) *wide = min(*wide, max(lines_held(column->out), side));
    if (c->cached && column->n < side) *high = min(*high, max(lines_held(row->in), side));
    c->band = max(rows_held(row->in, max(BAND, BAND_SQUARES * side)) / side, 1) * side;
    return max(room / (*high * *wide), 1);
}

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
    const int64_t step = c->kind == ZIP ? ways * c->width : half;
    const bool line = half == LINE / 2 && (c->kind == UNZIP || row->in == half);
    return ways == 2 && (line || half > LINE / 2) && half <= SHORT && column->out == step &&
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
    if (c->kind != TRANSPOSE) return false;
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
        const int64_t steps = column ? WIDE / c->loop[k].in : WINDOW / rows / c->loop[k].out;
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
    if (is_compound(c)) c->kind = TRANSPOSE;
    c->dense = is_dense(c);
    shape(c, true);
    c->aligned = c->kind == RUNS || is_aligned(c);
    c->lines = !staged && (c->aligned || c->dense || has_long_rows(c));
    c->gaps = has_gaps(c);
    if (!c->lines && !c->gaps) shape(c, false);
}
