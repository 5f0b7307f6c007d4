/* _compound: transposes whose rows or columns are made of several loops.
 *
 * `(h two n) m -> m (h n two)` is one. Its output has long rows, but the innermost loop of a row has two steps; in
 * the inverse, that holds for the columns. So all loops of a row, or of a column, are tiled together. _gather.h
 * runs such a tile.
 */

enum {
    FEW_LINES = 4,         /* of a row, up to which a stage may not be worth it */
    ENOUGH_UNLIKE = 16,    /* columns that are written before one aliases another, if not half a square's */
    VECTOR = 16,           /* bytes of the smallest vector */
    LONG = 16 * LINE,      /* bytes of a row from which its first and last line may be written in parts */
    COMPOUND = 1 << 16,    /* bytes of a tile */
    COMPOUND_IN = 256,     /* bytes of each of its rows in the input, if there are rows enough */
    COMPOUND_ROW = 1024,   /* bytes from which a row takes in no further loop, */
    COMPOUND_COLUMN = 512, /* and those of a column; */
    COMPOUND_LEAST = 1 << 14, /* but if the other side is short, both should come to so many */
    LONG_ENOUGH = 256,     /* bytes of a loop from which such a side needs no other */
    SHORT_ZIP = 16,        /* bytes of a row of pairs, fours or eights up to which it is best taken for a transpose */
    SHORTEST = 4,          /* bytes that have to be contiguous on either side */
    LONG_BLOCKS = 256,     /* most bytes of blocks that are merged, */
    MOST_BLOCKS = 1 << 13, /* and of those of the innermost loop; */
    LONG_EDGY = 1 << 10,   /* the same for blocks that begin off a line, and lie pages apart; */
    MOST_EDGY = 1 << 16,
    MANY_BLOCKS = 64,      /* and most of them that are read by table rather than one by one */
    FEWEST = 256,          /* elements of its rows and columns: a tile of fewer costs more than plain loops */
};

/* What the kernels can do: see _isa.h. */
static bool joins(void);
static bool makes_all_lines(void);
static bool makes_lines(const Copy *);
static bool reads_along(const Copy *);
static bool reads_apart(void);

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

/* Whether L1, with all that it holds, would lose the lines of this side before all of each is used. */
static bool lose_lines(const Copy *c, const Side *other, bool out)
{
    const Loop *across = &c->loop[other->loop[0]];
    return lines_held(out ? across->out : across->in) < min(across->n, LINE / c->width) / 2;
}

/* Adds the loops that continue a side where it is contiguous, until it has `enough` bytes. A side whose first loop is
 * long needs none; in the caches, a vector is long, unless the other side is less than one, or narrow elements lie so
 * that L1 loses their lines. */
static void extend(const Copy *c, Side *side, const Side *other, bool out, int64_t enough)
{
    int64_t bytes = bytes_of_side(c, side);
    const bool vector = c->cached && (c->width >= 8 || !lose_lines(c, other, out));
    const int64_t enough_alone = bytes_of_side(c, other) < VECTOR ? LONG_ENOUGH : vector ? VECTOR : LINE;
    if (side->count == 1 && bytes >= enough_alone) return;
    for (int k = 0; bytes < enough && k < c->rank; k++) {
        if ((out ? c->loop[k].out : c->loop[k].in) != bytes || has_loop(side, k) || has_loop(other, k)) continue;
        side->loop[side->count++] = k;
        bytes *= c->loop[k].n;
        k = -1; /* the next one may be any loop */
    }
}

static void reset_sides(Copy *c) { c->rows = (Side){1, {c->rank - 1}}, c->columns = (Side){1, {c->along}}; }

/* Contiguous bytes of a side, together with the loops of the other one that continue it: in their order there, or in
 * any. */
static int64_t contiguous_with(const Copy *c, const Side *side, const Side *other, bool out, bool any_order)
{
    int64_t bytes = bytes_of_side(c, side);
    for (int j = 0; j < other->count; j++) {
        const Loop *loop = &c->loop[other->loop[j]];
        if ((out ? loop->out : loop->in) == bytes) {
            bytes *= loop->n;
            if (any_order) j = -1;
        } else if (!any_order) {
            break;
        }
    }
    return bytes;
}

static int64_t elements_of_sides(const Copy *c)
{
    return bytes_of_side(c, &c->rows) / c->width * (bytes_of_side(c, &c->columns) / c->width);
}

