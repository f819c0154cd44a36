/* queue_state.c - what a pass knows of the moment: runs and what they hold, windows, limits, what blocks a job. */
#include "kernels/check.h"
#include "server/queue_inside.h"

void queue_count(struct pass *p, const struct queue_job *j, int jobs, uint64_t devices)
{
    p->user_running[j->user] += jobs;
    p->user_devices[j->user] += jobs * __builtin_popcountll(devices);
    if (j->array >= 0) {
        p->array_running[j->array] += jobs;
    }
}

void queue_count_runs(struct pass *p)
{
    for (int i = 0; i < p->in->job_count; i++) {
        const struct queue_job *j = &p->in->jobs[i];
        CHECK(j->user >= 0 && j->user < p->in->user_count && j->array < p->in->array_count &&
                  j->need.devices >= 1,
              "job %lld", (long long)j->seq);
        p->out->waits[i].device = -1;
        if (j->held != 0) {
            CHECK((p->held & j->held) == 0, "job %lld holds what another holds", (long long)j->seq);
            p->runs[p->run_count++] = i;
            p->held |= j->held;
            queue_count(p, j, 1, j->held);
        }
    }
}

int64_t queue_over(const struct queue_input *in, const struct queue_job *j, int64_t from)
{
    return queue_add(queue_add(from, j->limit_s), in->grace_s);
}

uint64_t queue_kept(const struct queue_input *in, const struct queue_job *j, int64_t from)
{
    const int64_t over = queue_over(in, j, from);
    uint64_t kept = 0;

    for (int i = 0; i < in->window_count; i++) {
        const struct queue_window *w = &in->windows[i];
        if (w->user != j->user && w->from < over && w->to > from) {
            kept |= w->devices;
        }
    }
    return kept;
}

uint64_t queue_kept_soon(const struct queue_input *in, const struct queue_job *j)
{
    return queue_kept(in, j, in->now) | queue_kept(in, j, queue_add(in->now, in->grace_s));
}

uint64_t queue_free_at(const struct pass *p, int64_t at)
{
    uint64_t held = 0;

    for (int i = 0; i < p->run_count; i++) {
        const struct queue_job *j = &p->in->jobs[p->runs[i]];
        if (at <= p->in->now || j->free_at > at) {
            held |= j->held;
        }
    }
    for (int i = 0; i < p->out->start_count; i++) {
        const struct queue_start *s = &p->out->starts[i];
        if (at <= p->in->now || queue_over(p->in, &p->in->jobs[s->job], p->in->now) > at) {
            held |= s->devices;
        }
    }
    return p->in->view.good & ~held;
}

enum wait_reason queue_over_limit(const struct pass *p, const struct queue_job *j,
                                  const struct queue_job *first, int64_t *number)
{
    const struct queue_user *u = &p->in->users[j->user];
    const bool same_user = first != NULL && j->user == first->user;
    const bool same_array = first != NULL && j->array >= 0 && j->array == first->array;
    const int64_t devices = (int64_t)j->need.devices + (same_user ? first->need.devices : 0);

    if (u->max_running > 0 && p->user_running[j->user] + same_user + 1 > u->max_running) {
        *number = u->max_running;
        return WAIT_USER_JOBS;
    }
    if (u->max_devices > 0 && p->user_devices[j->user] + devices > u->max_devices) {
        *number = u->max_devices;
        return WAIT_USER_DEVICES;
    }
    if (j->array >= 0 && p->in->arrays[j->array].max_running > 0 &&
        p->array_running[j->array] + same_array + 1 > p->in->arrays[j->array].max_running) {
        *number = p->in->arrays[j->array].max_running;
        return WAIT_ARRAY;
    }
    return WAIT_NOT;
}

bool queue_is_blocked(const struct pass *p, const struct queue_job *j, struct queue_wait *w)
{
    if (j->parent != 0) {
        w->why = WAIT_DEPENDENCY;
        w->other = j->parent;
    } else if (j->begin_at > p->in->now) {
        w->why = WAIT_BEGIN;
        w->at = j->begin_at;
    } else if (j->retry_at > p->in->now) {
        w->why = WAIT_RETRY;
        w->at = j->retry_at;
    } else {
        w->why = queue_over_limit(p, j, NULL, &w->number);
    }
    return w->why != WAIT_NOT;
}

/* Devices of one kind that are large enough, and those of them where others leave enough memory. */
bool queue_has_devices(const struct pass *p, const struct queue_job *j, struct queue_wait *w)
{
    const struct view *v = &p->in->view;
    int all[2] = {0}, calm[2] = {0}, busy[2] = {-1, -1};

    for (uint64_t left = v->good; left != 0; left &= left - 1) {
        const int i = __builtin_ctzll(left), kind = v->machine->devices[i].kind == DEVICE_GPU;
        const bool is_busy = (v->busy >> i & 1U) != 0 || v->room[i] < j->need.bytes;
        if (v->capacity[i] >= j->need.bytes) {
            all[kind]++;
            calm[kind] += !is_busy;
            busy[kind] = is_busy && busy[kind] < 0 ? i : busy[kind];
        }
    }
    const int most = all[1] > all[0] ? 1 : 0;
    if (all[most] < j->need.devices) {
        w->why = WAIT_NEVER;
        w->number = all[most];
        return false;
    }
    if (calm[0] < j->need.devices && calm[1] < j->need.devices) {
        w->why = WAIT_BUSY;
        w->device = busy[most];
        return false;
    }
    return true;
}
