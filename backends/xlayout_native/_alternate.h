/* _alternate: elements of several sources that alternate in one result, and the inverse.
 *
 * `stack(xs, axis=-1)` is one. As separate copies, each would write a few bytes of every line of the result; so
 * each line would go to memory and back once for every source. Here a tile has a run of every source, side by
 * side in the thread's own memory; from there on they are the rows of a matrix. A few sources are read, or
 * written, where they are (_join.h, _split.h).
 */

enum { SEVERAL_TILE = 1 << 16 }; /* bytes of a tile that is made directly */
_Static_assert(2 * SEVERAL_TILE <= CARRY_LINES * LINE && LINE + SEVERAL_TILE <= STAGE, "or is staged, by other kernels");

static bool have_same_steps(const Copy *a, const Copy *b)
{
    const Loop *x = &a->loop[0], *y = &b->loop[0];
    return a->width == b->width && b->rank == 1 && x->n == y->n && x->in == y->in && x->out == y->out;
}

/* How many copies, from this one on, alternate: `joined` in the result, or else in the source; 1 if none do. */
static int count_alternating(const Copy *c, int most, bool joined)
{
    const int64_t width = c->width, step = c->rank == 1 ? (joined ? c->loop[0].out : c->loop[0].in) : 0;
    const int64_t ways = step / width;
    if (width >= LINE || (joined ? c->loop[0].in : c->loop[0].out) != width || step % width || ways < 2 || ways > most)
        return 1;
    for (int64_t p = 1; p < ways; p++) {
        const Copy *b = c + p;
        const bool next = joined ? b->target == c->target && b->to == c->to + p * width
                                 : b->source == c->source && b->from == c->from + p * width;
        if (!next || !have_same_steps(c, b)) return 1;
    }
    return (int)ways;
}

/* Whether copies that run together are of elements, not of blocks. */
static bool alternate(const Copy *c) { return c->width < LINE; }

/* Whether zips and transposes take elements of this width. */
static bool is_width(int64_t width) { return width <= 16 && !(width & (width - 1)); }

/* Whether there are kernels for so many, of such elements. */
static bool are_several(const Copy *c) { return c->together <= SEVERAL && is_width(c->width); }

/* Bytes of a tile: it is staged in L1, unless it is made directly. */
static int64_t room_for(const Copy *c) { return joins() && are_several(c) ? SEVERAL_TILE : STAGED; }

/* Where a copy in a group reads, and where it writes, at this step of its loop. */
static const uint8_t *source_at(const Copy *c, uint8_t *const *pointers, int64_t step)
{
    return pointers[c->source] + c->from + step * c->loop[0].in;
}

static uint8_t *target_at(const Plan *plan, const Copy *c, uint8_t *const *pointers, int64_t step)
{
    return pointers[plan->inputs + c->target] + c->to + step * c->loop[0].out;
}

static Kind kind_of_elements(const Box *b)
{
    return is_width(b->width) ? kind_of_box(b) : BLOCKS;
}

/* The kernel that makes the target from the sources directly; NULL if there is none. */
static Kernel direct_kernel(const Worker *worker, const Box *b, const uint8_t *to)
{
    const Kind kind = kind_of_elements(b);
    if (kind != ZIP && kind != UNZIP) return NULL;
    if (!worker->stream) return worker->isa->kernels[kind];
    const int64_t step = kind == ZIP ? b->column_out : b->width, apart = kind == ZIP ? 0 : b->column_out;
    const bool whole = apart % LINE == 0 && (uintptr_t)to % LINE % (uintptr_t)step == 0;
    return (whole ? worker->isa->streaming : worker->isa->unaligned)[kind];
}

/* Whether a run of so many bytes is written past the caches. */
static bool streams_run(const Worker *worker, int64_t bytes)
{
    return worker->stream && worker->isa->block && bytes >= LINE;
}

/* Writes bytes that were made, and prefetches as many from `upcoming` on. */
static void put_run(const Worker *worker, uint8_t *to, const uint8_t *made, int64_t bytes, const uint8_t *upcoming)
{
    if (!streams_run(worker, bytes)) {
        memcpy(to, made, (size_t)bytes);
        return;
    }
    Seam seam = {0};
    worker->isa->block(to, made, bytes, upcoming, &seam);
    close_seam(&seam);
}