/* Whether `enough` bytes are contiguous on both sides, which are large enough for tiles of their own. A loop that
 * continues both of them goes to the first. */
static bool extend_both(Copy *c, bool rows_first, int64_t enough, bool any_order)
{
    Side *rows = &c->rows, *columns = &c->columns;
    reset_sides(c);
    if (rows_first) extend(c, rows, columns, true, enough);
    extend(c, columns, rows, false, enough);
    extend(c, rows, columns, true, enough);
    if (contiguous_with(c, rows, columns, true, any_order) < enough ||
        contiguous_with(c, columns, rows, false, any_order) < enough)
        return false;
    const int64_t least = COMPOUND_LEAST * c->width;
    extend(c, rows, columns, true, max(COMPOUND_ROW, least / bytes_of_side(c, columns)));
    extend(c, columns, rows, false, max(COMPOUND_COLUMN, least / bytes_of_side(c, rows)));
    return elements_of_sides(c) >= FEWEST;
}

/* Whether its kernel would get rows of a few bytes, each in a box of its own. */
static bool is_short_zip(const Copy *c)
{
    const int row = c->kind == ZIP ? c->along : c->rank - 1;
    return (c->kind == ZIP || c->kind == UNZIP) && c->width <= 16 && c->loop[row].n * c->width <= SHORT_ZIP;
}

/* Finds the loops of rows and columns: several of them only if a line is then contiguous on both sides, or half a
 * line, and so on; if possible by loops in the order in which the stage has them. */
static void find_sides(Copy *c)
{
    const bool turned = c->kind == TRANSPOSE || is_short_zip(c);
    for (int any_order = 0; turned && any_order < 2; any_order++)
        for (int64_t enough = LINE; enough >= SHORTEST; enough /= 2)
            if (extend_both(c, true, enough, any_order) || extend_both(c, false, enough, any_order)) return;
    reset_sides(c);
}

/* Whether it has few columns, contiguous in the input. */
static bool has_few_columns(const Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    return c->columns.count == 1 && column->n < table_limit(c->width, LINE / VECTOR) &&
           row->in == column->n * c->width;
}

/* Whether it has few rows, contiguous in the output. */
static bool has_few_rows(const Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    return row->n <= SEVERAL && column->out == row->n * c->width;
}

/* Adds the loops, from number k outwards, that continue so many contiguous bytes of the output. Returns how many bytes
 * these are then. */
static int64_t add_following(const Copy *c, Side *side, int k, int64_t bytes)
{
    for (; k >= 0 && (has_loop(side, k) || c->loop[k].out == bytes); k--)
        if (!has_loop(side, k)) side->loop[side->count++] = k, bytes *= c->loop[k].n;
    return bytes;
}

/* Whether its long rows, each of several loops, are split from pieces. */
static bool is_split(const Copy *c)
{
    return c->rows.count > 1 && has_few_columns(c) && c->loop[c->rank - 1].n * c->width % VECTOR == 0 &&
           bytes_of_side(c, &c->rows) >= LONG;
}

/* The inverse: whether few rows are to be merged from pieces into results that follow one another. All loops that
 * do so are then columns. Not if it is read in order, and can be written directly or is in the caches. */
static bool find_merged(Copy *c)
{
    const int last = c->rank - 1;
    const Loop *row = &c->loop[last], *column = &c->loop[c->along];
    const int64_t piece = column->n * c->width;
    if (c->kind == RUNS || c->kind == BLOCKS || c->width > VECTOR || piece % VECTOR || !has_few_rows(c) ||
        row->n * piece > L1_SHARE)
        return false;
    Side columns = {1, {c->along}};
    const int64_t bytes = add_following(c, &columns, last - 1, row->n * piece);
    const bool in_order = row->in == piece && c->loop[columns.loop[1]].in == row->n * piece;
    if (columns.count == 1 || bytes < LONG || (in_order && (c->lines || c->cached)) ||
        (c->cached && !makes_all_lines()))
        return false;
    c->rows = (Side){1, {last}}, c->columns = columns, c->kind = TRANSPOSE;
    return true;
}

/* Whether blocks that a loop leads to are best copied one by one. They are if they are at least a line, and near one
 * another in the input: less than half a page apart, or in L1 together; where a vector is half of a line, if they are
 * not near. Processors that read from many places at once do as well with few or many blocks, at each of which the next
 * one follows, and with a few whole lines. */
