/* routes_queue.c - /v1/queue: what runs, what waits for what, and who used how much. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/arrays.h"
#include "server/board.h"
#include "server/inventory.h"
#include "server/list.h"
#include "server/users.h"

enum { WAITING_LIMIT = 1000, WAITING_MOST = 100000 };

/* The answer while it is made. */
struct queue_answer {
    const struct request *rq;
    int64_t now;
    int64_t *seqs; /* owned; waiting jobs in their order */
    int count, total;
    json_t *running, *waiting, *users, *reservations, *head; /* owned */
    char array[RANDOM_ID]; /* the one asked about last: rows of an array stand together */
    bool hides_array;
};

static const char running_sql[] =
    "SELECT j.seq, j.id AS job, j.name, u.name AS owner, j.class AS priority, j.state,"
    " a.started_at, a.started_at+max(j.time_limit_s-j.ran_s,0) AS ends_by_at,"
    " NULL AS expected_end_at, j.private, j.user_id"
    " FROM jobs j INDEXED BY jobs_live JOIN users u ON u.id=j.user_id"
    " LEFT JOIN attempts a ON a.job_seq=j.seq AND a.n=j.attempt"
    " WHERE j.state NOT IN('succeeded','failed','cancelled')"
    " AND j.state IN('starting','running','stopping') ORDER BY a.started_at, j.seq";

/* "queued" is there for the board, and goes again. */
static const char waiting_sql[] =
    "SELECT j.seq, NULL AS position, j.id AS job, j.name, u.name AS owner, j.class AS priority,"
    " j.devices, j.device_bytes, j.back, j.reason, NULL AS reason_code, NULL AS expected_start_at,"
    " j.created_at AS submitted_at, (SELECT a.id FROM arrays a WHERE a.seq=j.array_seq) AS array,"
    " j.state, j.private, j.user_id"
    " FROM jobs j JOIN users u ON u.id=j.user_id WHERE j.seq=? AND j.state='queued'";

/* The row's array goes where the asker may not see it: another's, with a private job in it. */
static int hide_array(struct queue_answer *a, sqlite3 *db, json_t *row, struct err *err)
{
    const char *id = json_string_value(json_object_get(row, "array"));
    struct array_ref array;

    if (id != NULL && strcmp(id, a->array) != 0) {
        const int rc = array_find(db, id, a->rq->who, DEED_SEE_JOB, &array, err);
        TRY(rc == ERR_NOT_FOUND ? 0 : rc);
        (void)snprintf(a->array, sizeof a->array, "%s", id);
        a->hides_array = rc != 0;
    }
    if (id != NULL && a->hides_array) {
        (void)json_object_set_new(row, "array", json_null());
    }
    return 0;
}

/* A row as the asker may see it. Of another's private job only that it is there. */
static void hide(const struct queue_answer *a, json_t *row)
{
    const int64_t owner = json_integer_value(json_object_get(row, "user_id"));
    const bool is_private = json_integer_value(json_object_get(row, "private")) != 0;

    if (!may_do(a->rq->who, DEED_SEE_JOB, owner, is_private)) {
        (void)json_object_set_new(row, "job", json_null());
        (void)json_object_set_new(row, "name", json_null());
        (void)json_object_set_new(row, "owner", json_null());
        (void)json_object_set_new(row, "array", json_null());
    }
    (void)json_object_del(row, "seq");
    (void)json_object_del(row, "user_id");
    (void)json_object_del(row, "private");
}

static int list_devices(sqlite3 *db, json_t *row, struct err *err)
{
    json_t *ids = json_array();
    sqlite3_stmt *q = NULL;
    bool more = true;

    int rc = db_query(&q, db, err, "SELECT device FROM leases WHERE job_seq=? ORDER BY device", "i",
                      (int64_t)json_integer_value(json_object_get(row, "seq")));
    rc = rc != 0 ? rc : db_next(q, &more, err);
    while (rc == 0 && more) {
        (void)json_array_append_new(ids, json_string(db_text(q, 0)));
        rc = db_next(q, &more, err);
    }
    sqlite3_finalize(q);
    return json_object_set_new(row, "devices", ids) == 0 || rc != 0
               ? rc
               : FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
}

static int read_running(struct queue_answer *a, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool more = true;

    int rc = db_query(&q, db, err, running_sql, "");
    rc = rc != 0 ? rc : db_next(q, &more, err);
    while (rc == 0 && more) {
        json_t *row = db_row_json(q);
        rc = row == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for the queue")
                         : list_devices(db, row, err);
        if (rc == 0) {
            board_tell(a->rq->app->board, sqlite3_column_int64(q, 0), row);
            hide(a, row);
            (void)json_array_append(a->running, row);
            rc = db_next(q, &more, err);
        }
        json_decref(row);
    }
    sqlite3_finalize(q);
    return rc;
}

static int read_waiting(struct queue_answer *a, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *q = NULL;

    int rc = db_query(&q, db, err, waiting_sql, "i", INT64_C(0));
    for (int k = 0; k < a->count && rc == 0; k++) {
        bool found = false;
        rc = db_bind(q, err, "i", a->seqs[k]);
        rc = rc != 0 ? rc : db_next(q, &found, err);
        if (rc != 0 || !found) {
            continue; /* it does not wait any more */
        }
        json_t *row = db_row_json(q);
        board_tell(a->rq->app->board, a->seqs[k], row);
        rc = hide_array(a, db, row, err);
        hide(a, row);
        (void)json_object_del(row, "back");
        (void)json_object_del(row, "state");
        if (json_array_append_new(a->waiting, row) != 0) {
            rc = FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
        }
    }
    sqlite3_finalize(q);
    return rc;
}

