/* _touch: which thread touches the pages of a window, and when.
 *
 * It happens just before the window is written: zeros that are still in a cache when the result replaces them
 * never reach memory.
 *
 * Linux prefers to give a processor the pages that were freed on it. Old results are freed by the caller, so a
 * helper gets other pages: they are in no cache, and the host of a virtual machine may have to provide them
 * first, at seventy times the cost. So if there are only one or two helpers, they wait for the caller, which
 * touches all windows in the order in which they are written, and then writes as well. More helpers would wait
 * too long: they touch for themselves, and those that want the same window share its pages.
 *
 * A thread alone touches everything first too, if it transposes: lines in the caches take streamed stores that
 * are far apart more slowly than zeros take to reach memory.
 */

enum { MAX_WAITING = 2 }; /* most helpers that wait for the caller */

typedef struct { atomic_llong next, there; } Pages; /* of a window: next to be touched, and touched so far */

typedef struct {
    const Plan *plan;
    uint8_t *const *pointers;
    pthread_t caller;
    bool ahead;       /* the caller touches all windows before it writes, and helpers wait for it */
    Span *results;    /* everything written in each, gaps included */
    Pages windows[];  /* in the order of the plan */
} Touching;

static uint8_t *target_of(const Touching *t, const Copy *c) { return t->pointers[t->plan->inputs + c->target]; }

/* Returns memory that the caller must free. NULL if the pages exist already, judging by the middle one of each
 * result, since the ends may be reused memory; if a result has gaps, whose pages nobody asked for; or if there
 * is no memory for it. */
static Touching *start_touching(const Plan *plan, uint8_t *const *pointers, int64_t threads)
{
    const size_t windows = (size_t)plan->windows * sizeof(Pages), results = (size_t)plan->outputs * sizeof(Span);
    Touching *t = calloc(1, sizeof *t + windows + results);
    if (!t) return NULL;
    t->plan = plan, t->pointers = pointers, t->caller = pthread_self();
    t->results = (Span *)(t->windows + plan->windows);
    bool transposes = false;
    for (int k = 0; k < plan->count; k++) {
        const Copy *c = &plan->copies[k];
        transposes = transposes || c->kind == TRANSPOSE;
        const Span here = span_of(c, target_of(t, c));
        Span *all = &t->results[c->target];
        if (!all->first || here.first < all->first) all->first = here.first;
        if (here.last > all->last) all->last = here.last;
    }
    t->ahead = threads > 1 ? threads <= 1 + MAX_WAITING : transposes;
    bool new = false;
    int64_t gaps = -plan->bytes;
    for (int k = 0; k < plan->outputs; k++) {
        const Span all = t->results[k];
        if (!all.first) continue;
        new = new || untouched(all.first + (all.last - all.first) / 2);
        gaps += (int64_t)(all.last - all.first) + 1;
    }
    if (new && !gaps) return t;
    free(t);
    return NULL;
}

/* Returns once all pages of the window exist, with this thread's help or without. */
static void touch_window(Touching *t, const Cursor *s, bool helps)
{
    const Copy *c = &t->plan->copies[s->copy];
    Pages *pages = &t->windows[s->number];
    int64_t count = 0, next = helps ? atomic_fetch_add(&pages->next, 1) : INT64_MAX;
    for (int p = 0; p < c->together; p++) {
        const int64_t parts = parts_of_window(c + p, &s->window);
        for (int64_t part = 0; part < parts; part++) {
            const Span here = part_of_window(c + p, &s->window, part, target_of(t, c + p));
            const uintptr_t first = here.first & -(uintptr_t)HUGE_PAGE;
            const int64_t before = count;
            count += (int64_t)((here.last - first) / HUGE_PAGE) + 1;
            for (; next < count; next = atomic_fetch_add(&pages->next, 1)) {
                touch_page(first + (uintptr_t)(next - before) * HUGE_PAGE, t->results[c[p].target]);
                atomic_fetch_add(&pages->there, 1);
            }
        }
    }
    while (atomic_load(&pages->there) < count) sched_yield();
}

/* Whether this thread touches pages itself. If the caller goes ahead, it touches all of them here. */
static bool touch_ahead(Touching *t)
{
    if (!t->ahead) return true;
    if (!pthread_equal(t->caller, pthread_self())) return false;
    Cursor s;
    start_windows(&s, t->plan);
    while (s.number + 1 < t->plan->windows) {
        next_window(&s);
        touch_window(t, &s, true);
    }
    return true;
}
