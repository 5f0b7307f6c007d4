/* _deal: rows that are dealt out to several results, each of which takes a part of every row; and rows that are
 * joined from several sources, each of which supplies a part.
 *
 * As separate copies, each dealt one would go through all rows for its part, and memory is slow to read in
 * pieces; dealt out row by row, the input is read in order. Each joined one would write only its part of every
 * row; but where parts begin off a line, some lines belong to two of them.
 */

static bool are_parts(const Copy *a, const Copy *b)
{
    return a->kind == BLOCKS && b->kind == BLOCKS && a->rank == 1 && b->rank == 1 && min(a->width, b->width) >= LINE &&
           a->loop[0].n == b->loop[0].n;
}

/* Whether `b` takes the part of each row that follows the part `a` takes. */
static bool takes_next_part(const Copy *a, const Copy *b)
{
    return are_parts(a, b) && a->source == b->source && b->from == a->from + a->width &&
           a->loop[0].in == b->loop[0].in;
}

/* Whether `b` supplies the part of each row that follows the part `a` supplies. Parts of a page or more share
 * few lines, and are read and written one source after another. */
static bool gives_next_part(const Copy *a, const Copy *b)
{
    return are_parts(a, b) && max(a->width, b->width) < PAGE && a->target == b->target &&
           b->to == a->to + a->width && a->loop[0].out == b->loop[0].out;
}

static int count_parts(const Copy *c, int most, bool joined)
{
    int count = 1;
    while (count < most && (joined ? gives_next_part : takes_next_part)(c + count - 1, c + count)) count++;
    return count;
}

/* Makes the first of these copies the one that runs the tiles of all of them, each of as many rows. */
static void group_copies(Copy *c, bool joined)
{
    int64_t row = 0, room = 0;
    c->joined = joined;
    for (int p = 0; p < c->together; p++) {
        c[p].part = true;
        shape(c + p, true);
        row += c[p].width, room += c[p].tile[0] * c[p].width;
    }
    int64_t rows = max(room / row, 1);
    if (alternate(c)) rows = min(c->loop[0].n, round_to_lines(max(room_for(c) / row, 1), c->width));
    for (int p = 0; p < c->together; p++) {
        c[p].tile[0] = rows;
        c[p].count = c[p].tiles[0] = (c->loop[0].n + rows - 1) / rows;
        if (p) c[p].count = c[p].windows = 0;
    }
    c->window[0] = alternate(c) ? min(WINDOW / room_for(c), c->count) : 1;
    c->windows = (c->count + c->window[0] - 1) / c->window[0];
}

/* Groups the copies from this one on that run together; at least, it runs alone. */
static void find_together(Copy *c, int most)
{
    for (int joined = 0; joined < 2; joined++) {
        c->together = max(count_alternating(c, most, joined), count_parts(c, most, joined));
        if (c->together == 1) continue;
        group_copies(c, joined);
        return;
    }
}

/* Groups the copies of a plan, and counts its tiles and windows, once all copies are prepared. */
static void finish_plan(Plan *plan)
{
    for (int k = 0; k < plan->count; k += plan->copies[k].together) {
        Copy *c = &plan->copies[k];
        find_together(c, (int)min(plan->count - k, SEAMS));
        plan->staged = plan->staged || is_compound(c) || (c->together > 1 && alternate(c));
        plan->tiles += c->count;
        plan->windows += c->windows;
        plan->max_windows = max(plan->max_windows, c->windows);
    }
}

/* Whether each of them writes whole lines of a target that starts on one: then no line has two parts. */
static bool no_seams(const Plan *plan, const Copy *c, uint8_t *const *pointers)
{
    uintptr_t offset = 0;
    for (int p = 0; p < c->together; p++)
        offset |= (uintptr_t)(pointers[plan->inputs + c[p].target] + c[p].to) % LINE | !c[p].aligned;
    return !offset;
}

/* Runs a tile of each of them. Rows are dealt out one at a time; joined, as many as possible at a time, because
 * memory is faster to read in long pieces of one source. `next` is where the input of the first one continues. */
static void run_together(Worker *worker, const Plan *plan, const Copy *c, const int64_t *at,
                         uint8_t *const *pointers, const uint8_t *next)
{
    const PutBlock block = worker->isa->block;
    if (alternate(c) && worker->stages[0]) {
        run_alternating(worker, plan, c, at[0], pointers);
        return;
    }
    if (alternate(c) || !worker->stream || !block || (c->joined && no_seams(plan, c, pointers))) {
        for (const Copy *part = c; part < c + c->together; part++) {
            const bool is_last = part + 1 == c + c->together;
            run_tile(worker, part, at, pointers[part->source], pointers[plan->inputs + part->target],
                     is_last ? next : input_at(part + 1, at, pointers[part[1].source]));
        }
        return;
    }
    const int64_t end = min(at[0] + c->tile[0], c->loop[0].n);
    const int64_t high = c->joined && c->loop[0].out >= LONG ? min(SEAMS, end - at[0]) : 1;
    const int64_t count = c->joined ? high : c->together;
    Seam seams[SEAMS];
    for (int k = 0; k < count; k++) seams[k] = (Seam){0};
    for (int64_t band = at[0], stop; band < end; band = stop) {
        stop = min(band + high, end);
        for (int p = 0; p < c->together; p++) {
            const bool is_last = p + 1 == c->together;
            const Copy *part = c + p, *other = is_last ? c : part + 1;
            const int64_t beyond = is_last ? 0 : band - stop; /* the next part: in this band; the first: in the next */
            const int64_t ahead = (AHEAD + part->width - 1) / part->width;
            for (int64_t r = band; r < stop; r++) {
                const uint8_t *from = source_at(part, pointers, r), *upcoming = from + AHEAD;
                if (c->joined) {
                    const int64_t row = r + ahead;
                    upcoming = row < stop ? source_at(part, pointers, row) : source_at(other, pointers, row + beyond);
                }
                Seam *seam = &seams[c->joined ? r - band : p];
                block(target_at(plan, part, pointers, r), from, part->width, upcoming, seam);
            }
        }
    }
    for (int k = 0; k < count; k++) close_seam(&seams[k]);
}
