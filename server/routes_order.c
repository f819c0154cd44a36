/* routes_order.c - what a job asked of the queue, changed: PATCH, its place, and a new job like an old one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/order.h"
#include "server/submit.h"
#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/json.h"

/* A change of a job on its way through the store. */
struct change {
    const struct request *rq;
    const struct spec *values; /* what the fields of the body mean */
    struct job_ref ref;
    json_t *resolved; /* owned */
    json_t *job;      /* out: a new reference */
};

/* The columns that a change may touch. */
struct columns {
    char name[DRAFT_NAME], class[DRAFT_CLASS];
    int64_t time_limit_s, begin_at, ran_s;
    bool preemptible, is_private;
};

static bool has(const struct change *c, const char *field)
{
    return json_object_get(c->rq->body, field) != NULL;
}

static const char *resolved_text(const struct change *c, const char *field)
{
    const char *text = json_string_value(json_object_get(c->resolved, field));

    return text != NULL ? text : "";
}

static int load_columns(struct change *c, sqlite3 *db, struct columns *out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT name, class, time_limit_s, begin_at, preemptible, private, resolved,"
                 " ran_s+ifnull((SELECT max(?-a.started_at,0) FROM attempts a WHERE"
                 "  a.job_seq=j.seq AND a.n=j.attempt AND a.ended_at IS NULL),0)"
                 " FROM jobs j WHERE seq=?",
                 "ii", (int64_t)time(NULL), c->ref.seq));
    int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        (void)snprintf(out->name, sizeof out->name, "%s", db_text(q, 0));
        (void)snprintf(out->class, sizeof out->class, "%s", db_text(q, 1));
        out->time_limit_s = sqlite3_column_int64(q, 2);
        out->begin_at = sqlite3_column_int64(q, 3);
        out->preemptible = sqlite3_column_int(q, 4) != 0;
        out->is_private = sqlite3_column_int(q, 5) != 0;
        c->resolved = json_loads(db_text(q, 6), 0, NULL);
        out->ran_s = sqlite3_column_int64(q, 7);
    }
    if (rc == 0 && !json_is_object(c->resolved)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    sqlite3_finalize(q);
    return rc;
}

/* The states in which a field still means something. */
static int check_states(const struct change *c, struct err *err)
{
    const enum job_state s = c->ref.state;
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

static int change_time_limit(const struct change *c, struct columns *to, struct err *err)
{
    TRY(draft_time_limit(c->rq->app->settings, c->values->time_limit_s, &to->time_limit_s, err));
    if (!job_state_is_final(c->ref.state) && to->time_limit_s <= to->ran_s) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "time_limit_s",
                          "time_limit_s is %lld, and the job has run for %lld seconds",
                          (long long)to->time_limit_s, (long long)to->ran_s);
    }
    return 0;
}

/* The fields of the body, over what stands in the row. `words`: the values as spec_json writes them. */
static int apply(struct change *c, const json_t *words, struct columns *to, struct err *err)
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
        TRY(change_time_limit(c, to, err));
    }
    if (has(c, "priority")) {
        (void)snprintf(to->class, sizeof to->class, "%s",
                       json_string_value(json_object_get(words, "priority")));
    }
    const char *preemptible = has(c, "preemptible")
                                  ? json_string_value(json_object_get(words, "preemptible"))
                                  : resolved_text(c, "preemptible");
    to->preemptible = strcmp(preemptible, "yes") == 0 ||
                      (strcmp(preemptible, "no") != 0 &&
                       (strcmp(to->class, "low") == 0 || strcmp(to->class, "idle") == 0));
    return 0;
}

/* What the job object shows as resolved follows. */
static int resolve(struct change *c, const json_t *words, const struct columns *to, char **out,
                   struct err *err)
{
    const char *field;
    json_t *ignored;

