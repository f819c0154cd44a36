/* references.c - what the words of a request stand for. */
#include "server/references.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/jobs.h"
#include "server/roots.h"
#include "server/text.h"
#include "server/upload.h"
#include "trainer/tokenizer/tokenizer.h"

/* A lookup on its way through the store. */
struct lookup {
    const struct identity *who;
    const char *id; /* of a file or a job   */
    int64_t step;   /* -1: the newest       */
    bool best;      /* the one that is marked so */
    char dir[128];  /* out: of a checkpoint */
};

static int own_file(sqlite3 *db, void *argument, struct err *err)
{
    const struct lookup *l = argument;

    return upload_allow(db, l->id, l->who, DEED_READ_FILE, err);
}

static int own_checkpoint(sqlite3 *db, void *argument, struct err *err)
{
    struct lookup *l = argument;
    struct job_ref job;
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(job_find(db, l->id, l->who, DEED_READ_JOB, &job, err));
    const int64_t step = l->step < 0 ? job.checkpoint : l->step;
    TRY(db_query(&q, db, err,
                 "SELECT dir FROM checkpoints WHERE job_seq=?1 AND CASE ?2 WHEN 1 THEN best=1"
                 " ELSE step=?3 END",
                 "iii", job.seq, (int64_t)l->best, step));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = l->best ? FAIL(err, ERR_NOT_FOUND, "no checkpoint of %s is marked as the best", job.id)
             : l->step < 0 ? FAIL(err, ERR_NOT_FOUND, "the job %s has no checkpoint", job.id)
                           : FAIL(err, ERR_NOT_FOUND, "the job %s has no checkpoint of step %lld",
                                  job.id, (long long)step);
    }
    (void)snprintf(l->dir, sizeof l->dir, "%s", rc == 0 ? db_text(q, 0) : "");
    sqlite3_finalize(q);
    return rc;
}

/* "JOB", "JOB:STEP", "JOB:latest" or "JOB:best" into the folder of a checkpoint. */
static int find_checkpoint(const struct app *app, const struct identity *who, const char *text,
                           char path[ROOT_PATH], struct err *err)
{
    char id[RANDOM_ID + 8];
    const size_t size = strcspn(text, ":");
    struct lookup l = {.who = who, .id = id, .step = -1};

    (void)snprintf(id, sizeof id, "%.*s", (int)(size < sizeof id ? size : sizeof id - 1), text);
    l.best = strcmp(text + size, ":best") == 0;
    if (text[size] == ':' && !l.best && strcmp(text + size, ":latest") != 0 &&
        !text_number(text + size + 1, INT64_MAX, &l.step)) {
        return FAIL(err, ERR_NOT_FOUND, "\"%.100s\" is not JOB, JOB:STEP or JOB:best", text);
    }
    TRY(store_read(app->store, own_checkpoint, &l, err));
    (void)snprintf(path, ROOT_PATH, "%s/jobs/%s/%s", app->settings->data, id, l.dir);
    return 0;
}

/* The folder that root:path, JOB or JOB:STEP stands for. */
static int find_place(const struct app *app, const struct identity *who, const char *text,
                      char path[ROOT_PATH], struct err *err)
{
    struct stat st;

    if (strncmp(text, "job-", 4) == 0) {
        return find_checkpoint(app, who, text, path, err);
    }
    TRY(roots_find(app->roots, ROOT_MODELS, text, path, &st, err));
    return S_ISDIR(st.st_mode) ? 0 : FAIL(err, ERR_NOT_FOUND, "\"%.200s\" is not a folder", text);
}

/* A folder that has the file `must_have`. */
static int find_folder(const struct app *app, const struct identity *who, const char *text,
                       const char *must_have, json_t **out, struct err *err)
{
    char path[ROOT_PATH], inside[ROOT_PATH + 64];

    TRY(find_place(app, who, text, path, err));
    (void)snprintf(inside, sizeof inside, "%s/adapter_config.json", path);
    if (strcmp(must_have, "config.json") == 0 && access(inside, F_OK) == 0) {
        return FAIL(
            err, ERR_NOT_FOUND,
            "\"%.200s\" is an adapter: give it as adapter, and as model the base model that "
            "it was trained on",
            text);
    }
    (void)snprintf(inside, sizeof inside, "%s/%s", path, must_have);
    if (access(inside, R_OK) != 0) {
        return FAIL(err, ERR_NOT_FOUND, "\"%.200s\" has no %s that can be read", text, must_have);
    }
    *out = json_pack("{s:s}", "path", path);
    return *out != NULL ? 0
                        : FAIL(err, ERR_NOT_FOUND, "\"%.200s\" has a path that is not UTF-8", text);
}

int references_model(const struct app *app, const struct identity *who, const char *name,
                     char path[ROOT_PATH], struct err *err)
{
    static const char *const has[] = {"config.json", "adapter_config.json"};
    int rc = find_place(app, who, name, path, err);

    for (size_t i = 0; i < sizeof has / sizeof has[0] && rc == 0; i++) {
        char inside[ROOT_PATH + 64];
        (void)snprintf(inside, sizeof inside, "%s/%s", path, has[i]);
        if (access(inside, R_OK) == 0) {
            return 0;
        }
    }
    if (rc == 0) {
        rc = FAIL(err, ERR_NOT_FOUND, "\"%.200s\" has no config.json that can be read", name);
    }
    err_about(err, "model");
    return rc;
}

