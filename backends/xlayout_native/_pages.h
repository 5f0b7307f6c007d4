/* _pages: memory for a large result, on huge pages that are there before it is written.
 *
 * The first touch of a page costs more than a copy of its bytes: the system clears it. On huge pages it
 * is cleared at the speed of memory, if it is touched at its end. The system clears the rest of a page
 * first and what was touched last, from the front where that is the end, else backwards, which was
 * measured at half the speed.
 */

enum { HUGE_PAGE = 2 << 20 };

static bool ask_huge_pages(uintptr_t address, int64_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, first = (address + page - 1) & -page;
    const uintptr_t end = (address + (uintptr_t)bytes) & -page;
    if (bytes > 0 && end > first) return !madvise((void *)first, end - first, MADV_HUGEPAGE);
#endif
    return false;
}

typedef struct {
    Task task;
    uintptr_t end;
    atomic_uintptr_t next; /* a page's first byte */
} Touching;

static void touch_pages(Task *task)
{
    Touching *t = (Touching *)task;
    for (;;) {
        const uintptr_t page = atomic_fetch_add_explicit(&t->next, HUGE_PAGE, memory_order_relaxed);
        if (page + HUGE_PAGE > t->end) return;
        /* a write that changes nothing, should there be something */
        __atomic_fetch_or((uint8_t *)(page + HUGE_PAGE - 1), 0, __ATOMIC_RELAXED);
    }
}

/* Huge pages behind this memory, by as many threads; whether they were granted. */
static bool back_by_huge_pages(uintptr_t address, int64_t bytes, int threads)
{
    if (!ask_huge_pages(address, bytes)) return false;
    Touching t = {{touch_pages}, address + (uintptr_t)bytes, 0};
    atomic_init(&t.next, (address + HUGE_PAGE - 1) & -(uintptr_t)HUGE_PAGE);
    run_task(&t.task, least(threads, bytes / HUGE_PAGE));
    return true;
}
