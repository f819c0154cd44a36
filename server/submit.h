/* submit.h - a request becomes a job: checked, its folder made, its row committed, in this order.
 *
 * The folder is made as jobs/ID.new and gets its name after the commit, so that a crash leaves either no
 * job or a whole one: at start, a folder .new with a row gets its name, one without is removed.
 */
#ifndef SERVER_SUBMIT_H
#define SERVER_SUBMIT_H

#include "server/app.h"
#include "server/auth.h"

enum { IDEMPOTENCY_KEY = 256 };

struct submission {
    const struct identity *who;
    const json_t *request;
    const char *key;  /* Idempotency-Key; NULL for none                                        */
    bool is_retry;    /* the client says that it sends the same again                          */
    const char *text; /* the body as it came                                                   */
    size_t size;
    char id[RANDOM_ID]; /* out: of the job                                                     */
    bool was_there;     /* out: the job of an earlier, equal submission                        */
    json_t *job;        /* out: a new reference                                                */
};

/* Errors: BAD_SPEC and those of references_find, with param; TOO_MANY; BAD_STATE when the key was used
 * for another request; DISK_FULL, IO. */
int submit_job(const struct app *app, struct submission *s, struct err *err);

/* Finish or remove what a crash left. Errors: IO. */
int submit_settle(const struct app *app, struct err *err);

#endif
