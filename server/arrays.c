/* arrays.c - arrays: jobs over a grid of values. */
#include "server/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/actions.h"
#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/json.h"

/* Bytes of all requests of an array together; of training files that are looked at before. */
enum { ARRAY_BYTES_MAX = 32 << 20, ARRAY_LOOK_BYTES = 64 << 20 };

static const char no_memory[] = "no memory for an array";

/* An array on its way. */
struct array_draft {
    const struct app *app;
    struct array_submission *s;
    struct grid grid;
    const char *name; /* borrowed */
    int64_t created_at, seq;
    struct draft *drafts; /* owned; one a point, the first `made` of them are there */
    int made, folders;
};

static int check_size(const struct array_draft *a, struct err *err)
{
    const size_t bytes = json_dumpb(a->s->request, NULL, 0, JSON_COMPACT) + a->grid.bytes;

    if (bytes > ARRAY_BYTES_MAX / (size_t)a->grid.point_count) {
        return FAIL(err, ERR_TOO_LARGE,
                    "the requests of %d points would have %zu MiB in all, at most %d are allowed",
                    a->grid.point_count, (bytes * (size_t)a->grid.point_count) >> 20,
                    ARRAY_BYTES_MAX >> 20);
    }
    return 0;
}

static int find_name(struct array_draft *a, struct err *err)
{
    const char *own = json_string_value(json_object_get(a->s->request, "name"));

    a->name = a->s->name != NULL ? a->s->name : own != NULL ? own : "array";
    if (strlen(a->name) >= DRAFT_NAME || !text_is_plain(a->name)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "name",
                          "the name has at most %d bytes, all of which can be shown",
                          DRAFT_NAME - 1);
    }
    return 0;
}

/* The request of a point; a new reference. */
static json_t *make_request(const struct array_draft *a, int point)
{
    char name[DRAFT_NAME];
    json_t *values = grid_point(&a->grid, point);
    json_t *out = json_copy(json_unconst(a->s->request));
    int bad = out == NULL || values == NULL;

    grid_name(name, sizeof name, &a->grid, point, a->name);
    bad = bad || json_object_set_new(out, "name", json_string(name)) != 0 ||
          json_object_update(out, values) != 0;
    json_decref(values);
    if (bad) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The drafts that were made for a combination of values first, by the combination's number. */
struct firsts {
    const struct draft *by_shape[GRID_POINTS], *by_files[GRID_POINTS];
    int64_t look_left;
};

static int make_draft(struct array_draft *a, int point, struct firsts *f, struct err *err)
{
    const int shape = grid_shape(&a->grid, point), files = grid_files(&a->grid, point);
    const struct draft_like like = {
        .shape = f->by_shape[shape], .files = f->by_files[files], .look_left = &f->look_left};
    struct draft *d = &a->drafts[point];
    json_t *request = make_request(a, point);

    if (request == NULL) {
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    const int rc = draft_make(d, a->app, a->s->who, request, &like, err);
    json_decref(request);
    if (rc != 0) {
        const struct err why = *err;
        return FAIL_PARAM(err, why.code, why.param, "point %d of the grid: %s", point, why.text);
    }
    d->created_at = a->created_at;
    d->array_index = point;
    f->by_shape[shape] = like.shape != NULL ? like.shape : d;
    f->by_files[files] = like.files != NULL ? like.files : d;
    return 0;
}

static int make_drafts(struct array_draft *a, struct err *err)
{
    struct firsts *f = calloc(1, sizeof *f);
    int rc = 0;

    a->drafts = calloc((size_t)a->grid.point_count, sizeof *a->drafts);
    if (f == NULL || a->drafts == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, no_memory);
    } else {
        f->look_left = ARRAY_LOOK_BYTES;
    }
    while (rc == 0 && a->made < a->grid.point_count) {
        rc = make_draft(a, a->made, f, err);
        a->made += rc == 0;
    }
    free(f);
    return rc;
}

static int find_earlier(sqlite3 *db, void *argument, struct err *err)
{
    struct array_draft *a = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;

    if (a->s->repeat.key == NULL) {
        return 0;
    }
    TRY(db_query(&q, db, err,
                 "SELECT seq, id, body_sha256 FROM arrays WHERE user_id=? AND idempotency_key=?",
                 "is", a->s->who->user_id, a->s->repeat.key));
    int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        if (strcmp(db_text(q, 2), a->s->repeat.digest) != 0) {
            rc = FAIL(err, ERR_BAD_STATE,
                      "this Idempotency-Key was used for another request; use a new one");
        }
        a->s->was_there = true;
        a->seq = sqlite3_column_int64(q, 0);
        (void)snprintf(a->s->id, sizeof a->s->id, "%s", db_text(q, 1));
    }
    sqlite3_finalize(q);
    return rc != 0 || !row ? rc : array_object(db, a->seq, true, &a->s->array, err);
}

