/* _squares: a tile of a transpose, square by square. */

enum {
    STAGE = 3 * TILE,        /* holds a tile of any copy but wide ones: its bytes, and two lines for each segment */
    AHEAD_LINES = 128,       /* prefetched before a transpose needs them, in bands of rows; */
    GROUP = 4,               /* and row by row, so many of each at a time in wide tiles, */
    LARGE_GROUP = 8,         /* and at most so many in others */
    CARRY_LINES = WIDE_BYTES, /* a line for each column of a tile, which has no more columns */
    TABLE = SIDE + 2 * LINE /* with those before and after that are prefetched, or begin a line */
};
_Static_assert(RUN + 2 * LINE <= STAGE, "a stage must hold a block");
_Static_assert(LINE + (ROWS + 2 * LINE) * BYTES <= STAGE, "a stage must hold a transpose's tile of single bytes");
_Static_assert(LINE + (FEWER_ROWS * 8 + 2 * LINE) * MORE_BYTES / 8 <= STAGE, "and of wide elements");
_Static_assert(LINE + LINE * (4 * ROW + 2 * LINE) <= STAGE, "and columns of a wide tile that are too few for a square");

typedef struct {
    const Isa *isa;
    bool stream;
    uint8_t *stages[2]; /* the one being filled, and the one being written; or NULL */
    uint8_t *carry;     /* a line for each column of a transpose's tile; or the rows of a compound one */
    int64_t *places[2]; /* where the rows and columns of a compound one are, */
    Pieces pieces;      /* the same, of rows that are merged */
    const Copy *placed; /* which is one of this copy */
    Pending pending;
} Worker;

typedef struct {
    const Copy *copy;
    Worker *worker;
    bool staged;
    int64_t extent[MAX_RANK];
    int64_t out[MAX_RANK]; /* output strides: the target's, or the stage's */
    Kernel kernel;
    Turn turn;             /* instead of the kernel, if the box is large enough */
    Store store;           /* of the lines that it makes, except for the first and the last */
    Packing packing;       /* of squares, before they are transposed */
    Places rows, columns;  /* of squares */
    bool by_rows;          /* squares go across all columns before the next rows */
    bool first, last;      /* whether the tile has the start, and the end, of the output's rows */
    int64_t lead;          /* rows before the tile that are also read, for lines that began there */
    Box box;
    int batch;             /* the loop inside the box besides rows and columns, or -1 */
} Tile;

static inline void write_pending(Worker *worker, int64_t bytes)
{
    if (worker->pending.copy) worker->isa->write(&worker->pending, bytes);
}

typedef struct { int64_t band, row, column; } Spot;

/* Down the band, across, then on to the next band; false past the end. A cached result is a single band, so that
 * its rows, which are the box's columns, are finished before others are begun. When reading by rows, a band is
 * one square high, so that the lines of a row are read together. */
static inline bool step(Spot *s, const Tile *t)
{
    const int64_t side = LINE / t->box.width;
    const int64_t band = t->by_rows ? side : t->worker->stream ? t->copy->band : t->box.rows;
    s->row += side;
    if (s->row < min(s->band + band, t->box.rows)) return true;
    s->row = s->band, s->column += side;
    if (s->column < t->box.columns) return true;
    s->column = 0, s->band += band, s->row = s->band;
    return s->band < t->box.rows;
}

/* How the square that begins at row r is stored; `row` is where it would if it did not overlap its neighbour at the end.
 * A spliced tile has rows for several squares, so that none is at both ends. */
static inline Store store_at(const Tile *t, int64_t r, int64_t row)
{
    const int64_t side = LINE / t->box.width;
    if (t->store == CACHED) return CACHED;
    if (r < row) return REST;
    if (t->store == STREAMED) return STREAMED;
    if (!r) return t->first ? START : CARRIED;
    const bool whole = !t->last && t->box.rows % side == 0; /* then the next tile completes the last line */
    return !whole && r + 2 * side > t->box.rows ? END : SPLICED;
}