static int find_tokenizer(const struct app *app, const struct identity *who, const char *text,
                          json_t **out, struct err *err)
{
    char path[ROOT_PATH];

    TRY(find_place(app, who, text, path, err));
    if (!tokenizer_there(path)) {
        return FAIL(err, ERR_NOT_FOUND,
                    "\"%.200s\" has no tokenizer.json, tokenizer.model or .tiktoken file", text);
    }
    *out = json_pack("{s:s}", "path", path);
    return *out != NULL ? 0
                        : FAIL(err, ERR_NOT_FOUND, "\"%.200s\" has a path that is not UTF-8", text);
}

static int find_file(const struct app *app, const struct identity *who, const char *text,
                     json_t **out, struct err *err)
{
    const bool uploaded = strncmp(text, "file-", 5) == 0;
    struct lookup l = {.who = who, .id = text};
    char path[ROOT_PATH];
    struct stat st;

    if (uploaded) {
        TRY(store_read(app->store, own_file, &l, err));
        upload_path(path, sizeof path, app->settings, text);
        if (stat(path, &st) != 0) {
            return FAIL(err, ERR_NOT_FOUND, "the file %.40s is not on the disk any more", text);
        }
    } else {
        TRY(roots_find(app->roots, ROOT_DATA, text, path, &st, err));
    }
    if (!S_ISREG(st.st_mode) || access(path, R_OK) != 0) {
        return FAIL(err, ERR_NOT_FOUND, "\"%.200s\" is not a file that can be read", text);
    }
    if (st.st_size == 0) {
        return FAIL(err, ERR_NOT_FOUND, "\"%.200s\" is empty", text);
    }
    *out =
        json_pack("{s:s, s:I, s:I}", "path", path, "bytes", (json_int_t)st.st_size, "modified_ns",
                  (json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    if (*out == NULL) {
        return FAIL(err, ERR_NOT_FOUND, "\"%.200s\" has a path that is not UTF-8", text);
    }
    if (uploaded) {
        (void)json_object_set_new(*out, "file", json_string(text));
    }
    return 0;
}

/* Look up one field and enter it; a failure gets the field's name and its own code. */
static int enter(json_t *out, const char *field, enum err_code code, int rc, json_t *found,
                 struct err *err)
{
    if (rc == 0 && json_object_set_new(out, field, found) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    if (rc == ERR_NOT_FOUND || rc == ERR_FORBIDDEN) {
        const struct err why = *err;
        return FAIL_PARAM(err, code, field, "%s: %s", field, why.text);
    }
    return rc;
}

static int find_all(const struct app *app, const struct identity *who, const struct spec *s,
                    json_t *out, struct err *err)
{
    json_t *found = NULL;
    int rc = 0;

    if (s->training_file[0] == '\0') {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "training_file",
                          "training_file is missing: give a file id or root:path");
    }
    rc = find_file(app, who, s->training_file, &found, err);
    TRY(enter(out, "training_file", ERR_BAD_TRAINING_FILE, rc, found, err));
    if (s->validation_file[0] != '\0') {
        rc = find_file(app, who, s->validation_file, &found, err);
        TRY(enter(out, "validation_file", ERR_BAD_VALIDATION_FILE, rc, found, err));
    }
    if (s->model[0] != '\0') {
        rc = find_folder(app, who, s->model, "config.json", &found, err);
        TRY(enter(out, "model", ERR_NO_MODEL, rc, found, err));
    }
    if (s->adapter[0] != '\0') {
        rc = find_folder(app, who, s->adapter, "adapter_config.json", &found, err);
        TRY(enter(out, "adapter", ERR_NO_MODEL, rc, found, err));
    }
    if (s->tokenizer[0] != '\0') {
        rc = find_tokenizer(app, who, s->tokenizer, &found, err);
        TRY(enter(out, "tokenizer", ERR_BAD_SPEC, rc, found, err));
    }
    return 0;
}

int references_find(const struct app *app, const struct identity *who, const struct spec *spec,
                    json_t **out, struct err *err)
{
    *out = json_object();
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    const int rc = find_all(app, who, spec, *out, err);
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

static const char *path_in(const json_t *references, const char *field)
{
    const char *path =
        json_string_value(json_object_get(json_object_get(references, field), "path"));

    return path == NULL ? "" : path;
}

/* The file is still what it was. */
static int check_stamp(const json_t *references, const char *field, enum err_code code,
                       struct err *err)
{
    const json_t *o = json_object_get(references, field);
    struct stat st;

    if (o == NULL) {
        return 0;
    }
    if (stat(path_in(references, field), &st) != 0) {
        return FAIL_PARAM(err, code, field, "%s is not there any more", field);
    }
    if (st.st_size != json_integer_value(json_object_get(o, "bytes")) ||
        (json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec !=
            json_integer_value(json_object_get(o, "modified_ns"))) {
        return FAIL_PARAM(err, code, field,
                          "%s has changed since the job was submitted; submit it again", field);
    }
    return 0;
}

int references_plan(const json_t *references, struct attempt_plan *plan, struct err *err)
{
    TRY(check_stamp(references, "training_file", ERR_BAD_TRAINING_FILE, err));
    TRY(check_stamp(references, "validation_file", ERR_BAD_VALIDATION_FILE, err));
    (void)snprintf(plan->model, sizeof plan->model, "%s", path_in(references, "model"));
    (void)snprintf(plan->adapter, sizeof plan->adapter, "%s", path_in(references, "adapter"));
    (void)snprintf(plan->tokenizer, sizeof plan->tokenizer, "%s", path_in(references, "tokenizer"));
    (void)snprintf(plan->training, sizeof plan->training, "%s",
                   path_in(references, "training_file"));
    (void)snprintf(plan->validation, sizeof plan->validation, "%s",
                   path_in(references, "validation_file"));
    return 0;
}
