/* jobs.c - the rows of jobs and their events. */
#include "server/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/check.h"

static const char ref_columns[] =
    "SELECT j.seq, j.user_id, j.id, u.name, j.state, j.attempt, j.tries, j.intent, j.tail_offset,"
    " (SELECT MAX(step) FROM checkpoints c WHERE c.job_seq=j.seq), j.private"
    " FROM jobs j JOIN users u ON u.id=j.user_id ";

static int read_ref(sqlite3_stmt *q, struct job_ref *out, bool *found, struct err *err)
{
    const int rc = db_next(q, found, err);

    if (rc == 0 && *found) {
        out->seq = sqlite3_column_int64(q, 0);
        out->user_id = sqlite3_column_int64(q, 1);
        (void)snprintf(out->id, sizeof out->id, "%s", db_text(q, 2));
        (void)snprintf(out->owner, sizeof out->owner, "%s", db_text(q, 3));
        out->state = job_state_from_word(db_text(q, 4));
        CHECK(out->state != JOB_STATE_COUNT, "state \"%s\" of %s", db_text(q, 4), out->id);
        out->attempt = sqlite3_column_int(q, 5);
        out->tries = sqlite3_column_int(q, 6);
        (void)snprintf(out->intent, sizeof out->intent, "%s", db_text(q, 7));
        out->tail_offset = sqlite3_column_int64(q, 8);
        out->checkpoint =
            sqlite3_column_type(q, 9) == SQLITE_NULL ? -1 : sqlite3_column_int64(q, 9);
        out->is_private = sqlite3_column_int(q, 10) != 0;
    }
    return rc;
}

int job_find(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
             struct job_ref *out, struct err *err)
{
    char sql[sizeof ref_columns + 32], what[RANDOM_ID + 24];
    sqlite3_stmt *q = NULL;
    bool found = false;

    (void)snprintf(sql, sizeof sql, "%s WHERE j.id=?", ref_columns);
    TRY(db_query(&q, db, err, sql, "s", id));
    const int rc = read_ref(q, out, &found, err);
    sqlite3_finalize(q);
    if (rc == 0 && !found) {
        return FAIL(err, ERR_NOT_FOUND, "there is no job %.40s", id);
    }
    if (rc != 0 || who == NULL) {
        return rc;
    }
    (void)snprintf(what, sizeof what, "job %.40s", id);
    return authorise(who, deed, out->user_id, out->is_private, what, err);
}

int job_first(sqlite3 *db, enum job_state state, struct job_ref *out, bool *found, struct err *err)
{
    char sql[sizeof ref_columns + 64];
    sqlite3_stmt *q = NULL;

    (void)snprintf(sql, sizeof sql, "%s WHERE j.state=? ORDER BY j.seq LIMIT 1", ref_columns);
    TRY(db_query(&q, db, err, sql, "s", job_state_word(state)));
    const int rc = read_ref(q, out, found, err);
    sqlite3_finalize(q);
    return rc;
}

