/* routes_jobs.c - /v1/jobs: submit, list, look, and what may be asked of a job. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/actions.h"
#include "server/board.h"
#include "server/jobs.h"
#include "server/list.h"
#include "server/references.h"
#include "server/sizing.h"
#include "server/submit.h"
#include "server/supervise.h"
#include "server/text.h"

enum { STATE_FILTER = 200 };

int handle_job_submit(const struct request *rq, struct reply *rp, struct err *err)
{
    struct submission s = {.who = rq->who, .request = rq->body};

    TRY(repeat_read(&s.repeat, rq, "", err));
    TRY(submit_job(rq->app, &s, err));
    submit_reply(rp, &s);
    return 0;
}

/* ",queued,running," from "queued,running". Errors: BAD_REQUEST for a word that is no state. */
static int read_states(const struct request *rq, char out[STATE_FILTER], const char **filter,
                       struct err *err)
{
    const char *states = gate_query(rq->in, "state");
    char word[16];

    *filter = NULL;
    if (states == NULL || states[0] == '\0') {
        return 0;
    }
    if (snprintf(out, STATE_FILTER, ",%s,", states) >= STATE_FILTER) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "state", "state is too long");
    }
    for (const char *p = states; *p != '\0';) {
        const size_t size = strcspn(p, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)(size < sizeof word ? size : 0), p);
        if (job_state_from_word(word) == JOB_STATE_COUNT) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "state", "\"%.30s\" is not a state of a job",
                              states);
        }
        p += size;
        p += *p == ',';
    }
    *filter = out;
    return 0;
}

static int job_row(sqlite3 *db, sqlite3_stmt *row, const struct identity *who, json_t **out,
                   struct err *err)
{
    return job_object(db, sqlite3_column_int64(row, 0), who, out, err);
}

int handle_jobs_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const char *mine = gate_query(rq->in, "mine"), *owner = gate_query(rq->in, "owner");
    const bool is_mine = mine != NULL && strcmp(mine, "1") == 0;
    char states[STATE_FILTER];
    struct listing l = {
        .columns = "seq",
        .from = "jobs WHERE (?1=0 OR private=0 OR user_id=?1)"
                " AND (?5 IS NULL OR user_id=(SELECT id FROM users WHERE name=?5))"
                " AND (?2 IS NULL OR instr(?2, ','||state||','))",
        .order = "seq",
        .number = "SELECT seq FROM jobs WHERE id=?1 AND (?2=0 OR private=0 OR user_id=?2)",
        .make = job_row,
        .newest_first = true,
        .limit = 20,
        .most = 100,
        .scope = may_do(rq->who, DEED_SEE_JOB, 0, true) ? 0 : rq->who->user_id,
        .second = is_mine ? rq->who->name : owner,
    };

    TRY(read_states(rq, states, &l.filter, err));
    TRY(list_reply(rq, rp, &l, err));
    board_tell_all(rq->app->board, rq->app->store, json_object_get(rp->body, "data"));
    return 0;
}

/* A job and what is asked of it. */
struct job_order {
    const struct request *rq;
    enum deed deed;
    enum job_action action;
    bool save;
    struct job_ref ref;
    json_t *job; /* out: a new reference */
};

static int read_job(sqlite3 *db, void *argument, struct err *err)
{
    struct job_order *o = argument;

    TRY(job_find(db, o->rq->param[0], o->rq->who, o->deed, &o->ref, err));
    return job_object(db, o->ref.seq, o->rq->who, &o->job, err);
}

int handle_job_get(const struct request *rq, struct reply *rp, struct err *err)
{
    struct job_order o = {.rq = rq, .deed = DEED_SEE_JOB};

    TRY(store_read(rq->app->store, read_job, &o, err));
    rp->body = o.job;
    board_tell(rq->app->board, o.ref.seq, rp->body);
    return 0;
}

static int do_action(struct tx *tx, void *argument, struct err *err)
{
    struct job_order *o = argument;
    int rc = 0;

    TRY(job_find(tx->db, o->rq->param[0], o->rq->who, o->deed, &o->ref, err));
    switch (o->action) {
    case JOB_CANCEL: rc = job_cancel(tx, &o->ref, o->save, err); break;
    case JOB_PAUSE: rc = job_pause(tx, &o->ref, err); break;
    case JOB_RESUME: rc = job_resume(tx, &o->ref, err); break;
    case JOB_SAVE:
    case JOB_ACTION_COUNT: break;
    }
    return rc != 0 ? rc : job_object(tx->db, o->ref.seq, o->rq->who, &o->job, err);
}

static int ask(const struct request *rq, struct reply *rp, enum job_action action, bool save,
               struct err *err)
{
    struct job_order o = {.rq = rq, .deed = DEED_CHANGE_JOB, .action = action, .save = save};

    TRY(store_write(rq->app->store, do_action, &o, err));
    supervisor_kick(rq->app->supervisor);
    rp->body = o.job;
    return 0;
}

int handle_job_cancel(const struct request *rq, struct reply *rp, struct err *err)
{
    const json_t *save = json_object_get(rq->body, "save");

    if (save != NULL && !json_is_boolean(save)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "save", "save must be true or false");
    }
    return ask(rq, rp, JOB_CANCEL, json_is_true(save), err);
}

int handle_job_pause(const struct request *rq, struct reply *rp, struct err *err)
{
    return ask(rq, rp, JOB_PAUSE, true, err);
}

int handle_job_resume(const struct request *rq, struct reply *rp, struct err *err)
{
    return ask(rq, rp, JOB_RESUME, false, err);
}

int handle_job_save(const struct request *rq, struct reply *rp, struct err *err)
{
    struct job_order o = {.rq = rq, .deed = DEED_CHANGE_JOB, .action = JOB_SAVE};
    char dir[SETTING_TEXT + 64];

    TRY(store_read(rq->app->store, read_job, &o, err));
    rp->body = o.job;
    if (!job_allows(o.ref.state, JOB_SAVE, false)) {
        return job_refuse(&o.ref, o.action, err);
    }
    job_dir(dir, sizeof dir, rq->app->settings, o.ref.id);
    if (job_signal(dir, SIGUSR1, err) != 0) {
        return FAIL(err, ERR_BAD_STATE, "the run has ended just now");
    }
    rp->status = 202;
    return 0;
}

int handle_plan(const struct request *rq, struct reply *rp, struct err *err)
{
    struct spec *spec = calloc(1, sizeof *spec);
    json_t *references = NULL;

    if (spec == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    int rc = spec_parse(spec, rq->body, err);
    if (rc == 0) {
        rc = references_find(rq->app, rq->who, spec, &references, err);
        rc = rc != 0 ? rc : sizing_plan(rq->app, spec, references, &rp->body, err);
        spec_free(spec);
    }
    json_decref(references);
    free(spec);
    return rc;
}
