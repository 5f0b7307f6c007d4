/* _deal: rows that are dealt out to several results, each of which takes a part of every row.
 *
 * As copies of their own each would read through all rows for its part of them, and memory is slow to
 * read in parts. Dealt out row by row the input is read as it lies.
 */

enum { DEALT = 256 }; /* results at the most: beyond, their pages are too many to come back to at each row */

/* Whether `b` takes the part of each row that follows the one that `a` takes. */
static bool takes_next_part(const Copy *a, const Copy *b)
{
    const Loop *x = &a->loop[0], *y = &b->loop[0];
    return a->kind == BLOCKS && b->kind == BLOCKS && a->lines && b->lines && a->rank == 1 && b->rank == 1 &&
           a->source == b->source && b->from == a->from + a->width && a->width == b->width &&
           x->n == y->n && x->in == y->in && x->out == y->out;
}

/* The plan, once all its copies are prepared: a copy runs the tiles of those that are dealt with it. */
static void finish_plan(Plan *plan)
{
    for (int k = 0; k < plan->count; k += plan->copies[k].dealt) {
        Copy *c = &plan->copies[k];
        c->dealt = 1;
        const int most_dealt = (int)least(plan->count - k, DEALT);
        while (c->dealt < most_dealt && takes_next_part(c + c->dealt - 1, c + c->dealt)) {
            Copy *other = c + c->dealt++;
            other->count = other->windows = 0;
        }
        if (c->dealt > 1) c->window[0] = 1, c->windows = c->count;
        plan->tiles += c->count;
        plan->windows += c->windows;
        plan->most_windows = most(plan->most_windows, c->windows);
    }
}

/* Whether each result's parts follow one another, in lines that are made of two where they have to be. */
static bool follows(const Worker *worker, const Copy *c)
{
    return worker->isa->follow && worker->kept && c->loop[0].out == c->width;
}

/* A tile of each of them. `next` is where the input goes on afterwards. Where a result does not start on a
 * line, parts of lines are kept for those that follow them; or its part of the tile is made alone. */
static void deal_tile(Worker *worker, const Plan *plan, const Copy *c, const int64_t *at,
                      uint8_t *const *pointers, const uint8_t *next)
{
    const uint8_t *from = pointers[c->source];
    const Kernel run = worker->stream ? worker->isa->streaming[RUNS] : NULL;
    uintptr_t offset = 0;
    for (int p = 0; p < c->dealt; p++) offset |= (uintptr_t)pointers[plan->inputs + c[p].target] % LINE;
    if (!run || (offset && !follows(worker, c))) {
        for (int p = 0; p < c->dealt; p++)
            run_tile(worker, c + p, at, from, pointers[plan->inputs + c[p].target], next);
        return;
    }
    const Loop *rows = &c->loop[0];
    const int64_t end = least(at[0] + c->tile[0], rows->n);
    for (int64_t r = at[0]; r < end; r++)
        for (int p = 0; p < c->dealt; p++) {
            const uint8_t *part = from + c[p].from + r * rows->in;
            const uint8_t *row = r + 1 < end ? from + c->from + (r + 1) * rows->in : next;
            const uint8_t *then = p + 1 < c->dealt ? part + c->width : row;
            uint8_t *to = pointers[plan->inputs + c[p].target] + c[p].to + r * rows->out;
            const Box b = {.width = 1, .batch = 1, .rows = c->width, .next = then};
            if (offset)
                worker->isa->follow(part, to, c->width, then, worker->kept + p * LINE, r == at[0], r + 1 == end);
            else
                run(&b, part, to);
        }
}