static int insert_array(struct tx *tx, struct array_draft *a, struct err *err)
{
    const struct array_submission *s = a->s;
    char *request = json_dumps(s->request, JSON_COMPACT);
    char *grid = json_dumps(s->grid, JSON_COMPACT);

    int rc = request == NULL || grid == NULL
                 ? FAIL(err, ERR_NO_MEMORY, no_memory)
                 : db_run(tx->db, err,
                          "INSERT INTO arrays(id, user_id, name, request, grid, total, max_running,"
                          " created_at, idempotency_key, body_sha256) VALUES(?,?,?,?,?,?,?,?,?,?)",
                          "sisssiiiss", s->id, s->who->user_id, a->name, request, grid,
                          (int64_t)a->grid.point_count, s->max_running, a->created_at,
                          s->repeat.key, s->repeat.digest);
    free(request);
    free(grid);
    a->seq = sqlite3_last_insert_rowid(tx->db);
    return rc;
}

static int add_array(struct tx *tx, void *argument, struct err *err)
{
    struct array_draft *a = argument;

    TRY(find_earlier(tx->db, a, err));
    if (a->s->was_there) {
        return 0;
    }
    TRY(draft_check_room(tx, a->app, a->s->who, a->grid.point_count, err));
    TRY(insert_array(tx, a, err));
    for (int i = 0; i < a->made; i++) {
        a->drafts[i].array_seq = a->seq;
        TRY(draft_insert(tx, &a->drafts[i], a->app, a->s->who, err));
    }
    return array_object(tx->db, a->seq, true, &a->s->array, err);
}

/* The folders aside, the rows, the folders' names: as for a single job. */
static int make_array(struct array_draft *a, struct err *err)
{
    int rc = 0;

    while (rc == 0 && a->folders < a->made) {
        rc = draft_make_folder(&a->drafts[a->folders++], a->app, a->s->who, err);
    }
    rc = rc != 0 ? rc : store_write(a->app->store, add_array, a, err);
    for (int i = 0; i < a->folders; i++) {
        if (rc != 0 || a->s->was_there) {
            draft_drop_folder(&a->drafts[i], a->app);
        } else {
            draft_name_folder(&a->drafts[i], a->app);
        }
    }
    if (rc == 0) {
        supervisor_kick(a->app->supervisor);
    }
    return rc;
}

int array_submit(const struct app *app, struct array_submission *s, struct err *err)
{
    struct array_draft a = {.app = app, .s = s, .created_at = time(NULL)};

    TRY(grid_read(&a.grid, s->grid, err));
    TRY(check_size(&a, err));
    TRY(find_name(&a, err));
    TRY(store_read(app->store, find_earlier, &a, err));
    if (s->was_there) {
        return 0;
    }
    random_id(s->id, "array");
    int rc = make_drafts(&a, err);
    rc = rc != 0 ? rc : make_array(&a, err);
    for (int i = 0; i < a.made; i++) {
        draft_free(&a.drafts[i]);
    }
    free(a.drafts);
    return rc;
}

int array_find(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
               struct array_ref *out, struct err *err)
{
    char what[RANDOM_ID + 24];
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT seq, user_id, id, EXISTS(SELECT 1 FROM jobs j WHERE j.array_seq=a.seq"
                 " AND j.private=1) FROM arrays a WHERE id=?",
                 "s", id));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        out->seq = sqlite3_column_int64(q, 0);
        out->user_id = sqlite3_column_int64(q, 1);
        (void)snprintf(out->id, sizeof out->id, "%s", db_text(q, 2));
        out->is_private = sqlite3_column_int(q, 3) != 0;
    }
    sqlite3_finalize(q);
    TRY(rc);
    if (!row) {
        return FAIL(err, ERR_NOT_FOUND, "there is no array %.40s", id);
    }
    (void)snprintf(what, sizeof what, "array %.40s", out->id);
    return authorise(who, deed, out->user_id, out->is_private, what, err);
}

