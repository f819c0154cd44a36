/* queue_preempt.c - the fewest runs that have to leave.
 *
 * Sets of one run, of two, and so on are tried in an order that puts the cheapest first, so that the first set
 * that suffices is the answer. Where there are too many sets of a size, runs are added from the cheapest
 * on until it suffices, and then taken out again one by one, the dearest first, as long as it still does.
 */
#include <stdlib.h>
#include <string.h>

#include "server/queue_inside.h"

enum { SETS_MAX = 20000 };

/* Runs that may be told to leave, the cheapest first. */
struct victims {
    const struct pass *p;
    const struct need *need;
    uint64_t soon; /* devices that are free or will be anyway */
    int count;
    int run[MACHINE_DEVICES];
};

/* What a set of victims costs: worse classes are cheaper, then fewer devices, then later starts. */
struct cost {
    int64_t classes, devices, lost_s;
};

static struct cost cost_of(const struct queue_input *in, int run)
{
    const struct queue_job *j = &in->jobs[run];

    return (struct cost){(int64_t)CLASS_COUNT - (int64_t)j->class, __builtin_popcountll(j->held),
                         queue_ran_s(in, j)};
}

static int compare_costs(const struct cost *a, const struct cost *b)
{
    if (a->classes != b->classes) {
        return a->classes < b->classes ? -1 : 1;
    }
    if (a->devices != b->devices) {
        return a->devices < b->devices ? -1 : 1;
    }
    return a->lost_s < b->lost_s ? -1 : a->lost_s > b->lost_s;
}

/* Insertion: there are few, and equal ones stay in the order of their numbers. */
static void add_victim(struct victims *v, int run)
{
    const struct cost cost = cost_of(v->p->in, run);
    int at = v->count++;

    while (at > 0) {
        const struct cost before = cost_of(v->p->in, v->run[at - 1]);
        if (compare_costs(&before, &cost) <= 0) {
            break;
        }
        v->run[at] = v->run[at - 1];
        at--;
    }
    v->run[at] = run;
}

static bool is_told(const struct pass *p, int run)
{
    for (int i = 0; i < p->out->preempt_count; i++) {
        if (p->out->preempts[i].run == run) {
            return true;
        }
    }
    return false;
}

/* What a job may take in the end: not claimed by one before it, not kept by a window. */
static void find_victims(struct victims *v, const struct pass *p, int job)
{
    const struct queue_input *in = p->in;
    const uint64_t open = in->view.good & ~p->claimed & ~queue_kept_soon(in, &in->jobs[job]);

    for (int i = 0; i < p->run_count; i++) {
        const struct queue_job *j = &in->jobs[p->runs[i]];
        if (j->class > in->jobs[job].class && j->preemptible && !j->is_stopping &&
            !is_told(p, p->runs[i]) && queue_ran_s(in, j) >= in->min_run_s &&
            j->preemptions < in->max_preemptions && (j->held & open) != 0) {
            add_victim(v, p->runs[i]);
        }
    }
}

static uint64_t held_by(const struct victims *v, const int *chosen, int n)
{
    const struct queue_input *in = v->p->in;
    uint64_t set = 0;

    for (int i = 0; i < n; i++) {
        set |= in->jobs[v->run[chosen[i]]].held;
    }
    return set & ~v->p->claimed;
}

static uint64_t suffices(const struct victims *v, const int *chosen, int n, uint64_t kept)
{
    const uint64_t from = v->soon | (held_by(v, chosen, n) & ~kept);

    return place_now(&v->p->in->view, v->need, from & v->p->in->view.good);
}

static bool are_few(int n, int size)
{
    double sets = 1.0;

    for (int i = 0; i < size; i++) {
        sets = sets * (n - i) / (i + 1);
    }
    return sets <= SETS_MAX;
}

static struct cost sum_costs(const struct victims *v, const int *chosen, int n)
{
    struct cost sum = {0};

    for (int i = 0; i < n; i++) {
        const struct cost one = cost_of(v->p->in, v->run[chosen[i]]);
        sum.classes += one.classes;
        sum.devices += one.devices;
        sum.lost_s = queue_add(sum.lost_s, one.lost_s);
    }
    return sum;
}

/* The next choice of `n` out of v->count, in the order of the numbers. */
static bool next_choice(const struct victims *v, int *at, int n)
{
    int i = n - 1;

    while (i >= 0 && at[i] == v->count - n + i) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    at[i]++;
    for (int k = i + 1; k < n; k++) {
        at[k] = at[k - 1] + 1;
    }
    return true;
}

/* The cheapest of all sets of `n` runs that suffice; 0: none does. */
static uint64_t search_size(const struct victims *v, int n, uint64_t kept, int *chosen)
{
    int at[MACHINE_DEVICES];
    struct cost best = {0};
    uint64_t found = 0;

    for (int i = 0; i < n; i++) {
        at[i] = i;
    }
    do {
        const uint64_t set = suffices(v, at, n, kept);
        const struct cost cost = sum_costs(v, at, n);
        if (set != 0 && (found == 0 || compare_costs(&cost, &best) < 0)) {
            found = set;
            best = cost;
            memcpy(chosen, at, (size_t)n * sizeof *at);
        }
    } while (next_choice(v, at, n));
    return found;
}

static uint64_t add_and_prune(const struct victims *v, uint64_t kept, int *chosen, int *n)
{
    for (*n = 0; *n < v->count && suffices(v, chosen, *n, kept) == 0; (*n)++) {
        chosen[*n] = *n;
    }
    for (int i = *n - 1; i >= 0; i--) {
        int fewer[MACHINE_DEVICES];
        memcpy(fewer, chosen, (size_t)*n * sizeof *fewer);
        memmove(fewer + i, fewer + i + 1, (size_t)(*n - i - 1) * sizeof *fewer);
        if (suffices(v, fewer, *n - 1, kept) != 0) {
            memcpy(chosen, fewer, (size_t)(*n - 1) * sizeof *fewer);
            (*n)--;
        }
    }
    return suffices(v, chosen, *n, kept);
}

uint64_t queue_preempt(struct pass *p, int job, uint64_t candidates)
{
    struct victims v = {.p = p, .need = &p->in->jobs[job].need, .soon = candidates};
    const uint64_t kept = queue_kept_soon(p->in, &p->in->jobs[job]);
    int all[MACHINE_DEVICES], chosen[MACHINE_DEVICES] = {0}, n = 0;
    uint64_t set = 0;

    find_victims(&v, p, job);
    for (int i = 0; i < v.count; i++) {
        all[i] = i;
    }
    if (v.count == 0 || suffices(&v, all, v.count, kept) == 0) {
        return 0;
    }
    for (n = 1; n <= v.count && set == 0 && are_few(v.count, n); n++) {
        set = search_size(&v, n, kept, chosen);
    }
    n--;
    if (set == 0) {
        set = add_and_prune(&v, kept, chosen, &n);
    }
    for (int i = 0; i < n; i++) {
        p->out->preempts[p->out->preempt_count++] = (struct queue_leave){v.run[chosen[i]], job};
    }
    /* of equal sets the one that uses what the victims give */
    return set;
}
