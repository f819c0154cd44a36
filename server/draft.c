/* draft.c - a request that has passed all checks and is not a row yet. */
#include "server/draft.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/log.h"
#include "server/references.h"
#include "server/supervise.h"
#include "server/text.h"
#include "server/users.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/data/recipe.h"
#include "trainer/plan.h"

enum { JOB_PATH = SETTING_TEXT + 64, LOOK_BYTES = 64 << 20 };

static const char no_memory[] = "no memory for a job";

/* A file of another kind than the method trains on is refused here when a look at it is quick; the trainer looks in any
 * case. */
static int check_training(const json_t *references, const struct spec *spec, int64_t *look_left,
                          struct err *err)
{
    const json_t *file = json_object_get(references, "training_file");
    const struct data_source source = {.path = json_string_value(json_object_get(file, "path")),
                                       .name = spec->training_file,
                                       .blame = ERR_BAD_TRAINING_FILE};
    struct holding holding;

    const int64_t bytes = json_integer_value(json_object_get(file, "bytes"));
    if (spec->method == TRAIN_AUTO || bytes > *look_left) {
        return 0;
    }
    *look_left -= bytes;
    int rc = recipe_look(&holding, &source, spec->on_problem, err);
    if (rc == 0) {
        rc = recipe_check(&holding, (enum method_of_training)spec->method, source.name, err);
    }
    if (rc != 0 && err->param[0] == '\0') {
        err_about(err, "training_file");
    }
    return rc;
}

int draft_time_limit(const struct settings *s, int64_t wanted, int64_t *out, struct err *err)
{
    const int64_t most = s->max_time_limit_s;

    if (wanted > most) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "time_limit_s",
                          "time_limit_s is %lld, the longest that this server allows is %lld",
                          (long long)wanted, (long long)most);
    }
    *out = wanted != 0 ? wanted : s->time_limit_s < most ? s->time_limit_s : most;
    return 0;
}

/* A rank of the run on each device. */
static int64_t ranks_of(const struct spec *spec)
{
    const struct mesh_sizes mesh = plan_mesh(spec);

    return (int64_t)mesh.tp * mesh.cp * mesh.dp * mesh.pp;
}

/* What the queue goes by. The spec gets the time limit that counts. */
static int take_queue_fields(struct draft *d, struct spec *spec, const struct app *app,
                             const struct identity *who, struct err *err)
{
    const bool gives_way = spec->priority == PRIORITY_LOW || spec->priority == PRIORITY_IDLE;

    if (spec->priority == PRIORITY_URGENT && !may_do(who, DEED_RAISE_JOB, who->user_id, false)) {
        return FAIL_PARAM(err, ERR_FORBIDDEN, "priority",
                          "priority: only an administrator may ask for urgent");
    }
    TRY(draft_time_limit(app->settings, spec->time_limit_s, &d->time_limit_s, err));
    spec->time_limit_s = d->time_limit_s;
    d->devices = ranks_of(spec);
    d->begin_at = spec->begin_at;
    d->is_requeued = spec->at_time_limit == LIMIT_REQUEUE;
    d->preemptible =
        spec->preemptible == PREEMPTIBLE_AUTO ? gives_way : spec->preemptible == PREEMPTIBLE_YES;
    d->is_private = spec->visibility == VISIBLE_PRIVATE;
    return dependencies_parse(&d->dependencies, spec->depends_on, err);
}

static int look_up(struct draft *d, const struct app *app, const struct identity *who,
                   const struct spec *spec, const struct draft_like *like, struct err *err)
{
    int64_t look_bytes = LOOK_BYTES;

    if (like != NULL && like->shape != NULL) {
        d->references = json_incref(like->shape->references);
        d->sizing = like->shape->sizing;
        return 0;
    }
    if (like != NULL && like->files != NULL) {
        d->references = json_incref(like->files->references);
    } else {
        TRY(references_find(app, who, spec, &d->references, err));
        TRY(report_check_policy(spec->on_problem, err));
        TRY(check_training(d->references, spec, like != NULL ? like->look_left : &look_bytes, err));
    }
    return sizing_check(app, spec, d->references, &d->sizing, err);
}

/* Every field, with the devices that the request left open, and of them the word of the class. */
static int resolve(struct draft *d, const struct spec *spec, struct err *err)
{
    json_t *all = spec_json(spec);
    const char *class = json_string_value(json_object_get(all, "priority"));

    (void)json_object_set_new(all, "devices", json_integer((json_int_t)d->devices));
    (void)snprintf(d->class, sizeof d->class, "%s", class != NULL ? class : "");
    d->resolved = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return d->resolved != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, no_memory);
}

