/* _place: a permutation of one buffer in its own memory, with less than a megabyte of extra memory.
 *
 *     squares  square matrices are transposed: blocks change places across the diagonal, two at a time
 *     cycles   whole blocks move: one is set aside, the next takes its place, and so on around the cycle
 *
 * Other plans cannot be run in place. That is found out before anything is written.
 */

enum {
    BLOCK = 512,          /* bytes of the smallest block worth moving as a whole */
    SLICE = 1 << 16,      /* bytes of each block that are moved around a cycle at a time */
    MAX_BLOCKS = 1 << 22, /* one bit each */
    MAX_WALKS = 256,
    MEGABYTE = 1 << 20
};

/* -- squares ------------------------------------------------------------------------------------- */

typedef struct {
    Task task;
    const Copy *copy;
    Turn turn;
    uint8_t *base;
    int64_t n, pitch, side, pieces; /* pieces: strips of `side` rows in a matrix, the last one perhaps shorter */
    int64_t matrices;
    atomic_llong next;
} Squares;

static bool is_squares(const Copy *c)
{
    if (c->kind == RUNS || c->kind == BLOCKS || c->width > 16 || c->from != c->to) return false;
    const Loop *row = &c->loop[c->rank - 1];
    if (!is_square(c) || row->in < row->n * c->width) return false;
    for (int k = 0; k < c->rank - 1; k++)
        if (k != c->along && c->loop[k].in != c->loop[k].out) return false;
    return true;
}

/* Swaps the elements of some rows left of the diagonal with their mirror images. */
static void swap_rows(const Squares *s, uint8_t *matrix, int64_t first, int64_t end)
{
#define SWAP(T)                                                                                    \
    for (int64_t c = 0; c < end; c++)                                                              \
        for (int64_t r = max(first, c + 1); r < end; r++) {                                        \
            T *a = (T *)(matrix + r * s->pitch) + c, *b = (T *)(matrix + c * s->pitch) + r, kept = *a;\
            *a = *b, *b = kept;                                                                    \
        }                                                                                          \
    break
    switch (s->copy->width) {
    case 1: SWAP(uint8_t);
    case 2: SWAP(u16);
    case 4: SWAP(u32);
    case 8: SWAP(u64);
    default: SWAP(u128);
    }
#undef SWAP
}

/* Swaps the blocks of one strip left of the diagonal with their mirror images, and transposes the one on the
 * diagonal. The next pair is packed while the current one is transposed into place. */
static void swap_strip(const Squares *s, uint8_t *matrix, int64_t strip)
{
    _Alignas(LINE) uint8_t low[2][LINE * LINE], high[2][LINE * LINE];
    const int64_t across = LINE, down = s->side * s->pitch; /* from one block to the next */
    const Places pitch = every(s->pitch);
    uint8_t *a = matrix + strip * down, *b = matrix + strip * across;
    pack_first(s->turn, a, pitch, low[0], BY_ROWS);
    pack_first(s->turn, b, pitch, high[0], BY_ROWS);
    for (int64_t k = 0; k <= strip; k++, a += across, b += down) {
        const bool more = k < strip;
        const int now = k & 1;
        const Block to_high = {.packed = low[now], .packed_next = low[!now], .packing = BY_ROWS,
                               .next = more ? a + across : a, .ahead = a + 8 * across, .row_in = s->pitch};
        const Block to_low = {.packed = high[now], .packed_next = high[!now], .packing = BY_ROWS,
                              .next = more ? b + down : b, .ahead = b + (more ? 2 : 0) * down, .row_in = s->pitch};
        s->turn(&to_high, b, pitch, CACHED, NULL);
        if (more) s->turn(&to_low, a, pitch, CACHED, NULL);
    }
}

