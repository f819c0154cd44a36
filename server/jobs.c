/* jobs.c - the rows of jobs and their events. */
#include "server/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/check.h"
#include "server/arrays.h"
#include "server/mentions.h"
#include "trainer/plan.h"

static const char ref_columns[] =
    "SELECT j.seq, j.user_id, j.id, u.name, j.state, j.attempt, j.tries, j.intent, j.tail_offset,"
    " (SELECT MAX(step) FROM checkpoints c WHERE c.job_seq=j.seq), j.private,"
    " j.time_limit_s, j.ran_s, j.requeues, j.warned, j.steps_per_s"
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
        out->time_limit_s = sqlite3_column_int64(q, 11);
        out->ran_s = sqlite3_column_int64(q, 12);
        out->is_requeued = sqlite3_column_int(q, 13) != 0;
        out->is_warned = sqlite3_column_int(q, 14) != 0;
        out->steps_per_s = sqlite3_column_double(q, 15);
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

int job_at(sqlite3 *db, int64_t seq, struct job_ref *out, struct err *err)
{
    char sql[sizeof ref_columns + 32];
    sqlite3_stmt *q = NULL;
    bool found = false;

    (void)snprintf(sql, sizeof sql, "%s WHERE j.seq=?", ref_columns);
    TRY(db_query(&q, db, err, sql, "i", seq));
    const int rc = read_ref(q, out, &found, err);
    sqlite3_finalize(q);
    CHECK(rc != 0 || found, "no job row %lld", (long long)seq);
    return rc;
}

/* What the rows of a query with one parameter, the job, say; a new reference. A single column named "value"
 * stands for the whole row. */
