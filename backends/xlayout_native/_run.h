/* _run: a plan, dealt out to threads. */

static atomic_llong stream_from = 8 << 20;  /* bytes of a result that streaming stores serve better */
static atomic_llong threads_from = 4 << 20; /* bytes from which a second thread pays for its waking, */
enum {
    AWAKE = 16, /* or from a sixteenth of them if it is awake */
    SHARES = 8, /* that a thread has of a plan: with fewer it may wait long for another's last */
};

static bool is_for_one(int64_t bytes)
{
    const int64_t enough = atomic_load(&threads_from); /* who is awake takes a call of the system to say */
    return bytes < enough / AWAKE || (bytes < enough && !awake_threads());
}

typedef struct {
    Task task;
    const Plan *plan;
    const Isa *isa;
    uint8_t *const *pointers;
    Touching *touching; /* if pages are not there yet */
    bool stream;        /* past the caches */
    int64_t share;      /* tiles that a thread takes at a time: a window of each copy, where there are many */
    atomic_llong next;
} Job;

/* A thread's stages live as long as the thread. Without memory for them, tiles go straight to the
 * target: slower, and right. */
static pthread_key_t stages;

static uint8_t *own_stages(void)
{
    void *both = pthread_getspecific(stages);
    if (!both && !posix_memalign(&both, 4096, 2 * STAGE + KEPT_LINES * LINE) && pthread_setspecific(stages, both)) {
        free(both);
        both = NULL;
    }
    return both;
}

/* Tiles until there are none left; whoever takes some numbers runs those tiles. */
static void work(Task *task)
{
    Job *job = (Job *)task;
    const Plan *plan = job->plan;
    Worker worker = {.isa = job->isa, .stream = job->stream};
    uint8_t *both = job->stream ? own_stages() : NULL;
    if (both) worker.stages[0] = both, worker.stages[1] = both + STAGE, worker.kept = both + 2 * STAGE;
    Cursor s;
    before_windows(&s, plan);
    int64_t before = 0, at[2][MAX_RANK];
    const bool touches = job->touching && touch_ahead(job->touching);
    for (;;) {
        int64_t number = atomic_fetch_add_explicit(&job->next, job->share, memory_order_relaxed);
        if (number >= plan->tiles) break;
        const int64_t end = least(number + job->share, plan->tiles);
        for (bool known = false, inside = false; number < end; number++) {
            while (number - before >= s.window.count) {
                before += s.window.count;
                next_window(&s);
                known = inside = false;
            }
            const Copy *c = &plan->copies[s.copy];
            const uint8_t *from = job->pointers[c->source], *next = from;
            if (job->touching && !inside) touch_window(job->touching, &s, touches);
            if (!known) find_tile(c, &s.window, number - before, at[number & 1]);
            inside = true, known = number + 1 < end && number + 1 - before < s.window.count;
            if (known) {
                find_tile(c, &s.window, number + 1 - before, at[~number & 1]);
                next = input_at(c, at[~number & 1], from);
            }
            if (c->together > 1) run_together(&worker, plan, c, at[number & 1], job->pointers, next);
            else run_tile(&worker, c, at[number & 1], from, job->pointers[plan->inputs + c->target], next);
        }
    }
    write_waiting(&worker, INT64_MAX);
    if (job->stream) job->isa->fence();
}

static void run_plan(const Plan *plan, uint8_t **pointers, int64_t threads)
{
    if (!plan->count) return;
    const Isa *isa = atomic_load(&chosen);
    const bool stream = plan->bytes >= atomic_load(&stream_from) && isa->write;
    Plan *instead = stream ? shifted(isa, plan, pointers) : NULL;
    if (instead) plan = instead;
    Job job = {.task = {work}, .plan = plan, .isa = isa, .pointers = pointers, .stream = stream};
    if (is_for_one(plan->bytes)) threads = 1;
    threads = least(threads, plan->tiles);
    const int64_t shares = SHARES * threads;
    const int64_t windows = plan->most_windows < shares ? plan->windows : plan->most_windows;
    job.share = threads < 2 ? plan->tiles : most(plan->tiles / most(windows, shares), 1);
    job.touching = stream ? before_touching(plan, pointers, threads) : NULL;
    run_task(&job.task, threads);
    free(job.touching);
    free(instead);
}
