/* routes_models.c - what lies on the machine: models of roots, checkpoints, files of roots. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/list.h"
#include "server/references.h"
#include "server/roots.h"
#include "server/supervise.h"
#include "trainer/base/io.h"

enum { MODELS_OF_RUNS = 200 };

/* The rows of a user's checkpoints. */
struct model_order {
    int64_t user_id;
    json_t *rows; /* owned by the caller */
};

/* The newest first. */
static int list_checkpoints(sqlite3 *db, void *argument, struct err *err)
{
    struct model_order *o = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT j.id||':'||c.step AS id, j.id AS job, c.dir, c.created_at, u.name AS owner"
                 " FROM checkpoints c JOIN jobs j ON j.seq=c.job_seq JOIN users u ON u.id=j.user_id"
                 " WHERE j.user_id=? ORDER BY j.seq DESC, c.step DESC LIMIT ?",
                 "ii", o->user_id, (int64_t)MODELS_OF_RUNS));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        if (json_array_append_new(o->rows, db_row_json(q)) != 0) {
            rc = FAIL(err, ERR_NO_MEMORY, "no memory for the list");
        }
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

static const char *text_of(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static int add_model(const struct app *app, const json_t *row, json_t *out, struct err *err)
{
    char dir[SETTING_TEXT + 64], path[SETTING_TEXT + 256];
    struct err gone = {0};
    int fd = -1;

    job_dir(dir, sizeof dir, app->settings, text_of(row, "job"));
    (void)snprintf(path, sizeof path, "%s/%s", dir, text_of(row, "dir"));
    if (io_open_dir(&fd, path, &gone) != 0) {
        return 0; /* deleted just now */
    }
    json_t *model = json_pack("{s:O, s:s, s:O, s:O}", "id", json_object_get(row, "id"), "object",
                              "model", "created", json_object_get(row, "created_at"), "owned_by",
                              json_object_get(row, "owner"));
    const int rc = model != NULL && json_array_append_new(out, model) == 0
                       ? model_describe(fd, model, err)
                       : FAIL(err, ERR_NO_MEMORY, "no memory for a model");
    (void)close(fd);
    return rc;
}

/* The rows are read in a moment, the folders behind them without the store. */
static int add_checkpoints(const struct request *rq, json_t *out, struct err *err)
{
    struct model_order o = {.user_id = rq->who->user_id, .rows = json_array()};
    const json_t *row = NULL;
    size_t i = 0;

    int rc = o.rows == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for the list")
                            : store_read(rq->app->store, list_checkpoints, &o, err);
    json_array_foreach(o.rows, i, row)
    {
        rc = rc != 0 ? rc : add_model(rq->app, row, out, err);
    }
    json_decref(o.rows);
    return rc;
}

int handle_models_list(const struct request *rq, struct reply *rp, struct err *err)
{
    json_t *out = NULL;

    TRY(roots_list(rq->app->roots, ROOT_MODELS, &out, err));
    const int rc = add_checkpoints(rq, out, err);
    if (rc != 0) {
        json_decref(out);
        return rc;
    }
    return list_whole(rp, out, err);
}

int handle_model_get(const struct request *rq, struct reply *rp, struct err *err)
{
    const char *id = rq->param[0];
    const bool is_run = strncmp(id, "job-", 4) == 0;
    char path[ROOT_PATH];
    struct stat st;
    int fd = -1;

    TRY(references_model(rq->app, rq->who, id, path, err));
    if (io_open_dir(&fd, path, err) != 0 || fstat(fd, &st) != 0) {
        return FAIL_PARAM(err, ERR_NOT_FOUND, "model", "the model is not there any more");
    }
    rp->body = json_pack("{s:s, s:s, s:I, s:s}", "id", id, "object", "model", "created",
                         (json_int_t)st.st_mtime, "owned_by", is_run ? rq->who->name : "machine");
    const int rc = rp->body != NULL ? model_describe(fd, rp->body, err)
                                    : FAIL(err, ERR_NO_MEMORY, "no memory for a model");
    (void)close(fd);
    return rc;
}

int handle_data_list(const struct request *rq, struct reply *rp, struct err *err)
{
    json_t *items = NULL;

    TRY(roots_list(rq->app->roots, ROOT_DATA, &items, err));
    return list_whole(rp, items, err);
}
