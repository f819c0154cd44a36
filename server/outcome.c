/* outcome.c - how an attempt that is over changes its job. Cases: tests/test_outcome.c. */
#include "server/outcome.h"

#include <stdio.h>
#include <string.h>

static struct outcome failed(enum err_code code, const char *text)
{
    struct outcome o = {.state = JOB_FAILED};

    err_set(&o.error, code, "%s", text);
    return o;
}

/* The run was interrupted by something that is not its fault: from the last checkpoint, a few times. */
static struct outcome interrupted(const struct job_ref *job, int64_t max_tries, const char *what)
{
    struct outcome o = {.state = JOB_QUEUED, .again = true};

    if (job->tries >= max_tries) {
        o = (struct outcome){.state = JOB_FAILED};
        err_set(&o.error, ERR_DEVICE, "%s, for the %lldth time; the last checkpoint is kept", what,
                (long long)max_tries + 1);
    } else if (job->checkpoint >= 0) {
        (void)snprintf(o.reason, sizeof o.reason, "%s; goes on from step %lld", what,
                       (long long)job->checkpoint);
    } else {
        (void)snprintf(o.reason, sizeof o.reason, "%s; starts again", what);
    }
    return o;
}

static struct outcome lost(const struct job_ref *job, const struct ending *end, int64_t max_tries)
{
    if (strncmp(job->intent, "cancel", 6) == 0) {
        return (struct outcome){.state = JOB_CANCELLED};
    }
    if (strcmp(job->intent, "pause") == 0) {
        return end->killed
                   ? failed(ERR_TIMED_OUT, "the run did not save in time when it was paused "
                                           "and was killed")
                   : failed(ERR_DEVICE, "the run was lost while it was being paused");
    }
    if (end->not_started) {
        return (struct outcome){.state = JOB_FAILED, .error = end->why};
    }
    return interrupted(job, max_tries, "the run was lost");
}

struct outcome outcome_make(const struct job_ref *job, const struct ending *end, int64_t max_tries)
{
    const bool cancel = strncmp(job->intent, "cancel", 6) == 0;
    const bool pause = strcmp(job->intent, "pause") == 0;

    if (!end->has_exit) {
        return lost(job, end, max_tries);
    }
    switch (end->exit.status) {
    case ENDED_SUCCEEDED: return (struct outcome){.state = JOB_SUCCEEDED};
    case ENDED_FAILED:
        if (cancel) {
            return (struct outcome){.state = JOB_CANCELLED};
        }
        return (struct outcome){.state = JOB_FAILED, .error = end->exit.error};
    case ENDED_STOPPED:
    case ENDED_CANCELLED:
        if (cancel) {
            return (struct outcome){.state = JOB_CANCELLED};
        }
        if (pause && end->exit.error.code == ERR_NONE) {
            return (struct outcome){.state = JOB_PAUSED};
        }
        if (pause) {
            return (struct outcome){.state = JOB_FAILED, .error = end->exit.error};
        }
        return interrupted(job, max_tries, "the run was told to stop from outside");
    case ENDED_COUNT: break;
    }
    return failed(ERR_INTERNAL, "the run's end can't be read");
}

int outcome_store(struct tx *tx, struct job_ref *job, const struct outcome *o, struct err *err)
{
    const bool has_error = o->state == JOB_FAILED;

    TRY(db_run(tx->db, err,
               "UPDATE jobs SET intent='', intent_at=NULL, tries=tries+?, stage=?, stage_done=NULL,"
               " stage_total=NULL, stage_unit=NULL, steps_per_s=NULL, step_t=NULL,"
               " error_code=?, error_message=?, error_param=? WHERE seq=?",
               "issssi", (int64_t)o->again, o->state == JOB_QUEUED ? "waiting" : NULL,
               has_error ? err_word(o->error.code) : NULL, has_error ? o->error.text : NULL,
               has_error && o->error.param[0] != '\0' ? o->error.param : NULL, job->seq));
    job->intent[0] = '\0';
    return job_move(tx, job, o->state, o->reason[0] != '\0' ? o->reason : NULL, err);
}