/* log2 of how many squares lie side by side in a group, whose lines of a row are prefetched together. */
static inline int side_by_side(const Tile *t)
{
    const int64_t side = LINE / t->box.width, squares = (t->box.columns + side - 1) / side;
    const int64_t most = t->by_rows ? min(min(squares, side), t->copy->wide ? GROUP : LARGE_GROUP) : 1;
    return 63 - __builtin_clzll((uint64_t)most);
}

/* Has a square prefetch from here on, a row and so many bytes into a box. */
static inline void prefetch_from(Places rows, Block *block, int64_t row, int64_t bytes, const uint8_t *from)
{
    block->ahead = skip(&rows, row, (const uint8_t *)((uintptr_t)from + (uintptr_t)bytes));
    block->rows_ahead = rows.at;
}

/* What a square prefetches when reading by rows: its share of the rows of the next group, with all lines of each that
 * belong to the group. */
static inline void prefetch_group(const Tile *t, Places rows, Block *block, const Spot *at, const uint8_t *from,
                                  const uint8_t *after)
{
    const int64_t side = LINE / t->box.width;
    const int together = block->together;
    const int64_t square = at->column / side, next = ((square >> together) + 1) << together;
    const int64_t share = (square - next + (1 << together)) * (side >> together);
    const bool beside = next * side < t->box.columns, below = at->row + side < t->box.rows;
    const int64_t row = beside ? at->row : below ? at->row + side : 0;
    prefetch_from(rows, block, row + share, beside ? next * LINE : 0, beside || below ? from : after);
}

/* Squares of whole lines, which overlap at the edges. Between them the pending tile is written, and lines for
 * later squares are prefetched into L2: the hardware prefetchers do not follow so many rows, and L1 waits for
 * too few lines at a time. */
ALWAYS_INLINE void turn_squares(const Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next, bool table)
{
    const Box *b = &t->box;
    const Places rows = table ? t->rows : every(b->row_in), columns = table ? t->columns : every(b->column_out);
    const int64_t side = LINE / b->width;
    const int together = side_by_side(t);
    _Alignas(LINE) uint8_t packed[2][LINE * LINE];
    for (int64_t k = 0; k < b->batch; k++, from += b->batch_in, to += b->batch_out) {
        const uint8_t *after = k + 1 < b->batch ? from + b->batch_in : next, *source = from;
        Spot at = {0, 0, 0}, following = at, ahead = at;
        for (int64_t j = 0; j < AHEAD_LINES; j += side)
            if (!step(&ahead, t)) ahead = (Spot){0, 0, 0}, source = after;
        if (t->packing) pack_first(t->turn, from, rows, packed[0], t->packing);
        int now = 0;
        for (bool more = true; more; at = following, now ^= 1) {
            more = step(&following, t);
            const Spot *p = more ? &following : &at;
            const int64_t r = min(at.row, b->rows - side), c = min(at.column, b->columns - side);
            const int64_t next_column = min(p->column, b->columns - side);
            Block block = {.from = from + r * b->row_in + c * b->width, .packed = packed[now],
                           .packed_next = packed[!now], .packing = t->packing, .together = together,
                           .row_in = rows.step, .rest = b->rows % side * b->width};
            Places own = rows;
            block.next = skip(&own, min(p->row, b->rows - side), from + next_column * b->width);
            block.rows = own.at;
            if (t->by_rows) prefetch_group(t, rows, &block, &at, from, after);
            else prefetch_from(rows, &block, ahead.row, ahead.column * b->width, source);
            if (!t->worker->stream && source == from) {
                own = columns;
                block.result_ahead = skip(&own, ahead.column, to + ahead.row * b->width);
                block.columns_ahead = own.at;
            }
            own = columns;
            uint8_t *target = skip(&own, c, to + r * b->width);
            t->turn(&block, target, own, store_at(t, r, at.row), t->worker->carry + at.column * LINE);
            write_pending(t->worker, side * LINE);
            if (!step(&ahead, t)) ahead = (Spot){0, 0, 0}, source = after;
        }
    }
}

static void turn_box(const Tile *t, const uint8_t *from, uint8_t *to, const uint8_t *next)
{
    if (t->packing == BY_TABLE) turn_squares(t, from, to, next, true);
    else turn_squares(t, from, to, next, false);
}
