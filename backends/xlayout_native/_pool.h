/* _pool: the other threads: OpenMP's, or a few of our own that sleep until there is a task. */

/* A task for several threads at once: each calls `work`, which returns when nothing is left to do. Threads keep
 * their numbers from one task to the next; 0 is the one whose task it is. */
typedef struct Task {
    void (*work)(struct Task *, int number);
} Task;

/* -- OpenMP's threads ---------------------------------------------------------------------------- */

/* The type of GOMP_parallel: runs a function on so many threads, this one included. */
typedef void (*Parallel)(void (*function)(void *), void *data, unsigned threads, unsigned flags);

static _Atomic(Parallel) openmp; /* NULL: not loaded, or not (or no longer) to be used */
static int (*openmp_number)(void);

/* Whether this process is a fork that has not run another program (exec) since: its parent may then have used
 * OpenMP, even before this module was loaded. If unknown, assume so. */
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

/* Whether this is the main thread. Cached, because asking the system takes time. A fork does not invalidate it,
 * since a child no longer asks. */
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

/* OpenMP's team, for the main thread only: OpenMP keeps a team for every thread that asks, and the framework
 * does most of its work on this one. A team stays awake for a while after its last task, and helpers of our own
 * would compete with it for the same processors. */
static Parallel awake_threads(void)
{
    const Parallel found = atomic_load_explicit(&openmp, memory_order_relaxed);
    return found && is_main() ? found : NULL;
}

/* -- our own threads ------------------------------------------------------------------------------ */

/* Helpers sleep until a task is posted. If a task ends before a helper wakes, the helper finds none and goes
 * back to sleep. */
static struct {
    pthread_mutex_t owner;  /* held by the thread whose task it is */
    pthread_mutex_t lock;   /* protects everything below */
    pthread_cond_t posted, left;
    Task *task;
    int helpers, ready;     /* threads started; threads that have gone to sleep once */
    int wanted;             /* helpers that may still join the task */
    int inside;             /* helpers working on it */
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

/* Signals are meant for the program's own threads. If those block one in order to wait for it, it would be
 * delivered to a helper instead and end the process. Faults stay unblocked, since their handlers report where
 * they happened. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t others;
    sigfillset(&others);
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) sigdelset(&others, faults[k]);
    pthread_sigmask(SIG_SETMASK, &others, before);
}

/* Starts helpers and waits until all of them sleep: a child forked while a thread is starting may inherit locks
 * that the thread took on the way. */
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

/* Runs in the child after a fork. Threads do not survive it, so the child starts its own when it needs them.
 * OpenMP is not used again: it would wait for the parent's threads. */
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
