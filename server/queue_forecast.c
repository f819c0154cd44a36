/* queue_forecast.c - when waiting jobs will start, most likely.
 *
 * The first `forecast` waiting jobs are played forward, event by event, by the rules of the pass: at the end of a
 * run, of a window, of a begin time or of a retry's pause those that the limits and the devices allow start in their order,
 * and the first that does not fit is the head, which later ones pass outside its devices or in time. Jobs end by
 * their likely times, runs that are told to leave in this plan after the grace. No further run is preempted, and
 * the order stays as it is. Nothing that waits starts at the moment of the pass itself, or it would not wait.
 *
 * Behind them the rest is told from the work ahead of each; limits do not count there. A forecast is no promise:
 * it knows nothing of jobs that come later.
 */
#include <stdlib.h>

#include "server/queue_inside.h"

/* What holds devices at the moment that is played. */
struct hold {
    int job;
    uint64_t devices;
    int64_t end;
};

struct future {
    struct pass *p; /* its counts are those of the moment */
    int64_t at;     /* the moment */
    struct hold holds[MACHINE_DEVICES];
    int hold_count;
    int64_t *ends; /* owned; of each job of the input by index, 0: not known */
    int *left;     /* owned; jobs that have not started, in their order */
    int left_count;
    int head; /* index of the job that has the reservation; -1: none */
    int64_t head_at;
    uint64_t head_devices;
    int64_t last; /* start */
};

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void hold(struct future *f, int job, uint64_t devices, int64_t end)
{
    f->holds[f->hold_count++] = (struct hold){job, devices, end};
    f->ends[job] = end;
}

/* Runs, and what starts in this plan. The counts have them already. */
static void hold_runs(struct future *f)
{
    const struct queue_input *in = f->p->in;
    const struct queue_plan *plan = f->p->out;
    const int64_t soonest = queue_add(in->now, 1);

    for (int i = 0; i < f->p->run_count; i++) {
        const int run = f->p->runs[i];
        const struct queue_job *j = &in->jobs[run];
        int64_t end = sooner(j->is_stopping ? j->free_at : j->likely_at, QUEUE_FAR);
        for (int k = 0; k < plan->preempt_count; k++) {
            if (plan->preempts[k].run == run) {
                end = sooner(end, queue_add(in->now, in->grace_s));
            }
        }
        hold(f, run, j->held, later(end, soonest));
    }
    for (int i = 0; i < plan->start_count; i++) {
        const int job = plan->starts[i].job;
        const int64_t end = queue_add(in->now, in->jobs[job].likely_s);
        plan->waits[job].expected_at = in->now;
        hold(f, job, plan->starts[i].devices, later(end, soonest));
    }
}

