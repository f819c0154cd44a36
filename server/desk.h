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
 *    dependency  counts until the job starts for the first time. A parent that ended otherwise than the job
 *                waits for cancels it, and those that wait for it in turn.
 */
#ifndef SERVER_DESK_H
#define SERVER_DESK_H

#include "server/desk_load.h"
#include "server/jobs.h"
#include "server/settings.h"

/* A job that reasons of others name. */
struct desk_name {
    int64_t seq;
    char id[RANDOM_ID], owner[USER_NAME];
    bool is_private;
};

/* What a pass decided; freed with desk_round_free. */
struct desk_round {
    struct desk_queue queue;  /* owned                                                           */
    struct queue_input input; /* what the plan was made from: points into queue                  */
    struct queue_plan plan;
    int started_count, told_count;
    struct job_ref *started; /* owned; jobs that are `starting` now, with their new attempt */
    uint64_t *devices;       /* owned; of each                                              */
    struct job_ref *told;    /* owned; runs whose intent is `preempt` now                   */
    uint64_t wanted;         /* devices of `not_yet` that jobs would have started on        */
    int name_count;
    struct desk_name *names; /* owned; by seq */
};

/* The reason of a job that needs `need` in words; `names` by seq. */
void desk_words(char *out, size_t size, const struct machine *m, const struct queue_wait *wait,
                const struct need *need, const struct desk_name *names, int name_count);

/* Load the queue, make a plan and write it. `view`: as of inventory_view. `not_yet`: devices that a model
 * which answers is leaving: jobs on them are not started in this round. Errors: of the store. */
int desk_dispatch(struct tx *tx, const struct settings *s, const struct view *view,
                  uint64_t not_yet, int64_t now, struct desk_round *out, struct err *err);
void desk_round_free(struct desk_round *r);

/* How an attempt ended, for its row. */
struct desk_end {
    const char *cause; /* "" for an end as asked or done, else a word of outcome.h    */
    int rank, signal;  /* that decided it; -1 and 0 where none did                    */
    int64_t step;      /* last finished one; -1: what the store has                   */
};

/* Give the leases of the job's attempt back and account for them: in the transaction that ends it. */
int desk_release(struct tx *tx, const struct job_ref *job, const struct desk_end *end, int64_t now,
                 struct err *err);

/* Undo a start that led to no process: the job, which is `starting`, waits again in its place. */
int desk_unstart(struct tx *tx, struct job_ref *job, const char *reason, struct err *err);

/* Lease devices to a run that has none because the store was lost or is older than leases: as many of
 * `from`, the lowest first, as it asked for. With too few, those that there are. */
int desk_adopt(struct tx *tx, const struct machine *m, const struct job_ref *job, uint64_t from,
               int64_t now, struct err *err);

/* Devices that are held, as a mask over the machine's; devices that the machine has no more are skipped. */
int desk_held(sqlite3 *db, const struct machine *m, uint64_t *held, struct err *err);
int desk_devices(sqlite3 *db, const struct machine *m, int64_t job_seq, uint64_t *devices,
                 struct err *err);

/* A job ended: jobs that depend on an end which can't come any more are cancelled, with theirs. */
int desk_settle_children(struct tx *tx, const struct job_ref *parent, struct err *err);

#endif
