/* routes_reports.c - what is in a file of examples: hone-train check, and its answers kept in DATA/cache.
 *
 * A report depends on the bytes of the file and on the program, so that is what its name in the cache is made of. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "server/references.h"
#include "server/roots.h"
#include "server/route.h"
#include "server/tool.h"
#include "server/upload.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum { CACHED = SETTING_TEXT + 128, REPORT_BYTES = 1 << 20 };

/* A file to report on. */
struct subject {
    const char *id, *name;
    char path[ROOT_PATH];
    char key[SHA256_TEXT + 128]; /* what its bytes are known by */
};

static void cache_path(char out[CACHED], const struct request *rq, const struct subject *s)
{
    char key[SHA256_TEXT], text[sizeof s->key + 64];
    struct stat program = {0};

    (void)stat(rq->app->settings->trainer, &program);
    (void)snprintf(text, sizeof text, "%s %lld.%09ld %lld", s->key,
                   (long long)program.st_mtim.tv_sec, (long)program.st_mtim.tv_nsec,
                   (long long)program.st_size);
    sha256_of(text, strlen(text), key);
    (void)snprintf(out, CACHED, "%s/cache/%.32s.report", rq->app->settings->data, key);
}

/* A policy of the query, as text; NULL when there is none. */
static int read_policy(const char **out, const struct request *rq, struct err *err)
{
    json_t *policy = NULL;

    *out = gate_query(rq->in, "on_problem");
    if (*out == NULL) {
        return 0;
    }
    const int rc = json_parse_text(&policy, *out, strlen(*out), "on_problem", err);
    const bool is_object = json_is_object(policy);
    json_decref(policy);
    if (rc != 0 || !is_object) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "on_problem",
                          "on_problem must be a JSON object, e.g. {\"broken_json\":\"skip\"}");
    }
    return 0;
}

/* How a report is asked for; a plain one is kept in the cache. */
struct manner {
    const char *policy;    /* NULL: the defaults           */
    char model[ROOT_PATH]; /* folder; "": count no tokens  */
    char sequence_length[24];
};

static int read_manner(struct manner *m, const struct request *rq, struct err *err)
{
    const char *model = gate_query(rq->in, "model");
    int64_t length = 0;

    *m = (struct manner){0};
    TRY(read_policy(&m->policy, rq, err));
    TRY(request_number(rq, "sequence_length", 2, 1048576, 1048576, &length, err));
    (void)snprintf(m->sequence_length, sizeof m->sequence_length, "%lld", (long long)length);
    return model != NULL ? references_model(rq->app, rq->who, model, m->model, err) : 0;
}

static int make_report(json_t **out, const struct request *rq, const struct subject *s,
                       const struct manner *m, struct err *err)
{
    const char *arguments[TOOL_ARGUMENTS] = {"check", "--json", "--name", s->name, s->path};
    int n = 5;

    if (m->policy != NULL) {
        arguments[n++] = "--policy";
        arguments[n++] = m->policy;
    }
    if (m->model[0] != '\0') {
        arguments[n++] = "--model";
        arguments[n++] = m->model;
        arguments[n++] = "--sequence-length";
        arguments[n++] = m->sequence_length;
    }
    TRY(tool_run(out, rq->app->tools, arguments, err));
    (void)json_object_set_new(*out, "object", json_string("file.report"));
    (void)json_object_set_new(*out, "file", json_string(s->id));
    return 0;
}

/* Why a report says that the file can't be read at all because of the machine: such a report is not kept. */
static bool may_keep(const json_t *report)
{
    const char *code = json_string_value(json_object_get(json_object_get(report, "error"), "code"));

    return code == NULL || strcmp(code, err_word(ERR_BAD_TRAINING_FILE)) == 0;
}

static int reply_report(const struct request *rq, struct reply *rp, const struct subject *s,
                        struct err *err)
{
    struct manner m;
    char path[CACHED];
    struct err ignored;

    TRY(read_manner(&m, rq, err));
    const bool plain = m.policy == NULL && m.model[0] == '\0';
    cache_path(path, rq, s);
    if (plain && json_parse_file(&rp->body, path, REPORT_BYTES, &ignored) == 0) {
        return json_object_set_new(rp->body, "file", json_string(s->id)) == 0
                   ? 0
                   : FAIL(err, ERR_NO_MEMORY, "no memory for a report");
    }
    TRY(make_report(&rp->body, rq, s, &m, err));
    if (plain && may_keep(rp->body)) {
        (void)json_write_file(path, rp->body, &ignored); /* without it, it is made again */
    }
    return 0;
}

struct file_facts {
    const struct identity *who;
    const char *id;
    char filename[UPLOAD_NAME], sha256[SHA256_TEXT];
};

static int read_file_facts(sqlite3 *db, void *argument, struct err *err)
{
    struct file_facts *f = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(upload_allow(db, f->id, f->who, DEED_READ_FILE, err));
    TRY(db_query(&q, db, err, "SELECT filename, sha256 FROM files WHERE id=?", "s", f->id));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = FAIL(err, ERR_NOT_FOUND, "there is no file %.40s", f->id);
    }
    if (rc == 0) {
        (void)snprintf(f->filename, sizeof f->filename, "%s",
                       (const char *)sqlite3_column_text(q, 0));
        (void)snprintf(f->sha256, sizeof f->sha256, "%s", (const char *)sqlite3_column_text(q, 1));
    }
    sqlite3_finalize(q);
    return rc;
}

int handle_file_report(const struct request *rq, struct reply *rp, struct err *err)
{
    struct file_facts f = {.who = rq->who, .id = rq->param[0]};
    struct subject s = {.id = rq->param[0], .name = f.filename};

    TRY(store_read(rq->app->store, read_file_facts, &f, err));
    upload_path(s.path, sizeof s.path, rq->app->settings, s.id);
    (void)snprintf(s.key, sizeof s.key, "%s %.120s", f.sha256, f.filename);
    return reply_report(rq, rp, &s, err);
}

int handle_data_report(const struct request *rq, struct reply *rp, struct err *err)
{
    struct subject s = {.id = gate_query(rq->in, "id")};
    struct stat st;
    char text[ROOT_PATH + 128], hash[SHA256_TEXT];

    if (s.id == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "id", "id is missing, e.g. ?id=ROOT:path");
    }
    s.name = s.id;
    TRY(roots_find(rq->app->roots, ROOT_DATA, s.id, s.path, &st, err));
    if (!S_ISREG(st.st_mode)) {
        return FAIL(err, ERR_NOT_FOUND, "%.200s is not a file", s.id);
    }
    (void)snprintf(text, sizeof text, "%s %lld %lld.%09ld", s.path, (long long)st.st_size,
                   (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    sha256_of(text, strlen(text), hash);
    (void)snprintf(s.key, sizeof s.key, "%s", hash);
    return reply_report(rq, rp, &s, err);
}