/* Index of a job by its number: jobs are in order of it. */
static int find_job(const struct queue_input *in, int64_t seq)
{
    int low = 0, high = in->job_count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (in->jobs[middle].seq < seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < in->job_count && in->jobs[low].seq == seq ? low : -1;
}

/* When the parent that a job waits for ends; 0: not known. */
static int64_t parent_end(const struct future *f, const struct queue_job *j)
{
    const int parent = find_job(f->p->in, j->parent);

    return parent < 0 ? 0 : f->ends[parent];
}

/* A job that something else blocks may lack devices too. */
static bool has_devices(const struct pass *p, int job)
{
    const enum wait_reason why = p->out->waits[job].why;
    struct queue_wait ignored = {0};

    return why < WAIT_NEVER ? queue_has_devices(p, &p->in->jobs[job], &ignored)
                            : why != WAIT_NEVER && why != WAIT_BUSY;
}

/* What is not free at `at` because of what holds devices at the moment played. */
static uint64_t held_at(const struct future *f, int64_t at)
{
    uint64_t held = 0;

    for (int i = 0; i < f->hold_count; i++) {
        held |= f->holds[i].end > at ? f->holds[i].devices : 0;
    }
    return held;
}

/* The best set for a job at `at`, outside `apart`; 0: none. */
static uint64_t find_set(const struct future *f, const struct queue_job *j, int64_t at,
                         uint64_t apart)
{
    const struct view *v = &f->p->in->view;
    const uint64_t from = v->good & ~v->busy & ~held_at(f, at) & ~apart;

    /* most moments have too few: windows and links need not be looked at */
    return __builtin_popcountll(from) < j->need.devices
               ? 0
               : place_now(v, &j->need, from & ~queue_kept(f->p->in, j, at));
}

/* The first end of a hold or a window after `at`; 0: none. */
static int64_t next_end(const struct future *f, int64_t at)
{
    const struct queue_input *in = f->p->in;
    int64_t next = INT64_MAX;

    for (int i = 0; i < f->hold_count; i++) {
        next = f->holds[i].end > at ? sooner(next, f->holds[i].end) : next;
    }
    for (int i = 0; i < in->window_count; i++) {
        next = in->windows[i].to > at ? sooner(next, in->windows[i].to) : next;
    }
    return next == INT64_MAX ? 0 : next;
}

/* The head keeps its reservation until it starts: what starts behind it leaves that as it is. False when no moment has
 * a set for the job: then it stands in nobody's way. */
static bool reserve(struct future *f, int job)
{
    const struct queue_job *j = &f->p->in->jobs[job];
    uint64_t set = 0;

    if (f->head == job) {
        return true;
    }
    for (int64_t at = next_end(f, f->at); at != 0 && set == 0; at = next_end(f, at)) {
        set = find_set(f, j, at, 0);
        if (set != 0) {
            f->head = job;
            f->head_at = at;
            f->head_devices = set;
        }
    }
    return set != 0;
}

/* Is it held back by what is its own, at the moment played? */
static bool may_go(const struct future *f, const struct queue_job *j)
{
    int64_t ignored = 0;

    if (j->parent != 0) {
        const int64_t end = parent_end(f, j);
        if (end == 0 || end > f->at) {
            return false;
        }
    }
    return j->begin_at <= f->at && j->retry_at <= f->at &&
           queue_over_limit(f->p, j, NULL, &ignored) == WAIT_NOT;
}

/* The set that a job behind the head gets at the moment; 0: it waits on. */
static uint64_t pass_head(const struct future *f, const struct queue_job *j)
{
    int64_t ignored = 0;

    if (queue_over_limit(f->p, j, &f->p->in->jobs[f->head], &ignored) != WAIT_NOT) {
        return 0;
    }
    const uint64_t set = find_set(f, j, f->at, f->head_devices);
    const bool in_time = queue_over(f->p->in, j, f->at) <= f->head_at;
    return set != 0 || !in_time ? set : find_set(f, j, f->at, 0);
}

/* Starts what can start at the moment. */
static void play_moment(struct future *f)
{
    const struct queue_input *in = f->p->in;
    bool has_head = false;
    int kept = 0;

    for (int i = 0; i < f->left_count; i++) {
        const int job = f->left[i];
        const struct queue_job *j = &in->jobs[job];
        uint64_t set = 0;
        if (may_go(f, j)) {
            set = has_head ? pass_head(f, j) : find_set(f, j, f->at, 0);
            has_head = has_head || (set == 0 && reserve(f, job));
        }
        if (set == 0) {
            f->left[kept++] = job;
            continue;
        }
        f->p->out->waits[job].expected_at = f->last = f->at;
        queue_count(f->p, j, 1, set);
        hold(f, job, set, queue_add(f->at, later(j->likely_s, 1)));
    }
    f->left_count = kept;
}

/* Goes to the next moment at which something changes. False when nothing will. */
static bool go_on(struct future *f)
{
    const struct queue_input *in = f->p->in;
    int64_t next = next_end(f, f->at);
    int kept = 0;

    next = next == 0 ? INT64_MAX : next;
    for (int i = 0; i < f->left_count; i++) {
        const struct queue_job *j = &in->jobs[f->left[i]];
        next = j->begin_at > f->at ? sooner(next, j->begin_at) : next;
        next = j->retry_at > f->at ? sooner(next, j->retry_at) : next;
    }
    if (next >= QUEUE_FAR) {
        return false;
    }
    f->at = next;
    for (int i = 0; i < f->hold_count; i++) {
        const struct hold *h = &f->holds[i];
        if (h->end <= f->at) {
            queue_count(f->p, &in->jobs[h->job], -1, h->devices);
        } else {
            f->holds[kept++] = *h;
        }
    }
    f->hold_count = kept;
    return true;
}

/* The rest: as if the work before a job were spread over all good devices. */
static void extrapolate(struct future *f, int from)
{
    const struct queue_input *in = f->p->in;
    const int devices = __builtin_popcountll(in->view.good & ~in->view.busy);
    double ahead = 0.0;

    for (int i = from; i < f->p->out->waiting; i++) {
        const int job = f->p->out->order[i];
        const struct queue_job *j = &in->jobs[job];
        struct queue_wait *w = &f->p->out->waits[job];
        const int64_t parent = j->parent != 0 ? parent_end(f, j) : 0;
        if (w->why == WAIT_NOT || !has_devices(f->p, job) || (j->parent != 0 && parent == 0)) {
            continue;
        }
        const double wait = ahead / devices;
        const int64_t own = later(parent, later(j->begin_at, j->retry_at));
        const int64_t turn = queue_add(f->last, wait < 1e15 ? (int64_t)wait : QUEUE_FAR);
        w->expected_at = sooner(later(own, turn), QUEUE_FAR);
        f->ends[job] = queue_add(w->expected_at, later(j->likely_s, 1));
        ahead += (double)j->need.devices * (double)later(j->likely_s, 1);
    }
}

int queue_forecast(struct pass *p, struct err *err)
{
    const struct queue_plan *plan = p->out;
    struct future f = {.p = p, .at = p->in->now, .head = -1, .last = queue_add(p->in->now, 1)};
    int i = 0;

    f.ends = calloc((size_t)p->in->job_count + 1, sizeof *f.ends);
    f.left = calloc((size_t)p->in->job_count + 1, sizeof *f.left);
    if (f.ends == NULL || f.left == NULL) {
        free(f.ends);
        free(f.left);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a forecast of %d jobs", p->in->job_count);
    }
    hold_runs(&f);
    for (int played = 0; i < plan->waiting && played < p->in->forecast; i++) {
        const int job = plan->order[i];
        if (plan->waits[job].why != WAIT_NOT) {
            played++;
            if (has_devices(p, job)) {
                f.left[f.left_count++] = job;
            }
        }
    }
    while (f.left_count > 0 && go_on(&f)) {
        play_moment(&f);
    }
    extrapolate(&f, i);
    free(f.ends);
    free(f.left);
    return 0;
}
