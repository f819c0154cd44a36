/* outcome.c - how an attempt that is over changes its job. Cases: tests/test_outcome.c. */
#include "server/outcome.h"

#include <stdio.h>
#include <string.h>

#include "server/desk.h"

enum { DOUBLINGS = 10 }; /* of retry_s at most */

static struct outcome failed(const char *cause, enum err_code code, const char *text)
{
    struct outcome o = {.state = JOB_FAILED, .cause = cause};

    err_set(&o.error, code, "%s", text);
    return o;
}

/* The run was interrupted by something that is not its fault: from the last checkpoint, a few times. */
static struct outcome interrupted(const struct job_ref *job, const char *cause,
                                  const struct settings *s, const char *what)
{
    struct outcome o = {.state = JOB_QUEUED, .again = true, .cause = cause};

    if (job->tries >= s->max_tries) {
        o = (struct outcome){.state = JOB_FAILED, .cause = cause};
        err_set(&o.error, ERR_DEVICE,
                "%.300s; it was tried %lld times, the last checkpoint is kept", what,
                (long long)s->max_tries + 1);
        return o;
    }
    o.retry_s = s->retry_s << (job->tries < DOUBLINGS ? job->tries : DOUBLINGS);
    if (job->checkpoint >= 0) {
        (void)snprintf(o.reason, sizeof o.reason, "%.200s; goes on from step %lld", what,
                       (long long)job->checkpoint);
    } else {
        (void)snprintf(o.reason, sizeof o.reason, "%.200s; starts again", what);
    }
    return o;
}

/* The run was lost while it saved for a pause: nobody wants it to run now, and it is as good as before. */
static struct outcome paused_unsaved(const struct job_ref *job, const char *what)
{
    struct outcome o = {.state = JOB_PAUSED, .cause = "pause"};

    if (job->checkpoint >= 0) {
        (void)snprintf(o.reason, sizeof o.reason,
                       "%.180s while it was being paused; goes on from step %lld", what,
                       (long long)job->checkpoint);
    } else {
        (void)snprintf(o.reason, sizeof o.reason, "%.180s while it was being paused; starts again",
                       what);
    }
    return o;
}

static struct outcome preempted(const struct job_ref *job, bool has_saved)
{
    struct outcome o = {.state = JOB_QUEUED, .cause = "preempt"};

    (void)snprintf(o.reason, sizeof o.reason, "made room for a job of a better class%s",
                   has_saved              ? ""
                   : job->checkpoint >= 0 ? ", from its last checkpoint"
                                          : "");
    return o;
}

static struct outcome timed_out(const struct job_ref *job, bool has_saved)
{
    struct outcome o = {.state = JOB_QUEUED, .cause = "time_limit", .counts_anew = true};

    if (job->is_requeued) {
        (void)snprintf(o.reason, sizeof o.reason, "its time limit of %lld s was over",
                       (long long)job->time_limit_s);
        return o;
    }
    o = (struct outcome){.state = JOB_FAILED, .cause = "time_limit"};
    err_set(&o.error, ERR_TIMED_OUT, "the time limit of %lld s was reached%s",
            (long long)job->time_limit_s,
            has_saved              ? "; resume the job to go on from where it saved"
            : job->checkpoint >= 0 ? "; it did not save in time, the last checkpoint is kept"
                                   : "; it did not save in time");
    return o;
}

/* The run was told to leave, and did so more or less. `has_saved`: as it should. */
static struct outcome left_as_told(const struct job_ref *job, const struct ending *end,
                                   const struct settings *s, bool has_saved)
{
    if (strncmp(job->intent, "cancel", 6) == 0) {
        return (struct outcome){.state = JOB_CANCELLED, .cause = "cancel"};
    }
    if (strcmp(job->intent, "preempt") == 0) {
        return preempted(job, has_saved);
    }
    if (strcmp(job->intent, "time_limit") == 0) {
        return timed_out(job, has_saved);
    }
    if (strcmp(job->intent, "card_lost") == 0) {
        return interrupted(job, "card_lost", s, "a device of the run was lost");
    }
    if (strcmp(job->intent, "hang") == 0) {
        return interrupted(job, "hang", s, "the run hung");
    }
    if (has_saved) {
        return (struct outcome){.state = JOB_PAUSED, .cause = "pause"};
    }
    if (end->has_exit) {
        return (struct outcome){.state = JOB_FAILED, .cause = "pause", .error = end->exit.error};
    }
    return end->killed ? failed("pause", ERR_TIMED_OUT,
                                "the run did not save in time when it was paused and was killed")
                       : paused_unsaved(job, "the run was lost");
}

