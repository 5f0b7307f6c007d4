/* _pages: memory for a large result, on huge pages that are faulted in before it is written.
 *
 * The first touch of a page costs more than copying its bytes, because the system clears it. A huge page is
 * cleared at the speed of memory if it is touched at its end: Linux clears the touched part last and, if that is
 * the end, everything before it from front to back; otherwise backwards, which was measured at half the speed.
 */

enum { HUGE_PAGE = 2 << 20 };

/* Asks for whole pages at both ends: a huge page whose first 4096 bytes lack the advice does not become one. */
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

/* Whether the system has yet to provide a page here. */
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

typedef struct { uintptr_t first, last; } Span; /* addresses of the first byte and of the last */

/* Everything that a copy writes, gaps included. */
static Span span_of(const Copy *c, const uint8_t *to)
{
    const uintptr_t first = (uintptr_t)to + (uintptr_t)c->to;
    uintptr_t last = first + (uintptr_t)c->width - 1;
    for (int k = 0; k < c->rank; k++) last += (uintptr_t)((c->loop[k].n - 1) * c->loop[k].out);
    return (Span){first, last};
}

/* A window is in several parts of the output, if some of its loops go from huge page to huge page. */
static bool is_far(Loop loop) { return loop.out >= HUGE_PAGE; }

static int64_t steps_in_window(const Copy *c, const Window *w, int k)
{
    return min(w->tiles[k] * c->tile[k], c->loop[k].n - w->first[k] * c->tile[k]);
}

static int64_t parts_of_window(const Copy *c, const Window *w)
{
    int64_t parts = 1;
    for (int k = 0; k < c->rank; k++)
        if (is_far(c->loop[k])) parts *= steps_in_window(c, w, k);
    return parts;
}

static Span part_of_window(const Copy *c, const Window *w, int64_t number, const uint8_t *to)
{
    uintptr_t first = (uintptr_t)to + (uintptr_t)c->to, bytes = (uintptr_t)c->width;
    for (int k = c->rank - 1; k >= 0; k--) {
        const int64_t steps = steps_in_window(c, w, k), out = c->loop[k].out;
        first += (uintptr_t)(w->first[k] * c->tile[k] * out);
        if (is_far(c->loop[k])) first += (uintptr_t)(number % steps * out), number /= steps;
        else bytes += (uintptr_t)((steps - 1) * out);
    }
    return (Span){first, first + bytes - 1};
}

/* Touches as much of this huge page as is `inside`: at its end if that is all of it, so that a huge page can
 * back it; otherwise by populating its small pages in one call. */
static void touch_page(uintptr_t page, Span inside)
{
    const uintptr_t first = page > inside.first ? page : inside.first, end = page + HUGE_PAGE - 1;
    const uintptr_t last = end < inside.last ? end : inside.last;
    /* a write that changes nothing, in case something is there */
    if (first == page && last == end) {
        __atomic_fetch_or((uint8_t *)last, 0, __ATOMIC_RELAXED);
        return;
    }
#ifdef MADV_POPULATE_WRITE
    const uintptr_t from = first & -(uintptr_t)PAGE;
    if (untouched(last)) madvise((void *)from, (last | (PAGE - 1)) + 1 - from, MADV_POPULATE_WRITE);
#endif
}
