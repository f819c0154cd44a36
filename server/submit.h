/* submit.h - a request becomes a job: checked, its folder made, its row committed, in this order (draft.h). */
#ifndef SERVER_SUBMIT_H
#define SERVER_SUBMIT_H

#include "server/draft.h"
#include "server/route.h"
#include "trainer/base/sha256.h"

enum { IDEMPOTENCY_KEY = 256, RETRY_SECONDS = 120 };

/* How a client says that it sends the same again. */
struct repeat {
    const char *key; /* Idempotency-Key; NULL for none                                     */
    bool is_retry;   /* the client says that it tries again                                */
    char digest
        [SHA256_TEXT]; /* SHA-256 of what is asked and the body                              */
};

/* Read it off a request; `what` is what is asked of which thing. Errors: BAD_REQUEST for a key of no use. */
int repeat_read(struct repeat *out, const struct request *rq, const char *what, struct err *err);

struct submission {
    const struct identity *who;
    const json_t *request;
    const char *cloned_from; /* id of a job; NULL for none                                     */
    struct repeat repeat;
    char id[RANDOM_ID]; /* out: of the job                                                     */
    bool was_there;     /* out: the job of an earlier, equal submission                        */
    json_t *job;        /* out: a new reference                                                */
};

/* Errors: BAD_SPEC and the others of draft_make, with param; TOO_MANY; BAD_STATE when the key was used
 * for another request; DISK_FULL, IO. */
int submit_job(const struct app *app, struct submission *s, struct err *err);

/* 201 with the job, which the reply owns then. */
void submit_reply(struct reply *rp, struct submission *s);

#endif
