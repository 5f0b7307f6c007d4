/* _compound: transposes whose rows or columns are made of several loops.
 *
 * `(h two n) m -> m (h n two)` is one. Its output has long rows, but the innermost loop of a row has two steps; in
 * the inverse, that holds for the columns. So all loops of a row, or of a column, are tiled together. _gather.h
 * runs such a tile.
 */

enum {
    VECTOR = 16,           /* bytes of the smallest vector */
    COMPOUND = 1 << 16,    /* bytes of a tile */
    COMPOUND_IN = 256,     /* bytes of each of its rows in the input, if there are rows enough */
    COMPOUND_ROW = 1024,   /* bytes from which a row takes in no further loop, */
    COMPOUND_COLUMN = 512, /* and those of a column */
};

static bool has_loop(const Side *side, int k)
{
    for (int j = 0; j < side->count; j++)
        if (side->loop[j] == k) return true;
    return false;
}

static int64_t bytes_of_side(const Copy *c, const Side *side)
{
    int64_t bytes = c->width;
    for (int j = 0; j < side->count; j++) bytes *= c->loop[side->loop[j]].n;
    return bytes;
}

/* Adds the loops that continue a side where it is contiguous, until it has `enough` bytes. A side whose first loop is
 * long needs none; in the caches, a vector is long. */
static void extend(const Copy *c, Side *side, const Side *other, bool out, int64_t enough)
{
    int64_t bytes = bytes_of_side(c, side);
    if (side->count == 1 && bytes >= (c->cached ? VECTOR : LINE)) return;
    for (int k = 0; bytes < enough && k < c->rank; k++) {
        if ((out ? c->loop[k].out : c->loop[k].in) != bytes || has_loop(side, k) || has_loop(other, k)) continue;
        side->loop[side->count++] = k;
        bytes *= c->loop[k].n;
        k = -1; /* the next one may be any loop */
    }
}

static void reset_sides(Copy *c) { c->rows = (Side){1, {c->rank - 1}}, c->columns = (Side){1, {c->along}}; }

/* Whether both sides come to `enough` bytes. A loop that continues both of them goes to the first. */
static bool extend_both(Copy *c, bool rows_first, int64_t enough)
{
    reset_sides(c);
    if (rows_first) extend(c, &c->rows, &c->columns, true, enough);
    extend(c, &c->columns, &c->rows, false, enough);
    extend(c, &c->rows, &c->columns, true, enough);
    if (min(bytes_of_side(c, &c->rows), bytes_of_side(c, &c->columns)) < enough) return false;
    if (c->rows.count > 1) extend(c, &c->rows, &c->columns, true, COMPOUND_ROW);
    if (c->columns.count > 1) extend(c, &c->columns, &c->rows, false, COMPOUND_COLUMN);
    return true;
}

/* Finds the loops of rows and columns: several of them only if both sides then have a line, or half a line, or at
 * least a vector. */
static void find_sides(Copy *c)
{
    for (int64_t enough = LINE; c->kind == TRANSPOSE && enough >= VECTOR; enough /= 2)
        if (extend_both(c, true, enough) || extend_both(c, false, enough)) return;
    reset_sides(c);
}

static bool is_compound(const Copy *c) { return c->rows.count > 1 || c->columns.count > 1; }

/* Shapes one side of a tile: about `room` elements, or up to `most` if it takes so many to come to whole lines. */
static int64_t shape_side(Copy *c, const Side *side, int64_t room, int64_t most)
{
    int64_t count = 1;
    for (int j = 0; j < side->count; j++) {
        const int k = side->loop[j];
        const int64_t bytes = count * c->width, unit = LINE / min(bytes & -bytes, LINE); /* steps to whole lines */
        int64_t steps = max(room / count, 1);
        if (steps >= unit) steps -= steps % unit;
        else if (count * unit <= most) steps = unit;
        c->tile[k] = min(c->loop[k].n, steps);
        count *= c->tile[k];
    }
    return count;
}

/* Shapes a tile. Whole lines matter most in rows, which are written: for them, as many are taken as leave a line of
 * each. If there are few columns, more rows fit. */
static void shape_compound(Copy *c)
{
    const int64_t room = COMPOUND / c->width;
    const int64_t rows = shape_side(c, &c->rows, COMPOUND / COMPOUND_IN, COMPOUND / LINE);
    const int64_t columns = shape_side(c, &c->columns, room / rows, 0);
    c->band = shape_side(c, &c->rows, room / columns, rows);
}

/* How far apart pieces of so many bytes are kept: not by a large power of two, or they share few sets of a cache. */
static int64_t apart(int64_t bytes)
{
    const int64_t lines = (bytes + LINE - 1) / LINE;
    return bytes < LINE ? bytes : (lines < 4 ? lines : lines | 1) * LINE;
}

/* Where the elements of a tile are in the stage: equally far apart in rows, and in columns. If columns are adjacent
 * in the output, the whole tile is a single piece of it. */
static void stage_compound(Copy *c)
{
    int64_t step = c->width;
    for (int j = 0; j < c->rows.count; j++) c->staged[c->rows.loop[j]] = step, step *= c->tile[c->rows.loop[j]];
    c->segment = step, c->outside = c->rank - c->rows.count;
    if (c->loop[c->along].out == step && c->columns.count == 1) c->outside--;
    else step = apart(step);
    for (int j = 0; j < c->columns.count; j++)
        c->staged[c->columns.loop[j]] = step, step *= c->tile[c->columns.loop[j]];
}
