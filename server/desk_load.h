/* desk_load.h - the queue of the store as the input of a scheduling pass.
 *
 * Ten thousand waiting jobs are read in a few milliseconds: all of them comes from the index jobs_desk.
 */
#ifndef SERVER_DESK_LOAD_H
#define SERVER_DESK_LOAD_H

#include "server/dependencies.h"
#include "server/queue.h"
#include "server/settings.h"

/* Arrays that a queue_input points to; all owned. */
struct desk_queue {
    int job_count, user_count, array_count, window_count, hopeless_count;
    struct queue_job *jobs; /* by seq */
    struct queue_user *users;
    struct queue_array *arrays;
    struct queue_window *windows;
    int64_t *hopeless; /* seqs of waiting jobs whose parents ended otherwise than they wait for */
};

/* Errors: NO_MEMORY, those of the store. `out` is freed with desk_queue_free also after a failure. */
int desk_load(struct desk_queue *out, sqlite3 *db, const struct settings *s,
              const struct machine *m, int64_t now, struct err *err);
void desk_queue_free(struct desk_queue *q);

/* The index of the job in q->jobs; -1 for none. */
int desk_queue_find(const struct desk_queue *q, int64_t seq);

/* dependency_judge by the words of the store. */
enum dependency_verdict desk_judge(const char *kind, const char *parent_state);

/* Devices by their ids with commas between them; "" and "*" are all. Ids of no device are skipped. */
uint64_t desk_device_mask(const struct machine *m, const char *ids);

#endif