static int check_all(struct draft *d, struct spec *spec, const struct app *app,
                     const struct identity *who, const struct draft_like *like, struct err *err)
{
    if (!text_is_plain(spec->name)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "name", "the name has characters that can't be shown");
    }
    (void)snprintf(d->name, sizeof d->name, "%s", spec->name);
    TRY(take_queue_fields(d, spec, app, who, err));
    TRY(look_up(d, app, who, spec, like, err));
    return resolve(d, spec, err);
}

int draft_make(struct draft *out, const struct app *app, const struct identity *who,
               const json_t *request, const struct draft_like *like, struct err *err)
{
    struct spec *spec = malloc(sizeof *spec);

    *out = (struct draft){.request = json_incref(json_unconst(request))};
    if (spec == NULL) {
        draft_free(out);
        return FAIL(err, ERR_NO_MEMORY, no_memory);
    }
    int rc = spec_parse(spec, request, err);
    if (rc == 0) {
        random_id(out->id, "job");
        rc = check_all(out, spec, app, who, like, err);
        spec_free(spec);
    }
    free(spec);
    if (rc != 0) {
        draft_free(out);
    }
    return rc;
}

void draft_free(struct draft *d)
{
    json_decref(d->request);
    json_decref(d->references);
    free(d->resolved);
    *d = (struct draft){0};
}

static void folder_names(char dir[JOB_PATH], char aside[JOB_PATH + 8], const struct app *app,
                         const char *id)
{
    job_dir(dir, JOB_PATH, app->settings, id);
    (void)snprintf(aside, JOB_PATH + 8, "%s.new", dir);
}

int draft_make_folder(const struct draft *d, const struct app *app, const struct identity *who,
                      struct err *err)
{
    char dir[JOB_PATH], aside[JOB_PATH + 8];

    folder_names(dir, aside, app, d->id);
    return job_folder_create(aside, d->id, who->name, (double)d->created_at, d->request, err);
}

/* The job exists now: a folder without its name is no reason to say otherwise. */
void draft_name_folder(const struct draft *d, const struct app *app)
{
    char dir[JOB_PATH], aside[JOB_PATH + 8];

    folder_names(dir, aside, app, d->id);
    if (rename(aside, dir) != 0 &&
        access(dir, F_OK) != 0) { /* the supervisor may have been faster */
        log_line("%s: the folder keeps the name %s: %s", d->id, aside, strerror(errno));
    }
}

void draft_drop_folder(const struct draft *d, const struct app *app)
{
    char dir[JOB_PATH], aside[JOB_PATH + 8];
    struct err ignored = {0};

    folder_names(dir, aside, app, d->id);
    (void)io_remove_tree(aside, &ignored); /* what stays is removed when honed starts */
}

int draft_check_room(struct tx *tx, const struct app *app, const struct identity *who,
                     int64_t count, struct err *err)
{
    struct limits mine;
    int64_t live = 0;

    TRY(limits_of(tx->db, who->user_id, app->settings, &mine, err));
    TRY(db_integer(&live, 0, tx->db, err,
                   "SELECT COUNT(*) FROM jobs WHERE user_id=?"
                   " AND state NOT IN('succeeded','failed','cancelled')",
                   "i", who->user_id));
    const int64_t most = mine.max_queued;
    if (count > most - live) {
        return count == 1
                   ? FAIL(err, ERR_TOO_MANY,
                          "you have %lld jobs that have not ended; the most allowed are %lld",
                          (long long)live, (long long)most)
                   : FAIL(err, ERR_TOO_MANY,
                          "you have %lld jobs that have not ended, and these would be %lld more; "
                          "the most allowed are %lld",
                          (long long)live, (long long)count, (long long)most);
    }
    return 0;
}

/* More devices than its owner may hold would wait for ever. */
static int check_devices(struct tx *tx, const struct draft *d, const struct app *app,
                         const struct identity *who, struct err *err)
{
    struct limits mine;

    TRY(limits_of(tx->db, who->user_id, app->settings, &mine, err));
    return mine.max_devices == 0 || d->devices <= mine.max_devices
               ? 0
               : FAIL_PARAM(err, ERR_BAD_SPEC, "devices",
                            "devices is %lld, and you may hold %lld at a time",
                            (long long)d->devices, (long long)mine.max_devices);
}

/* A file that was deleted while we looked must not be entered. */
static int enter_file(struct tx *tx, const struct draft *d, const char *field, enum err_code code,
                      struct err *err)
{
    const char *file =
        json_string_value(json_object_get(json_object_get(d->references, field), "file"));
    int64_t there = 0;

