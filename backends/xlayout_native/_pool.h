/* _pool: a few threads that sleep until there is a task, and what may be asked of the machine. */

/* What several threads do at a time; each returns when there is nothing left to do. */
typedef struct Task {
    void (*work)(struct Task *);
} Task;

/* Helpers sleep until a task is posted. One that ends before a helper wakes is not missed: the
 * helper finds none and sleeps on. */
static struct {
    pthread_mutex_t turn;   /* held by the thread whose task it is */
    pthread_mutex_t lock;   /* over everything below */
    pthread_cond_t posted, left;
    Task *task;
    int helpers, ready;     /* threads that were started; that have got as far as to sleep */
    int wanted;             /* helpers that may still join the task */
    int inside;             /* helpers at work on it */
} pool = {
    .turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER,
};

static void *help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    pool.ready++;
    pthread_cond_signal(&pool.left);
    for (;;) {
        while (!pool.task || !pool.wanted) pthread_cond_wait(&pool.posted, &pool.lock);
        Task *task = pool.task;
        pool.wanted--, pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        task->work(task);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.inside) pthread_cond_signal(&pool.left);
    }
    return NULL;
}

/* Waits until they sleep: a child that is forked while a thread is on its way may inherit whatever locks
 * that thread has taken to get there. */
static void start_helpers(int wanted)
{
    pthread_attr_t detached;
    if (pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.helpers < wanted && !pthread_create(&thread, &detached, help, NULL)) pool.helpers++;
    pthread_attr_destroy(&detached);
    while (pool.ready < pool.helpers) pthread_cond_wait(&pool.left, &pool.lock);
}

/* The task with up to `threads` threads, this one included. Another thread's task in the pool is not
 * waited for: this one works alone then. */
static void run_task(Task *task, int64_t threads)
{
    if (threads < 2 || pthread_mutex_trylock(&pool.turn)) {
        task->work(task);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    start_helpers((int)least(threads, MAX_THREADS) - 1);
    pool.task = task;
    pool.wanted = (int)least(threads - 1, pool.helpers);
    pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
    task->work(task);
    pthread_mutex_lock(&pool.lock);
    pool.task = NULL;
    while (pool.inside) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.turn);
}

/* Threads do not survive a fork: the child starts its own when it needs them. */
static void forget_helpers(void)
{
    pthread_mutex_init(&pool.turn, NULL);
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
    return (int)least(sysconf(_SC_NPROCESSORS_ONLN), MAX_THREADS);
}

static int initial_threads(void)
{
    const char *given = getenv("OMP_NUM_THREADS");
    const long wanted = given ? strtol(given, NULL, 10) : 0;
    const int there = wanted > 0 ? (int)least(wanted, MAX_THREADS) : processors();
    return there < 1 ? 1 : (int)least(there, MAX_THREADS);
}
