/* _normal: a copy, from loops in bytes to normal form and a known kind. */

typedef enum { RUNS, BLOCKS, ZIP, UNZIP, TRANSPOSE, KINDS } Kind;

typedef struct { int64_t n, in, out; } Loop; /* strides in bytes */

typedef struct {
    int source, target;           /* which pointers */
    int64_t from, to;             /* bytes past them */
    int64_t width;                /* bytes of an element: contiguous on both sides */
    int rank, along;              /* loops; `along`: the one that the input is contiguous along */
    Loop loop[MAX_RANK];          /* by output stride, largest first; of runs, by input stride */
    int64_t tile[MAX_RANK];       /* the shape of a tile */
    int64_t tiles[MAX_RANK];      /* how many there are, per loop and in all */
    int64_t count;
    int by_out[MAX_RANK];         /* the loops again, by output stride, largest first */
    int64_t window[MAX_RANK];     /* the shape of a window, in tiles: see _windows.h */
    int64_t windows;              /* how many there are */
    int together;                 /* copies that run tile by tile with this one, itself included: see _deal.h; */
    bool part, joined;            /* one of several; their first: whether they give parts of rows, or take them */
    int64_t staged[MAX_RANK];     /* output strides within the stage */
    int64_t segment;              /* bytes of a full tile that are contiguous in the output */
    int outside;                  /* loops that walk over segments; the rest are inside one */
    int64_t band;                 /* of a transpose: rows that are read across a tile before the next */
    bool cached;                  /* the plan's results stay in the caches */
    bool dense;                   /* rows of pairs, whole lines of them, that follow one another in the output */
    bool aligned;                 /* its kernel's stores fall on lines, if the target starts on one, */
    bool lines;                   /* or make lines of two parts, in rows that are long: see writer() */
    Kind kind;
} Copy;

typedef struct {
    int inputs, outputs, count;
    int64_t bytes;                /* written by one run */
    int64_t tiles, windows, max_windows; /* in all, in all, and of the copy that has most */
    Copy copies[];
} Plan;

static int64_t bytes_of(const Copy *c)
{
    int64_t bytes = c->width;
    for (int k = 0; k < c->rank; k++) bytes *= c->loop[k].n;
    return bytes;
}

/* Output strides positive and descending, loops that chain fused, contiguous bytes in `width`. */
static void normalise(Copy *c)
{
    Loop *loop = c->loop;
    int rank = 0;
    for (int k = 0; k < c->rank; k++) {
        Loop x = loop[k];
        if (x.n == 1) continue;
        if (x.out < 0) { /* backwards in the output: from the other end, backwards in the input */
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

static Kind kind_of(const Copy *c)
{
    const int last = c->rank - 1;
    const Loop *row = &c->loop[last], *column = &c->loop[c->along];
    const int64_t w = c->width;
    if (c->along == last || w > 32 || (w & (w - 1)) || row->out != w || column->in != w)
        return BLOCKS;
    if ((row->n == 2 || row->n == 4 || row->n == 8) && column->out == row->n * w) return ZIP;
    if ((column->n == 2 || column->n == 4 || column->n == 8) && row->in == column->n * w)
        return UNZIP;
    return w > 16 ? BLOCKS : TRANSPOSE;
}