/* A rank or the preparation failed by itself. */
static struct outcome broken(const struct job_ref *job, const struct ending *end,
                             const struct former *before, const struct settings *s)
{
    const struct attempt_exit *e = &end->exit;
    const bool was_told = strcmp(job->intent, "card_lost") == 0 || strcmp(job->intent, "hang") == 0;

    if (strncmp(job->intent, "cancel", 6) == 0 || (was_told && e->error.code == ERR_DEVICE)) {
        return left_as_told(job, end, s, false);
    }
    if (e->error.code != ERR_DEVICE) {
        return (struct outcome){.state = JOB_FAILED, .cause = "failed", .error = e->error};
    }
    if (strcmp(job->intent, "pause") == 0) {
        return paused_unsaved(job, e->error.text);
    }
    if (job->intent[0] != '\0') {
        return left_as_told(job, end, s, false);
    }
    if (e->signal != 0 && e->signal == before->signal && e->rank == before->rank && e->step < 1 &&
        before->step < 1) {
        struct outcome o = {.state = JOB_FAILED, .cause = "worker_lost"};
        err_set(&o.error, ERR_DEVICE,
                "%.300s; the same happened the time before, so it is not "
                "tried again",
                e->error.text);
        return o;
    }
    return interrupted(job, "worker_lost", s, e->error.text);
}

struct outcome outcome_make(const struct job_ref *job, const struct ending *end,
                            const struct former *before, const struct settings *s)
{
    if (!end->has_exit && end->not_started && job->intent[0] == '\0') {
        return (struct outcome){.state = JOB_FAILED, .cause = "not_started", .error = end->why};
    }
    if (!end->has_exit) {
        return job->intent[0] != '\0' ? left_as_told(job, end, s, false)
                                      : interrupted(job, "lost", s, "the run was lost");
    }
    switch (end->exit.status) {
    case ENDED_SUCCEEDED: return (struct outcome){.state = JOB_SUCCEEDED, .cause = ""};
    case ENDED_FAILED: return broken(job, end, before, s);
    case ENDED_STOPPED:
    case ENDED_CANCELLED:
        return job->intent[0] != '\0'
                   ? left_as_told(job, end, s,
                                  end->exit.status == ENDED_STOPPED &&
                                      end->exit.error.code == ERR_NONE)
                   : interrupted(job, "stopped", s, "the run was told to stop from outside");
    case ENDED_COUNT: break;
    }
    return failed("failed", ERR_INTERNAL, "the run's end can't be read");
}

int outcome_former(sqlite3 *db, const struct job_ref *job, struct former *out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    *out = (struct former){.rank = -1};
    TRY(db_query(&q, db, err,
                 "SELECT rank, signal, step FROM attempts WHERE job_seq=? AND n<?"
                 " AND ended_at IS NOT NULL ORDER BY n DESC LIMIT 1",
                 "ii", job->seq, (int64_t)job->attempt));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        *out = (struct former){.rank = sqlite3_column_int(q, 0),
                               .signal = sqlite3_column_int(q, 1),
                               .step = sqlite3_column_int64(q, 2)};
    }
    sqlite3_finalize(q);
    return rc;
}

/* Name the job that a preempted one made room for. */
static int name_better(struct tx *tx, const struct job_ref *job, char *out, size_t size,
                       struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    (void)snprintf(out, size, "made room for a job of a better class");
    TRY(db_query(&q, tx->db, err,
                 "SELECT CASE WHEN j.private THEN 'a private job' ELSE j.id END FROM preemptions p "
                 "JOIN jobs j ON j.seq=p.for_seq WHERE p.job_seq=?"
                 " ORDER BY p.at DESC LIMIT 1",
                 "i", job->seq));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        (void)snprintf(out, size, "made room for %s", db_text(q, 0));
    }
    sqlite3_finalize(q);
    return rc;
}

int outcome_store(struct tx *tx, struct job_ref *job, const struct outcome *o,
                  const struct ending *end, int64_t now, struct err *err)
{
    const bool has_error = o->state == JOB_FAILED, waits = o->state == JOB_QUEUED;
    const struct desk_end row = {.cause = o->cause,
                                 .rank = end->has_exit ? end->exit.rank : -1,
                                 .signal = end->has_exit ? end->exit.signal : 0,
                                 .step = end->has_exit ? end->exit.step : -1};
    char back[sizeof o->reason];

    (void)snprintf(back, sizeof back, "%s", o->reason);
    if (waits && strcmp(o->cause, "preempt") == 0) {
        TRY(name_better(tx, job, back, sizeof back, err));
    }
    TRY(desk_release(tx, job, &row, now, err));
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET intent='', intent_at=NULL, tries=tries+?, stage=?, stage_done=NULL,"
               " stage_total=NULL, stage_unit=NULL, steps_per_s=NULL, step_t=NULL,"
               " error_code=?, error_message=?, error_param=?, back=?, retry_at=? WHERE seq=?",
               "isssssii", (int64_t)o->again, waits ? "waiting" : NULL,
               has_error ? err_word(o->error.code) : NULL, has_error ? o->error.text : NULL,
               has_error && o->error.param[0] != '\0' ? o->error.param : NULL,
               waits && back[0] != '\0' ? back : NULL,
               o->again && o->retry_s > 0 ? now + o->retry_s : INT64_C(0), job->seq));
    if (o->counts_anew) {
        TRY(db_run(tx->db, err, "UPDATE jobs SET ran_s=0, warned=0 WHERE seq=?", "i", job->seq));
    }
    job->intent[0] = '\0';
    TRY(job_move(tx, job, o->state, !waits && o->reason[0] != '\0' ? o->reason : NULL, err));
    return job_state_is_final(o->state) ? desk_settle_children(tx, job, err) : 0;
}
