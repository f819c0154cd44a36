/* actions.c - what may be asked of a job, in the store. */
#include "server/actions.h"

#include <string.h>
#include <time.h>

int job_refuse(const struct job_ref *job, enum job_action action, struct err *err)
{
    return FAIL(err, ERR_BAD_STATE, "a job that is %s can't be told to %s%s",
                job_state_word(job->state), job_action_word(action),
                action == JOB_RESUME && job->state != JOB_SUCCEEDED ? ": it has no checkpoint"
                                                                    : "");
}

/* Record why the run is told to stop; the supervisor sends the signal. */
static int ask_to_stop(struct tx *tx, struct job_ref *job, const char *intent, struct err *err)
{
    TRY(db_run(tx->db, err, "UPDATE jobs SET intent=?, intent_at=? WHERE seq=?", "sii", intent,
               (int64_t)time(NULL), job->seq));
    if (job->state == JOB_STOPPING) {
        return job_announce(tx, job, err);
    }
    return job_move(tx, job, JOB_STOPPING,
                    strcmp(intent, "pause") == 0 ? "is being paused" : "is being cancelled", err);
}

int job_cancel(struct tx *tx, struct job_ref *job, bool save, struct err *err)
{
    if (job->state == JOB_CANCELLED) {
        return 0;
    }
    if (!job_allows(job->state, JOB_CANCEL, false)) {
        return job_refuse(job, JOB_CANCEL, err);
    }
    if (job->state == JOB_QUEUED || job->state == JOB_PAUSED) {
        TRY(db_run(tx->db, err, "UPDATE jobs SET stage=NULL WHERE seq=?", "i", job->seq));
        return job_move(tx, job, JOB_CANCELLED, NULL, err);
    }
    return ask_to_stop(tx, job, save ? "cancel_save" : "cancel", err);
}

int job_pause(struct tx *tx, struct job_ref *job, struct err *err)
{
    const bool pausing = job->state == JOB_STOPPING && strcmp(job->intent, "pause") == 0;

    if (job->state == JOB_PAUSED || pausing) {
        return 0;
    }
    if (!job_allows(job->state, JOB_PAUSE, false)) {
        return job_refuse(job, JOB_PAUSE, err);
    }
    if (job->state == JOB_QUEUED) {
        TRY(db_run(tx->db, err, "UPDATE jobs SET stage=NULL WHERE seq=?", "i", job->seq));
        return job_move(tx, job, JOB_PAUSED, NULL, err);
    }
    return ask_to_stop(tx, job, "pause", err);
}

int job_resume(struct tx *tx, struct job_ref *job, struct err *err)
{
    if (!job_allows(job->state, JOB_RESUME, job->checkpoint >= 0)) {
        return job_refuse(job, JOB_RESUME, err);
    }
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET tries=0, ran_s=0, warned=0, retry_at=0, stage='waiting',"
               " error_code=NULL, error_message=NULL, error_param=NULL WHERE seq=?",
               "i", job->seq));
    return job_move(tx, job, JOB_QUEUED, NULL, err);
}
