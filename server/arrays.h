/* arrays.h - arrays: jobs over a grid of values, made together, with a cap on how many run at a time.
 *
 * All points are checked before anything is made; then the array and its jobs are one transaction, so that there
 * is a whole array or none. Each job is a job like any other afterwards.
 */
#ifndef SERVER_ARRAYS_H
#define SERVER_ARRAYS_H

#include "server/grid.h"
#include "server/submit.h"

/* What is asked for, and what came of it. */
struct array_submission {
    const struct identity *who;
    const json_t *request, *grid; /* objects                                               */
    int64_t max_running;          /* 0: no cap                                             */
    const char *name;             /* NULL: the request's                                   */
    struct repeat repeat;
    char id[RANDOM_ID]; /* out                                                             */
    bool was_there;     /* out: the array of an earlier, equal submission                  */
    json_t *array;      /* out: a new reference, with points                               */
};

/* Errors: those of draft_make for the first bad point, with the field as param; BAD_REQUEST (param grid, name);
 * TOO_LARGE; TOO_MANY; BAD_STATE when the key was used for another request; DISK_FULL, IO. */
int array_submit(const struct app *app, struct array_submission *s, struct err *err);

/* What decisions about an array need. */
struct array_ref {
    int64_t seq, user_id;
    char id[RANDOM_ID];
    bool is_private; /* one of its jobs is */
};

/* The array of that id, when `who` may do the deed to it. Errors: NOT_FOUND, FORBIDDEN. */
int array_find(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
               struct array_ref *out, struct err *err);

/* The array object of routes.def; a new reference. */
int array_object(sqlite3 *db, int64_t seq, bool with_points, json_t **out, struct err *err);

/* Cancel all jobs that have not ended. */
int array_cancel(struct tx *tx, const struct array_ref *a, bool save, struct err *err);

#endif
