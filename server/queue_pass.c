/* queue_pass.c - who starts now, whom the head waits for, who may pass it. */
#include <stdlib.h>

#include "kernels/check.h"
#include "server/queue_inside.h"

enum { PREEMPT_TRIES = 64 };

/* The head's reservation. */
struct head {
    int job; /* -1: none */
    int64_t at;
    uint64_t devices;
};

static void start(struct pass *p, int job, uint64_t devices)
{
    const struct queue_job *j = &p->in->jobs[job];

    p->out->starts[p->out->start_count++] = (struct queue_start){job, devices};
    p->held |= devices;
    queue_count(p, j, 1, devices);
}

static int by_time(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return a < b ? -1 : a > b;
}

/* Moments at which devices become free: ends of runs and of windows. Returns how many. */
static int list_moments(const struct pass *p, int64_t *out)
{
    const struct queue_input *in = p->in;
    int n = 0;

    out[n++] = in->now;
    for (int i = 0; i < p->run_count; i++) {
        if (in->jobs[p->runs[i]].free_at > in->now) {
            out[n++] = in->jobs[p->runs[i]].free_at;
        }
    }
    for (int i = 0; i < p->out->start_count; i++) {
        out[n++] = queue_over(in, &in->jobs[p->out->starts[i].job], in->now);
    }
    for (int i = 0; i < in->window_count; i++) {
        if (in->windows[i].to > in->now) {
            out[n++] = in->windows[i].to;
        }
    }
    qsort(out, (size_t)n, sizeof *out, by_time);
    return n;
}

/* R and S of a job. False when no moment has a set. Errors in *rc. */
static bool reserve(const struct pass *p, int job, struct head *h, int *rc, struct err *err)
{
    const struct queue_job *j = &p->in->jobs[job];
    const size_t most = 2 + (size_t)MACHINE_DEVICES + (size_t)p->in->window_count;
    int64_t *moments = calloc(most + (size_t)MACHINE_DEVICES, sizeof *moments);

    *h = (struct head){.job = -1};
    if (moments == NULL) {
        *rc = FAIL(err, ERR_NO_MEMORY, "no memory for a plan of the queue");
        return false;
    }
    const int n = list_moments(p, moments);
    for (int i = 0; i < n && h->job < 0; i++) {
        const uint64_t from =
            queue_free_at(p, moments[i]) & ~p->claimed & ~queue_kept(p->in, j, moments[i]);
        const uint64_t set = place_now(&p->in->view, &j->need, from);
        if (set != 0) {
            *h = (struct head){job, moments[i], set};
        }
    }
    free(moments);
    return h->job >= 0;
}

/* Of the runs that hold some of the devices the one that leaves last; 0: none. */
static int64_t last_holder(const struct pass *p, uint64_t devices, bool stopping, int64_t *at)
{
    int64_t seq = 0;

    *at = 0;
    for (int i = 0; i < p->run_count; i++) {
        const struct queue_job *j = &p->in->jobs[p->runs[i]];
        bool told = j->is_stopping;
        for (int k = 0; k < p->out->preempt_count; k++) {
            told = told || p->out->preempts[k].run == p->runs[i];
        }
        if ((j->held & devices) != 0 && (!stopping || told) && j->free_at >= *at) {
            *at = j->free_at;
            seq = j->seq;
        }
    }
    return seq;
}

/* Devices of runs that leave already, or were told to in this plan. */
static uint64_t leaving(const struct pass *p)
{
    uint64_t set = 0;

    for (int i = 0; i < p->run_count; i++) {
        const struct queue_job *j = &p->in->jobs[p->runs[i]];
        set |= j->is_stopping ? j->held : 0;
    }
    for (int i = 0; i < p->out->preempt_count; i++) {
        set |= p->in->jobs[p->out->preempts[i].run].held;
    }
    return set;
}

/* Devices that a job may be given as soon as who leaves has left. */
static uint64_t soon_free(const struct pass *p, const struct queue_job *j)
{
    const uint64_t now_free = queue_free_at(p, p->in->now);

    return (now_free | (leaving(p) & p->in->view.good)) & ~p->claimed & ~queue_kept_soon(p->in, j);
}

