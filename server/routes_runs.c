/* routes_runs.c - what a run said and made: events, curves, log, checkpoints. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/curve.h"
#include "server/jobs.h"
#include "server/list.h"
#include "server/range.h"
#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/io.h"
#include "trainer/ckpt/manifest.h"
#include "trainer/protocol.h"

enum { RUN_PATH = SETTING_TEXT + 256 };

/* Of the events e: the types listed in ?2. */
#define OF_TYPE " AND (?2 IS NULL OR instr(','||?2||',', ','||e.type||','))"

/* A job and a part of what it has. */
struct run_order {
    const struct request *rq;
    enum deed deed; /* SEE_JOB unless said otherwise */
    struct job_ref ref;
    int64_t from, to, points; /* of a curve                */
    int64_t step;             /* of a checkpoint; -1: newest */
    json_t *out;              /* owned by the caller        */
};

static int find_job(sqlite3 *db, void *argument, struct err *err)
{
    struct run_order *o = argument;

    return job_find(db, o->rq->param[0], o->rq->who, o->deed, &o->ref, err);
}

/* {"id", "object", "job", "created_at"} and what the run wrote. */
static int event_row(sqlite3 *db, sqlite3_stmt *row, const struct identity *who, json_t **out,
                     struct err *err)
{
    (void)db;
    (void)who;
    *out = json_loads(db_text(row, 2), 0, NULL);
    if (*out == NULL) {
        *out = json_object();
    }
    int rc = json_object_set_new(
        *out, "id",
        json_sprintf("%s-%lld", db_text(row, 3), (long long)sqlite3_column_int64(row, 0)));
    rc |= json_object_set_new(*out, "object", json_string("event"));
    rc |= json_object_set_new(*out, "type", json_string(db_text(row, 1)));
    rc |= json_object_set_new(*out, "job", json_string(db_text(row, 4)));
    rc |= json_object_set_new(
        *out, "created_at",
        json_integer((json_int_t)json_number_value(json_object_get(*out, "t"))));
    return rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for an event");
}

int handle_job_events(const struct request *rq, struct reply *rp, struct err *err)
{
    struct run_order o = {.rq = rq};

    TRY(store_read(rq->app->store, find_job, &o, err));
    const bool reads = may_do(rq->who, DEED_READ_JOB, o.ref.user_id, o.ref.is_private);
    const struct listing l = {
        .columns = "e.n, e.type, e.body, (SELECT value FROM about WHERE key='epoch'),"
                   " (SELECT id FROM jobs WHERE seq=?1)",
        .from = reads ? "events e WHERE e.job_seq=?1" OF_TYPE
                      : "events e WHERE e.job_seq=?1" OF_TYPE " AND NOT instr('" JOB_CONTENTS
                        "', ','||e.type||',')",
        .order = "e.n",
        .number = "SELECT n FROM events WHERE n=CAST(substr(?1, instr(?1,'-')+1) AS INTEGER) AND"
                  " substr(?1, 1, instr(?1,'-')-1)=(SELECT value FROM about WHERE key='epoch')",
        .make = event_row,
        .limit = 100,
        .most = 1000,
        .scope = o.ref.seq,
        .filter = gate_query(rq->in, "type"),
    };
    return list_reply(rq, rp, &l, err);
}

static int read_curve(sqlite3 *db, void *argument, struct err *err)
{
    struct run_order *o = argument;

    TRY(find_job(db, o, err));
    return curve_read(db, o->ref.seq, o->from, o->to, o->points, &o->out, err);
}

int handle_job_metrics(const struct request *rq, struct reply *rp, struct err *err)
{
    const int64_t steps_max = INT64_C(1) << 40;
    struct run_order o = {.rq = rq};

    TRY(request_number(rq, "points", 1, 10000, 1000, &o.points, err));
    TRY(request_number(rq, "from", 0, steps_max, 0, &o.from, err));
    TRY(request_number(rq, "to", 0, steps_max, steps_max, &o.to, err));
    TRY(store_read(rq->app->store, read_curve, &o, err));
    rp->body = o.out;
    return 0;
}

