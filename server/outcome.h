/* outcome.h - how an attempt that is over changes its job.
 *
 * Why a run was told to stop (jobs.intent), and what its cause is (attempts.cause):
 *
 *    cancel cancel_save pause   a user asked                      cause as the intent; a run that dies of the
 *                                                                 machine while it is paused is paused
 *    preempt                    a job of a better class needs     queued in its old place
 *                               its devices
 *    time_limit                 its time is over                  failed (timed_out), or queued again
 *    card_lost                  a device of it is gone            queued again
 *    hang                       nothing was heard of it           queued again
 *
 * Without an intent the cause is "" (done), "failed" (a fault of the job's own: never tried again),
 * "worker_lost" (a rank died), "lost" (its launcher died or the machine was started anew), "stopped"
 * (somebody outside Hone told it to stop) or "not_started". The last four but not_started, card_lost and
 * hang are failures of the machine: such a job is queued again, later each time, at most max_tries times;
 * but not when the same rank dies of the same signal twice before its first step.
 */
#ifndef SERVER_OUTCOME_H
#define SERVER_OUTCOME_H

#include "server/jobs.h"
#include "server/settings.h"
#include "trainer/protocol.h"

/* What is known of the end of an attempt. */
struct ending {
    bool has_exit; /* `exit` is what exit.json says; else the launcher was lost */
    struct attempt_exit exit;
    bool killed;      /* by us, after the grace period          */
    bool not_started; /* the launcher ended before it began: `why` */
    struct err why;
};

/* How the attempt before it ended; signal 0: by none. */
struct former {
    int rank, signal;
    int64_t step;
};

/* What follows from it; pure. */
struct outcome {
    enum job_state state;
    bool again; /* a failure of the machine: counts as a try, and is tried after retry_s */
    int64_t retry_s;
    bool counts_anew;  /* the time limit                                                        */
    const char *cause; /* of the attempt                                                        */
    struct err error;  /* of a failed job                                                       */
    char reason[256];  /* "" for none                                                           */
};
struct outcome outcome_make(const struct job_ref *job, const struct ending *end,
                            const struct former *before, const struct settings *s);

/* Read how the attempt before the job's present one ended. */
int outcome_former(sqlite3 *db, const struct job_ref *job, struct former *out, struct err *err);

/* Record it: state, error, attempt, leases, use, and jobs that waited for this one; the intent is done
 * with. `now`: seconds since 1970. */
int outcome_store(struct tx *tx, struct job_ref *job, const struct outcome *o,
                  const struct ending *end, int64_t now, struct err *err);

#endif