/* How many jobs are in each state. */
static int count_states(sqlite3 *db, int64_t seq, json_t *array, struct err *err)
{
    sqlite3_stmt *q = NULL;
    json_t *counts = json_object();
    bool row = true;

    for (int s = 0; s < JOB_STATE_COUNT; s++) {
        (void)json_object_set_new(counts, job_state_word((enum job_state)s), json_integer(0));
    }
    int rc = json_object_set_new(array, "counts", counts) != 0
                 ? FAIL(err, ERR_NO_MEMORY, no_memory)
                 : db_query(&q, db, err,
                            "SELECT state, COUNT(*) FROM jobs WHERE array_seq=? GROUP BY state",
                            "i", seq);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    while (rc == 0 && row) {
        (void)json_object_set_new(counts, db_text(q, 0), json_integer(sqlite3_column_int64(q, 1)));
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* The lowest loss of an evaluation among all jobs, and whose it is; null where there is none. */
static int find_best(sqlite3 *db, int64_t seq, json_t *array, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT j.id AS job, j.array_index AS 'index', e.step, e.loss AS eval_loss"
                 " FROM jobs j JOIN evals e ON e.job_seq=j.seq"
                 " WHERE j.array_seq=? AND e.loss IS NOT NULL"
                 " ORDER BY e.loss, j.array_index, e.step LIMIT 1",
                 "i", seq));
    int rc = db_next(q, &row, err);
    if (rc == 0 && json_object_set_new(array, "best", row ? db_row_json(q) : json_null()) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    sqlite3_finalize(q);
    return rc;
}

static int add_point(json_t *points, sqlite3_stmt *q, const struct grid *g, struct err *err)
{
    json_t *point = db_row_json(q);
    const json_int_t index = json_integer_value(json_object_get(point, "index"));

    if (point == NULL || index < 0 || index >= g->point_count ||
        json_object_set_new(point, "values", grid_point(g, (int)index)) != 0 ||
        json_array_append(points, point) != 0) {
        json_decref(point);
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    json_decref(point);
    return 0;
}

/* A row for each point, in order. */
static int add_points(sqlite3 *db, int64_t seq, json_t *array, struct err *err)
{
    sqlite3_stmt *q = NULL;
    json_t *points = json_array();
    struct grid g;
    bool row = true;

    if (json_object_set_new(array, "points", points) != 0) {
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    TRY(grid_read(&g, json_object_get(array, "grid"), err));
    TRY(db_query(&q, db, err,
                 "SELECT j.array_index AS 'index', j.id AS job, j.name, j.state, j.step,"
                 " j.total_steps, j.loss, j.eval_loss,"
                 " (SELECT min(e.loss) FROM evals e WHERE e.job_seq=j.seq) AS best_eval_loss"
                 " FROM jobs j WHERE j.array_seq=? ORDER BY j.array_index",
                 "i", seq));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        rc = add_point(points, q, &g, err);
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

int array_object(sqlite3 *db, int64_t seq, bool with_points, json_t **out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    *out = NULL;
    TRY(db_query(&q, db, err,
                 "SELECT a.id, 'array' AS object, a.name, u.name AS owner, a.total, a.max_running,"
                 " a.created_at, a.request AS request_json, a.grid AS grid_json"
                 " FROM arrays a JOIN users u ON u.id=a.user_id WHERE a.seq=?",
                 "i", seq));
    int rc = db_next(q, &row, err);
    *out = rc == 0 && row ? db_row_json(q) : NULL;
    sqlite3_finalize(q);
    if (rc == 0 && *out == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    rc = rc != 0 ? rc : count_states(db, seq, *out, err);
    rc = rc != 0 ? rc : find_best(db, seq, *out, err);
    rc = rc != 0 || !with_points ? rc : add_points(db, seq, *out, err);
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int array_cancel(struct tx *tx, const struct array_ref *a, bool save, struct err *err)
{
    sqlite3_stmt *q = NULL;
    struct job_ref job;
    bool row = true;
    int rc = 0;

    /* a query for each: the rows change under one that walks them */
    for (int64_t last = 0; rc == 0 && row;) {
        rc = db_query(&q, tx->db, err,
                      "SELECT seq, id FROM jobs WHERE array_seq=? AND seq>?"
                      " AND state NOT IN('succeeded','failed','cancelled') ORDER BY seq LIMIT 1",
                      "ii", a->seq, last);
        rc = rc != 0 ? rc : db_next(q, &row, err);
        if (rc == 0 && row) {
            last = sqlite3_column_int64(q, 0);
            rc = job_find(tx->db, db_text(q, 1), NULL, DEED_CHANGE_JOB, &job, err);
            rc = rc != 0 ? rc : job_cancel(tx, &job, save, err);
        }
        sqlite3_finalize(q);
        q = NULL;
    }
    return rc;
}
