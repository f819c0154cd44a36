/* submit.c - a request becomes a job. */
#include "server/submit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/jobs.h"
#include "server/log.h"
#include "server/references.h"
#include "server/sizing.h"
#include "server/supervise.h"
#include "server/text.h"
#include "trainer/base/io.h"
#include "trainer/base/sha256.h"
#include "trainer/data/recipe.h"

enum { JOB_PATH = SETTING_TEXT + 64, RETRY_SECONDS = 120, LOOK_BYTES = 64 << 20 };

/* All that the row is made of. */
struct new_job {
    struct submission *s;
    const struct app *app;
    const struct spec *spec;
    json_t *references, *resolved; /* owned */
    struct sizing sizing;
    char digest[SHA256_TEXT];
    int64_t created_at, seq;
};

/* The job of an equal submission, by key, or by body when the client says that it tries again. */
static int find_earlier(struct tx *tx, struct new_job *n, struct err *err)
{
    struct submission *s = n->s;
    sqlite3_stmt *q = NULL;
    bool row = false;

    if (s->key == NULL && !s->is_retry) {
        return 0;
    }
    int rc =
        s->key != NULL
            ? db_query(&q, tx->db, err,
                       "SELECT seq, id, body_sha256 FROM jobs WHERE user_id=?"
                       " AND idempotency_key=?",
                       "is", s->who->user_id, s->key)
            : db_query(&q, tx->db, err,
                       "SELECT seq, id, body_sha256 FROM jobs WHERE user_id=? AND body_sha256=?"
                       " AND created_at>=? ORDER BY seq DESC LIMIT 1",
                       "isi", s->who->user_id, n->digest, n->created_at - RETRY_SECONDS);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    if (rc == 0 && row) {
        if (strcmp(db_text(q, 2), n->digest) != 0) {
            rc = FAIL(err, ERR_BAD_STATE,
                      "this Idempotency-Key was used for another request; use a new one");
        }
        s->was_there = true;
        n->seq = sqlite3_column_int64(q, 0);
        (void)snprintf(s->id, sizeof s->id, "%s", db_text(q, 1));
    }
    sqlite3_finalize(q);
    return rc;
}

/* A file that was deleted while we looked must not be entered. */
static int enter_file(struct tx *tx, const struct new_job *n, const char *field, struct err *err)
{
    const char *file =
        json_string_value(json_object_get(json_object_get(n->references, field), "file"));
    int64_t there = 0;

    if (file == NULL) {
        return 0;
    }
    TRY(db_integer(&there, 0, tx->db, err, "SELECT 1 FROM files WHERE id=?", "s", file));
    if (there == 0) {
        return FAIL_PARAM(err, ERR_BAD_TRAINING_FILE, field, "%s: there is no file %.40s", field,
                          file);
    }
    return db_run(tx->db, err, "INSERT OR IGNORE INTO job_files(job_seq, file_id) VALUES(?,?)",
                  "is", n->seq, file);
}

static int insert_row(struct tx *tx, struct new_job *n, struct err *err)
{
    const struct submission *s = n->s;
    char *request = json_dumps(s->request, JSON_COMPACT);
    char *resolved = json_dumps(n->resolved, JSON_COMPACT);
    char *references = json_dumps(n->references, JSON_COMPACT);
    int rc = 0;

    if (request == NULL || resolved == NULL || references == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    } else {
        rc = db_run(tx->db, err,
                    "INSERT INTO jobs(id, user_id, name, state, stage, request, resolved, inputs,"
                    " created_at, memory_bytes, parameters, idempotency_key, body_sha256)"
                    " VALUES(?,?,?,'queued','waiting',?,?,?,?,NULLIF(?,0),NULLIF(?,0),?,?)",
                    "sissssiiiss", s->id, s->who->user_id, n->spec->name, request, resolved,
                    references, n->created_at, n->sizing.memory_bytes, n->sizing.parameters, s->key,
                    n->digest);
    }
    free(request);
    free(resolved);
    free(references);
    n->seq = sqlite3_last_insert_rowid(tx->db);
    return rc;
}

static int add_job(struct tx *tx, void *argument, struct err *err)
{
    struct new_job *n = argument;
    const int64_t most = n->app->settings->max_jobs;
    struct job_ref ref;
    int64_t live = 0;

    TRY(find_earlier(tx, n, err));
    if (n->s->was_there) {
        return job_object(tx->db, n->seq, &n->s->job, err);
    }
    TRY(db_integer(&live, 0, tx->db, err,
                   "SELECT COUNT(*) FROM jobs WHERE user_id=?"
                   " AND state NOT IN('succeeded','failed','cancelled')",
                   "i", n->s->who->user_id));
    if (live >= most) {
        return FAIL(err, ERR_TOO_MANY, "you have %lld jobs that have not ended, the most allowed",
                    (long long)live);
    }
    TRY(insert_row(tx, n, err));
    TRY(enter_file(tx, n, "training_file", err));
    TRY(enter_file(tx, n, "validation_file", err));
    TRY(job_find(tx->db, n->s->id, NULL, DEED_SEE_JOB, &ref, err));
    TRY(job_announce(tx, &ref, err));
    return job_object(tx->db, n->seq, &n->s->job, err);
}

