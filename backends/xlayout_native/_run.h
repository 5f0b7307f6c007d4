/* _run: a plan, whose tiles are handed out to threads. */

static atomic_llong stream_from = 8 << 20;  /* bytes of a result from which streaming stores pay */
static atomic_llong threads_from = 4 << 20; /* bytes from which waking a second thread pays, */
enum {
    AWAKE_FACTOR = 16, /* or, if it is awake already, a sixteenth of them */
    CHUNKS = 8,        /* chunks per thread of a shared plan: with fewer, one may wait long for another's last; */
    CHUNKS_OWN = 32,   /* and of a thread's own part */
};

static bool is_single_threaded(int64_t bytes)
{
    const int64_t enough = atomic_load(&threads_from);
    return bytes < enough / AWAKE_FACTOR || (bytes < enough && !awake_threads());
}

/* A thread's own tiles, which it takes before those of others. On a cache line of its own, against false
 * sharing. */
typedef struct {
    _Alignas(LINE) atomic_llong next;
    int64_t end;
} Part;

typedef struct {
    Task task;
    const Plan *plan;
    const Isa *isa;
    uint8_t *const *pointers;
    Touching *touching; /* NULL if the pages exist already */
    bool stream;        /* with streaming stores */
    int64_t chunk;      /* tiles taken at a time: a window of each copy, if there are many windows */
    int parts;
    Part *part;
} Job;

/* When streaming, there is one part for all threads, which then write to few pages at a time. Otherwise each has
 * a part, the same one in every call: arrays in repeated use are in the caches of the threads that had them
 * before. */
static void partition_tiles(Job *job, Part *parts, int64_t threads)
{
    const int64_t tiles = job->plan->tiles;
    job->part = parts, job->parts = job->stream ? 1 : (int)max(min(threads, MAX_THREADS), 1);
    for (int k = 0; k < job->parts; k++) {
        atomic_init(&parts[k].next, tiles * k / job->parts);
        parts[k].end = tiles * (k + 1) / job->parts;
    }
}

/* A thread's stages, and what else it needs for a tile, live as long as the thread. Without memory for them, tiles go
 * straight to the target: slower, but correct. */
typedef struct {
    uint8_t stages[2][STAGE], carry[CARRY_LINES][LINE];
    int64_t places[2][TABLE];
} Own;

static pthread_key_t own;

static void find_own(Worker *worker)
{
    void *memory = pthread_getspecific(own);
    if (!memory && !posix_memalign(&memory, PAGE, sizeof(Own)) && pthread_setspecific(own, memory)) {
        free(memory);
        memory = NULL;
    }
    Own *found = memory;
    if (!found) return;
    for (int k = 0; k < 2; k++) worker->stages[k] = found->stages[k], worker->places[k] = found->places[k] + LINE;
    worker->carry = found->carry[0];
}

/* Takes chunks of a part and runs their tiles, until none are left. */
static void work_on(const Job *job, Part *part, Worker *worker, bool touches)
{
    const Plan *plan = job->plan;
    Cursor s;
    start_windows(&s, plan);
    int64_t before = 0, at[2][MAX_RANK];
    for (;;) {
        int64_t number = atomic_fetch_add_explicit(&part->next, job->chunk, memory_order_relaxed);
        if (number >= part->end) break;
        const int64_t end = min(number + job->chunk, part->end);
        for (bool known = false, inside = false; number < end; number++) {
            while (number - before >= s.window.count) {
                before += s.window.count;
                next_window(&s);
                known = inside = false;
            }
            const Copy *c = &plan->copies[s.copy];
            const uint8_t *from = job->pointers[c->source], *next = from;
            if (job->touching && !inside) touch_window(job->touching, &s, touches);
            /* in a thread's own part, in the order of the output, so that it is in as few pieces of it as
             * possible */
            const int along = job->stream ? along_input(c) : c->rank - 1;
            if (!known) find_tile(c, &s.window, number - before, along, at[number & 1]);
            inside = true, known = number + 1 < end && number + 1 - before < s.window.count;
            if (known) {
                find_tile(c, &s.window, number + 1 - before, along, at[~number & 1]);
                next = input_at(c, at[~number & 1], from);
            }
            uint8_t *to = job->pointers[plan->inputs + c->target];
            if (c->together > 1) run_together(worker, plan, c, at[number & 1], job->pointers, next);
            else if (is_compound(c)) run_compound(worker, c, at[number & 1], from, to, next);
            else run_tile(worker, c, at[number & 1], from, to, next);
        }
    }
}

/* Works on the thread's own part first, then on what is left of the others'. */
static void work(Task *task, int number)
{
    const Job *job = (const Job *)task;
    Worker worker = {.isa = job->isa, .stream = job->stream};
    if (job->stream || job->plan->staged) find_own(&worker);
    const bool touches = job->touching && touch_ahead(job->touching);
    for (int k = 0; k < job->parts; k++) work_on(job, &job->part[(number + k) % job->parts], &worker, touches);
    write_pending(&worker, INT64_MAX);
    if (job->stream) fence();
}

static void run_plan(const Plan *plan, uint8_t **pointers, int64_t threads)
{
    if (!plan->count) return;
    const Isa *isa = atomic_load(&chosen);
    const bool stream = plan->bytes >= atomic_load(&stream_from) && isa->write;
    Plan *instead = stream ? shifted(isa, plan, pointers) : NULL;
    if (instead) plan = instead;
    Job job = {.task = {work}, .plan = plan, .isa = isa, .pointers = pointers, .stream = stream};
    if (is_single_threaded(plan->bytes)) threads = 1;
    threads = min(threads, plan->tiles);
    Part parts[MAX_THREADS];
    partition_tiles(&job, parts, threads);
    const int64_t chunks = (job.parts > 1 ? CHUNKS_OWN : CHUNKS) * threads;
    const int64_t windows = plan->max_windows < chunks ? plan->windows : plan->max_windows;
    job.chunk = threads < 2 ? plan->tiles : max(plan->tiles / max(windows, chunks), 1);
    job.touching = stream ? start_touching(plan, pointers, threads) : NULL;
    run_task(&job.task, threads);
    free(job.touching);
    free(instead);
}