/* Fields that are made of several columns. Removes those. */
static int shape_object(sqlite3 *db, int64_t seq, json_t *job, struct err *err)
{
    const char *code = json_string_value(json_object_get(job, "error_code"));
    const enum job_state state =
        job_state_from_word(json_string_value(json_object_get(job, "state")));
    const bool has_checkpoint = json_integer_value(json_object_get(job, "checkpoints")) > 0;
    json_t *actions = json_array();
    json_t *error = json_null();
    int64_t ahead = 0;

    if (code != NULL) {
        error = json_pack("{s:s, s:O, s:O}", "code", code, "message",
                          json_object_get(job, "error_message"), "param",
                          json_object_get(job, "error_param"));
    }
    for (int a = 0; a < JOB_ACTION_COUNT; a++) {
        if (job_allows(state, (enum job_action)a, has_checkpoint)) {
            json_array_append_new(actions, json_string(job_action_word((enum job_action)a)));
        }
    }
    int rc = json_object_set_new(job, "error", error) |
             json_object_set_new(job, "allowed_actions", actions);
    (void)json_object_del(job, "error_code");
    (void)json_object_del(job, "error_message");
    (void)json_object_del(job, "error_param");
    if (state == JOB_QUEUED && json_is_null(json_object_get(job, "reason"))) {
        TRY(db_integer(&ahead, 0, db, err,
                       "SELECT COUNT(*) FROM jobs WHERE state IN('starting','running','stopping')"
                       " OR (state='queued' AND seq<?)",
                       "i", seq));
        rc |=
            json_object_set_new(job, "reason",
                                ahead == 0 ? json_string("starts next")
                                           : json_sprintf("waits for %lld job%s before it",
                                                          (long long)ahead, ahead > 1 ? "s" : ""));
    }
    return rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

int job_object(sqlite3 *db, int64_t seq, json_t **out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    *out = NULL;
    TRY(db_query(
        &q, db, err,
        "SELECT j.id, 'job' AS object, j.name, u.name AS owner, j.state, j.stage, j.stage_done,"
        " j.stage_total, j.stage_unit, j.reason, j.created_at, j.started_at, j.finished_at,"
        " j.attempt, j.step, j.total_steps, j.loss, j.eval_loss, j.tokens_per_s,"
        " CASE WHEN j.state IN('running','stopping') AND j.steps_per_s>0 AND j.total_steps>=j.step"
        "  THEN CAST(round((j.total_steps-j.step)/j.steps_per_s) AS INTEGER) END AS eta_s,"
        " j.parameters, j.memory_bytes, j.error_code, j.error_message, j.error_param,"
        " j.request AS request_json, j.resolved AS resolved_json,"
        " (SELECT COUNT(*) FROM checkpoints c WHERE c.job_seq=j.seq) AS checkpoints"
        " FROM jobs j JOIN users u ON u.id=j.user_id WHERE j.seq=?",
        "i", seq));
    int rc = db_next(q, &row, err);
    CHECK(rc != 0 || row, "no job row %lld", (long long)seq);
    if (rc == 0) {
        *out = db_row_json(q);
        rc = *out == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a job")
                          : shape_object(db, seq, *out, err);
    }
    sqlite3_finalize(q);
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

void job_show(json_t *job, const struct identity *who)
{
    const char *owner = json_string_value(json_object_get(job, "owner"));
    const bool own = owner != NULL && strcmp(owner, who->name) == 0;

    if (!may_do(who, DEED_CHANGE_JOB, own ? who->user_id : 0, true)) {
        json_array_clear(json_object_get(job, "allowed_actions"));
    }
}

enum deed job_event_deed(const char *type)
{
    char word[40];

    (void)snprintf(word, sizeof word, ",%.30s,", type);
    return strstr(JOB_CONTENTS, word) != NULL ? DEED_READ_JOB : DEED_SEE_JOB;
}

int job_text(sqlite3 *db, int64_t seq, const struct identity *who, char **out, struct err *err)
{
    json_t *job = NULL;

    *out = NULL;
    TRY(job_object(db, seq, &job, err));
    if (who != NULL) {
        job_show(job, who);
    }
    *out = json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(job);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

/* Store the row of an event; its number is the connection's last rowid. */
static int insert_event(struct tx *tx, const struct job_ref *ref, const char *type,
                        const char *body, struct err *err)
{
    return db_run(tx->db, err, "INSERT INTO events(job_seq, type, body) VALUES(?,?,?)", "iss",
                  ref->seq, type, body);
}

/* Takes the texts over: they are not const. */
/* NOLINTBEGIN(readability-non-const-parameter) */
static int announce(struct tx *tx, const struct job_ref *ref, const char *type, char *body,
                    char *others, struct err *err)
/* NOLINTEND(readability-non-const-parameter) */
{
    struct news item = {.n = sqlite3_last_insert_rowid(tx->db),
                        .user_id = ref->user_id,
                        .is_private = ref->is_private,
                        .body = body,
                        .others = others};

    (void)snprintf(item.job, sizeof item.job, "%s", ref->id);
    (void)snprintf(item.type, sizeof item.type, "%s", type);
    return tx_announce(tx, &item, err);
}

int job_event_add(struct tx *tx, const struct job_ref *ref, const char *type, const char *body,
                  struct err *err)
{
    TRY(insert_event(tx, ref, type, body, err));
    return announce(tx, ref, type, strdup(body), NULL, err);
}

int job_announce(struct tx *tx, const struct job_ref *ref, struct err *err)
{
    static const struct identity nobody = {0};
    char brief[200], *whole = NULL, *others = NULL;

    (void)snprintf(brief, sizeof brief,
                   "{\"t\":%lld,\"attempt\":%d,\"type\":\"job\",\"state\":\"%s\"}",
                   (long long)time(NULL), ref->attempt, job_state_word(ref->state));
    TRY(insert_event(tx, ref, "job", brief, err));
    const int64_t n = sqlite3_last_insert_rowid(tx->db);
    TRY(job_text(tx->db, ref->seq, NULL, &whole, err));
    if (!ref->is_private && job_text(tx->db, ref->seq, &nobody, &others, err) != 0) {
        free(whole);
        return (int)err->code;
    }
    CHECK(n == sqlite3_last_insert_rowid(tx->db), "rendering a job wrote something");
    return announce(tx, ref, "job", whole, others, err);
}

int job_move(struct tx *tx, struct job_ref *ref, enum job_state to, const char *reason,
             struct err *err)
{
    CHECK(job_may_go(ref->state, to), "%s: %s to %s", ref->id, job_state_word(ref->state),
          job_state_word(to));
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET state=?, reason=?,"
               " finished_at=CASE WHEN ? THEN CAST(strftime('%s','now') AS INTEGER) END"
               " WHERE seq=? AND state=?",
               "ssiis", job_state_word(to), reason, (int64_t)job_state_is_final(to), ref->seq,
               job_state_word(ref->state)));
    if (sqlite3_changes(tx->db) != 1) {
        return FAIL(err, ERR_BAD_STATE, "the job %s is not %s any more", ref->id,
                    job_state_word(ref->state));
    }
    ref->state = to;
    return job_announce(tx, ref, err);
}
