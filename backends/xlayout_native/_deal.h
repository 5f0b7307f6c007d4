/* _deal: rows that are dealt out to several results, each of which takes a part of every row; and rows
 * that are joined from several sources, which give a part each.
 *
 * As copies of their own, each that is dealt would read through all rows for its part of them, and memory
 * is slow to read in parts. Dealt out row by row the input is read as it lies. And each that is joined
 * would write its part of rows alone; but where rows begin off a line, lines are made of two parts.
 */

enum { DEALT = 256 }; /* results at the most: beyond, their pages are too many to come back to at each row */

static bool are_parts(const Copy *a, const Copy *b)
{
    const Loop *x = &a->loop[0], *y = &b->loop[0];
    return a->kind == BLOCKS && b->kind == BLOCKS && a->lines && b->lines && a->rank == 1 && b->rank == 1 &&
           a->width == b->width && x->n == y->n && x->out == y->out;
}

/* Whether `b` takes the part of each row that follows the one that `a` takes. */
static bool takes_next_part(const Copy *a, const Copy *b)
{
    return are_parts(a, b) && a->source == b->source && b->from == a->from + a->width &&
           a->loop[0].in == b->loop[0].in;
}

/* Whether `b` gives the part of each row that follows the one that `a` gives. Of long ones the ends may as
 * well be written alone. */
static bool gives_next_part(const Copy *a, const Copy *b)
{
    return are_parts(a, b) && a->width < LONG && a->target == b->target && b->to == a->to + a->width;
}

/* The plan, once all its copies are prepared: a copy runs the tiles of those that go with it. */
static void finish_plan(Plan *plan)
{
    for (int k = 0; k < plan->count; k += plan->copies[k].together) {
        Copy *c = &plan->copies[k];
        const int most_together = (int)least(plan->count - k, DEALT);
        c->together = 1;
        c->joined = most_together > 1 && !takes_next_part(c, c + 1);
        while (c->together < most_together) {
            Copy *other = c + c->together;
            if (!(c->joined ? gives_next_part : takes_next_part)(other - 1, other)) break;
            c->together++;
            other->joined = c->joined, other->count = other->windows = 0;
        }
        c->joined = c->joined && c->together > 1;
        if (c->together > 1) c->window[0] = 1, c->windows = c->count;
        plan->tiles += c->count;
        plan->windows += c->windows;
        plan->most_windows = most(plan->most_windows, c->windows);
    }
}

/* Whether parts follow one another, in each result or in the one: then lines can be made of two. */
static bool follows(const Worker *worker, const Copy *c)
{
    return worker->isa->follow && worker->kept && (c->joined || c->loop[0].out == c->width);
}

/* A tile of each of them. `next` is where the input goes on afterwards. Where a result does not start on a
 * line, parts of lines are kept for those that follow them; or its part of the tile is made alone. */
static void run_together(Worker *worker, const Plan *plan, const Copy *c, const int64_t *at,
                         uint8_t *const *pointers, const uint8_t *next)
{
    const Kernel run = worker->stream ? worker->isa->streaming[RUNS] : NULL;
    const int count = c->together;
    uintptr_t offset = 0;
    for (int p = 0; p < count; p++) offset |= (uintptr_t)pointers[plan->inputs + c[p].target] % LINE;
    if (!run || (offset && !follows(worker, c)) || (c->joined && !offset)) {
        for (int p = 0; p < count; p++)
            run_tile(worker, c + p, at, pointers[c[p].source], pointers[plan->inputs + c[p].target], next);
        return;
    }
    const int64_t end = least(at[0] + c->tile[0], c->loop[0].n), row = count * c->width;
    const bool anew = c->joined && c->loop[0].out != row; /* with each row: there are gaps between */
    for (int64_t r = at[0]; r < end; r++)
        for (int p = 0; p < count; p++) {
            const int q = p + 1 < count ? p + 1 : 0;
            const uint8_t *part = pointers[c[p].source] + c[p].from + r * c[p].loop[0].in;
            const uint8_t *then = q || r + 1 < end ? pointers[c[q].source] + c[q].from + (r + !q) * c[q].loop[0].in
                                                   : next;
            uint8_t *to = pointers[plan->inputs + c[p].target] + c[p].to + r * c[p].loop[0].out;
            const Box b = {.width = 1, .batch = 1, .rows = c->width, .next = then};
            const bool first = (anew || r == at[0]) && !(c->joined && p);
            const bool last = (anew || r + 1 == end) && !(c->joined && q);
            if (offset)
                worker->isa->follow(part, to, c->width, then, worker->kept + (c->joined ? 0 : p) * LINE, first, last);
            else
                run(&b, part, to);
        }
}
