/* routes_order.c - what a job asked of the queue, changed: PATCH, its place, and a new job like an old one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/change.h"
#include "server/order.h"
#include "server/submit.h"
#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/json.h"

/* A change of a job on its way through the store. */
struct change_order {
    const struct request *rq;
    struct job_change change;
    json_t *job; /* out: a new reference */
};

static int do_change(struct tx *tx, void *argument, struct err *err)
{
    struct change_order *o = argument;
    struct job_ref ref;

    TRY(job_find(tx->db, o->rq->param[0], o->rq->who, DEED_CHANGE_JOB, &ref, err));
    TRY(job_change(tx, &ref, &o->change, err));
    return job_object(tx->db, ref.seq, o->rq->who, &o->job, err);
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
    struct change_order o = {.rq = rq,
                             .change = {.fields = rq->body,
                                        .values = values,
                                        .settings = rq->app->settings,
                                        .now = time(NULL)}};

    if (values == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    int rc = read_values(rq, values, err);
    rc = rc != 0 ? rc : store_write(rq->app->store, do_change, &o, err);
    free(values); /* it has no objects */
    TRY(rc);
    supervisor_kick(rq->app->supervisor);
    rp->body = o.job;
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
    return job_object(tx->db, ref.seq, m->rq->who, &m->job, err);
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
    TRY(job_object(db, o->ref.seq, NULL, &job, err));
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
