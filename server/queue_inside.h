/* queue_inside.h - what the files of the pass share. */
#ifndef SERVER_QUEUE_INSIDE_H
#define SERVER_QUEUE_INSIDE_H

#include "server/queue.h"

/* A pass at work. */
struct pass {
    const struct queue_input *in;
    struct queue_plan *out;
    uint64_t held;             /* by runs, those that start in this plan included          */
    uint64_t claimed;          /* for jobs that runs were told to leave for, and the head  */
    int *user_running;         /* owned; jobs of each user that run, starts included       */
    int *user_devices;         /* owned; devices that these hold                           */
    int *array_running;        /* owned                                                    */
    int runs[MACHINE_DEVICES]; /* indices of jobs that hold devices                */
    int run_count;
    int preempt_tries; /* searches for runs to preempt, bounded                    */
};

/* Indices of waiting jobs by key into out->order. Errors: NO_MEMORY. */
int queue_order(struct queue_plan *out, const struct queue_input *in, struct err *err);

/* Times far away stay in range: a + b, at most INT64_MAX / 4. */
int64_t queue_add(int64_t a, int64_t b);

/* How long a run has run, at least 0; absurd times stay in range. */
int64_t queue_ran_s(const struct queue_input *in, const struct queue_job *j);

/* Finds the runs and what they hold and count. */
void queue_count_runs(struct pass *p);

/* Counts a job that holds `devices` towards the limits of its owner and array: `jobs` 1 as it starts, -1 as it ends. */
void queue_count(struct pass *p, const struct queue_job *j, int jobs, uint64_t devices);

/* Which limit one more job like `j` would go over, besides `first` (may be NULL) if that is its owner's or of its
 * array; WAIT_NOT: none. *number: that limit. */
enum wait_reason queue_over_limit(const struct pass *p, const struct queue_job *j,
                                  const struct queue_job *first, int64_t *number);

/* What keeps a job from being looked at at all; fills *w if something does. */
bool queue_is_blocked(const struct pass *p, const struct queue_job *j, struct queue_wait *w);

/* Are there enough devices of one kind that are in order, large enough and not held by others? Fills *w if not. */
bool queue_has_devices(const struct pass *p, const struct queue_job *j, struct queue_wait *w);

/* When a job that starts at `from` has given its devices back at the latest. */
int64_t queue_over(const struct queue_input *in, const struct queue_job *j, int64_t from);

/* Devices that windows keep from a job that runs in [from, over). */
uint64_t queue_kept(const struct queue_input *in, const struct queue_job *j, int64_t from);

/* Likewise of a job that starts as soon as runs that are told to leave have left. */
uint64_t queue_kept_soon(const struct queue_input *in, const struct queue_job *j);

/* Devices that no run holds at `at`, runs that start in this plan counted; `held` has those of now. */
uint64_t queue_free_at(const struct pass *p, int64_t at);

/* The fewest runs to preempt for job `job` out of `candidates` devices that are free or being freed; marks them in
 * out->preempts and returns the set that the job will get; 0 when there are none. */
uint64_t queue_preempt(struct pass *p, int job, uint64_t candidates);

/* Expected starts of all waiting jobs; the last step, which uses up the counts of `p`. Errors: NO_MEMORY. */
int queue_forecast(struct pass *p, struct err *err);

#endif
