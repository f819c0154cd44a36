/* prune.h - old events go: those of jobs that ended long ago, but for the last of each job.
 *
 * What they said is in the rows of the job: its curve, its checkpoints, its end. A stream that is continued from
 * a number before the newest that went is told `reset`, for it can't know what it missed.
 */
#ifndef SERVER_PRUNE_H
#define SERVER_PRUNE_H

#include "server/store.h"

enum { PRUNE_MOST = 100000 }; /* events that a call removes, roughly */

/* Of jobs that ended before `before` (seconds since 1970) leave `keep` events each, at least one. In many small
 * transactions, so that others can write between them. *removed: how many went; PRUNE_MOST or more:
 * there may be more. Errors: of the store. */
int prune_events(struct store *store, int64_t before, int64_t keep, int64_t *removed,
                 struct err *err);

/* The newest number that was ever removed; 0 for none. */
int prune_newest(sqlite3 *db, int64_t *n, struct err *err);

#endif