/* Make room for a job by preemption, unless what leaves already is enough. Returns the set that it will get. */
static uint64_t make_room(struct pass *p, int job)
{
    const struct queue_job *j = &p->in->jobs[job];
    const uint64_t soon = soon_free(p, j), enough = place_now(&p->in->view, &j->need, soon);

    if (enough != 0) {
        return (enough & leaving(p)) != 0 ? enough : 0;
    }
    if (!p->in->preempts || j->class == CLASS_IDLE || p->preempt_tries >= PREEMPT_TRIES) {
        return 0;
    }
    p->preempt_tries++;
    return queue_preempt(p, job, soon);
}

/* May a job pass the head when its owner or array is the head's? */
static bool leaves_room(const struct pass *p, const struct queue_job *j, const struct head *h)
{
    int64_t ignored = 0;

    return queue_over_limit(p, j, &p->in->jobs[h->job], &ignored) == WAIT_NOT;
}

/* Where a job behind the head may start now: outside its set, or anywhere when it is over in time. */
static uint64_t pass_head(const struct pass *p, const struct queue_job *j, const struct head *h)
{
    const uint64_t from =
        queue_free_at(p, p->in->now) & ~p->claimed & ~queue_kept(p->in, j, p->in->now);
    const bool in_time = queue_over(p->in, j, p->in->now) <= h->at;
    uint64_t set = 0;

    if (!leaves_room(p, j, h)) {
        return 0;
    }
    set = place_now(&p->in->view, &j->need, from & ~h->devices);
    /* the head's devices may be lent until R, but not those that are freed for it */
    return set != 0 || !in_time ? set : place_now(&p->in->view, &j->need, from);
}

/* Why a job that is not the head does not start: a window, or those before it. */
static void explain(const struct pass *p, int job, const struct head *h, struct queue_wait *w)
{
    const struct queue_job *j = &p->in->jobs[job];
    const uint64_t now_free = queue_free_at(p, p->in->now) & ~p->claimed;
    const uint64_t kept = queue_kept(p->in, j, p->in->now);

    if ((now_free & kept) != 0 && place_now(&p->in->view, &j->need, now_free) != 0 &&
        place_now(&p->in->view, &j->need, now_free & ~kept) == 0) {
        w->why = WAIT_WINDOW;
        for (int i = 0; i < p->in->window_count; i++) {
            const struct queue_window *window = &p->in->windows[i];
            if ((window->devices & kept) != 0 && window->user != j->user) {
                w->at = window->to > w->at ? window->to : w->at;
            }
        }
    } else {
        w->why = WAIT_AHEAD;
        w->other = h->job >= 0 ? p->in->jobs[h->job].seq : 0;
        w->number = w->position - 1;
    }
}

/* When runs that leave, or are told to now, have left the devices at the latest. */
static int64_t left_at(const struct pass *p, uint64_t devices)
{
    const int64_t told = queue_add(p->in->now, p->in->grace_s);
    int64_t at = p->in->now;

    for (int i = 0; i < p->run_count; i++) {
        const struct queue_job *j = &p->in->jobs[p->runs[i]];
        if ((j->held & devices) != 0) {
            const int64_t one = j->is_stopping || j->free_at < told ? j->free_at : told;
            at = one > at ? one : at;
        }
    }
    return at;
}

/* Runs are told to leave for the head only when it starts earlier so. */
static uint64_t free_for_head(struct pass *p, int job, const struct head *h)
{
    const struct queue_job *j = &p->in->jobs[job];
    const bool is_soon = h->job >= 0 && h->at <= queue_add(p->in->now, p->in->grace_s);

    if (!p->in->preempts || is_soon || place_now(&p->in->view, &j->need, soon_free(p, j)) != 0) {
        return 0;
    }
    p->preempt_tries++;
    return queue_preempt(p, job, soon_free(p, j));
}

/* The first that does not fit. */
static int become_head(struct pass *p, int job, struct head *h, struct queue_wait *w,
                       struct err *err)
{
    int rc = 0;

    const bool has_time = reserve(p, job, h, &rc, err);
    const uint64_t freed = rc == 0 ? free_for_head(p, job, h) : 0;
    if (freed != 0) {
        *h = (struct head){job, left_at(p, freed), freed};
    } else if (!has_time) {
        explain(p, job, h, w);
        return rc;
    }
    w->why = WAIT_FREEING;
    w->other = last_holder(p, h->devices, true, &w->at);
    if (w->other != 0) {
        p->claimed |= h->devices;
        return 0;
    }
    w->why = WAIT_HEAD;
    w->other = last_holder(p, h->devices, false, &w->at);
    if (w->other == 0) { /* nobody holds them: a window does */
        explain(p, job, h, w);
    }
    w->at = w->why == WAIT_HEAD ? h->at : w->at;
    return 0;
}

