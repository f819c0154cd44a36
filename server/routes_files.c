/* routes_files.c - /v1/files: upload by two doors, list, look, fetch, delete. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/list.h"
#include "server/range.h"
#include "server/text.h"
#include "server/upload.h"

enum { FILE_PATH = SETTING_TEXT + 64 };

#define FILE_COLUMNS                                                                     \
    "id, 'file' AS object, bytes, created_at, filename, purpose, 'processed' AS status," \
    " sha256, NULL AS expires_at"

/* A file that a request is about. */
struct file_order {
    const struct identity *who;
    const char *id;
    enum deed deed;
    struct uploaded what;
    int64_t created_at;
    json_t *object; /* owned by the caller */
};

static int add_row(struct tx *tx, void *argument, struct err *err)
{
    struct file_order *o = argument;

    return db_run(tx->db, err,
                  "INSERT INTO files(id, user_id, filename, purpose, bytes, sha256, created_at)"
                  " VALUES(?,?,?,?,?,?,?)",
                  "sissisi", o->what.id, o->what.user_id, o->what.filename, o->what.purpose,
                  o->what.bytes, o->what.sha256, o->created_at);
}

static int check_words(struct uploaded *u, struct err *err)
{
    static const char *const purposes[] = {"fine-tune", "evals", "user_data"};

    if (u->purpose[0] == '\0') {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "purpose", "purpose is missing, e.g. fine-tune");
    }
    for (size_t i = 0; i < sizeof purposes / sizeof purposes[0]; i++) {
        if (strcmp(u->purpose, purposes[i]) == 0) {
            if (u->filename[0] == '\0' || !text_is_plain(u->filename)) {
                return FAIL_PARAM(
                    err, ERR_BAD_REQUEST, "filename",
                    "the file's name is missing, or has characters that can't be shown");
            }
            return 0;
        }
    }
    return FAIL_PARAM(err, ERR_BAD_REQUEST, "purpose",
                      "purpose must be fine-tune, evals or user_data, not \"%.20s\"", u->purpose);
}

/* The file is on the disk, then in the store, then under its name. */
static int keep_file(const struct request *rq, struct reply *rp, struct file_order *o,
                     struct err *err)
{
    TRY(check_words(&o->what, err));
    o->created_at = time(NULL);
    TRY(store_write(rq->app->store, add_row, o, err));
    TRY(upload_publish(rq->upload, err));
    rp->body =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:n}", "id", o->what.id, "object",
                  "file", "bytes", (json_int_t)o->what.bytes, "created_at",
                  (json_int_t)o->created_at, "filename", o->what.filename, "purpose",
                  o->what.purpose, "status", "processed", "sha256", o->what.sha256, "expires_at");
    return rp->body != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a file");
}

int handle_file_put(const struct request *rq, struct reply *rp, struct err *err)
{
    const char *filename = gate_query(rq->in, "filename");
    const char *purpose = gate_query(rq->in, "purpose");
    struct file_order o = {.who = rq->who};

    TRY(upload_finish(rq->upload, &o.what, err));
    filename = filename == NULL ? "" : filename;
    if (strlen(filename) >= sizeof o.what.filename) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "filename",
                          "the file's name is longer than %zu bytes", sizeof o.what.filename - 1);
    }
    (void)snprintf(o.what.filename, sizeof o.what.filename, "%s", filename);
    (void)snprintf(o.what.purpose, sizeof o.what.purpose, "%s",
                   purpose == NULL ? "fine-tune" : purpose);
    return keep_file(rq, rp, &o, err);
}

int handle_file_post(const struct request *rq, struct reply *rp, struct err *err)
{
    struct file_order o = {.who = rq->who};

    TRY(upload_finish(rq->upload, &o.what, err));
    return keep_file(rq, rp, &o, err);
}

