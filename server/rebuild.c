/* rebuild.c - a new store from the job folders.
 *
 *    spec.json of all jobs -> users, owners of files      files/ID -> rows of files
 *    then each job, the oldest first: its row, its events, how its newest attempt ended
 *
 * What only the store knew is gone: tokens, sessions, names of files, why a run was told to stop. A job
 * that has not ended and does not run is paused, so that nothing starts which nobody asked for now.
 */
#include "server/rebuild.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/account.h"
#include "server/app.h"
#include "server/draft.h"
#include "server/home.h"
#include "server/ingest.h"
#include "server/log.h"
#include "server/references.h"
#include "server/roots.h"
#include "server/supervise.h"
#include "server/upload.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/base/sha256.h"

enum { REBUILD_PATH = SETTING_TEXT + 320, LINES = 5000 };

/* A job folder that is being read in. */
struct old_job {
    char id[RANDOM_ID];
    char owner[USER_NAME];
    double created_at;
    struct timespec written; /* its spec.json: of two of the same second the earlier goes first */
    json_t *request;         /* owned */
};

struct rebuilding {
    struct app app;
    struct old_job *jobs; /* owned; `count` of them */
    size_t count, room;

    /* of the job at hand */
    struct old_job *job;
    char dir[REBUILD_PATH];
    struct job_ref ref;
    struct event_reader *reader;
    struct ingested read;
    struct spec *spec; /* NULL when the request is not valid any more */
    json_t *references;
    const char *file;
    char sha256[SHA256_TEXT];
    int64_t file_bytes, file_time, file_owner;
};

static int by_age(const void *a, const void *b)
{
    const struct old_job *x = a, *y = b;

    if (x->created_at != y->created_at) {
        return x->created_at < y->created_at ? -1 : 1;
    }
    if (x->written.tv_sec != y->written.tv_sec) {
        return x->written.tv_sec < y->written.tv_sec ? -1 : 1;
    }
    if (x->written.tv_nsec != y->written.tv_nsec) {
        return x->written.tv_nsec < y->written.tv_nsec ? -1 : 1;
    }
    return strcmp(x->id, y->id);
}

static int read_spec(struct rebuilding *r, const char id[RANDOM_ID], struct err *err)
{
    char path[REBUILD_PATH];
    json_t *spec = NULL;
    struct stat st;

    if (r->count == r->room) {
        r->room = r->room == 0 ? 64 : r->room * 2;
        struct old_job *more = realloc(r->jobs, r->room * sizeof *more);
        if (more == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu jobs", r->room);
        }
        r->jobs = more;
    }
    (void)snprintf(path, sizeof path, "%s/jobs/%s/%s", r->app.settings->data, id, JOB_SPEC);
    if (json_parse_file(&spec, path, JOB_FILE_MAX, err) != 0) {
        log_line("rebuild: %s is left out: %s", id, err->text);
        return 0;
    }
    const char *owner = json_string_value(json_object_get(spec, "owner"));
    json_t *request = json_object_get(spec, "request");
    if (owner == NULL || !json_is_object(request)) {
        log_line("rebuild: %s is left out: spec.json has no owner or no request", id);
    } else {
        struct old_job *job = &r->jobs[r->count++];
        *job = (struct old_job){.request = json_incref(request)};
        job->created_at = json_number_value(json_object_get(spec, "created_at"));
        job->written = stat(path, &st) == 0 ? st.st_mtim : (struct timespec){0};
        memcpy(job->id, id, sizeof job->id);
        (void)snprintf(job->owner, sizeof job->owner, "%s", owner);
    }
    json_decref(spec);
    return 0;
}

static int read_specs(struct rebuilding *r, struct err *err)
{
    char path[REBUILD_PATH], id[RANDOM_ID] = "";
    int rc = 0;

    (void)snprintf(path, sizeof path, "%s/jobs", r->app.settings->data);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return FAIL(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        const size_t size = strlen(e->d_name);
        if (strncmp(e->d_name, "job-", 4) == 0 && size < sizeof id &&
            strchr(e->d_name, '.') == NULL) {
            memcpy(id, e->d_name, size + 1);
            rc = read_spec(r, id, err);
        }
    }
    closedir(dir);
    if (rc == 0 && r->count > 0) {
        qsort(r->jobs, r->count, sizeof *r->jobs, by_age);
    }
    return rc;
}

static int add_owners(struct tx *tx, void *argument, struct err *err)
{
    struct rebuilding *r = argument;
    struct err none = {0};
    int64_t id = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (user_find(tx->db, r->jobs[i].owner, &id, &none) != 0) {
            TRY(user_add(tx, r->jobs[i].owner, ROLE_MEMBER, &id, err));
        }
    }
    return 0;
}

/* Whose file it is: of the first job that used it, else of the admin. */
static const char *owner_of_file(const struct rebuilding *r, const char *id)
{
    static const char *const fields[] = {"training_file", "validation_file"};

    for (size_t i = 0; i < 2 * r->count; i++) {
        const char *used =
            json_string_value(json_object_get(r->jobs[i / 2].request, fields[i % 2]));
        if (used != NULL && strcmp(used, id) == 0) {
            return r->jobs[i / 2].owner;
        }
    }
    return NULL;
}