static void work_squares(Task *task, int unused)
{
    (void)unused;
    Squares *s = (Squares *)task;
    for (;;) {
        int64_t number = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (number >= s->matrices * s->pieces) return;
        const int64_t strip = s->pieces - 1 - number % s->pieces; /* the long ones first */
        number /= s->pieces;
        uint8_t *matrix = s->base + s->copy->to;
        for (int k = s->copy->rank - 2; k >= 0; k--) {
            if (k == s->copy->along) continue;
            matrix += number % s->copy->loop[k].n * s->copy->loop[k].out;
            number /= s->copy->loop[k].n;
        }
        if (s->turn && (strip + 1) * s->side <= s->n)
            swap_strip(s, matrix, strip);
        else
            swap_rows(s, matrix, strip * s->side, min((strip + 1) * s->side, s->n));
    }
}

static void run_squares(const Copy *c, uint8_t *base, int64_t threads)
{
    const Loop *row = &c->loop[c->rank - 1];
    Squares s = {.task = {work_squares}, .copy = c, .base = base, .n = row->n, .pitch = row->in,
                 .side = LINE / c->width, .matrices = 1};
    s.turn = turn_of(atomic_load(&chosen), c);
    s.pieces = (s.n + s.side - 1) / s.side;
    for (int k = 0; k < c->rank - 1; k++)
        if (k != c->along) s.matrices *= c->loop[k].n;
    run_task(&s.task, min(threads, s.matrices * s.pieces));
}

/* -- cycles -------------------------------------------------------------------------------------- */

typedef struct {
    int64_t from, to, length; /* in blocks */
    int rank;
    Loop loop[MAX_RANK];      /* largest output stride first; in blocks */
} Walk;

typedef struct {
    Task task;
    int64_t block, count;     /* bytes of a block, and how many there are */
    int walks;
    Walk *walk;
    uint8_t *follows;         /* a bit for each block that is not the first of its cycle */
    uint8_t *base;
    int64_t slice, slices;
    uint8_t *aside;           /* a slice for each thread */
    atomic_llong next, threads;
} Cycles;