int handle_files_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = FILE_COLUMNS,
        .from = "files WHERE user_id=?1 AND (?2 IS NULL OR purpose=?2)",
        .order = "seq",
        .number = "SELECT seq FROM files WHERE id=?1 AND user_id=?2",
        .newest_first = true,
        .limit = 10000, /* as OpenAI's */
        .most = 10000,
        .scope = rq->who->user_id,
        .filter = gate_query(rq->in, "purpose"),
    };

    return list_reply(rq, rp, &l, err);
}

/* The row of the file, for those who may do the deed to it. */
static int read_file_row(sqlite3 *db, void *argument, struct err *err)
{
    struct file_order *o = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(upload_allow(db, o->id, o->who, o->deed, err));
    TRY(db_query(&q, db, err, "SELECT " FILE_COLUMNS " FROM files WHERE id=?", "s", o->id));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = FAIL(err, ERR_NOT_FOUND, "there is no file %.40s", o->id);
    }
    if (rc == 0) {
        o->object = db_row_json(q);
        rc = o->object != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a file");
    }
    sqlite3_finalize(q);
    return rc;
}

int handle_file_get(const struct request *rq, struct reply *rp, struct err *err)
{
    struct file_order o = {.who = rq->who, .id = rq->param[0], .deed = DEED_READ_FILE};

    TRY(store_read(rq->app->store, read_file_row, &o, err));
    rp->body = o.object;
    return 0;
}

int handle_file_content(const struct request *rq, struct reply *rp, struct err *err)
{
    struct file_order o = {.who = rq->who, .id = rq->param[0], .deed = DEED_READ_FILE};
    char path[FILE_PATH];
    struct stat st;

    TRY(store_read(rq->app->store, read_file_row, &o, err));
    rp->body = o.object; /* keeps what follows alive; replaced by the file */
    upload_path(path, sizeof path, rq->app->settings, o.id);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return FAIL(err, ERR_IO, "the file %.40s is not on the disk", o.id);
    }
    const char *sha256 = json_string_value(json_object_get(o.object, "sha256"));
    const struct served_file file = {
        .fd = fd,
        .size = st.st_size,
        .etag = sha256,
        .type = "application/octet-stream",
        .filename = json_string_value(json_object_get(o.object, "filename")),
    };
    const int rc = reply_file(rq, rp, &file, err);
    if (rc == 0) {
        reply_add(rp, "X-Content-SHA256", "%s", sha256);
    }
    json_decref(rp->body);
    rp->body = NULL;
    return rc;
}

static int remove_row(struct tx *tx, void *argument, struct err *err)
{
    struct file_order *o = argument;
    int64_t jobs = 0;

    TRY(read_file_row(tx->db, o, err));
    TRY(db_integer(
        &jobs, 0, tx->db, err,
        "SELECT COUNT(*) FROM job_files f JOIN jobs j ON j.seq=f.job_seq WHERE f.file_id=?"
        " AND j.state NOT IN('succeeded','failed','cancelled')",
        "s", o->id));
    if (jobs > 0) {
        return FAIL(err, ERR_BAD_STATE, "%lld job%s that %s not ended use%s this file",
                    (long long)jobs, jobs > 1 ? "s" : "", jobs > 1 ? "have" : "has",
                    jobs > 1 ? "" : "s");
    }
    return db_run(tx->db, err, "DELETE FROM files WHERE id=?", "s", o->id);
}

int handle_file_delete(const struct request *rq, struct reply *rp, struct err *err)
{
    struct file_order o = {.who = rq->who, .id = rq->param[0], .deed = DEED_CHANGE_FILE};
    char path[FILE_PATH];

    const int rc = store_write(rq->app->store, remove_row, &o, err);
    json_decref(o.object);
    TRY(rc);
    upload_path(path, sizeof path, rq->app->settings, o.id);
    (void)unlink(path); /* without a row nobody finds it; whoever reads it now may go on */
    rp->body = json_pack("{s:s, s:s, s:b}", "id", o.id, "object", "file", "deleted", 1);
    return 0;
}
