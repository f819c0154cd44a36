/* routes_arrays.c - /v1/arrays: jobs over a grid of values. */
#include <stdio.h>
#include <string.h>

#include "server/arrays.h"
#include "server/list.h"
#include "server/supervise.h"
#include "trainer/base/json.h"

int handle_array_new(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"request", "grid", "max_running", "name", NULL};
    const struct fields f = {rq->body, "", ERR_BAD_REQUEST};
    struct array_submission s = {.who = rq->who};

    TRY(request_only(rq, known, err));
    TRY(fields_object(&f, "request", FIELD_REQUIRED, &s.request, err));
    TRY(fields_object(&f, "grid", FIELD_REQUIRED, &s.grid, err));
    TRY(fields_integer(&f, "max_running", FIELD_OPTIONAL, 0, GRID_POINTS, &s.max_running, err));
    TRY(fields_text(&f, "name", FIELD_OPTIONAL, &s.name, err));
    TRY(repeat_read(&s.repeat, rq, "array ", err));
    TRY(array_submit(rq->app, &s, err));
    rp->status = 201;
    rp->body = s.array;
    reply_add(rp, "Location", "/v1/arrays/%s", s.id);
    if (s.was_there) {
        reply_add(rp, "Idempotent-Replayed", "true");
    }
    return 0;
}

static int array_row(sqlite3 *db, sqlite3_stmt *row, const struct identity *who, json_t **out,
                     struct err *err)
{
    (void)who;
    return array_object(db, sqlite3_column_int64(row, 0), false, out, err);
}

/* Of the array a: a private job in it hides it whole. */
#define IS_PRIVATE "EXISTS(SELECT 1 FROM jobs j WHERE j.array_seq=a.seq AND j.private=1)"

int handle_arrays_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = "seq",
        .from = "arrays a WHERE (?1=0 OR user_id=?1 OR NOT " IS_PRIVATE ") AND ?2 IS NULL",
        .order = "seq",
        .number =
            "SELECT seq FROM arrays a WHERE id=?1 AND (?2=0 OR user_id=?2 OR NOT " IS_PRIVATE ")",
        .make = array_row,
        .newest_first = true,
        .limit = 20,
        .most = 100,
        .scope = may_do(rq->who, DEED_SEE_JOB, 0, true) ? 0 : rq->who->user_id,
    };

    return list_reply(rq, rp, &l, err);
}

/* An array and what is asked of it. */
struct array_order {
    const struct request *rq;
    bool save;
    int64_t max_running;
    json_t *array; /* out: a new reference */
};

static int read_array(sqlite3 *db, void *argument, struct err *err)
{
    struct array_order *o = argument;
    struct array_ref ref;

    TRY(array_find(db, o->rq->param[0], o->rq->who, DEED_SEE_JOB, &ref, err));
    return array_object(db, ref.seq, true, &o->array, err);
}

int handle_array_get(const struct request *rq, struct reply *rp, struct err *err)
{
    struct array_order o = {.rq = rq};

    TRY(store_read(rq->app->store, read_array, &o, err));
    rp->body = o.array;
    return 0;
}

static int do_cancel(struct tx *tx, void *argument, struct err *err)
{
    struct array_order *o = argument;
    struct array_ref ref;

    TRY(array_find(tx->db, o->rq->param[0], o->rq->who, DEED_CHANGE_JOB, &ref, err));
    TRY(array_cancel(tx, &ref, o->save, err));
    return array_object(tx->db, ref.seq, true, &o->array, err);
}

int handle_array_cancel(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"save", NULL};
    const struct fields f = {rq->body, "", ERR_BAD_REQUEST};
    struct array_order o = {.rq = rq};

    if (rq->body != NULL) {
        TRY(request_only(rq, known, err));
        TRY(fields_bool(&f, "save", FIELD_OPTIONAL, &o.save, err));
    }
    TRY(store_write(rq->app->store, do_cancel, &o, err));
    supervisor_kick(rq->app->supervisor);
    rp->body = o.array;
    return 0;
}

static int do_change(struct tx *tx, void *argument, struct err *err)
{
    struct array_order *o = argument;
    struct array_ref ref;

    TRY(array_find(tx->db, o->rq->param[0], o->rq->who, DEED_CHANGE_JOB, &ref, err));
    TRY(db_run(tx->db, err, "UPDATE arrays SET max_running=? WHERE seq=?", "ii", o->max_running,
               ref.seq));
    return array_object(tx->db, ref.seq, true, &o->array, err);
}

int handle_array_change(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"max_running", NULL};
    const struct fields f = {rq->body, "", ERR_BAD_REQUEST};
    struct array_order o = {.rq = rq};

    TRY(request_only(rq, known, err));
    TRY(fields_integer(&f, "max_running", FIELD_REQUIRED, 0, GRID_POINTS, &o.max_running, err));
    TRY(store_write(rq->app->store, do_change, &o, err));
    supervisor_kick(rq->app->supervisor);
    rp->body = o.array;
    return 0;
}