static int add_file(struct tx *tx, void *argument, struct err *err)
{
    struct rebuilding *r = argument;
    const char *owner = owner_of_file(r, r->file);

    TRY(db_integer(&r->file_owner, 1, tx->db, err, "SELECT id FROM users WHERE name=?", "s",
                   owner));
    return db_run(tx->db, err,
                  "INSERT INTO files(id, user_id, filename, purpose, bytes, sha256, created_at)"
                  " VALUES(?,?,?,'fine-tune',?,?,?)",
                  "sisisi", r->file, r->file_owner, r->file, r->file_bytes, r->sha256,
                  r->file_time);
}

static int read_file(struct rebuilding *r, const char *id, struct err *err)
{
    char path[REBUILD_PATH];
    struct stat st;
    uint64_t bytes = 0;

    upload_path(path, sizeof path, r->app.settings, id);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return 0;
    }
    TRY(sha256_file(path, r->sha256, &bytes, err));
    r->file = id;
    r->file_bytes = (int64_t)bytes;
    r->file_time = st.st_mtime;
    return store_write(r->app.store, add_file, r, err);
}

static int read_files(struct rebuilding *r, struct err *err)
{
    char path[REBUILD_PATH];
    int rc = 0;

    (void)snprintf(path, sizeof path, "%s/files", r->app.settings->data);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return FAIL(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        if (strncmp(e->d_name, "file-", 5) == 0 && strchr(e->d_name, '.') == NULL) {
            rc = read_file(r, e->d_name, err);
        }
    }
    closedir(dir);
    return rc;
}

static int add_job(struct tx *tx, void *argument, struct err *err)
{
    struct rebuilding *r = argument;
    const struct old_job *job = r->job;
    const char *name = json_string_value(json_object_get(job->request, "name"));
    json_t *resolved = r->spec == NULL ? json_object() : spec_json(r->spec);
    const char *visibility = json_string_value(json_object_get(job->request, "visibility"));
    const bool is_private = visibility != NULL && strcmp(visibility, "private") == 0;
    char *texts[] = {json_dumps(job->request, JSON_COMPACT), json_dumps(resolved, JSON_COMPACT),
                     json_dumps(r->references, JSON_COMPACT)};
    int64_t user = 0;

    json_decref(resolved);
    int rc = user_find(tx->db, job->owner, &user, err);
    if (rc == 0 && (texts[0] == NULL || texts[1] == NULL || texts[2] == NULL)) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    if (rc == 0) {
        rc = db_run(tx->db, err,
                    "INSERT INTO jobs(id, user_id, name, state, request, resolved, inputs,"
                    " created_at, attempt, private) VALUES(?,?,?,'starting',?,?,?,?,?,?)",
                    "sissssiii", job->id, user, name == NULL ? "" : name, texts[0], texts[1],
                    texts[2], (int64_t)job->created_at, (int64_t)attempt_newest(r->dir),
                    (int64_t)is_private);
    }
    if (rc == 0 && r->spec != NULL) {
        rc = draft_restore(tx, r->spec, r->references, &r->app, sqlite3_last_insert_rowid(tx->db),
                           err);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free(texts[i]);
    }
    return rc != 0 ? rc : job_find(tx->db, job->id, NULL, DEED_SEE_JOB, &r->ref, err);
}

static int add_events(struct tx *tx, void *argument, struct err *err)
{
    struct rebuilding *r = argument;

    return ingest_read(tx, &r->ref, r->reader, LINES, &r->read, err);
}

/* The state that the folder tells. */
static enum job_state state_of(const struct rebuilding *r, struct attempt_exit *end)
{
    struct err none = {0};

    if (job_is_alive(r->dir)) {
        return r->ref.state; /* starting or running, as its events say */
    }
    if (r->ref.attempt == 0 || attempt_exit_read(end, r->dir, r->ref.attempt, &none) != 0) {
        return JOB_PAUSED;
    }
    switch (end->status) {
    case ENDED_SUCCEEDED: return JOB_SUCCEEDED;
    case ENDED_FAILED: return JOB_FAILED;
    case ENDED_CANCELLED: return JOB_CANCELLED;
    case ENDED_STOPPED:
    case ENDED_COUNT: break;
    }
    return JOB_PAUSED;
}

