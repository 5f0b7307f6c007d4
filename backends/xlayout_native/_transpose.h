/* _transpose: the shape of a transpose's tiles. The sizes were found by measurement; docs/adr has the figures. */

enum {
    TILE = 1 << 17,               /* bytes of a tile of any kind that is written straight to the target */
    ROW = 1024,                   /* bytes of an output row in a tile, if the input runs across it */
    /* Rows of the input in a transpose's tile. Together they make long runs in the output, but each is read from
     * pages of its own: so ROWS of single bytes, whose runs would be short, or if there are no more rows; else
     * FEWER_ROWS. Half of either if all is staged, to keep the stages and the input in L2. */
    ROWS = 1024,
    FEWER_ROWS = 512,
    BYTES = 256,                  /* bytes of each row in such a tile; */
    MORE_BYTES = 512,             /* and of wide elements, of which these would be too few */
    BAND = 64,                    /* rows that are read across such a tile before the next ones, if L2 holds them; */
    BAND_SQUARES = 2,             /* at least so many squares, whose stores then alternate between neighbouring lines */
    PIECES = 1 << 15,             /* bytes from which a tile that is read in pieces takes in no further loop */
    SIDE = 1 << 12,               /* most pieces of such a tile, and rows, or columns, of one that is made by squares */
    SMALL = 1 << 16,              /* bytes of such a tile if there are fewer rows or columns */
    WIDE_BYTES = 4096,            /* bytes of each row in a wide tile, */
    WIDE_TILES = 32,              /* unless there would be fewer tiles, */
    WIDE_ROWS = 128,              /* and how many rows it has at least */
    L2_BYTES = 1 << 20,           /* bytes of L2, and lines in one of its sets: */
    L2_WAYS = 8,                  /* fewer than most processors have */
};
_Static_assert(8 * 32 <= ROW && 8 * ROW <= TILE / 4, "a step of a zip, or of an unzip, must not be cut");
_Static_assert((int)LINE <= WIDE_ROWS, "a wide tile must have a square of any width");

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

/* Whether all rows of an output at `to` begin at multiples of so many bytes, a power of two; NULL stands for an output
 * that begins at one itself. */
static bool begin_at(const Copy *c, const uint8_t *to, int64_t multiple)
{
    uintptr_t all = (uintptr_t)to;
    for (int k = 0; k < c->rank - 1; k++)
        if (c->loop[k].n > 1 && !has_loop(&c->rows, k)) all |= (uintptr_t)c->loop[k].out;
    return all % (uintptr_t)multiple == 0;
}

/* A wide tile has long pieces of a few rows, and is too large for a stage. It pays for compound transposes, and where
 * tiles are read along their rows. Where lines have to be spliced, it needs long runs of the output, and so more rows;
 * and does not pay for short ones. No tile is left with rows too few for a square, unless these have several loops. */
static bool shape_wide(Copy *c)
{
    if (c->cached || !(is_compound(c) ? makes_lines(c) : reads_along(c))) return false;
    const bool spliced = c->off_line || !begin_at(c, NULL, LINE);
    const int64_t side = LINE / c->width, few = max(spliced ? ROW / c->width : 0, WIDE_ROWS);
    const int64_t row = bytes_of_side(c, &c->rows) / c->width, most = bytes_of_side(c, &c->columns);
    const int64_t least = spliced && !is_compound(c) ? WIDE_BYTES / 2 : BYTES;
    if (row < few || most <= least) return false;
    int64_t bytes = WIDE_BYTES;
    while (bytes > BYTES && bytes_of(c) < WIDE_TILES * few * bytes) bytes /= 2;
    const int64_t columns = shape_side(c, &c->columns, bytes / c->width, 0);
    int64_t rows = round_to_lines(max(few, TILE / c->width / columns), c->width);
    while (row % rows && row % rows < side) rows += side;
    shape_side(c, &c->rows, rows, 0);
    return true;
}

/* A tile that is read in pieces: a short side, and as many loops of the long one as come to PIECES. They are whole,
 * since any may lead along rows of the input, unless that would be too much. */
static void shape_pieces(Copy *c, const Side *brief, const Side *side)
{
    const int64_t few = shape_side(c, brief, NARROW, 0), most = min(TILE, few * SIDE * VECTOR);
    int64_t bytes = few * c->width;
    for (int j = 0; j < side->count && bytes < PIECES; j++) {
        const int k = side->loop[j];
        const int64_t n = c->loop[k].n, steps = max(PIECES / bytes, 1), parts = (n + steps - 1) / steps;
        c->tile[k] = bytes * n <= most ? n : (n + parts - 1) / parts;
        bytes *= n; /* a loop that was cut is the last one */
    }
}

/* A compound transpose's tile. Whole lines matter most in rows, which are written: for them, as many are taken as leave
 * a line of each. If there are few columns, more rows fit. */
static void shape_compound(Copy *c)
{
    const int64_t room = COMPOUND / c->width;
    c->band = max(BAND, BAND_SQUARES * LINE / c->width);
    if (c->split || c->merged) {
        c->wide = false;
        shape_pieces(c, c->split ? &c->columns : &c->rows, c->split ? &c->rows : &c->columns);
        return;
    }
    if (c->wide) { /* its pieces may have any length, and its lines begin in rows of the tile before */
        const Side rows = c->rows, columns = c->columns;
        extend(c, &c->rows, &columns, true, INT64_MAX);
        extend(c, &c->columns, &c->rows, false, INT64_MAX);
        c->wide = shape_wide(c);
        if (c->wide) return;
        c->rows = rows, c->columns = columns;
    }
    const int64_t rows = shape_side(c, &c->rows, COMPOUND / COMPOUND_IN, COMPOUND / LINE);
    const int64_t columns = shape_side(c, &c->columns, room / rows, 0);
    shape_side(c, &c->rows, room / columns, rows);
}

/* A transpose's tile: enough rows for long runs in the output and a few lines of each, read in bands of rows; or a wide
 * one. If one side is short, the other grows. Returns how many such pieces fit in a tile. */
static int64_t shape_transpose(Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    const int64_t side = LINE / c->width, room = SMALL / c->width;
    const bool large = c->width >= 8, more = !large && (c->width == 1 || row->n <= ROWS);
    const int64_t columns = (large ? MORE_BYTES : BYTES) / c->width;
    const int64_t rows = (more ? ROWS : FEWER_ROWS) / (makes_lines(c) ? 1 : 2);
    int64_t *high = &c->tile[c->rank - 1], *wide = &c->tile[c->along];
    c->band = max(rows_held(row->in, max(BAND, BAND_SQUARES * side)) / side, 1) * side;
    c->wide = c->wide && shape_wide(c);
    if (c->wide) return 1;
    *high = min(row->n, rows);
    *wide = min(column->n, round_to_lines(max(columns, room / *high), c->width));
    *high = min(row->n, round_to_lines(max(rows, room / *wide), c->width));
    /* Where a side is less than a line, the same lines are met again in the next box, unless L1 lost them. */
    if (c->cached && row->n < side) *wide = min(*wide, max(lines_held(column->out), side));
    if (c->cached && column->n < side) *high = min(*high, max(lines_held(row->in), side));
    return max(room / (*high * *wide), 1);
}
