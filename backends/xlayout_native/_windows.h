/* _windows: the order in which tiles run, by windows of the result.
 *
 * A window is a part of one output, a few megabytes long. Its tiles run one after another, along the input
 * first, so that the next tile reads the same pages. If a plan has several copies, their windows alternate, so
 * that all outputs advance together.
 */

typedef struct {
    int64_t first[MAX_RANK], tiles[MAX_RANK]; /* of each loop */
    int64_t count;
} Window;

static void find_window(const Copy *c, int64_t number, Window *w)
{
    if (c->windows == 1) { /* the usual case, which needs no division */
        for (int k = 0; k < c->rank; k++) w->first[k] = 0, w->tiles[k] = c->tiles[k];
        w->count = c->count;
        return;
    }
    w->count = 1;
    for (int j = c->rank - 1; j >= 0; j--) {
        const int k = c->by_out[j];
        const int64_t n = (c->tiles[k] + c->window[k] - 1) / c->window[k];
        w->first[k] = number % n * c->window[k];
        w->tiles[k] = min(c->window[k], c->tiles[k] - w->first[k]);
        w->count *= w->tiles[k];
        number /= n;
    }
}

/* The loop along which one tile follows another in the input: the innermost one of the columns that is cut. */
static int along_input(const Copy *c)
{
    int j = 0;
    while (j < c->columns.count - 1 && c->tiles[c->columns.loop[j]] == 1) j++;
    return c->columns.loop[j];
}

/* Where a tile of a window begins, by loops. Consecutive tiles lie along the loop `along`. */
static void find_tile(const Copy *c, const Window *w, int64_t number, int along, int64_t *at)
{
    at[along] = (w->first[along] + number % w->tiles[along]) * c->tile[along];
    number /= w->tiles[along];
    for (int k = c->rank - 1; k >= 0; k--) {
        if (k == along) continue;
        at[k] = (w->first[k] + number % w->tiles[k]) * c->tile[k];
        number /= w->tiles[k];
    }
}

/* -- all windows of a plan ---------------------------------------------------------------------- */

enum { VISITS = 1 << 16 }; /* limit on pairs of a phase and a copy */

typedef struct {
    const Plan *plan;
    int64_t phases, phase;
    int copy;
    int64_t next, end; /* windows of this copy in this phase */
    Window window;
    int64_t number;    /* of the window among all; -1 before the first */
} Cursor;

static void start_windows(Cursor *s, const Plan *plan)
{
    const int64_t max_phases = plan->max_windows > 1 ? VISITS / plan->count : 1;
    s->plan = plan, s->phases = max(min(plan->max_windows, max_phases), 1), s->phase = 0;
    s->copy = -1, s->next = s->end = 0, s->window.count = 0, s->number = -1;
}

/* Moves on to the next window; there must be one. */
static void next_window(Cursor *s)
{
    while (s->next == s->end) {
        if (++s->copy == s->plan->count) s->copy = 0, s->phase++;
        const int64_t windows = s->plan->copies[s->copy].windows;
        if (s->phases == 1) {
            s->next = 0, s->end = windows;
            continue;
        }
        s->next = windows * s->phase / s->phases, s->end = windows * (s->phase + 1) / s->phases;
    }
    find_window(&s->plan->copies[s->copy], s->next++, &s->window);
    s->number++;
}
