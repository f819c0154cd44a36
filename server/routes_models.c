/* routes_models.c - what lies on the machine: models of roots, checkpoints, files of roots. */
#include <stdio.h>
#include <unistd.h>

#include "server/list.h"
#include "server/roots.h"
#include "server/supervise.h"
#include "trainer/base/io.h"

enum { MODELS_OF_RUNS = 200 };

struct model_order {
    const struct request *rq;
    json_t *out;
};

static int add_checkpoint(const struct model_order *o, sqlite3_stmt *q, struct err *err)
{
    char dir[SETTING_TEXT + 64], path[SETTING_TEXT + 256];
    struct err gone = {0};
    int fd = -1;

    job_dir(dir, sizeof dir, o->rq->app->settings, db_text(q, 0));
    (void)snprintf(path, sizeof path, "%s/%s", dir, db_text(q, 2));
    if (io_open_dir(&fd, path, &gone) != 0) {
        return 0; /* deleted just now */
    }
    json_t *model = json_pack(
        "{s:o, s:s, s:I, s:s}", "id",
        json_sprintf("%s:%lld", db_text(q, 0), (long long)sqlite3_column_int64(q, 1)), "object",
        "model", "created", (json_int_t)sqlite3_column_int64(q, 3), "owned_by", db_text(q, 4));
    int rc = model != NULL && json_array_append_new(o->out, model) == 0
                 ? model_describe(fd, model, err)
                 : FAIL(err, ERR_NO_MEMORY, "no memory for a model");
    (void)close(fd);
    return rc;
}

/* Checkpoints of the user's own runs, the newest first. */
static int list_checkpoints(sqlite3 *db, void *argument, struct err *err)
{
    const struct model_order *o = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT j.id, c.step, c.dir, c.created_at, u.name FROM checkpoints c"
                 " JOIN jobs j ON j.seq=c.job_seq JOIN users u ON u.id=j.user_id"
                 " WHERE j.user_id=? ORDER BY j.seq DESC, c.step DESC LIMIT ?",
                 "ii", o->rq->who->user_id, (int64_t)MODELS_OF_RUNS));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        rc = add_checkpoint(o, q, err);
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

int handle_models_list(const struct request *rq, struct reply *rp, struct err *err)
{
    struct model_order o = {.rq = rq};

    TRY(roots_list(rq->app->roots, ROOT_MODELS, &o.out, err));
    const int rc = store_read(rq->app->store, list_checkpoints, &o, err);
    if (rc != 0) {
        json_decref(o.out);
        return rc;
    }
    return list_whole(rp, o.out, err);
}

int handle_data_list(const struct request *rq, struct reply *rp, struct err *err)
{
    json_t *items = NULL;

    TRY(roots_list(rq->app->roots, ROOT_DATA, &items, err));
    return list_whole(rp, items, err);
}
