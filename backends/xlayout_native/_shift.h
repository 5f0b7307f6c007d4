/* _shift: transposes cut into pieces, so that most of each begins on a line.
 *
 * Frameworks place large arrays at multiples of a line, numpy 16 bytes past one. Then each line that a square
 * reads is fetched twice, and each line that is written belongs to two squares. If what lies before the first
 * line is cut off on either side, the rest begins on one.
 */

enum { /* bytes of a row from which cutting pays: of shorter rows, the parts cut off would be too large a share */
    WORTH_OUT = 4 * LONG,
    WORTH_IN = 512,
    INTEL_WORTH_IN = 2048, /* where a line that is fetched twice costs less */
};

/* How many steps of a loop lead from here to the first line, if the other loops go from line to line; else 0. */
static int64_t steps_to_line(const Copy *c, int loop, bool out, uintptr_t address)
{
    if (c->kind != TRANSPOSE || c->merged) return 0;
    const int64_t distance = (int64_t)(-address & (LINE - 1));
    const int64_t step = out ? c->loop[loop].out : c->loop[loop].in;
    const int64_t least = out ? WORTH_OUT : intel ? INTEL_WORTH_IN : WORTH_IN;
    if (!distance || step <= 0 || distance % step || c->loop[loop].n * step < least) return 0;
    for (int k = 0; k < c->rank; k++) {
        const int64_t other = out ? c->loop[k].out : c->loop[k].in;
        if (k != loop && c->loop[k].n > 1 && other % LINE) return 0;
    }
    return distance / step;
}

static void append(Plan *plan, const Copy *c, bool staged)
{
    plan->copies[plan->count] = *c;
    prepare_copy(&plan->copies[plan->count++], staged);
}

/* Splits the first steps of a loop off a copy, and adds them to the plan as a copy of their own. */
static void cut(Plan *plan, Copy *c, int loop, int64_t steps)
{
    if (!steps) return;
    Copy head = *c;
    head.loop[loop].n = steps;
    append(plan, &head, false);
    c->loop[loop].n -= steps;
    c->from += steps * c->loop[loop].in, c->to += steps * c->loop[loop].out;
}

static int64_t steps_of_rows(const Copy *c, const uint8_t *to)
{
    return steps_to_line(c, c->rank - 1, true, (uintptr_t)(to + c->to));
}

static int64_t steps_of_columns(const Copy *c, const uint8_t *from)
{
    return steps_to_line(c, c->along, false, (uintptr_t)(from + c->from));
}

/* Whether a copy that could write whole lines must be staged for this target, and so needs smaller tiles. */
static bool is_staged(const Isa *isa, const Copy *c, const uint8_t *to)
{
    if (c->part && isa->block) return false;
    if (c->wide) return store_of(isa, c, to + c->to) == CACHED;
    return c->lines && !writer(isa, c, to + c->to);
}

/* Whether its tiles may be others if it is known that the target does not begin on a line: wide ones would have to be
 * spliced, and blocks may be merged. */
static bool differs_off_line(const Copy *c, const uint8_t *to)
{
    const bool wide = c->wide && is_compound(c) && begin_at(c, NULL, LINE);
    const bool short_blocks = c->kind == BLOCKS && c->width % VECTOR == 0 && c->width <= LONG_EDGY;
    return (wide || (short_blocks && !c->merged && reads_apart())) && !begin_at(c, to + c->to, LINE);
}

/* The plan for buffers at these addresses; NULL if it would be the same, or if there is no memory for it. */
static Plan *shifted(const Isa *isa, const Plan *plan, uint8_t *const *pointers)
{
    bool same = true;
    for (int k = 0; same && k < plan->count; k++) {
        const Copy *c = &plan->copies[k];
        const uint8_t *to = pointers[plan->inputs + c->target];
        same = !steps_of_rows(c, to) && !steps_of_columns(c, pointers[c->source]) && !differs_off_line(c, to) &&
               !is_staged(isa, c, to);
    }
    Plan *made = same ? NULL : calloc(1, sizeof(Plan) + 3 * (size_t)plan->count * sizeof(Copy));
    if (!made) return NULL;
    made->inputs = plan->inputs, made->outputs = plan->outputs, made->bytes = plan->bytes;
    for (int k = 0; k < plan->count; k++) {
        Copy c = plan->copies[k];
        const uint8_t *to = pointers[plan->inputs + c.target];
        const int64_t rows = steps_of_rows(&c, to), columns = steps_of_columns(&c, pointers[c.source]);
        const int last = c.rank - 1;
        cut(made, &c, last, rows);
        cut(made, &c, c.along, columns);
        if (differs_off_line(&c, to)) c.off_line = true, prepare_copy(&c, false);
        append(made, &c, is_staged(isa, &c, to));
    }
    finish_plan(made);
    return made;
}