    if (file == NULL) {
        return 0;
    }
    TRY(db_integer(&there, 0, tx->db, err, "SELECT 1 FROM files WHERE id=?", "s", file));
    if (there == 0) {
        return FAIL_PARAM(err, code, field, "%s: there is no file %.40s", field, file);
    }
    return db_run(tx->db, err, "INSERT OR IGNORE INTO job_files(job_seq, file_id) VALUES(?,?)",
                  "is", d->seq, file);
}

static int insert_row(struct tx *tx, struct draft *d, const struct identity *who, struct err *err)
{
    char *request = json_dumps(d->request, JSON_COMPACT);
    char *references = json_dumps(d->references, JSON_COMPACT);
    int rc = 0;

    if (request == NULL || references == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, no_memory);
    } else {
        rc = db_run(
            tx->db, err,
            "INSERT INTO jobs(id, user_id, name, state, stage, request, resolved, inputs,"
            " created_at, ticket_at, memory_bytes, parameters, idempotency_key, body_sha256,"
            " class, devices, device_bytes, time_limit_s, requeues, preemptible, private, begin_at,"
            " cloned_from, array_seq, array_index)"
            " VALUES(?1,?2,?3,'queued','waiting',?4,?5,?6,?7,?7,NULLIF(?8,0),NULLIF(?9,0),?10,?11,"
            " ?12,?13,?14,?15,?16,?17,?18,?19,?20,NULLIF(?21,0),CASE WHEN ?21<>0 THEN ?22 END)",
            "sissssiiisssiiiiiiisii", d->id, who->user_id, d->name, request, d->resolved,
            references, d->created_at, d->sizing.memory_bytes, d->sizing.parameters, d->key,
            d->digest, d->class, d->devices, d->sizing.device_bytes, d->time_limit_s,
            (int64_t)d->is_requeued, (int64_t)d->preemptible, (int64_t)d->is_private, d->begin_at,
            d->cloned_from, d->array_seq, d->array_index);
    }
    free(request);
    free(references);
    TRY(rc);
    d->seq = sqlite3_last_insert_rowid(tx->db);
    return db_run(tx->db, err, "UPDATE jobs SET line=seq WHERE seq=?", "i", d->seq);
}

int draft_insert(struct tx *tx, struct draft *d, const struct app *app, const struct identity *who,
                 struct err *err)
{
    struct job_ref ref;

    TRY(check_devices(tx, d, app, who, err));
    TRY(insert_row(tx, d, who, err));
    TRY(enter_file(tx, d, "training_file", ERR_BAD_TRAINING_FILE, err));
    TRY(enter_file(tx, d, "validation_file", ERR_BAD_VALIDATION_FILE, err));
    TRY(dependencies_add(tx, who, &d->dependencies, d->seq, err));
    TRY(job_find(tx->db, d->id, NULL, DEED_SEE_JOB, &ref, err));
    return job_announce(tx, &ref, err);
}

int draft_restore(struct tx *tx, struct spec *spec, const json_t *references, const struct app *app,
                  int64_t seq, struct err *err)
{
    static const struct identity owner = {.user_id = 1, .role = ROLE_ADMIN};
    static const char *const classes[] = {"urgent", "normal", "low", "idle"}; /* by priority */
    struct draft d = {.devices = spec->devices};
    struct err none = {0};

    if (take_queue_fields(&d, spec, app, &owner, &none) != 0) {
        return 0;
    }
    (void)sizing_check(app, spec, references, &d.sizing, &none);
    return db_run(tx->db, err,
                  "UPDATE jobs SET class=?, devices=?, device_bytes=?, memory_bytes=NULLIF(?,0),"
                  " time_limit_s=?, requeues=?, preemptible=?, private=?, begin_at=?,"
                  " ticket_at=created_at, line=seq WHERE seq=?",
                  "siiiiiiiii", classes[spec->priority], d.devices, d.sizing.device_bytes,
                  d.sizing.memory_bytes, d.time_limit_s, (int64_t)d.is_requeued,
                  (int64_t)d.preemptible, (int64_t)d.is_private, d.begin_at, seq);
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
    folder_names(dir, aside, app, id);
    if (store_read(app->store, has_row, id, &none) != 0) {
        log_line("jobs: removing the unfinished %s", name);
        return io_remove_tree(aside, err);
    }
    return rename(aside, dir) == 0 ? 0 : FAIL(err, ERR_IO, "%s: %s", aside, strerror(errno));
}

int draft_settle(const struct app *app, struct err *err)
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