int handle_job_log(const struct request *rq, struct reply *rp, struct err *err)
{
    struct run_order o = {.rq = rq, .deed = DEED_READ_JOB};
    char path[RUN_PATH], dir[RUN_PATH - 16], etag[80] = "empty";
    struct stat st = {0};

    TRY(store_read(rq->app->store, find_job, &o, err));
    job_dir(dir, sizeof dir, rq->app->settings, o.ref.id);
    (void)snprintf(path, sizeof path, "%s/%s", dir, JOB_LOG);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) { /* nothing was said yet */
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return FAIL(err, ERR_IO, "the log of %s can't be read", o.ref.id);
    } else {
        (void)snprintf(etag, sizeof etag, "%llx-%llx-%llx", (unsigned long long)st.st_ino,
                       (unsigned long long)st.st_size, (unsigned long long)st.st_mtim.tv_nsec);
    }
    const struct served_file file = {
        .fd = fd, .size = st.st_size, .etag = etag, .type = "text/plain; charset=utf-8"};
    return reply_file(rq, rp, &file, err);
}

/* The files of a checkpoint, from its manifest; an empty list when it is being deleted just now. */
static json_t *list_files(const struct app *app, const char *job, int64_t step, const char *dir)
{
    char job_path[RUN_PATH - 80], path[RUN_PATH];
    struct manifest m;
    struct err none = {0};
    json_t *files = json_array();

    job_dir(job_path, sizeof job_path, app->settings, job);
    (void)snprintf(path, sizeof path, "%s/%s", job_path, dir);
    if (manifest_read(&m, path, &none) != 0) {
        return files;
    }
    for (int i = 0; i < m.count; i++) {
        const struct manifest_file *f = &m.files[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:o}", "name", f->name, "bytes",
                                               (json_int_t)f->bytes, "sha256", f->sha256, "url",
                                               json_sprintf("/v1/jobs/%s/checkpoints/%lld/%s", job,
                                                            (long long)step, f->name)));
    }
    manifest_fini(&m);
    return files;
}

static const char checkpoint_columns[] =
    "j.id||':'||c.step AS id, 'checkpoint' AS object, j.id AS job, c.step, c.created_at, c.bytes,"
    " c.sha256, c.final, c.best, c.dir";

/* Complete a row: `final` as a truth, `dir` into files. */
static int shape_checkpoint(const struct app *app, json_t *o, struct err *err)
{
    const char *job = json_string_value(json_object_get(o, "job"));
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const char *dir = json_string_value(json_object_get(o, "dir"));
    int rc = json_object_set_new(o, "files", list_files(app, job, step, dir));

    rc |= json_object_set_new(o, "final",
                              json_boolean(json_integer_value(json_object_get(o, "final")) != 0));
    rc |= json_object_set_new(o, "best",
                              json_boolean(json_integer_value(json_object_get(o, "best")) != 0));
    (void)json_object_del(o, "dir");
    return rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a checkpoint");
}

int handle_checkpoints_list(const struct request *rq, struct reply *rp, struct err *err)
{
    struct run_order o = {.rq = rq, .deed = DEED_READ_JOB};
    size_t i = 0;
    json_t *item = NULL;

    TRY(store_read(rq->app->store, find_job, &o, err));
    const struct listing l = {
        .columns = checkpoint_columns,
        .from = "checkpoints c JOIN jobs j ON j.seq=c.job_seq WHERE c.job_seq=?1 AND ?2 IS NULL",
        .order = "c.step",
        .number = "SELECT CAST(substr(?1, instr(?1,':')+1) AS INTEGER)",
        .newest_first = true,
        .limit = 100,
        .most = 1000,
        .scope = o.ref.seq,
    };
    TRY(list_reply(rq, rp, &l, err));
    json_array_foreach(json_object_get(rp->body, "data"), i, item)
    {
        TRY(shape_checkpoint(rq->app, item, err));
    }
    return 0;
}

static int read_checkpoint(sqlite3 *db, void *argument, struct err *err)
{
    struct run_order *o = argument;
    char sql[sizeof checkpoint_columns + 128];
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(find_job(db, o, err));
    (void)snprintf(sql, sizeof sql,
                   "SELECT %s FROM checkpoints c JOIN jobs j ON j.seq=c.job_seq"
                   " WHERE c.job_seq=? AND c.step=?",
                   checkpoint_columns);
    TRY(db_query(&q, db, err, sql, "ii", o->ref.seq, o->step < 0 ? o->ref.checkpoint : o->step));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = FAIL(err, ERR_NOT_FOUND, "the job %s has no such checkpoint", o->ref.id);
    }
    if (rc == 0) {
        o->out = db_row_json(q);
        rc = o->out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a checkpoint");
    }
    sqlite3_finalize(q);
    return rc;
}