static int list_rows(json_t **out, sqlite3 *db, const char *sql, int64_t seq, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    *out = json_array();
    TRY(db_query(&q, db, err, sql, "i", seq));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        json_t *item = db_row_json(q);
        json_t *value = json_incref(json_object_get(item, "value"));
        if (value != NULL) {
            json_decref(item);
            item = value;
        }
        rc = json_array_append_new(*out, item) != 0
                 ? FAIL(err, ERR_NO_MEMORY, "no memory for a job")
                 : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* The array of a job: what its grid varies, as the job's own request has it. */
static int shape_array(sqlite3 *db, json_t *job, struct err *err)
{
    const json_int_t seq = json_integer_value(json_object_get(job, "array_seq"));
    const json_t *request = json_object_get(job, "request");
    json_t *found = NULL, *values = json_object(), *point;
    const char *key;

    if (seq == 0) {
        json_decref(values);
        return json_object_set_new(job, "array", json_null()) == 0
                   ? 0
                   : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    int rc = list_rows(&found, db, "SELECT id, grid AS grid_json FROM arrays WHERE seq=?",
                       (int64_t)seq, err);
    json_t *array = json_array_get(found, 0);
    json_object_foreach(json_object_get(array, "grid"), key, point)
    {
        (void)json_object_set(values, key, json_object_get(request, key));
    }
    json_t *shown = json_pack("{s:O?, s:O?, s:o}", "id", json_object_get(array, "id"), "index",
                              json_object_get(job, "array_index"), "values", values);
    if (rc == 0 && (shown == NULL || json_object_set(job, "array", shown) != 0)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    json_decref(shown);
    json_decref(found);
    return rc;
}

/* Devices that it holds, jobs that it waits for, and its array. Queued jobs hold none: most of a long list. */
static int shape_relations(sqlite3 *db, int64_t seq, enum job_state state, json_t *job,
                           struct err *err)
{
    json_t *devices = NULL, *parents = NULL;
    const bool holds = state == JOB_STARTING || state == JOB_RUNNING || state == JOB_STOPPING;

    int rc = list_rows(&devices, db,
                       "SELECT device AS value FROM leases WHERE job_seq=? ORDER BY device",
                       holds ? seq : -1, err);
    rc = rc != 0 ? rc
                 : list_rows(&parents, db,
                             "SELECT p.id AS job, d.kind FROM dependencies d JOIN jobs p"
                             " ON p.seq=d.parent_seq WHERE d.job_seq=? ORDER BY d.parent_seq",
                             seq, err);
    const int bad =
        json_object_set(job, "device_ids", devices) | json_object_set(job, "depends_on", parents);
    json_decref(devices);
    json_decref(parents);
    rc = rc != 0 || bad == 0 ? rc : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    rc = rc != 0 ? rc : shape_array(db, job, err);
    (void)json_object_del(job, "array_seq");
    (void)json_object_del(job, "array_index");
    return rc;
}

/* The reason of a waiting job: why it is back in the queue, and what it waits for. */
void job_say_why(json_t *job, const char *waits_for)
{
    const char *back = json_string_value(json_object_get(job, "back"));
    json_t *text = back != NULL && waits_for != NULL ? json_sprintf("%s; %s", back, waits_for)
                   : back != NULL                    ? json_string(back)
                   : waits_for != NULL               ? json_string(waits_for)
                                                     : json_null();

    (void)json_object_set_new(job, "reason", text);
}

static void make_boolean(json_t *job, const char *key)
{
    const bool is = json_integer_value(json_object_get(job, key)) != 0;

    (void)json_object_set_new(job, key, json_boolean(is));
}

/* How its devices are shared out, as every field of its request has it: "tp 2 x dp 2"; null for one device. */
static json_t *layout_json(const json_t *resolved)
{
    struct mesh_sizes mesh = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
    const struct {
        const char *field;
        int *size;
    } axes[] = {{"tensor_model_parallel_size", &mesh.tp},
                {"context_parallel_size", &mesh.cp},
                {"pipeline_model_parallel_size", &mesh.pp}};
    int devices = (int)json_integer_value(json_object_get(resolved, "devices"));
    char text[PLAN_LAYOUT];

    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        const json_int_t size = json_integer_value(json_object_get(resolved, axes[i].field));
        *axes[i].size = size > 1 && size <= MESH_RANKS ? (int)size : 1;
        devices /= *axes[i].size;
    }
    mesh.dp = devices > 1 ? devices : 1;
    const json_int_t ep =
        json_integer_value(json_object_get(resolved, "expert_model_parallel_size"));
    mesh.ep = ep > 1 && ep <= MESH_RANKS ? (int)ep : 1;
    const json_int_t etp =
        json_integer_value(json_object_get(resolved, "expert_tensor_parallel_size"));
    mesh.etp = etp > 0 && etp <= MESH_RANKS ? (int)etp : mesh.tp;
    plan_layout(text, &mesh);
    return text[0] != '\0' ? json_string(text) : json_null();
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
    const int rc =
        json_object_set_new(job, "error", error) |
        json_object_set_new(job, "layout", layout_json(json_object_get(job, "resolved"))) |
        json_object_set_new(job, "allowed_actions", actions);
    (void)json_object_del(job, "error_code");
    (void)json_object_del(job, "error_message");
    (void)json_object_del(job, "error_param");
    make_boolean(job, "preemptible");
    make_boolean(job, "private");
    if (state == JOB_QUEUED) {
        json_t *reason = json_incref(json_object_get(job, "reason"));
        job_say_why(job, json_is_string(reason) ? json_string_value(reason) : "is looked at next");
        json_decref(reason);
    }
    TRY(rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job"));
    return shape_relations(db, seq, state, job, err);
}

/* An array with a private job in it is hidden whole. */
static int hide_array(json_t *job, sqlite3 *db, const struct identity *who, struct err *err)
{
    const char *id = json_string_value(json_object_get(json_object_get(job, "array"), "id"));
    struct array_ref array;

    const int rc = id == NULL ? 0 : array_find(db, id, who, DEED_SEE_JOB, &array, err);
    if (rc == ERR_NOT_FOUND) {
        (void)json_object_set_new(job, "array", json_null());
        return 0;
    }
    return rc;
}

/* Only what `who` may know and ask for. */
static int show_to(json_t *job, sqlite3 *db, const struct identity *who, struct err *err)
{
    const char *owner = json_string_value(json_object_get(job, "owner"));
    const bool own = owner != NULL && strcmp(owner, who->name) == 0;

    if (!may_do(who, DEED_CHANGE_JOB, own ? who->user_id : 0, true)) {
        json_array_clear(json_object_get(job, "allowed_actions"));
    }
    if (may_do(who, DEED_SEE_JOB, 0, true)) {
        return 0; /* all of everybody's */
    }
    TRY(hide_array(job, db, who, err));
    return mentions_hide(job, db, json_string_value(json_object_get(job, "id")), who, err);
}

int job_object(sqlite3 *db, int64_t seq, const struct identity *who, json_t **out, struct err *err)
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
        " j.class AS priority, j.devices, j.device_bytes, j.time_limit_s,"
        " (SELECT a.started_at+max(j.time_limit_s-j.ran_s,0) FROM attempts a"
        "  WHERE a.job_seq=j.seq AND a.n=j.attempt AND a.ended_at IS NULL) AS ends_by_at,"
        " j.preemptible, j.private, NULL AS position, NULL AS expected_start_at,"
        " nullif(j.begin_at,0) AS begin_at, nullif(j.retry_at,0) AS retry_at, j.back,"
        " j.cloned_from, j.array_seq, j.array_index,"
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
    rc = rc != 0 || who == NULL ? rc : show_to(*out, db, who, err);
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

enum deed job_event_deed(const char *type)
{
    char word[40];

    (void)snprintf(word, sizeof word, ",%.30s,", type);
    return strstr(JOB_CONTENTS, word) != NULL ? DEED_READ_JOB : DEED_SEE_JOB;
}

/* NULL without memory. */
static char *one_line(const json_t *job)
{
    return json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

int job_text(sqlite3 *db, int64_t seq, const struct identity *who, char **out, struct err *err)
{
    json_t *job = NULL;

    *out = NULL;
    TRY(job_object(db, seq, who, &job, err));
    *out = one_line(job);
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

/* The job as its owner reads it, and as those who may only look; *others is NULL for a private job. */
static int render_both(sqlite3 *db, const struct job_ref *ref, char **whole, char **others,
                       struct err *err)
{
    static const struct identity onlooker = {.user_id = INT64_MAX, .role = ROLE_VIEWER};
    json_t *job = NULL;
    int rc = 0;

    TRY(job_object(db, ref->seq, NULL, &job, err));
    *whole = one_line(job);
    if (!ref->is_private) {
        rc = show_to(job, db, &onlooker, err);
        *others = rc == 0 ? one_line(job) : NULL;
    }
    json_decref(job);
    if (rc == 0 && (*whole == NULL || (*others == NULL && !ref->is_private))) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    if (rc != 0) {
        free(*whole);
        free(*others);
    }
    return rc;
}

int job_announce(struct tx *tx, const struct job_ref *ref, struct err *err)
{
    char brief[200], *whole = NULL, *others = NULL;

    (void)snprintf(brief, sizeof brief,
                   "{\"t\":%lld,\"attempt\":%d,\"type\":\"job\",\"state\":\"%s\"}",
                   (long long)time(NULL), ref->attempt, job_state_word(ref->state));
    TRY(insert_event(tx, ref, "job", brief, err));
    const int64_t n = sqlite3_last_insert_rowid(tx->db);
    TRY(render_both(tx->db, ref, &whole, &others, err));
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
