/* _normal: a copy, its normal form, and the kind of kernel that it needs.
 *
 * `normalise` and `kind_of` settle the loops and the kind; _plan.h derives the other fields from those.
 */

enum {
    SEVERAL = 8, /* most rows, sources or results whose elements alternate, that are joined or dealt to directly */
    PAGE = 4096, /* bytes of a page of memory */
    NARROW = 15, /* most elements in the short rows of a narrow transpose */
};

typedef enum { RUNS, BLOCKS, ZIP, UNZIP, TRANSPOSE, KINDS } Kind;

typedef struct { int64_t n, in, out; } Loop; /* strides in bytes */
typedef struct { int count, loop[MAX_RANK]; } Side; /* the loops that make up a row or a column, innermost first */

typedef struct {
    int source, target;           /* indices of its input and output */
    int64_t from, to;             /* byte offsets into those */
    int64_t width;                /* bytes of an element: contiguous on both sides */
    int rank, along;              /* number of loops; `along`: the one with the smallest input stride */
    Loop loop[MAX_RANK];          /* largest output stride first; of runs, largest input stride first */
    Side rows, columns;           /* the last loop, and `along`; of compound transposes, others too (_compound.h) */
    int64_t tile[MAX_RANK];       /* steps of each loop in a tile */
    int64_t tiles[MAX_RANK];      /* tiles along each loop, and in all */
    int64_t count;
    int by_out[MAX_RANK];         /* the loops by output stride, largest first, for runs too */
    int64_t window[MAX_RANK];     /* tiles of each loop in a window: see _windows.h */
    int64_t windows;              /* how many there are in all */
    int together;                 /* copies that run tile by tile with this one, itself included: see _deal.h; */
    bool part, joined;            /* in such a group; `joined`, on its first: they write parts of rows, not read them */
    int64_t staged[MAX_RANK];     /* output strides within the stage */
    int64_t segment;              /* bytes of a full tile that are contiguous in the output */
    int outside;                  /* loops from segment to segment; the others are inside a segment */
    int64_t band;                 /* of a transpose: rows that are read across a tile before the next ones */
    bool split, merged;           /* of a compound one with few columns, or few rows: see _pieces.h */
    bool wide;                    /* of a transpose: its tiles are too large for a stage: see _transpose.h */
    bool off_line;                /* of a compound one, and of blocks: the target is known not to begin on a line */
    int64_t unlike;               /* of a transpose: columns before one aliases another; at most a square's */
    bool cached;                  /* the plan's results are small enough to stay in the caches */
    bool dense;                   /* rows of pairs, of a line and more, that are adjacent in the output */
    bool aligned;                 /* its kernel's stores fall on whole lines if the target starts on one */
    bool gaps;                    /* segments are short, and what is between them is not written */
    bool lines;                   /* aligned, dense, or in long rows: its kernel may write whole lines, see writer() */
    Kind kind;
} Copy;

typedef struct {
    int inputs, outputs, count;
    int64_t bytes;                /* written by one run */
    bool staged;                  /* some copy goes through a stage even within the caches */
    int64_t tiles, windows, max_windows; /* in all, in all, and of the copy with most */
    Copy copies[];
} Plan;

static int64_t bytes_of(const Copy *c)
{
    int64_t bytes = c->width;
    for (int k = 0; k < c->rank; k++) bytes *= c->loop[k].n;
    return bytes;
}

/* Makes output strides positive and descending, fuses loops that continue one another, and moves bytes that are
 * contiguous on both sides into `width`. */
static void normalise(Copy *c)
{
    Loop *loop = c->loop;
    int rank = 0;
    for (int k = 0; k < c->rank; k++) {
        Loop x = loop[k];
        if (x.n == 1) continue;
        if (x.out < 0) { /* backwards in the output: start at the other end, which reverses the input instead */
            c->from += (x.n - 1) * x.in, c->to += (x.n - 1) * x.out;
            x.in = -x.in, x.out = -x.out;
        }
        int at = rank++;
        for (; at > 0 && loop[at - 1].out < x.out; at--) loop[at] = loop[at - 1];
        loop[at] = x;
    }
    int fused = 0;
    for (int k = 0; k < rank; k++) {
        Loop *outer = &loop[fused - 1];
        if (fused && outer->in == loop[k].n * loop[k].in && outer->out == loop[k].n * loop[k].out)
            *outer = (Loop){outer->n * loop[k].n, loop[k].in, loop[k].out};
        else
            loop[fused++] = loop[k];
    }
    if (fused && loop[fused - 1].in == c->width && loop[fused - 1].out == c->width)
        c->width *= loop[--fused].n;
    c->rank = fused;
}

/* How many lines this far apart L1 holds beside as many others. Of steps within a line any number: each is used at
 * once. */
static int64_t lines_held(int64_t step)
{
    if (magnitude(step) < LINE) return INT64_MAX;
    const int64_t power = magnitude(step) & -magnitude(step); /* the largest that divides it */
    return L1_WAY / max(min(power, L1_WAY), LINE) * (L1_WAYS / 2);
}

/* Whether lines that are `step` bytes apart fall into so few sets of L1 that one of these takes more than `most`. */
static bool compete(const uint8_t *first, int64_t step, int64_t lines, int most)
{
    uint8_t taken[L1_WAY / LINE] = {0};
    for (int64_t k = 0; k < lines; k++)
        if (++taken[((uintptr_t)first + (uintptr_t)(k * step)) % L1_WAY / LINE] > most) return true;
    return false;
}

/* How many of these lines, each `step` bytes after the one before, there are before one lies whole pages from another
 * (4K aliasing). A processor that streams to such lines one soon after another takes up to twice as long. */
static inline int64_t lines_unlike(int64_t lines, int64_t step)
{
    int64_t k = 1;
    while (k < lines && ((k * step + LINE - 1) & (PAGE - 1)) >= 2 * LINE - 1) k++;
    return k;
}

/* Whether so many elements, which one kernel can take, lie next to those of the next step. */
static bool is_zip(int64_t n, int64_t step, int64_t width)
{
    return (n == 2 || n == 4 || n == 8) && step == n * width;
}

/* Whether rows and columns change places: then it can be done in place, see _place.h. */
static bool is_square(const Copy *c)
{
    const Loop *row = &c->loop[c->rank - 1], *column = &c->loop[c->along];
    return row->n == column->n && row->in == column->out;
}

/* Elements of this width from which a row is too long for the tables of _narrow.h, in vectors of so many lanes. */
static inline int64_t table_limit(int64_t width, int lanes) { return max(16 / width, 2 * lanes); }

static Kind kind_of(const Copy *c)
{
    const int last = c->rank - 1;
    const Loop *row = &c->loop[last], *column = &c->loop[c->along];
    const int64_t w = c->width;
    if (c->along == last || w > 32 || (w & (w - 1)) || row->out != w || column->in != w)
        return BLOCKS;
    if (is_zip(row->n, column->out, w)) return ZIP;
    if (is_zip(column->n, row->in, w)) return UNZIP;
    return w > 16 ? BLOCKS : TRANSPOSE;
}