static int64_t gcd(int64_t a, int64_t b)
{
    for (a = magnitude(a), b = magnitude(b); b;) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Bytes that are contiguous on both sides; sets `rank` to the number of loops around them. */
static int64_t contiguous(const Copy *c, int *rank)
{
    *rank = c->kind == RUNS ? c->rank - 1 : c->rank;
    return c->kind == RUNS ? c->loop[c->rank - 1].n : c->width;
}

static int64_t block_of(const Plan *plan)
{
    int64_t block = 0;
    for (int k = 0; k < plan->count; k++) {
        int rank;
        const Copy *c = &plan->copies[k];
        block = gcd(block, gcd(contiguous(c, &rank), gcd(c->from, c->to)));
        for (int j = 0; j < rank; j++)
            block = gcd(block, gcd(c->loop[j].in, c->loop[j].out));
    }
    return block;
}

/* The copy in units of blocks; false if its output loops do not nest. */
static bool walk_of(const Copy *c, int64_t block, Walk *w)
{
    int rank;
    w->length = contiguous(c, &rank) / block;
    w->from = c->from / block, w->to = c->to / block, w->rank = rank;
    for (int k = 0; k < rank; k++) {
        const Loop x = {c->loop[k].n, c->loop[k].in / block, c->loop[k].out / block};
        int at = k;
        for (; at > 0 && w->loop[at - 1].out < x.out; at--) w->loop[at] = w->loop[at - 1];
        w->loop[at] = x;
    }
    int64_t span = w->length;
    for (int k = rank - 1; k >= 0; k--) {
        if (w->loop[k].out < span) return false;
        span += (w->loop[k].n - 1) * w->loop[k].out;
    }
    return true;
}

/* The block that belongs where block `at` is; -1 if no copy writes there. */
static int64_t source_of(const Cycles *s, int64_t at)
{
    for (int j = 0; j < s->walks; j++) {
        const Walk *w = &s->walk[j];
        int64_t rest = at - w->to, source = w->from;
        if (rest < 0) continue;
        int k = 0;
        for (; k < w->rank; k++) {
            const int64_t step = rest / w->loop[k].out;
            if (step >= w->loop[k].n) break;
            rest -= step * w->loop[k].out, source += step * w->loop[k].in;
        }
        if (k == w->rank && rest < w->length) return source + rest;
    }
    return -1;
}

/* Marks all but the first block of each cycle; false if this is not a permutation: a block is used twice, or
 * comes from nowhere. */
static bool find_cycles(Cycles *s)
{
    for (int64_t first = 0; first < s->count; first++) {
        if (s->follows[first / 8] >> first % 8 & 1) continue;
        for (int64_t at = source_of(s, first); at != first; at = source_of(s, at)) {
            if (at < 0 || at >= s->count || (s->follows[at / 8] >> at % 8 & 1)) return false;
            s->follows[at / 8] |= (uint8_t)(1 << at % 8);
        }
    }
    return true;
}

static void move_slice(uint8_t *to, const uint8_t *from, int64_t count, const uint8_t *next)
{
    int64_t at = 0;
    for (; at + LINE <= count; at += LINE) {
        PREFETCH(next, at, 3);
        memcpy(to + at, from + at, LINE);
    }
    move_short(to + at, from + at, count - at);
}

/* Moves a slice of every block around every cycle. */
static void work_cycles(Task *task, int unused)
{
    (void)unused;
    Cycles *s = (Cycles *)task;
    uint8_t *aside = s->aside + atomic_fetch_add(&s->threads, 1) * s->slice;
    for (;;) {
        const int64_t number = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (number >= s->slices) return;
        uint8_t *base = s->base + number * s->slice;
        const int64_t bytes = min(s->slice, s->block - number * s->slice);
        for (int64_t first = 0; first < s->count; first++) {
            if (s->follows[first / 8] >> first % 8 & 1) continue;
            int64_t at = first, source = source_of(s, first);
            if (source == first) continue;
            memcpy(aside, base + first * s->block, (size_t)bytes);
            while (source != first) {
                const int64_t after = source_of(s, source);
                move_slice(base + at * s->block, base + source * s->block, bytes, base + after * s->block);
                at = source, source = after;
            }
            memcpy(base + at * s->block, aside, (size_t)bytes);
        }
    }
}

static bool run_cycles(const Plan *plan, uint8_t *base, int64_t threads)
{
    Cycles s = {.task = {work_cycles}, .block = block_of(plan), .walks = plan->count, .base = base};
    if (s.block < BLOCK || plan->bytes % s.block || plan->bytes / s.block > MAX_BLOCKS) return false;
    s.count = plan->bytes / s.block;
    s.slice = min(SLICE, max(s.block / max(threads, 1) / LINE * LINE, BLOCK));
    s.slices = (s.block + s.slice - 1) / s.slice;
    threads = max(min(min(threads, s.slices), MEGABYTE / 4 / s.slice), 1);
    s.walk = malloc((size_t)s.walks * sizeof(Walk));
    s.follows = calloc(1, (size_t)(s.count + 7) / 8);
    s.aside = malloc((size_t)(threads * s.slice));
    bool can = s.walk && s.follows && s.aside;
    for (int k = 0; can && k < s.walks; k++) can = walk_of(&plan->copies[k], s.block, &s.walk[k]);
    can = can && find_cycles(&s);
    if (can) run_task(&s.task, threads);
    free(s.walk), free(s.follows), free(s.aside);
    return can;
}

/* -- the choice between them ---------------------------------------------------------------------- */

/* Whether the plan, from one buffer to one, could be run within this one. */
static bool run_in_place(const Plan *plan, uint8_t *base, int64_t threads)
{
    if (plan->inputs != 1 || plan->outputs != 1 || plan->count > MAX_WALKS) return false;
    if (is_single_threaded(plan->bytes)) threads = 1;
    if (plan->count == 1 && is_squares(&plan->copies[0])) {
        run_squares(&plan->copies[0], base, threads);
        return true;
    }
    return !plan->count || run_cycles(plan, base, threads);
}
