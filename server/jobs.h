/* jobs.h - the rows of jobs and their events in the store. */
#ifndef SERVER_JOBS_H
#define SERVER_JOBS_H

#include "server/authorise.h"
#include "server/job.h"
#include "server/store.h"

enum { JOB_INTENT = 16 };

/* Types of events that hold what a run read or wrote: only for those who may DEED_READ_JOB. With commas. */
#define JOB_CONTENTS ",sample,data,"

/* What decisions about a job need. */
struct job_ref {
    int64_t seq, user_id;
    char id[RANDOM_ID];
    char owner[USER_NAME];
    enum job_state state;
    int attempt, tries;
    char intent[JOB_INTENT]; /* why a run was told to stop: "" or a word of outcome.h */
    int64_t tail_offset;
    int64_t checkpoint;          /* step of the newest checkpoint; -1 when there is none */
    bool is_private;             /* only the owner and admins know of it                 */
    int64_t time_limit_s, ran_s; /* ran_s: in earlier attempts since the limit began to count */
    bool is_requeued;            /* at its time limit                                         */
    bool is_warned;              /* of its time limit                                         */
    double steps_per_s;          /* 0: not known                                              */
};

/* The job of that id, when `who` may do the deed to it; NULL is honed itself and may all.
 * Errors: NOT_FOUND for one that is not there or hidden from `who`, FORBIDDEN. */
int job_find(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
             struct job_ref *out, struct err *err);

/* The job of that number, which must be there. */
int job_at(sqlite3 *db, int64_t seq, struct job_ref *out, struct err *err);

/* The job object of routes.def as `who` sees it: allowed_actions that they may ask for, and no names of others' private jobs and of
 * arrays with such; NULL is honed itself and sees all. A new reference; job_text is the same as one line, for free(). */
int job_object(sqlite3 *db, int64_t seq, const struct identity *who, json_t **out, struct err *err);
int job_text(sqlite3 *db, int64_t seq, const struct identity *who, char **out, struct err *err);

/* Set the "reason" of a waiting job's object: why it is back in the queue, if it is, and what it waits for. */
void job_say_why(json_t *job, const char *waits_for);

/* Move the job along an arrow of states.def, with a `job` event in the same transaction; ref follows.
 * `reason` may be NULL. CHECKs the arrow. Errors: BAD_STATE when the job is not in ref->state now. */
int job_move(struct tx *tx, struct job_ref *ref, enum job_state to, const char *reason,
             struct err *err);

/* What one must be allowed to do with a job to be shown an event of that type. */
enum deed job_event_deed(const char *type);

/* Say that the job object changed. */
int job_announce(struct tx *tx, const struct job_ref *ref, struct err *err);

/* Store an event and announce it. `body`: a JSON object on one line. */
int job_event_add(struct tx *tx, const struct job_ref *ref, const char *type, const char *body,
                  struct err *err);

#endif