/* Behind the head. */
static void look_behind(struct pass *p, int job, const struct head *h, struct queue_wait *w)
{
    const uint64_t set = pass_head(p, &p->in->jobs[job], h);

    if (set != 0) {
        start(p, job, set);
        w->why = WAIT_NOT;
        return;
    }
    if (leaves_room(p, &p->in->jobs[job], h)) {
        const uint64_t claimed = p->claimed;
        p->claimed |= h->devices;
        const uint64_t soon = make_room(p, job);
        p->claimed = claimed | soon;
        if (soon != 0) {
            w->why = WAIT_FREEING;
            w->other = last_holder(p, soon, true, &w->at);
            return;
        }
    }
    explain(p, job, h, w);
}

static int look_at(struct pass *p, int job, struct head *h, struct queue_wait *w, struct err *err)
{
    const struct queue_job *j = &p->in->jobs[job];

    if (queue_is_blocked(p, j, w) || !queue_has_devices(p, j, w)) {
        return 0;
    }
    if (h->job >= 0) {
        look_behind(p, job, h, w);
        return 0;
    }
    const uint64_t from = queue_free_at(p, p->in->now) & ~queue_kept(p->in, j, p->in->now);
    const uint64_t set = place_now(&p->in->view, &j->need, from);
    if (set != 0) {
        start(p, job, set);
        w->why = WAIT_NOT;
        return 0;
    }
    return become_head(p, job, h, w, err);
}

static bool take_memory(struct pass *p, struct queue_plan *out, const struct queue_input *in)
{
    const size_t jobs = (size_t)in->job_count + 1;

    out->starts = calloc(jobs, sizeof *out->starts);
    out->preempts = calloc(jobs, sizeof *out->preempts);
    out->waits = calloc(jobs, sizeof *out->waits);
    out->order = calloc(jobs, sizeof *out->order);
    p->user_running = calloc((size_t)in->user_count + 1, sizeof *p->user_running);
    p->user_devices = calloc((size_t)in->user_count + 1, sizeof *p->user_devices);
    p->array_running = calloc((size_t)in->array_count + 1, sizeof *p->array_running);
    return out->starts != NULL && out->preempts != NULL && out->waits != NULL &&
           out->order != NULL && p->user_running != NULL && p->user_devices != NULL &&
           p->array_running != NULL;
}

/* No device is free, none is left that could be preempted: whoever is eligible waits. */
static bool is_hopeless(const struct pass *p, const struct head *h)
{
    return h->job >= 0 && (queue_free_at(p, p->in->now) & ~p->claimed) == 0 &&
           (!p->in->preempts || p->preempt_tries >= PREEMPT_TRIES);
}

int queue_pass(struct queue_plan *out, const struct queue_input *in, struct err *err)
{
    struct pass p = {.in = in, .out = out};
    struct head head = {.job = -1};
    int rc = 0;

    *out = (struct queue_plan){.head = -1};
    if (!take_memory(&p, out, in)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a queue of %d jobs", in->job_count);
    }
    if (rc == 0) {
        queue_count_runs(&p);
        rc = queue_order(out, in, err);
    }
    bool hopeless = false;
    for (int i = 0; i < out->waiting && rc == 0; i++) {
        struct queue_wait *w = &out->waits[out->order[i]];
        w->position = i + 1;
        hopeless = hopeless || is_hopeless(&p, &head);
        if (!hopeless) {
            rc = look_at(&p, out->order[i], &head, w, err);
        } else if (!queue_is_blocked(&p, &in->jobs[out->order[i]], w) &&
                   queue_has_devices(&p, &in->jobs[out->order[i]], w)) {
            w->why = WAIT_AHEAD;
            w->number = i;
            w->other = in->jobs[head.job].seq;
        }
    }
    out->head = head.job;
    out->head_at = head.at;
    out->head_devices = head.devices;
    rc = rc != 0 ? rc : queue_forecast(&p, err);
    free(p.user_running);
    free(p.user_devices);
    free(p.array_running);
    return rc;
}

void queue_plan_free(struct queue_plan *p)
{
    free(p->starts);
    free(p->preempts);
    free(p->waits);
    free(p->order);
    *p = (struct queue_plan){.head = -1};
}