/* What somebody uses of the machine, as a part of what all do. */
static void add_shares(json_t *users)
{
    double all = 0;
    size_t i = 0;
    json_t *one = NULL;

    json_array_foreach(users, i, one)
    {
        all += json_number_value(json_object_get(one, "usage_s"));
    }
    json_array_foreach(users, i, one)
    {
        const double used = json_number_value(json_object_get(one, "usage_s"));
        (void)json_object_set_new(one, "share", json_real(all > 0 ? used / all : 0.0));
    }
}

static int read_users(struct queue_answer *a, sqlite3 *db, struct err *err)
{
    static const char *const kept[] = {"running", "waiting", "devices_held", "usage_s"};
    sqlite3_stmt *q = NULL;
    bool more = true;

    int rc =
        db_query(&q, db, err,
                 "SELECT id FROM users WHERE NOT disabled AND (id IN(SELECT user_id FROM usage)"
                 " OR id IN(SELECT user_id FROM jobs INDEXED BY jobs_live"
                 "  WHERE state NOT IN('succeeded','failed','cancelled'))) ORDER BY name",
                 "");
    rc = rc != 0 ? rc : db_next(q, &more, err);
    while (rc == 0 && more) {
        json_t *user = NULL, *row = json_object();
        rc = user_object(db, sqlite3_column_int64(q, 0), a->rq->app->settings, a->now, &user, err);
        if (rc == 0) {
            const json_t *use = json_object_get(user, "use");
            (void)json_object_set(row, "name", json_object_get(user, "name"));
            for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
                (void)json_object_set(row, kept[i], json_object_get(use, kept[i]));
            }
            (void)json_object_set(row, "limits", json_object_get(user, "limits"));
            (void)json_array_append(a->users, row);
            rc = db_next(q, &more, err);
        }
        json_decref(user);
        json_decref(row);
    }
    sqlite3_finalize(q);
    add_shares(a->users);
    return rc;
}

static int read_reservations(struct queue_answer *a, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool more = true;

    int rc = db_query(&q, db, err,
                      "SELECT r.id, r.from_at, r.to_at, r.devices, u.name AS user, r.note"
                      " FROM reservations r LEFT JOIN users u ON u.id=r.user_id WHERE r.to_at>?"
                      " ORDER BY r.from_at, r.seq",
                      "i", a->now);
    rc = rc != 0 ? rc : db_next(q, &more, err);
    while (rc == 0 && more) {
        rc = json_array_append_new(a->reservations, db_row_json(q)) == 0
                 ? db_next(q, &more, err)
                 : FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
    }
    sqlite3_finalize(q);
    return rc;
}

/* The job that devices are kept for. */
static int read_head(struct queue_answer *a, sqlite3 *db, struct err *err)
{
    const struct machine *m = inventory_machine(a->rq->app->inventory);
    int64_t seq = 0, at = 0;
    uint64_t devices = 0;
    struct job_ref job;
    json_t *ids;

    if (!board_head(a->rq->app->board, &seq, &at, &devices)) {
        a->head = json_null();
        return 0;
    }
    TRY(job_at(db, seq, &job, err));
    ids = json_array();
    for (int d = 0; d < m->device_count; d++) {
        if ((devices >> d & 1U) != 0) {
            (void)json_array_append_new(ids, json_string(m->devices[d].id));
        }
    }
    const bool is_seen = may_do(a->rq->who, DEED_SEE_JOB, job.user_id, job.is_private);
    a->head =
        json_pack("{s:o, s:o, s:o}", "job", is_seen ? json_string(job.id) : json_null(), "at",
                  at > 0 ? json_integer(at > a->now ? at : a->now) : json_null(), "devices", ids);
    return a->head != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
}

static int read_queue(sqlite3 *db, void *argument, struct err *err)
{
    struct queue_answer *a = argument;

    TRY(read_running(a, db, err));
    TRY(read_waiting(a, db, err));
    TRY(read_users(a, db, err));
    TRY(read_reservations(a, db, err));
    return read_head(a, db, err);
}

int handle_queue(const struct request *rq, struct reply *rp, struct err *err)
{
    struct queue_answer a = {.rq = rq,
                             .now = time(NULL),
                             .running = json_array(),
                             .waiting = json_array(),
                             .users = json_array(),
                             .reservations = json_array()};
    int64_t limit = 0;

    int rc = request_number(rq, "limit", 0, WAITING_MOST, WAITING_LIMIT, &limit, err);
    rc = rc != 0 ? rc : board_order(rq->app->board, (int)limit, &a.seqs, &a.count, &a.total, err);
    rc = rc != 0 ? rc : store_read(rq->app->store, read_queue, &a, err);
    rp->body = json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o?}", "object", "queue", "now",
                         (json_int_t)a.now, "waiting_count", (json_int_t)a.total, "running",
                         a.running, "waiting", a.waiting, "users", a.users, "reservations",
                         a.reservations, "head", a.head);
    free(a.seqs);
    return rc != 0 || rp->body != NULL ? rc : FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
}