/* Two sources, or two targets, are the rows or columns of a matrix, wherever they lie. */
static bool run_pair(const Worker *worker, const Plan *plan, const Copy *c, Box b, int64_t step,
                     uint8_t *const *pointers)
{
    const uint8_t *from = source_at(c, pointers, step);
    uint8_t *to = target_at(plan, c, pointers, step);
    if (c->joined) b.row_in = distance(from, source_at(c + 1, pointers, step));
    else b.column_out = distance(to, target_at(plan, c + 1, pointers, step));
    b.next = from + (c->joined ? b.columns * b.width : b.rows * b.row_in);
    const Kernel kernel = direct_kernel(worker, &b, to);
    if (kernel) kernel(&b, from, to);
    return kernel;
}

/* A few of them directly. */
static bool run_several(const Worker *worker, const Plan *plan, const Copy *c, const Box *b, int64_t step,
                        uint8_t *const *pointers)
{
    const Several kernel = c->joined ? worker->isa->join : worker->isa->deal;
    const int64_t bytes = (c->joined ? b->columns : b->rows) * b->width;
    if (!kernel || !are_several(c) || bytes < LINE) return false;
    const uint8_t *from = source_at(c, pointers, step);
    uint8_t *to = target_at(plan, c, pointers, step);
    int64_t places[SEVERAL];
    for (int p = 0; p < c->together; p++)
        places[p] = c->joined ? distance(from, source_at(c + p, pointers, step))
                              : distance(to, target_at(plan, c + p, pointers, step));
    kernel(b, places, from, to, worker->stream);
    return true;
}

/* What was made is written in as many parts as there are sources, while the next run of each is fetched. */
static void join_elements(Worker *worker, const Plan *plan, const Copy *c, const Box *b, int64_t step,
                          uint8_t *const *pointers)
{
    const int64_t bytes = b->columns * b->width;
    const bool streams = streams_run(worker, bytes);
    for (int p = 0; p < c->together; p++) {
        const uint8_t *from = source_at(c + p, pointers, step);
        for (int64_t x = 0; x < bytes && !streams; x += LINE) PREFETCH(from + x, bytes, 2);
        memcpy(worker->carry + p * b->row_in, from, (size_t)bytes);
    }
    uint8_t *to = target_at(plan, c, pointers, step), *made = streams ? worker->stages[0] + LINE : to;
    worker->isa->kernels[kind_of_elements(b)](b, worker->carry, made);
    Seam seam = {0};
    for (int p = 0; p < c->together && streams; p++)
        worker->isa->block(to + p * bytes, made + p * bytes, bytes, source_at(c + p, pointers, step) + bytes, &seam);
    close_seam(&seam);
}

static void deal_elements(Worker *worker, const Plan *plan, const Copy *c, const Box *b, int64_t step,
                          uint8_t *const *pointers)
{
    const int64_t bytes = b->rows * b->width;
    const uint8_t *from = source_at(c, pointers, step), *upcoming = from + b->rows * b->row_in;
    worker->isa->kernels[kind_of_elements(b)](b, from, worker->carry);
    for (int p = 0; p < c->together; p++)
        put_run(worker, target_at(plan, c + p, pointers, step), worker->carry + p * b->column_out, bytes,
                upcoming + p * bytes);
}

/* Runs a tile of all of them, which begins at this step. There must be memory for it. */
static void run_alternating(Worker *worker, const Plan *plan, const Copy *c, int64_t step, uint8_t *const *pointers)
{
    const int64_t n = min(c->tile[0], c->loop[0].n - step), width = c->width, pitch = apart(n * width);
    Box b = {.width = width, .batch = 1, .column_in = width, .row_out = width};
    if (c->joined) b.rows = c->together, b.columns = n, b.row_in = pitch, b.column_out = c->loop[0].out;
    else b.rows = n, b.columns = c->together, b.row_in = c->loop[0].in, b.column_out = pitch;
    if (c->together == 2 && run_pair(worker, plan, c, b, step, pointers)) return;
    if (run_several(worker, plan, c, &b, step, pointers)) return;
    (c->joined ? join_elements : deal_elements)(worker, plan, c, &b, step, pointers);
}
