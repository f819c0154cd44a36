/* draft.h - a request that has passed all checks and is not a row yet: what submit and arrays make jobs of.
 *
 * The folder is made as jobs/ID.new and gets its name after the commit, so that a crash leaves either no
 * job or a whole one: at start, a folder .new with a row gets its name, one without is removed.
 */
#ifndef SERVER_DRAFT_H
#define SERVER_DRAFT_H

#include "server/app.h"
#include "server/dependencies.h"
#include "server/sizing.h"

enum { DRAFT_NAME = 129, DRAFT_CLASS = 8 };

struct draft {
    char id[RANDOM_ID];    /* of the job to be                       */
    char name[DRAFT_NAME]; /* plain text                             */
    json_t *request;       /* owned                                  */
    json_t *references;    /* owned; as of references_find           */
    char *resolved;        /* owned; every field, as JSON on a line  */
    struct sizing sizing;
    char class[DRAFT_CLASS]; /* a word of queue_class_word           */
    int64_t devices, time_limit_s, begin_at;
    bool is_requeued; /* at its time limit */
    bool preemptible, is_private;
    struct dependencies dependencies;
    /* what its maker fills in */
    const char *cloned_from;        /* id of a job; NULL for none             */
    int64_t array_seq, array_index; /* 0: none; from 0                        */
    const char *key, *digest;       /* Idempotency-Key and body; NULL for none */
    int64_t created_at, seq;        /* seq: out, of the row                   */
};

/* What need not be looked up again, because other drafts of the same array have it; NULL where none has. */
struct draft_like {
    const struct draft *shape; /* the same files, models and shapes           */
    const struct draft *files; /* the same files and models                   */
    int64_t *look_left;        /* bytes of training files that are looked at  */
};

/* Check a request and look up what it refers to, as `who`. `like` may be NULL. On failure *out needs no draft_free.
 * Errors: BAD_SPEC and those of references_find and sizing_check, with param; FORBIDDEN (param priority). */
int draft_make(struct draft *out, const struct app *app, const struct identity *who,
               const json_t *request, const struct draft_like *like, struct err *err);
void draft_free(struct draft *d);

/* The folder, aside; its name, after the commit; or no folder, after a failure. Errors: DISK_FULL, IO. */
int draft_make_folder(const struct draft *d, const struct app *app, const struct identity *who,
                      struct err *err);
void draft_name_folder(const struct draft *d, const struct app *app);
void draft_drop_folder(const struct draft *d, const struct app *app);

/* Whether `who` may have `count` more jobs that have not ended. Errors: TOO_MANY. */
int draft_check_room(struct tx *tx, const struct app *app, const struct identity *who,
                     int64_t count, struct err *err);

/* The row and what belongs to it, announced. Errors: BAD_SPEC (param depends_on, devices), BAD_TRAINING_FILE,
 * BAD_VALIDATION_FILE for a file that was deleted meanwhile. */
int draft_insert(struct tx *tx, struct draft *d, const struct app *app, const struct identity *who,
                 struct err *err);

/* For a store that is made anew: what a valid request asks of the queue, as columns of the row `seq`, and what it
 * depends on among the rows that are there. What the settings allow no more keeps its default.
 * Errors: of the store. */
int draft_restore(struct tx *tx, struct spec *spec, const json_t *references, const struct app *app,
                  int64_t seq, struct err *err);

/* What PATCH may set: time_limit_s of a job, checked against the ceiling; 0 stands for the default.
 * Errors: BAD_SPEC (param time_limit_s). */
int draft_time_limit(const struct settings *s, int64_t wanted, int64_t *out, struct err *err);

/* Finish or remove what a crash left. Errors: IO. */
int draft_settle(const struct app *app, struct err *err);

#endif
