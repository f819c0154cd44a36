/* change.c - what a job asked of the queue, changed. */
#include "server/change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/draft.h"
#include "trainer/base/json.h"

/* The columns that a change may touch. */
struct columns {
    char name[DRAFT_NAME], class[DRAFT_CLASS];
    int64_t time_limit_s, begin_at, ran_s;
    bool preemptible, is_private;
    json_t *resolved; /* owned */
};

static bool has(const struct job_change *c, const char *field)
{
    return json_object_get(c->fields, field) != NULL;
}

static const char *text_of(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));

    return text != NULL ? text : "";
}

static int load_columns(struct columns *out, sqlite3 *db, const struct job_ref *job, int64_t now,
                        struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT name, class, time_limit_s, begin_at, preemptible, private, resolved,"
                 " ran_s+ifnull((SELECT max(?-a.started_at,0) FROM attempts a WHERE"
                 "  a.job_seq=j.seq AND a.n=j.attempt AND a.ended_at IS NULL),0)"
                 " FROM jobs j WHERE seq=?",
                 "ii", now, job->seq));
    int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        (void)snprintf(out->name, sizeof out->name, "%s", db_text(q, 0));
        (void)snprintf(out->class, sizeof out->class, "%s", db_text(q, 1));
        out->time_limit_s = sqlite3_column_int64(q, 2);
        out->begin_at = sqlite3_column_int64(q, 3);
        out->preemptible = sqlite3_column_int(q, 4) != 0;
        out->is_private = sqlite3_column_int(q, 5) != 0;
        out->resolved = json_loads(db_text(q, 6), 0, NULL);
        out->ran_s = sqlite3_column_int64(q, 7);
    }
    if (rc == 0 && !json_is_object(out->resolved)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    sqlite3_finalize(q);
    return rc;
}

/* The states in which a field still means something. */
static int check_states(const struct job_change *c, enum job_state s, struct err *err)
{
    const struct {
        const char *field;
        bool may;
    } rules[] = {
        {"priority", !job_state_is_final(s)},
        {"preemptible", !job_state_is_final(s)},
        {"time_limit_s", s != JOB_SUCCEEDED},
        {"begin_at", s == JOB_QUEUED || s == JOB_PAUSED},
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (has(c, rules[i].field) && !rules[i].may) {
            return FAIL_PARAM(err, ERR_BAD_STATE, rules[i].field,
                              "%s of a job that is %s can't be changed", rules[i].field,
                              job_state_word(s));
        }
    }
    return 0;
}

static int change_time_limit(struct columns *to, const struct job_change *c, enum job_state s,
                             struct err *err)
{
    TRY(draft_time_limit(c->settings, c->values->time_limit_s, &to->time_limit_s, err));
    if (!job_state_is_final(s) && to->time_limit_s <= to->ran_s) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "time_limit_s",
                          "time_limit_s is %lld, and the job has run for %lld seconds",
                          (long long)to->time_limit_s, (long long)to->ran_s);
    }
    return 0;
}

/* The fields, over what stands in the row. `words`: the values as spec_json writes them. */
static int apply(struct columns *to, const struct job_change *c, const json_t *words,
                 enum job_state s, struct err *err)
{
    const struct spec *v = c->values;

    if (has(c, "name")) {
        (void)snprintf(to->name, sizeof to->name, "%s", v->name);
    }
    if (has(c, "visibility")) {
        to->is_private = v->visibility == VISIBLE_PRIVATE;
    }
    if (has(c, "begin_at")) {
        to->begin_at = v->begin_at;
    }
    if (has(c, "time_limit_s")) {
        TRY(change_time_limit(to, c, s, err));
    }
    if (has(c, "priority")) {
        (void)snprintf(to->class, sizeof to->class, "%s", text_of(words, "priority"));
    }
    const char *preemptible = text_of(has(c, "preemptible") ? words : to->resolved, "preemptible");
    to->preemptible = strcmp(preemptible, "yes") == 0 ||
                      (strcmp(preemptible, "no") != 0 &&
                       (strcmp(to->class, "low") == 0 || strcmp(to->class, "idle") == 0));
    return 0;
}

/* What the job object shows as resolved follows. */
static char *resolve(struct columns *to, const struct job_change *c, const json_t *words)
{
    const char *field;
    json_t *ignored;
    int bad = 0;

    json_object_foreach(json_unconst(c->fields), field, ignored)
    {
        bad |= json_object_set(to->resolved, field, json_object_get(words, field));
    }
    if (has(c, "time_limit_s")) {
        bad |= json_object_set_new(to->resolved, "time_limit_s", json_integer(to->time_limit_s));
    }
    return bad == 0 ? json_dumps(to->resolved, JSON_COMPACT) : NULL;
}

static int write_columns(struct tx *tx, struct columns *to, const struct job_ref *job,
                         const struct job_change *c, const json_t *words, struct err *err)
{
    char *resolved = resolve(to, c, words);

    if (resolved == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    const int rc = db_run(tx->db, err,
                          "UPDATE jobs SET name=?1, class=?2, warned=warned AND time_limit_s>=?3,"
                          " time_limit_s=?3, begin_at=?4, preemptible=?5, private=?6, resolved=?7"
                          " WHERE seq=?8",
                          "ssiiiisi", to->name, to->class, to->time_limit_s, to->begin_at,
                          (int64_t)to->preemptible, (int64_t)to->is_private, resolved, job->seq);
    free(resolved);
    return rc;
}

int job_change(struct tx *tx, struct job_ref *job, const struct job_change *c, struct err *err)
{
    struct columns to = {0};
    json_t *words = spec_json(c->values);

    int rc = words == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a job")
                           : check_states(c, job->state, err);
    rc = rc != 0 ? rc : load_columns(&to, tx->db, job, c->now, err);
    rc = rc != 0 ? rc : apply(&to, c, words, job->state, err);
    rc = rc != 0 ? rc : write_columns(tx, &to, job, c, words, err);
    json_decref(words);
    json_decref(to.resolved);
    TRY(rc);
    job->is_private = to.is_private;
    return job_announce(tx, job, err);
}