/* The row of the checkpoint that the address names. */
static int find_checkpoint(const struct request *rq, struct run_order *o, struct err *err)
{
    *o = (struct run_order){.rq = rq, .deed = DEED_READ_JOB, .step = -1};
    if (strcmp(rq->param[1], "latest") != 0 && !text_number(rq->param[1], INT64_MAX, &o->step)) {
        return FAIL(err, ERR_NOT_FOUND, "a step is a number or \"latest\"");
    }
    return store_read(rq->app->store, read_checkpoint, o, err);
}

int handle_checkpoint_get(const struct request *rq, struct reply *rp, struct err *err)
{
    struct run_order o;

    TRY(find_checkpoint(rq, &o, err));
    rp->body = o.out;
    return shape_checkpoint(rq->app, rp->body, err);
}

/* Size and hash of a file of the checkpoint: only what the manifest lists, and the manifest. */
static int find_in_manifest(const struct run_order *o, const char *dir, const char *name,
                            struct manifest_file *out, struct err *err)
{
    struct manifest m;
    struct stat st;
    char path[RUN_PATH + 32];

    if (manifest_read(&m, dir, err) != 0) {
        return FAIL(err, ERR_NOT_FOUND, "the checkpoint is not there any more");
    }
    const struct manifest_file *f = manifest_find(&m, name);
    int rc = 0;
    *out = (struct manifest_file){0};
    if (f != NULL) {
        *out = *f;
    } else if (strcmp(name, "manifest.json") == 0) {
        (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
        rc = stat(path, &st) == 0 ? 0 : FAIL(err, ERR_NOT_FOUND, "the manifest is gone");
        (void)snprintf(out->name, sizeof out->name, "manifest.json");
        (void)snprintf(out->sha256, sizeof out->sha256, "%s", m.sha256);
        out->bytes = rc == 0 ? (uint64_t)st.st_size : 0;
    } else {
        rc = FAIL(err, ERR_NOT_FOUND, "the checkpoint of %s has no file \"%.100s\"", o->ref.id,
                  name);
    }
    manifest_fini(&m);
    return rc;
}

/* Open it beneath the checkpoint's folder and see that it is what the manifest says. */
static int open_file(const char *dir, const struct manifest_file *f, int *fd, struct err *err)
{
    struct stat st;
    int dir_fd = -1;

    TRY(io_open_dir(&dir_fd, dir, err));
    const int rc = io_open_beneath(fd, dir_fd, f->name, err);
    (void)close(dir_fd);
    TRY(rc);
    if (fstat(*fd, &st) != 0 || (uint64_t)st.st_size != f->bytes) {
        (void)close(*fd);
        return FAIL(err, ERR_IO, "the file %s is not what the manifest says", f->name);
    }
    return 0;
}

int handle_checkpoint_file(const struct request *rq, struct reply *rp, struct err *err)
{
    char job_path[RUN_PATH - 80], dir[RUN_PATH], shown[RUN_PATH];
    struct run_order o;
    struct manifest_file f;
    int fd = -1;

    TRY(find_checkpoint(rq, &o, err));
    job_dir(job_path, sizeof job_path, rq->app->settings, o.ref.id);
    (void)snprintf(dir, sizeof dir, "%s/%s", job_path,
                   json_string_value(json_object_get(o.out, "dir")));
    json_decref(o.out);
    TRY(find_in_manifest(&o, dir, rq->param[2], &f, err));
    TRY(open_file(dir, &f, &fd, err));
    (void)snprintf(shown, sizeof shown, "%s", f.name);
    const struct served_file file = {.fd = fd,
                                     .size = (int64_t)f.bytes,
                                     .etag = f.sha256,
                                     .type = "application/octet-stream",
                                     .filename = shown};
    TRY(reply_file(rq, rp, &file, err));
    reply_add(rp, "X-Content-SHA256", "%s", f.sha256);
    return 0;
}
