/* queue_forecast.c - when waiting jobs will start, most likely.
 *
 * The queue is played forward in its order: each job takes the first moment at which enough devices are free, as runs
 * and jobs end by their likely times. Behind the first `forecast` jobs the rest is told from the rate at which
 * these leave the queue. A forecast is no promise: it knows nothing of jobs that come later.
 */
#include <stdlib.h>

#include "server/queue_inside.h"

enum { HOLDS = 8 };

struct future {
    struct pass *p;
    int64_t free_at[MACHINE_DEVICES]; /* when each device is free */
    int64_t *parent_end;              /* owned; of each job of the input by index, 0: not known */
    int64_t *user_at;                 /* owned; when a user at a limit may start the next        */
    double device_s;                  /* of the jobs that were played                            */
    int64_t first, last;              /* starts                                                  */
};

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Runs, and what starts in this plan. */
static void place_runs(struct future *f)
{
    const struct queue_input *in = f->p->in;

    for (int i = 0; i < MACHINE_DEVICES; i++) {
        f->free_at[i] = in->now;
    }
    for (int i = 0; i < f->p->run_count; i++) {
        const struct queue_job *j = &in->jobs[f->p->runs[i]];
        const int64_t end = later(j->is_stopping ? j->free_at : j->likely_at, in->now);
        f->parent_end[f->p->runs[i]] = end;
        for (uint64_t left = j->held; left != 0; left &= left - 1) {
            f->free_at[__builtin_ctzll(left)] = end;
        }
    }
    for (int i = 0; i < f->p->out->start_count; i++) {
        const struct queue_start *s = &f->p->out->starts[i];
        const int64_t end = queue_add(in->now, in->jobs[s->job].likely_s);
        f->parent_end[s->job] = end;
        f->p->out->waits[s->job].expected_at = in->now;
        for (uint64_t left = s->devices; left != 0; left &= left - 1) {
            f->free_at[__builtin_ctzll(left)] = end;
        }
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

/* The earliest moment that the job itself allows; 0: not known. */
static int64_t earliest(const struct future *f, const struct queue_job *j,
                        const struct queue_wait *w)
{
    const struct queue_input *in = f->p->in;
    int64_t at = later(in->now, later(j->begin_at, j->retry_at));

    if (w->why == WAIT_NEVER || w->why == WAIT_BUSY) {
        return 0;
    }
    if (j->parent != 0) {
        const int parent = find_job(in, j->parent);
        if (parent < 0 || f->parent_end[parent] == 0) {
            return 0;
        }
        at = later(at, f->parent_end[parent]);
    }
    if (w->why == WAIT_USER_JOBS || w->why == WAIT_USER_DEVICES || w->why == WAIT_ARRAY) {
        int64_t first = 0;
        for (int i = 0; i < f->p->run_count; i++) {
            const struct queue_job *run = &in->jobs[f->p->runs[i]];
            const bool counts =
                w->why == WAIT_ARRAY ? run->array == j->array : run->user == j->user;
            const int64_t end = f->parent_end[f->p->runs[i]];
            first = counts && (first == 0 || end < first) ? end : first;
        }
        at = later(at, later(first, f->user_at[j->user]));
    }
    return at;
}

/* The first moment from `at` on at which a set is free; sets *devices. */
static int64_t find_moment(const struct future *f, const struct queue_job *j, int64_t at,
                           uint64_t *devices)
{
    const struct queue_input *in = f->p->in;

    for (int tries = 0; tries <= 2 * (MACHINE_DEVICES + HOLDS); tries++) {
        uint64_t from = 0;
        int64_t next = INT64_MAX;
        for (int i = 0; i < in->view.machine->device_count; i++) {
            if (f->free_at[i] <= at) {
                from |= UINT64_C(1) << i;
            } else if (f->free_at[i] < next) {
                next = f->free_at[i];
            }
        }
        *devices = place_now(&in->view, &j->need, from & ~queue_kept(in, j, at));
        if (*devices != 0) {
            return at;
        }
        for (int i = 0; i < in->window_count; i++) {
            const int64_t to = in->windows[i].to;
            next = to > at && to < next ? to : next;
        }
        if (next == INT64_MAX) {
            return 0;
        }
        at = next;
    }
    return 0;
}

static void play(struct future *f, int job)
{
    const struct queue_job *j = &f->p->in->jobs[job];
    struct queue_wait *w = &f->p->out->waits[job];
    uint64_t devices = 0;

    const int64_t from = earliest(f, j, w);
    const int64_t at = from == 0 ? 0 : find_moment(f, j, from, &devices);
    w->expected_at = at;
    if (at == 0) {
        return;
    }
    const int64_t end = queue_add(at, j->likely_s);
    f->parent_end[job] = end;
    if (w->why == WAIT_USER_JOBS || w->why == WAIT_USER_DEVICES || w->why == WAIT_ARRAY) {
        f->user_at[j->user] = end;
    }
    for (uint64_t left = devices; left != 0; left &= left - 1) {
        f->free_at[__builtin_ctzll(left)] = end;
    }
    f->device_s += (double)j->need.devices * (double)j->likely_s;
    f->last = later(f->last, at);
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
        if (w->why == WAIT_NOT || w->why == WAIT_NEVER || w->why == WAIT_BUSY || devices == 0 ||
            (j->parent != 0 && w->why == WAIT_DEPENDENCY)) {
            continue;
        }
        const double wait = ahead / devices;
        const int64_t own = later(j->begin_at, j->retry_at);
        w->expected_at =
            later(own, queue_add(f->last, wait < 1e15 ? (int64_t)wait : INT64_MAX / 8));
        ahead += (double)j->need.devices * (double)j->likely_s;
    }
}

int queue_forecast(struct pass *p, struct err *err)
{
    struct future f = {.p = p, .first = p->in->now, .last = p->in->now};
    int i = 0, played = 0;

    f.parent_end = calloc((size_t)p->in->job_count + 1, sizeof *f.parent_end);
    f.user_at = calloc((size_t)p->in->user_count + 1, sizeof *f.user_at);
    if (f.parent_end == NULL || f.user_at == NULL) {
        free(f.parent_end);
        free(f.user_at);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a forecast of %d jobs", p->in->job_count);
    }
    place_runs(&f);
    for (; i < p->out->waiting && played < p->in->forecast; i++) {
        if (p->out->waits[p->out->order[i]].why != WAIT_NOT) {
            play(&f, p->out->order[i]);
            played++;
        }
    }
    extrapolate(&f, i);
    free(f.parent_end);
    free(f.user_at);
    return 0;
}