static bool copies_one_by_one(const Copy *c, const Loop *inner)
{
    const int64_t step = magnitude(inner->in), long_enough = makes_all_lines() ? LONG_BLOCKS : LONG_BLOCKS / 2;
    const bool near = step < PAGE / 2 || inner->n * step <= L1_SHARE, line = c->width >= LINE;
    if (!reads_apart()) return makes_all_lines() ? c->lines && line && near : line || !near;
    const bool follow = c->rank > 1 && c->loop[c->rank - 2].in == c->width;
    const bool few = inner->n * c->width < LONG, many = inner->n > (c->off_line ? 2 : 1) * MANY_BLOCKS;
    const bool whole = c->aligned && !c->off_line && (near || c->width >= long_enough);
    return c->width > VECTOR && (whole || (follow && (few || many)));
}

/* Whether blocks, which follow one another in the result, are merged as pieces of a single row. Then they are made of
 * elements of a lane. So are transposes of such elements, if rows are read from a few places at once. */
static bool find_gathered(Copy *c)
{
    const Loop *inner = &c->loop[c->rank - 1], *along = &c->loop[c->along];
    const int64_t lanes = c->width / VECTOR;
    const bool edgy = reads_apart() && c->off_line && magnitude(inner->in) >= PAGE;
    const bool lane = reads_apart() && c->width == VECTOR && inner->n > SEVERAL && inner->n <= MANY_BLOCKS;
    const bool turned = c->kind == TRANSPOSE && ((!lane && along->n * c->width > LONG_BLOCKS) || is_square(c));
    if ((c->kind != BLOCKS && c->kind != TRANSPOSE) || c->cached || c->rank == MAX_RANK || c->width % VECTOR ||
        c->width > (edgy ? LONG_EDGY : LONG_BLOCKS) || inner->n * c->width > (edgy ? MOST_EDGY : MOST_BLOCKS) ||
        turned || copies_one_by_one(c, inner))
        return false;
    Side columns = {lanes > 1, {c->rank}};
    const int64_t bytes = add_following(c, &columns, c->rank - 1, c->width);
    if (bytes < LONG || columns.count < (lanes > 1) + 2) return false;
    if (lanes > 1) c->loop[c->rank++] = (Loop){lanes, VECTOR, VECTOR}, c->width = VECTOR;
    c->rows = (Side){0}, c->columns = columns, c->along = columns.loop[0], c->kind = BLOCKS;
    return true;
}

static bool is_compound(const Copy *c) { return c->rows.count > 1 || c->columns.count > 1; }

/* Whether it pays to write whole lines of a square even where a vector is half of one. If many of these lines lie whole
 * pages apart, a stage is better, from which several lines of each column are written in turn. Short rows, and those of
 * several loops, have few such lines; then it depends on the width how long it takes to fill a stage. */
static bool pays_directly(const Copy *c)
{
    const bool few = is_compound(c) || c->loop[c->rank - 1].n * c->width <= FEW_LINES * LINE;
    if (few) return c->width < 4 && c->unlike >= c->width;
    return c->unlike >= min(LINE / c->width / 2, ENOUGH_UNLIKE);
}

/* Elements along a side of a tile, of which each loop has so many steps. */
static int64_t count_of(const Side *side, const int64_t *extent)
{
    int64_t count = 1;
    for (int j = 0; j < side->count; j++) count *= extent[side->loop[j]];
    return count;
}

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

/* How far apart pieces of so many bytes are kept: not by a large power of two, or they share few sets of a cache. */
static int64_t apart(int64_t bytes)
{
    const int64_t lines = (bytes + LINE - 1) / LINE;
    return bytes < LINE ? bytes : (lines < 4 ? lines : lines | 1) * LINE;
}

/* Where the elements of a tile are in the stage: equally far apart in rows, and in columns. Columns that are adjacent
 * in the output are pieces of one segment. */
static void stage_compound(Copy *c)
{
    int64_t step = c->width;
    for (int j = 0; j < c->rows.count; j++) c->staged[c->rows.loop[j]] = step, step *= c->tile[c->rows.loop[j]];
    c->segment = step, c->outside = c->rank - c->rows.count;
    if (c->loop[c->along].out != step || c->columns.count > 1) step = apart(step);
    for (int j = 0; j < c->columns.count; j++) {
        const int k = c->columns.loop[j];
        if (step == c->segment && step == c->loop[k].out) c->segment *= c->tile[k], c->outside = k;
        c->staged[k] = step, step *= c->tile[k];
    }
}
