/* desk.h - the queue in the store: a plan of queue.h becomes rows, a run that is over gives back what it held.
 *
 * Nothing here knows a clock, a process or a thread: `now` and what the machine is like are told, so that the
 * property test (tests/test_desk.c) drives the very code of the server through years in seconds.
 *
 *    lease       a row for each device of a run; its primary key is the device. Rows `starting`, attempt and
 *                leases are one transaction, written before a process exists. They are given back in the
 *                transaction that records the end of the attempt, and only once there is evidence that its
 *                processes are gone (supervise.c).
 *    usage       device seconds of ended leases, by user; fair share depends on nothing else.
 */
#ifndef SERVER_DESK_H
#define SERVER_DESK_H

#include "server/jobs.h"
#include "server/queue.h"
#include "server/settings.h"

/* What a pass decided; freed with desk_round_free. */
struct desk_round {
    struct queue_plan plan;
    struct queue_input input; /* what it was made from: jobs, users, arrays are owned */
    int started_count, told_count;
    struct job_ref *started; /* owned; jobs that are `starting` now, with their new attempt */
    uint64_t *devices;       /* owned; of each                                              */
    struct job_ref *told;    /* owned; runs whose intent is `preempt` now                   */
};

/* Load the queue, make a plan and write it. `view`: as of inventory_view. `not_yet`: devices that a model
 * which answers is leaving: jobs on them are not started in this round. Errors: of the store. */
int desk_dispatch(struct tx *tx, const struct settings *s, const struct view *view,
                  uint64_t not_yet, int64_t now, struct desk_round *out, struct err *err);
void desk_round_free(struct desk_round *r);

/* Give the leases of the job's attempt back and account for them: in the transaction that ends it. */
int desk_release(struct tx *tx, const struct job_ref *job, const char *cause, int rank, int signal,
                 int64_t now, struct err *err);

/* Devices that are held, as a mask over the machine's; devices that the machine has no more are skipped. */
int desk_held(sqlite3 *db, const struct machine *m, uint64_t *held, struct err *err);
int desk_devices(sqlite3 *db, const struct machine *m, int64_t job_seq, uint64_t *devices,
                 struct err *err);

/* A job ended: jobs that depend on an end which can't come any more are cancelled, with theirs. */
int desk_settle_children(struct tx *tx, const struct job_ref *parent, int64_t now, struct err *err);

#endif
