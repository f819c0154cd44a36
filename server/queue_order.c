/* queue_order.c - tickets, fair share, the order of waiting jobs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/queue_inside.h"

static const int64_t FAR = QUEUE_FAR;
static const double HALF_LIFE_S = 7.0 * 86400.0, PENALTY_MAX = 1e12;

int64_t queue_add(int64_t a, int64_t b)
{
    a = a > FAR ? FAR : a < -FAR ? -FAR : a;
    b = b > FAR ? FAR : b < -FAR ? -FAR : b;
    return a + b > FAR ? FAR : a + b;
}

int64_t queue_ran_s(const struct queue_input *in, const struct queue_job *j)
{
    const int64_t since = j->started_at < -FAR ? -FAR : j->started_at;

    return since < in->now ? in->now - since : 0;
}

double queue_decay(double usage_s, int64_t then, int64_t now)
{
    return now <= then ? usage_s : usage_s * exp2(-(double)(now - then) / HALF_LIFE_S);
}

/* A waiting job in an order of its own. */
struct place_in_line {
    int job, class, user;
    int64_t line, ticket, seq, key;
};

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_line(const void *x, const void *y)
{
    const struct place_in_line *a = x, *b = y;
    int c = compare(a->class, b->class);

    c = c != 0 ? c : compare(a->user, b->user);
    c = c != 0 ? c : compare(a->line, b->line);
    return c != 0 ? c : compare(a->seq, b->seq);
}

static int by_ticket(const void *x, const void *y)
{
    const struct place_in_line *a = x, *b = y;
    int c = compare(a->class, b->class);

    c = c != 0 ? c : compare(a->user, b->user);
    c = c != 0 ? c : compare(a->ticket, b->ticket);
    return c != 0 ? c : compare(a->seq, b->seq);
}

static int by_key(const void *x, const void *y)
{
    const struct place_in_line *a = x, *b = y;
    int c = compare(a->class, b->class);

    c = c != 0 ? c : compare(a->key, b->key);
    c = c != 0 ? c : compare(a->ticket, b->ticket);
    return c != 0 ? c : compare(a->seq, b->seq);
}

static int64_t penalty_s(const struct queue_input *in, int user)
{
    const int devices = in->view.machine->device_count;
    const double usage = in->users[user].usage_s / (devices > 0 ? devices : 1);

    return usage > 0.0 ? (int64_t)fmin(usage, PENALTY_MAX) : 0;
}

/* The k-th of a user's jobs by line takes the k-th of their tickets. */
static void hand_out_tickets(struct place_in_line *jobs, struct place_in_line *tickets, size_t n)
{
    memcpy(tickets, jobs, n * sizeof *jobs);
    qsort(jobs, n, sizeof *jobs, by_line);
    qsort(tickets, n, sizeof *tickets, by_ticket);
    for (size_t i = 0; i < n; i++) {
        jobs[i].ticket = tickets[i].ticket;
        jobs[i].seq = tickets[i].seq; /* of equal tickets the number of the ticket decides */
    }
}

int queue_order(struct queue_plan *out, const struct queue_input *in, struct err *err)
{
    const size_t most = (size_t)in->job_count;
    struct place_in_line *jobs = calloc(2 * most + 1, sizeof *jobs);
    size_t n = 0;

    if (jobs == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a queue of %d jobs", in->job_count);
    }
    for (int i = 0; i < in->job_count; i++) {
        const struct queue_job *j = &in->jobs[i];
        if (j->held == 0 && !j->is_stopping) {
            jobs[n++] = (struct place_in_line){.job = i,
                                               .class = (int)j->class,
                                               .user = j->user,
                                               .line = j->line,
                                               .ticket = j->ticket,
                                               .seq = j->seq};
        }
    }
    hand_out_tickets(jobs, jobs + most, n);
    for (size_t i = 0; i < n; i++) {
        jobs[i].key = queue_add(jobs[i].ticket, penalty_s(in, jobs[i].user));
    }
    qsort(jobs, n, sizeof *jobs, by_key);
    for (size_t i = 0; i < n; i++) {
        out->order[i] = jobs[i].job;
    }
    out->waiting = (int)n;
    free(jobs);
    return 0;
}