    json_object_foreach(c->rq->body, field, ignored)
    {
        (void)json_object_set(c->resolved, field, json_object_get(words, field));
    }
    if (has(c, "time_limit_s")) {
        (void)json_object_set_new(c->resolved, "time_limit_s", json_integer(to->time_limit_s));
    }
    *out = json_dumps(c->resolved, JSON_COMPACT);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

static int write_columns(struct change *c, struct tx *tx, const json_t *words, struct err *err)
{
    struct columns to = {0};
    char *resolved = NULL;

    TRY(load_columns(c, tx->db, &to, err));
    TRY(apply(c, words, &to, err));
    TRY(resolve(c, words, &to, &resolved, err));
    const int rc = db_run(tx->db, err,
                          "UPDATE jobs SET name=?1, class=?2, warned=warned AND time_limit_s>=?3,"
                          " time_limit_s=?3, begin_at=?4, preemptible=?5, private=?6, resolved=?7"
                          " WHERE seq=?8",
                          "ssiiiisi", to.name, to.class, to.time_limit_s, to.begin_at,
                          (int64_t)to.preemptible, (int64_t)to.is_private, resolved, c->ref.seq);
    free(resolved);
    c->ref.is_private = to.is_private;
    return rc;
}

static int do_change(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;
    json_t *words = spec_json(c->values);

    int rc = words == NULL
                 ? FAIL(err, ERR_NO_MEMORY, "no memory for a job")
                 : job_find(tx->db, c->rq->param[0], c->rq->who, DEED_CHANGE_JOB, &c->ref, err);
    rc = rc != 0 ? rc : check_states(c, err);
    rc = rc != 0 ? rc : write_columns(c, tx, words, err);
    rc = rc != 0 ? rc : job_announce(tx, &c->ref, err);
    rc = rc != 0 ? rc : job_object(tx->db, c->ref.seq, &c->job, err);
    json_decref(words);
    json_decref(c->resolved);
    return rc;
}

/* The rows of spec.def judge the values: they are read as fields of the smallest request that there is. */
static int read_values(const struct request *rq, struct spec *out, struct err *err)
{
    static const char *const known[] = {
        "name", "priority", "time_limit_s", "visibility", "preemptible", "begin_at", NULL};
    json_t *request = json_pack("{s:s, s:s}", "training_file", "x", "model", "x");

    int rc = request_only(rq, known, err);
    if (rc == 0 && json_object_size(rq->body) == 0) {
        rc = FAIL(err, ERR_BAD_REQUEST, "give at least one field to change");
    }
    if (rc == 0 && (request == NULL || json_object_update(request, rq->body) != 0)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    rc = rc != 0 ? rc : spec_parse(out, request, err);
    json_decref(request);
    TRY(rc);
    if (!text_is_plain(out->name)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "name", "the name has characters that can't be shown");
    }
    if (out->priority == PRIORITY_URGENT &&
        !may_do(rq->who, DEED_RAISE_JOB, rq->who->user_id, false)) {
        return FAIL_PARAM(err, ERR_FORBIDDEN, "priority",
                          "priority: only an administrator may ask for urgent");
    }
    return 0;
}

int handle_job_change(const struct request *rq, struct reply *rp, struct err *err)
{
    struct spec *values = calloc(1, sizeof *values);
    struct change c = {.rq = rq, .values = values};

    if (values == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    int rc = read_values(rq, values, err);
    rc = rc != 0 ? rc : store_write(rq->app->store, do_change, &c, err);
    free(values); /* it has no objects */
    TRY(rc);
    supervisor_kick(rq->app->supervisor);
    rp->body = c.job;
    return 0;
}

/* A move: where to, as asked. */
struct move {
    const struct request *rq;
    enum order_place place;
    const char *field, *other; /* "before" or "after", and the job named; NULL for first and last */
    json_t *job;               /* out: a new reference */
};

static int do_move(struct tx *tx, void *argument, struct err *err)
{
    struct move *m = argument;
    const struct identity *who = m->rq->who;
    struct job_ref ref, other;

    TRY(job_find(tx->db, m->rq->param[0], who, DEED_CHANGE_JOB, &ref, err));
    if (m->other != NULL) {
        const int rc = job_find(tx->db, m->other, who, DEED_SEE_JOB, &other, err);
        if (rc != 0) {
            err_about(err, m->field);
            return rc;
        }
    }
    TRY(order_move(tx, &ref, m->place, m->other != NULL ? &other : NULL, err));
    return job_object(tx->db, ref.seq, &m->job, err);
}

/* One of before, after and to. */
static int read_move(struct move *m, struct err *err)
{
    static const char *const known[] = {"before", "after", "to", NULL};
    const struct fields f = {m->rq->body, "", ERR_BAD_REQUEST};
    const char *before = NULL, *after = NULL, *to = NULL;

    TRY(request_only(m->rq, known, err));
    TRY(fields_text(&f, "before", FIELD_OPTIONAL, &before, err));
    TRY(fields_text(&f, "after", FIELD_OPTIONAL, &after, err));
    TRY(fields_text(&f, "to", FIELD_OPTIONAL, &to, err));
    if ((before != NULL) + (after != NULL) + (to != NULL) != 1) {
        return FAIL(err, ERR_BAD_REQUEST, "give one of before, after and to");
    }
    if (to != NULL && strcmp(to, "first") != 0 && strcmp(to, "last") != 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "to", "to must be first or last");
    }
    m->other = before != NULL ? before : after;
    m->field = before != NULL ? "before" : "after";
    m->place = before != NULL             ? ORDER_BEFORE
               : after != NULL            ? ORDER_AFTER
               : strcmp(to, "first") == 0 ? ORDER_FIRST
                                          : ORDER_LAST;
    return 0;
}

int handle_job_move(const struct request *rq, struct reply *rp, struct err *err)
{
    struct move m = {.rq = rq};

    TRY(read_move(&m, err));
    TRY(store_write(rq->app->store, do_move, &m, err));
    supervisor_kick(rq->app->supervisor);
    rp->body = m.job;
    return 0;
}

/* The request of an old job. */
struct original {
    const struct request *rq;
    struct job_ref ref;
    json_t *request; /* out: a new reference */
};

static int read_original(sqlite3 *db, void *argument, struct err *err)
{
    struct original *o = argument;
    json_t *job = NULL;

    TRY(job_find(db, o->rq->param[0], o->rq->who, DEED_SEE_JOB, &o->ref, err));
    TRY(job_object(db, o->ref.seq, &job, err));
    o->request = json_incref(json_object_get(job, "request"));
    json_decref(job);
    return 0;
}

/* null takes a field away. */
static int put_changes(json_t *request, const json_t *changes, struct err *err)
{
    const char *field;
    json_t *value;
    int bad = 0;

    json_object_foreach(json_unconst(changes), field, value)
    {
        if (json_is_null(value)) {
            (void)json_object_del(request, field);
        } else {
            bad |= json_object_set(request, field, value);
        }
    }
    return bad == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

int handle_job_clone(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"changes", NULL};
    const struct fields f = {rq->body, "", ERR_BAD_REQUEST};
    const json_t *changes = NULL;
    struct original o = {.rq = rq};
    char what[RANDOM_ID + 16];

    if (rq->body != NULL) {
        TRY(request_only(rq, known, err));
        TRY(fields_object(&f, "changes", FIELD_OPTIONAL, &changes, err));
    }
    TRY(store_read(rq->app->store, read_original, &o, err));
    struct submission s = {.who = rq->who, .request = o.request, .cloned_from = o.ref.id};
    (void)snprintf(what, sizeof what, "clone %s ", o.ref.id);
    int rc = repeat_read(&s.repeat, rq, what, err);
    rc = rc != 0 || changes == NULL ? rc : put_changes(o.request, changes, err);
    rc = rc != 0 ? rc : submit_job(rq->app, &s, err);
    json_decref(o.request);
    TRY(rc);
    submit_reply(rp, &s);
    return 0;
}