static int add_state(struct tx *tx, void *argument, struct err *err)
{
    struct rebuilding *r = argument;
    struct attempt_exit *end = calloc(1, sizeof *end);

    if (end == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    const enum job_state state = state_of(r, end);
    const bool failed = state == JOB_FAILED;
    const int rc =
        db_run(tx->db, err,
               "UPDATE jobs SET state=?, stage=CASE WHEN ? THEN stage END, reason=?, error_code=?,"
               " error_message=?, finished_at=CASE WHEN ? THEN ? END,"
               " started_at=(SELECT CAST(json_extract(body,'$.t') AS INTEGER) FROM events"
               " WHERE job_seq=jobs.seq ORDER BY n LIMIT 1) WHERE seq=?",
               "sisssiii", job_state_word(state), (int64_t)(state == r->ref.state),
               state == JOB_PAUSED ? "the store was made anew: resume it when it is wanted" : NULL,
               failed ? err_word(end->error.code) : NULL, failed ? end->error.text : NULL,
               (int64_t)job_state_is_final(state), (int64_t)end->ended_at, r->ref.seq);
    free(end);
    return rc;
}

/* What the request refers to may be gone: then the job has nothing to resume from. */
static int look_up(struct rebuilding *r, struct err *err)
{
    struct identity owner = {0};
    struct err why = {0};

    (void)snprintf(owner.name, sizeof owner.name, "%s", r->job->owner);
    owner.user_id = 1;
    owner.role = ROLE_ADMIN; /* it was his when he submitted it */
    r->references = NULL;
    r->spec = calloc(1, sizeof *r->spec);
    if (r->spec == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a job");
    }
    if (spec_parse(r->spec, r->job->request, &why) != 0) {
        free(r->spec);
        r->spec = NULL;
    } else if (references_find(&r->app, &owner, r->spec, &r->references, &why) == 0) {
        return 0;
    }
    log_line("rebuild: %s: %s", r->job->id, why.text);
    r->references = json_object();
    return r->references != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a job");
}

static int read_job(struct rebuilding *r, struct old_job *job, struct err *err)
{
    r->job = job;
    job_dir(r->dir, sizeof r->dir, r->app.settings, job->id);
    TRY(look_up(r, err));
    int rc = store_write(r->app.store, add_job, r, err);
    if (r->spec != NULL) {
        spec_free(r->spec);
        free(r->spec);
        r->spec = NULL;
    }
    json_decref(r->references);
    r->references = NULL;
    if (rc == 0) {
        rc = event_reader_open(&r->reader, r->dir, 0, err);
    }
    do {
        rc = rc != 0 ? rc : store_write(r->app.store, add_events, r, err);
    } while (rc == 0 && r->read.events == LINES);
    event_reader_close(r->reader);
    r->reader = NULL;
    return rc != 0 ? rc : store_write(r->app.store, add_state, r, err);
}

/* Which jobs wait for which, once all are there; some may be gone. */
static int add_dependencies(struct tx *tx, void *argument, struct err *err)
{
    const struct rebuilding *r = argument;

    for (size_t i = 0; i < r->count; i++) {
        const char *text = json_string_value(json_object_get(r->jobs[i].request, "depends_on"));
        struct dependencies d = {0};
        struct err none = {0};
        if (text == NULL || dependencies_parse(&d, text, &none) != 0) {
            continue;
        }
        for (int k = 0; k < d.count; k++) {
            TRY(db_run(tx->db, err,
                       "INSERT INTO dependencies(job_seq, parent_seq, kind)"
                       " SELECT j.seq, p.seq, ?1 FROM jobs j JOIN jobs p"
                       " WHERE j.id=?2 AND p.id=?3",
                       "sss", dependency_word(d.at[k].kind), r->jobs[i].id, d.at[k].job));
        }
    }
    return 0;
}

static int read_all(struct rebuilding *r, struct err *err)
{
    TRY(read_specs(r, err));
    TRY(store_write(r->app.store, add_owners, r, err));
    TRY(read_files(r, err));
    for (size_t i = 0; i < r->count; i++) {
        TRY(read_job(r, &r->jobs[i], err));
    }
    TRY(store_write(r->app.store, add_dependencies, r, err));
    printf(
        "The store has %zu jobs again. Tokens of all users must be made anew: honed token NAME\n",
        r->count);
    return 0;
}

/* The old store goes aside, its log with it. */
static int put_aside(const struct settings *s, struct err *err)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char from[REBUILD_PATH], to[REBUILD_PATH];
    const long long now = (long long)time(NULL);

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        (void)snprintf(from, sizeof from, "%s/honed.db%s", s->data, endings[i]);
        (void)snprintf(to, sizeof to, "%s/honed.db.old-%lld%s", s->data, now, endings[i]);
        if (rename(from, to) != 0 && errno != ENOENT) {
            return FAIL(err, ERR_IO, "%s can't be put aside: %s", from, strerror(errno));
        }
    }
    return 0;
}

int rebuild(const struct settings *s, struct err *err)
{
    struct rebuilding r = {.app = {.settings = s}};
    struct store *store = NULL;

    TRY(home_prepare(s, err));
    TRY(home_lock(s, err));
    TRY(put_aside(s, err));
    TRY(store_open(&store, s->data, err));
    r.app.store = store;
    int rc = account_welcome(store, s, "http://127.0.0.1:8642", err);
    rc = rc != 0 ? rc : roots_open(&r.app.roots, s, err);
    rc = rc != 0 ? rc : read_all(&r, err);
    for (size_t i = 0; i < r.count; i++) {
        json_decref(r.jobs[i].request);
    }
    free(r.jobs);
    roots_close(r.app.roots);
    store_close(store);
    return rc;
}
