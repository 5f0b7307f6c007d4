/* _pool: the other threads: OpenMP's, or a few of our own that sleep until there is a task. */

/* What several threads do at the same time; each returns when nothing is left to do. Their numbers stay the same
 * from one task to the next: 0 is the thread whose task it is. */
typedef struct Task {
    void (*work)(struct Task *, int number);
} Task;

/* -- threads that are there already -------------------------------------------------------------- */

/* How OpenMP runs a function on so many threads, this one included. */
typedef void (*Parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);

static _Atomic(Parallel) openmp; /* NULL: not loaded, or not (or no longer) to be used */
static int (*openmp_number)(void);

/* Whether this process was forked and has not started another program since: then its parent may have used
 * OpenMP, even before this module was loaded. If that cannot be found out, yes. */
static bool is_forked_child(void)
{
#ifdef __linux__
    enum { FORKED_ONLY = 0x40 }; /* PF_FORKNOEXEC, in the ninth field; the second may be any text in parentheses */
    char text[512];
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file) return true;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *rest = strrchr(text, ')');
    unsigned flags;
    return !rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || flags & FORKED_ONLY;
#else
    return true;
#endif
}

static bool share_openmp(void)
{
    if (is_forked_child()) return false;
    openmp_number = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    if (openmp_number) atomic_store(&openmp, (Parallel)(uintptr_t)dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return atomic_load(&openmp);
}

/* Whether this is the main thread. Remembered, because the system is slow to say so; a fork cannot make it
 * wrong, because a child does not ask. */
static bool is_main(void)
{
#ifdef __linux__
    static _Thread_local enum { UNKNOWN, OTHER, MAIN } found;
    if (found == UNKNOWN) found = syscall(SYS_gettid) == getpid() ? MAIN : OTHER;
    return found == MAIN;
#else
    return false;
#endif
}

/* OpenMP, for the main thread only: it keeps a team for every thread that asks, and the framework does most of
 * its work on this one. That team stays awake for a while after its last task; helpers of our own would have to
 * share the processors with it. */
static Parallel awake_threads(void)
{
    const Parallel found = atomic_load_explicit(&openmp, memory_order_relaxed);
    return found && is_main() ? found : NULL;
}

/* -- threads of our own --------------------------------------------------------------------------- */

/* Helpers sleep until a task is posted. If a task ends before a helper wakes, the helper finds none and goes
 * back to sleep. */
static struct {
    pthread_mutex_t owner;  /* held by the thread whose task it is */
    pthread_mutex_t lock;   /* protects everything below */
    pthread_cond_t posted, left;
    Task *task;
    int helpers, ready;     /* threads that were started; that have reached their sleep once */
    int wanted;             /* helpers that may still join the task */
    int inside;             /* helpers that work on it */
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER,
};

static void *helper_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    const int number = ++pool.ready;
    pthread_cond_signal(&pool.left);
    for (;;) {
        while (!pool.task || !pool.wanted) pthread_cond_wait(&pool.posted, &pool.lock);
        Task *task = pool.task;
        pool.wanted--, pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        task->work(task, number);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.inside) pthread_cond_signal(&pool.left);
    }
    return NULL;
}

/* Signals are for the program's own threads. One that these block, in order to wait for it, would otherwise be
 * delivered to a helper and end the process. Faults stay unblocked: their handlers report where they happened. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t others;
    sigfillset(&others);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) sigdelset(&others, faults[k]);
    pthread_sigmask(SIG_SETMASK, &others, before);
}

/* Waits until all helpers sleep: a child that is forked while one is on its way may inherit locks that it took
 * to get there. */
static void start_helpers(int wanted)
{
    pthread_attr_t detached;
    if (pool.helpers >= wanted || pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t before;
    block_signals(&before);
    pthread_t thread;
    while (pool.helpers < wanted && !pthread_create(&thread, &detached, helper_main, NULL)) pool.helpers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    while (pool.ready < pool.helpers) pthread_cond_wait(&pool.left, &pool.lock);
}

static void run_openmp(void *task) { ((Task *)task)->work(task, openmp_number()); }

/* Runs a task on up to `threads` threads, this one included. If another thread is using the pool, this one does
 * not wait for it, but works alone. */
static void run_task(Task *task, int64_t threads)
{
    const Parallel team = threads < 2 ? NULL : awake_threads();
    if (team) {
        team(run_openmp, task, (unsigned)threads, 0);
        return;
    }
    if (threads < 2 || pthread_mutex_trylock(&pool.owner)) {
        task->work(task, 0);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    start_helpers((int)min(threads, MAX_THREADS) - 1);
    pool.task = task;
    pool.wanted = (int)min(threads - 1, pool.helpers);
    pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
    task->work(task, 0);
    pthread_mutex_lock(&pool.lock);
    pool.task = NULL;
    while (pool.inside) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}

/* After a fork, in the child: threads do not survive it, and the child starts its own when it needs them. OpenMP
 * is not used again, because it would wait for the parent's threads. */
static void forget_threads(void)
{
    atomic_store(&openmp, NULL);
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.posted, NULL);
    pthread_cond_init(&pool.left, NULL);
    pool.task = NULL;
    pool.helpers = pool.ready = pool.wanted = pool.inside = 0;
}

static atomic_int default_threads = 1;

static int processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    return (int)min(sysconf(_SC_NPROCESSORS_ONLN), MAX_THREADS);
}

static int initial_threads(void)
{
    const char *given = getenv("OMP_NUM_THREADS");
    const long wanted = given ? strtol(given, NULL, 10) : 0;
    const int there = wanted > 0 ? (int)min(wanted, MAX_THREADS) : processors();
    return there < 1 ? 1 : (int)min(there, MAX_THREADS);
}