/* The folder aside, the row, the folder's name. */
static int make_job(struct new_job *n, struct err *err)
{
    struct submission *s = n->s;
    char dir[JOB_PATH], aside[JOB_PATH + 8];
    struct err ignored = {0};

    random_id(s->id, "job");
    job_dir(dir, sizeof dir, n->app->settings, s->id);
    (void)snprintf(aside, sizeof aside, "%s.new", dir);
    int rc = job_folder_create(aside, s->id, s->who->name, (double)n->created_at, s->request, err);
    if (rc == 0) {
        rc = store_write(n->app->store, add_job, n, err);
    }
    if (rc != 0 || s->was_there) {
        (void)io_remove_tree(aside, &ignored); /* what stays is removed when honed starts */
        return rc;
    }
    /* the job exists now: a folder without its name is no reason to say otherwise */
    if (rename(aside, dir) != 0 &&
        access(dir, F_OK) != 0) { /* the supervisor may have been faster */
        log_line("%s: the folder keeps the name %s: %s", s->id, aside, strerror(errno));
    }
    supervisor_kick(n->app->supervisor);
    return 0;
}

/* A file of another kind than the method trains on is refused here when a look at it is quick; the trainer looks in any
 * case. */
static int check_training(const struct new_job *n, const struct spec *spec, struct err *err)
{
    const json_t *file = json_object_get(n->references, "training_file");
    const struct data_source source = {.path = json_string_value(json_object_get(file, "path")),
                                       .name = spec->training_file,
                                       .blame = ERR_BAD_TRAINING_FILE};
    struct holding holding;

    TRY(report_check_policy(spec->on_problem, err));
    if (spec->method == TRAIN_AUTO ||
        json_integer_value(json_object_get(file, "bytes")) > LOOK_BYTES) {
        return 0;
    }
    int rc = recipe_look(&holding, &source, spec->on_problem, err);
    if (rc == 0) {
        rc = recipe_check(&holding, (enum method_of_training)spec->method, source.name, err);
    }
    if (rc != 0 && err->param[0] == '\0') {
        err_about(err, "training_file");
    }
    return rc;
}

static int check_request(struct new_job *n, struct spec *spec, struct err *err)
{
    if (!text_is_plain(spec->name)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "name", "the name has characters that can't be shown");
    }
    TRY(references_find(n->app, n->s->who, spec, &n->references, err));
    TRY(check_training(n, spec, err));
    TRY(sizing_check(n->app, spec, n->references, &n->sizing, err));
    n->resolved = spec_json(spec);
    return n->resolved != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

int submit_job(const struct app *app, struct submission *s, struct err *err)
{
    struct new_job n = {.s = s, .app = app, .created_at = time(NULL)};
    struct spec *spec = calloc(1, sizeof *spec);

    if (spec == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    int rc = spec_parse(spec, s->request, err);
    if (rc == 0) {
        n.spec = spec;
        sha256_of(s->text, s->size, n.digest);
        rc = check_request(&n, spec, err);
        rc = rc != 0 ? rc : make_job(&n, err);
        spec_free(spec);
    }
    json_decref(n.references);
    json_decref(n.resolved);
    free(spec);
    return rc;
}

static int has_row(sqlite3 *db, void *argument, struct err *err)
{
    int64_t found = 0;

    TRY(db_integer(&found, 0, db, err, "SELECT 1 FROM jobs WHERE id=?", "s", argument));
    return found != 0 ? 0 : FAIL(err, ERR_NOT_FOUND, "no row");
}

static int settle_one(const struct app *app, const char *name, struct err *err)
{
    char id[RANDOM_ID], dir[JOB_PATH], aside[JOB_PATH + 8];
    struct err none = {0};

    (void)snprintf(id, sizeof id, "%.*s", (int)(strlen(name) - 4), name);
    job_dir(dir, sizeof dir, app->settings, id);
    (void)snprintf(aside, sizeof aside, "%s.new", dir);
    if (store_read(app->store, has_row, id, &none) != 0) {
        log_line("jobs: removing the unfinished %s", name);
        return io_remove_tree(aside, err);
    }
    return rename(aside, dir) == 0 ? 0 : FAIL(err, ERR_IO, "%s: %s", aside, strerror(errno));
}

int submit_settle(const struct app *app, struct err *err)
{
    char jobs[JOB_PATH];
    int rc = 0;

    (void)snprintf(jobs, sizeof jobs, "%s/jobs", app->settings->data);
    DIR *dir = opendir(jobs);
    if (dir == NULL) {
        return FAIL(err, ERR_IO, "%s: %s", jobs, strerror(errno));
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        const size_t size = strlen(e->d_name);
        if (size > 4 && size < RANDOM_ID + 4 && strcmp(e->d_name + size - 4, ".new") == 0) {
            rc = settle_one(app, e->d_name, err);
        }
    }
    closedir(dir);
    return rc;
}
