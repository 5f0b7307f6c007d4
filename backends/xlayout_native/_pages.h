/* _pages: memory for a large result, on huge pages that are there before it is written.
 *
 * The first touch of a page costs more than a copy of its bytes: the system clears it. On huge pages it
 * is cleared at the speed of memory, if it is touched at its end. The system clears the rest of a page
 * first and what was touched last, from the front where that is the end, else backwards, which was
 * measured at half the speed.
 *
 * A window's pages are touched just before it is written: zeros that are still in a cache when the result
 * replaces them never go to memory. A transpose, which is one window, has all touched first, by all
 * threads: in windows it gained less than it lost by coming back to the pages of its input.
 */

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* The pages at both ends are asked for whole: a huge page that lacks its first 4096 bytes is none. */
static bool ask_huge_pages(uintptr_t address, int64_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t first = address & -(uintptr_t)PAGE;
    const uintptr_t end = (address + (uintptr_t)bytes + PAGE - 1) & -(uintptr_t)PAGE;
    if (bytes >= HUGE_PAGE) return !madvise((void *)first, end - first, MADV_HUGEPAGE);
#endif
    (void)address, (void)bytes;
    return false;
}

/* Whether the system has yet to give a page here. */
static bool untouched(uintptr_t address)
{
#ifdef __linux__
    unsigned char there;
    return !mincore((void *)(address & -(uintptr_t)PAGE), PAGE, &there) && !(there & 1);
#else
    (void)address;
    return false;
#endif
}

typedef struct { uintptr_t first, last; } Span; /* addresses of bytes */

/* All that a copy writes, and what lies between. */
static Span span_of(const Copy *c, const uint8_t *to)
{
    const uintptr_t first = (uintptr_t)to + (uintptr_t)c->to;
    uintptr_t last = first + (uintptr_t)c->width - 1;
    for (int k = 0; k < c->rank; k++) last += (uintptr_t)((c->loop[k].n - 1) * c->loop[k].out);
    return (Span){first, last};
}

static Span span_of_window(const Copy *c, const Window *w, const uint8_t *to)
{
    uintptr_t first = (uintptr_t)to + (uintptr_t)c->to, last = first + (uintptr_t)c->width - 1;
    for (int k = 0; k < c->rank; k++) {
        const int64_t from = w->first[k] * c->tile[k], end = from + w->tiles[k] * c->tile[k];
        first += (uintptr_t)(from * c->loop[k].out);
        last += (uintptr_t)((least(end, c->loop[k].n) - 1) * c->loop[k].out);
    }
    return (Span){first, last};
}

/* The page that begins here, as far as it is inside: at its end if it can be a huge one, else in pieces. */
static void touch_page(uintptr_t page, Span inside)
{
    const uintptr_t first = page > inside.first ? page : inside.first, end = page + HUGE_PAGE - 1;
    const uintptr_t last = end < inside.last ? end : inside.last;
    /* a write that changes nothing, should there be something */
    if (first == page && last == end) {
        __atomic_fetch_or((uint8_t *)last, 0, __ATOMIC_RELAXED);
        return;
    }
#ifdef MADV_POPULATE_WRITE
    const uintptr_t from = first & -(uintptr_t)PAGE;
    if (untouched(last)) madvise((void *)from, (last | (PAGE - 1)) + 1 - from, MADV_POPULATE_WRITE);
#endif
}

typedef struct {
    Task task;
    Span span;
    atomic_uintptr_t next; /* a page's first byte */
} Touching;

static void touch_pages(Task *task)
{
    Touching *t = (Touching *)task;
    for (;;) {
        const uintptr_t page = atomic_fetch_add_explicit(&t->next, HUGE_PAGE, memory_order_relaxed);
        if (page > t->span.last) return;
        touch_page(page, t->span);
    }
}

static void touch_span(Span span, int64_t threads)
{
    Touching t = {{touch_pages}, span, 0};
    atomic_init(&t.next, span.first & -(uintptr_t)HUGE_PAGE);
    run_task(&t.task, least(threads, (int64_t)((span.last - span.first) / HUGE_PAGE + 1)));
}

/* What transposes write, output by output. */
static void touch_transposes(const Plan *plan, uint8_t *const *pointers, int64_t threads)
{
    Span all = {0, 0};
    int target = -1;
    for (int k = 0; k < plan->count; k++) {
        const Copy *c = &plan->copies[k];
        if (c->kind != TRANSPOSE) continue;
        const Span s = span_of(c, pointers[plan->inputs + c->target]);
        if (c->target != target) {
            if (target >= 0) touch_span(all, threads);
            target = c->target, all = s;
        }
        if (s.first < all.first) all.first = s.first;
        if (s.last > all.last) all.last = s.last;
    }
    if (target >= 0) touch_span(all, threads);
}

/* Just before a window is written. The page where the last one ended is there. */
static void touch_window(const Copy *c, const Window *w, const uint8_t *to, uintptr_t *known)
{
    const Span all = span_of(c, to), here = span_of_window(c, w, to);
    for (uintptr_t page = here.first & -(uintptr_t)HUGE_PAGE; page <= here.last; page += HUGE_PAGE) {
        if (page != *known) touch_page(page, all);
        *known = page;
    }
}

/* Whether results are on pages that are not there: by the page in the middle of each, since an end may
 * be memory that was used before. */
static bool untouched_results(const Plan *plan, uint8_t *const *pointers)
{
    int target = -1;
    for (int k = 0; k < plan->count; k++) {
        const Copy *c = &plan->copies[k];
        if (c->target == target) continue;
        target = c->target;
        const Span s = span_of(c, pointers[plan->inputs + target]);
        if (untouched(s.first + (s.last - s.first) / 2)) return true;
    }
    return false;
}
