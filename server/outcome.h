/* outcome.h - how an attempt that is over changes its job. */
#ifndef SERVER_OUTCOME_H
#define SERVER_OUTCOME_H

#include "server/jobs.h"
#include "trainer/protocol.h"

/* What is known of the end of an attempt. */
struct ending {
    bool has_exit; /* `exit` is what exit.json says; else the launcher was lost */
    struct attempt_exit exit;
    bool killed;      /* by us, after the grace period          */
    bool not_started; /* the launcher ended before it began: `why` */
    struct err why;
};

/* What follows from it; pure. */
struct outcome {
    enum job_state state;
    bool again;       /* queued again by itself: counts as a try */
    struct err error; /* of a failed job                         */
    char reason[200]; /* "" for none                             */
};
struct outcome outcome_make(const struct job_ref *job, const struct ending *end, int64_t max_tries);

/* Record it: state, error, attempts; the intent is done with. */
int outcome_store(struct tx *tx, struct job_ref *job, const struct outcome *o, struct err *err);

#endif
