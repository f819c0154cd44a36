/* protocol.c - reads and writes the files of a job folder. */
#include "trainer/protocol.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/base/text.h"

enum { NAME_SIZE = 64, EXIT_RESERVE = 4096 };
_Static_assert(JOB_PATH_SIZE >= PATH_MAX, "realpath writes up to PATH_MAX bytes");

static const char *const event_words[EVENT_COUNT] = {
#define EVENT(id, word, keys) [EVENT_##id] = (word),
#include "trainer/protocol.def"
};
static const char *const stage_words[STAGE_COUNT] = {
#define STAGE(id, word) [STAGE_##id] = (word),
#include "trainer/stages.def"
};
static const char *const ended_words[ENDED_COUNT] = {[ENDED_SUCCEEDED] = "succeeded",
                                                     [ENDED_FAILED] = "failed",
                                                     [ENDED_STOPPED] = "stopped",
                                                     [ENDED_CANCELLED] = "cancelled"};

static int find_word(const char *const *words, int count, const char *word)
{
    int i = 0;

    while (i < count && strcmp(words[i], word) != 0) {
        i++;
    }
    return i;
}

const char *event_word(enum event_type type)
{
    return event_words[type];
}

const char *stage_word(enum stage stage)
{
    return stage_words[stage];
}

const char *ended_word(enum ended ended)
{
    return ended_words[ended];
}

enum event_type event_from_word(const char *word)
{
    return (enum event_type)find_word(event_words, EVENT_COUNT, word);
}

enum stage stage_from_word(const char *word)
{
    return (enum stage)find_word(stage_words, STAGE_COUNT, word);
}

enum ended ended_from_word(const char *word)
{
    return (enum ended)find_word(ended_words, ENDED_COUNT, word);
}

/* dir/attempts/N or, with a file, dir/attempts/N/file. */
static int attempt_path(char out[JOB_PATH_SIZE], const char *dir, int attempt, const char *file,
                        struct err *err)
{
    char name[NAME_SIZE];

    (void)snprintf(name, sizeof name, JOB_ATTEMPTS "/%d%s%s", attempt, file == NULL ? "" : "/",
                   file == NULL ? "" : file);
    return io_join(out, JOB_PATH_SIZE, dir, name, err);
}

static bool attempt_has(const char *dir, int attempt, const char *file)
{
    char path[JOB_PATH_SIZE];
    struct err ignored;

    return attempt_path(path, dir, attempt, file, &ignored) == 0 && access(path, F_OK) == 0;
}

static int make_attempt(const char *dir, int attempt, struct err *err)
{
    char path[JOB_PATH_SIZE];

    TRY(io_join(path, sizeof path, dir, JOB_ATTEMPTS, err));
    TRY(io_make_dir(path, err));
    TRY(attempt_path(path, dir, attempt, NULL, err));
    return io_make_dir(path, err);
}

/* Takes over the reference; NULL is a lack of memory. */
static int write_json(const char *path, json_t *value, struct err *err)
{
    if (value == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", path);
    }
    const int rc = json_write_file(path, value, err);
    json_decref(value);
    return rc;
}

static json_t *text_or_null(const char *text)
{
    return text[0] == '\0' ? json_null() : json_string(text);
}

/* A text field into a buffer; one that is absent leaves it as it is. */
static int read_text(const struct fields *f, const char *name, char *out, size_t size,
                     struct err *err)
{
    const char *text = NULL;

    TRY(fields_text(f, name, FIELD_OPTIONAL, &text, err));
    if (text == NULL) {
        return 0;
    }
    if (strlen(text) >= size) {
        return FAIL(err, f->code, "%s: %s has %zu bytes, at most %zu are allowed", f->where, name,
                    strlen(text), size - 1);
    }
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int read_int(const struct fields *f, const char *name, int low, int high, int *out,
                    struct err *err)
{
    int64_t value = *out;

    TRY(fields_integer(f, name, FIELD_OPTIONAL, low, high, &value, err));
    *out = (int)value; /* between low and high */
    return 0;
}

int job_folder_create(const char *dir, const char *id, const char *owner, double created_at,
                      const json_t *request, struct err *err)
{
    char path[JOB_PATH_SIZE];

    TRY(io_join(path, sizeof path, dir, JOB_SPEC, err));
    if (mkdir(dir, 0700) != 0) {
        const int number = errno;
        if (number == EEXIST) {
            return FAIL(err, ERR_BAD_STATE, "there is a job folder %s already", dir);
        }
        return IO_FAIL(err, number, "make the folder %s: %s", dir, strerror(number));
    }
    return write_json(path,
                      json_pack("{s:s, s:s, s:f, s:o}", "id", id, "owner", owner, "created_at",
                                created_at, "request", json_deep_copy(request)),
                      err);
}

int attempt_plan_write(const char *dir, const struct attempt_plan *plan, struct err *err)
{
    char path[JOB_PATH_SIZE];
    json_t *cores = json_array(), *places = json_array();

    CHECK(plan->attempt >= 1 && plan->core_count >= 0 && plan->core_count <= JOB_CORES_MAX,
          "attempt %d with %d cores", plan->attempt, plan->core_count);
    for (int i = 0; i < plan->core_count; i++) {
        (void)json_array_append_new(cores, json_integer(plan->cores[i]));
    }
    for (int i = 0; i < plan->place_count; i++) {
        (void)json_array_append_new(
            places, json_pack("{s:i, s:i, s:i}", "first", plan->places[i].first, "count",
                              plan->places[i].count, "node", plan->places[i].node));
    }
    json_t *value = json_pack(
        "{s:i, s:i, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o, s:o}, s:o, s:I, s:i, s:i, s:i, s:o, s:o}",
        "attempt", plan->attempt, "threads", plan->threads, "cores", cores, "places", places, "isa",
        text_or_null(plan->isa), "inputs", "model", text_or_null(plan->model), "adapter",
        text_or_null(plan->adapter), "tokenizer", text_or_null(plan->tokenizer), "training",
        text_or_null(plan->training), "validation", text_or_null(plan->validation), "cache",
        text_or_null(plan->cache), "memory_bytes", (json_int_t)plan->memory_bytes, "memory_node",
        plan->memory_node, "devices", plan->devices, "gpus", plan->gpus, "device_ids",
        text_or_null(plan->device_ids), "fingerprint", text_or_null(plan->fingerprint));
    if (value == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the plan, or a path in it is not UTF-8");
    }
    int rc = make_attempt(dir, plan->attempt, err);
    if (rc == 0) {
        rc = attempt_path(path, dir, plan->attempt, "plan.json", err);
    }
    if (rc == 0) {
        rc = json_write_file(path, value, err);
    }
    json_decref(value);
    return rc;
}

static int read_cores(struct attempt_plan *out, const struct fields *f, struct err *err)
{
    const json_t *list = NULL;

    TRY(fields_array(f, "cores", FIELD_OPTIONAL, &list, err));
    if (json_array_size(list) > JOB_CORES_MAX) {
        return FAIL(err, f->code, "%s: %zu cores, at most %d are allowed", f->where,
                    json_array_size(list), JOB_CORES_MAX);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *core = json_array_get(list, i);
        if (!json_is_integer(core) || json_integer_value(core) < 0 ||
            json_integer_value(core) > INT_MAX) {
            return FAIL(err, f->code, "%s: core number %zu is not a whole number of at least 0",
                        f->where, i + 1);
        }
        out->cores[out->core_count++] = (int)json_integer_value(core);
    }
    return 0;
}

static int read_places(struct attempt_plan *out, const struct fields *f, struct err *err)
{
    const json_t *list = NULL;

    TRY(fields_array(f, "places", FIELD_OPTIONAL, &list, err));
    if (json_array_size(list) > JOB_RANKS_MAX) {
        return FAIL(err, f->code, "%s: %zu places, at most %d are allowed", f->where,
                    json_array_size(list), JOB_RANKS_MAX);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct fields one = {json_array_get(list, i), f->where, f->code};
        struct rank_place *p = &out->places[out->place_count++];
        p->node = -1;
        TRY(read_int(&one, "first", 0, out->core_count, &p->first, err));
        TRY(read_int(&one, "count", 0, out->core_count - p->first, &p->count, err));
        TRY(read_int(&one, "node", -1, JOB_CORES_MAX, &p->node, err));
    }
    return 0;
}

static int read_plan(struct attempt_plan *out, const json_t *value, const char *path,
                     struct err *err)
{
    const struct fields f = {.object = value, .where = path, .code = ERR_BAD_FILE};
    struct fields in = {.where = path, .code = ERR_BAD_FILE};

    TRY(read_int(&f, "threads", 0, JOB_CORES_MAX, &out->threads, err));
    TRY(read_cores(out, &f, err));
    TRY(read_places(out, &f, err));
    TRY(read_text(&f, "isa", out->isa, sizeof out->isa, err));
    TRY(read_text(&f, "cache", out->cache, sizeof out->cache, err));
    TRY(fields_integer(&f, "memory_bytes", FIELD_OPTIONAL, 0, INT64_MAX, &out->memory_bytes, err));
    TRY(read_int(&f, "memory_node", -1, JOB_CORES_MAX, &out->memory_node, err));
    TRY(read_int(&f, "devices", 0, JOB_CORES_MAX, &out->devices, err));
    TRY(read_int(&f, "gpus", 0, JOB_CORES_MAX, &out->gpus, err));
    TRY(read_text(&f, "device_ids", out->device_ids, sizeof out->device_ids, err));
    TRY(read_text(&f, "fingerprint", out->fingerprint, sizeof out->fingerprint, err));
    TRY(fields_object(&f, "inputs", FIELD_REQUIRED, &in.object, err));
    TRY(read_text(&in, "model", out->model, sizeof out->model, err));
    TRY(read_text(&in, "adapter", out->adapter, sizeof out->adapter, err));
    TRY(read_text(&in, "tokenizer", out->tokenizer, sizeof out->tokenizer, err));
    TRY(read_text(&in, "training", out->training, sizeof out->training, err));
    return read_text(&in, "validation", out->validation, sizeof out->validation, err);
}

int attempt_plan_read(struct attempt_plan *out, const char *dir, int attempt, struct err *err)
{
    char path[JOB_PATH_SIZE];
    json_t *value = NULL;

    *out = (struct attempt_plan){.attempt = attempt, .memory_node = -1};
    TRY(attempt_path(path, dir, attempt, "plan.json", err));
    TRY(json_parse_file(&value, path, JOB_FILE_MAX, err));
    const int rc = read_plan(out, value, path, err);
    json_decref(value);
    return rc;
}

int attempt_exit_reserve(const char *dir, int attempt, struct err *err)
{
    char path[JOB_PATH_SIZE], spaces[EXIT_RESERVE];

    TRY(make_attempt(dir, attempt, err));
    TRY(attempt_path(path, dir, attempt, "exit.json.part", err));
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "open %s: %s", path, strerror(number));
    }
    memset(spaces, ' ', sizeof spaces);
    int rc = io_write_all(fd, spaces, sizeof spaces, path, err);
    if (rc == 0 && fsync(fd) != 0) {
        const int number = errno;
        rc = IO_FAIL(err, number, "fsync %s: %s", path, strerror(number));
    }
    (void)close(fd);
    return rc;
}

/* Overwrite the reserved room, cut the rest, rename. */
static int write_exit(const char *dir, int attempt, const char *text, size_t length,
                      struct err *err)
{
    char part[JOB_PATH_SIZE], path[JOB_PATH_SIZE], folder[JOB_PATH_SIZE];

    TRY(make_attempt(dir, attempt, err));
    TRY(attempt_path(part, dir, attempt, "exit.json.part", err));
    TRY(attempt_path(path, dir, attempt, "exit.json", err));
    TRY(attempt_path(folder, dir, attempt, NULL, err));
    const int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "open %s: %s", part, strerror(number));
    }
    int rc = io_write_all(fd, text, length, part, err);
    if (rc == 0 && (ftruncate(fd, (off_t)length) != 0 || fsync(fd) != 0)) {
        const int number = errno;
        rc = IO_FAIL(err, number, "write %s: %s", part, strerror(number));
    }
    (void)close(fd);
    if (rc == 0 && rename(part, path) != 0) {
        const int number = errno;
        rc = IO_FAIL(err, number, "rename %s: %s", part, strerror(number));
    }
    return rc != 0 ? rc : io_sync_dir(folder, err);
}

int attempt_exit_write(const char *dir, int attempt, const struct attempt_exit *end,
                       struct err *err)
{
    char clean[sizeof end->error.text];

    text_clean(clean, sizeof clean, end->error.text);
    json_t *error =
        end->error.code == ERR_NONE
            ? json_null()
            : json_pack("{s:s, s:s}", "code", err_word(end->error.code), "message", clean);
    json_t *value = json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:f}", "status",
                              ended_word(end->status), "step", (json_int_t)end->step, "error",
                              error, "exit", end->exit < 0 ? json_null() : json_integer(end->exit),
                              "signal", end->signal == 0 ? json_null() : json_integer(end->signal),
                              "rank", end->rank < 0 ? json_null() : json_integer(end->rank),
                              "planned_bytes", (json_int_t)end->planned_bytes, "peak_bytes",
                              (json_int_t)end->peak_bytes, "ended_at", end->ended_at);
    char *text = value == NULL ? NULL : json_dumps(value, JSON_INDENT(2));
    json_decref(value);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write exit.json");
    }
    const int rc = write_exit(dir, attempt, text, strlen(text), err);
    free(text);
    return rc;
}

static int read_exit(struct attempt_exit *out, const json_t *value, const char *path,
                     struct err *err)
{
    const struct fields f = {.object = value, .where = path, .code = ERR_BAD_FILE};
    struct fields in = {.where = path, .code = ERR_BAD_FILE};
    const char *status, *code, *message;

    TRY(fields_text(&f, "status", FIELD_REQUIRED, &status, err));
    out->status = ended_from_word(status);
    if (out->status == ENDED_COUNT) {
        return FAIL(err, f.code, "%s: there is no status \"%s\"", path, status);
    }
    TRY(fields_integer(&f, "step", FIELD_REQUIRED, 0, INT64_MAX, &out->step, err));
    TRY(read_int(&f, "exit", 0, INT_MAX, &out->exit, err));
    TRY(read_int(&f, "signal", 0, INT_MAX, &out->signal, err));
    TRY(read_int(&f, "rank", 0, INT_MAX, &out->rank, err));
    TRY(fields_integer(&f, "planned_bytes", FIELD_OPTIONAL, 0, INT64_MAX, &out->planned_bytes,
                       err));
    TRY(fields_integer(&f, "peak_bytes", FIELD_OPTIONAL, 0, INT64_MAX, &out->peak_bytes, err));
    TRY(fields_number(&f, "ended_at", FIELD_REQUIRED, 0.0, 1e15, &out->ended_at, err));
    TRY(fields_object(&f, "error", FIELD_OPTIONAL, &in.object, err));
    if (in.object != NULL) {
        TRY(fields_text(&in, "code", FIELD_REQUIRED, &code, err));
        TRY(fields_text(&in, "message", FIELD_REQUIRED, &message, err));
        err_set(&out->error, err_from_word(code), "%s", message);
    }
    return 0;
}

int attempt_exit_read(struct attempt_exit *out, const char *dir, int attempt, struct err *err)
{
    char path[JOB_PATH_SIZE];
    json_t *value = NULL;

    *out = (struct attempt_exit){.exit = -1, .rank = -1};
    TRY(attempt_path(path, dir, attempt, "exit.json", err));
    TRY(json_parse_file(&value, path, JOB_FILE_MAX, err));
    const int rc = read_exit(out, value, path, err);
    json_decref(value);
    return rc;
}

int attempt_newest(const char *dir)
{
    char path[JOB_PATH_SIZE];
    struct err ignored;
    DIR *list = io_join(path, sizeof path, dir, JOB_ATTEMPTS, &ignored) == 0 ? opendir(path) : NULL;
    long newest = 0;

    if (list == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        char *end;
        if (isdigit((unsigned char)entry->d_name[0])) {
            const long number = strtol(entry->d_name, &end, 10);
            newest = *end == '\0' && number > newest && number < INT_MAX ? number : newest;
        }
    }
    (void)closedir(list);
    return (int)newest; /* below INT_MAX */
}

int64_t job_latest_step(const char *dir)
{
    char path[JOB_PATH_SIZE], target[NAME_SIZE];
    struct err ignored;

    if (io_join(path, sizeof path, dir, JOB_LATEST, &ignored) != 0) {
        return 0;
    }
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        return 0;
    }
    target[n] = '\0';
    char *end = target;
    const long long step = strncmp(target, "step-", 5) == 0 ? strtoll(target + 5, &end, 10) : 0;
    return *end == '\0' && step > 0 ? (int64_t)step : 0;
}

/* An input of a folder made by hand: a path, absolute or relative to the folder. */
static int resolve_input(char out[JOB_PATH_SIZE], const char *dir, const char *field,
                         const char *given, enum err_code code, struct err *err)
{
    char path[JOB_PATH_SIZE];

    if (given[0] == '\0') {
        return 0;
    }
    if (strcspn(given, ":") < strcspn(given, "/")) {
        return FAIL_PARAM(err, code, field,
                          "only the server knows what \"%s\" means; without it, %s is a path",
                          given, field);
    }
    if (given[0] == '/') {
        (void)snprintf(path, sizeof path, "%s", given); /* at most 512 bytes, as spec.def says */
    } else {
        TRY(io_join(path, sizeof path, dir, given, err));
    }
    if (realpath(path, out) == NULL) {
        return FAIL_PARAM(err, code, field, "%s: %s: %s", field, path, strerror(errno));
    }
    return 0;
}

static int plan_from_request(struct job_folder *job, struct err *err)
{
    struct attempt_plan *p = &job->plan;
    const struct spec *s = &job->spec;

    *p = (struct attempt_plan){
        .attempt = job->attempt, .threads = (int)s->threads, .memory_node = -1};
    TRY(resolve_input(p->model, job->dir, "model", s->model, ERR_NO_MODEL, err));
    TRY(resolve_input(p->adapter, job->dir, "adapter", s->adapter, ERR_NO_MODEL, err));
    TRY(resolve_input(p->tokenizer, job->dir, "tokenizer", s->tokenizer, ERR_NO_MODEL, err));
    TRY(resolve_input(p->training, job->dir, "training_file", s->training_file,
                      ERR_BAD_TRAINING_FILE, err));
    TRY(resolve_input(p->validation, job->dir, "validation_file", s->validation_file,
                      ERR_BAD_VALIDATION_FILE, err));
    return io_join(p->cache, sizeof p->cache, job->dir, "cache", err);
}

/* spec.json: {"id", "owner", "created_at", "request"}, or the request alone. */
static int read_spec(struct job_folder *job, struct err *err)
{
    char path[JOB_PATH_SIZE];
    json_t *value = NULL;
    const json_t *request = NULL;

    TRY(io_join(path, sizeof path, job->dir, JOB_SPEC, err));
    TRY(json_parse_file(&value, path, JOB_FILE_MAX, err));
    const struct fields f = {.object = value, .where = JOB_SPEC, .code = ERR_BAD_FILE};
    int rc = 0;
    if (json_object_get(value, "request") == NULL) {
        job->request = json_incref(value);
    } else {
        rc = fields_object(&f, "request", FIELD_REQUIRED, &request, err);
        rc = rc != 0 ? rc : read_text(&f, "id", job->id, sizeof job->id, err);
        rc = rc != 0 ? rc : read_text(&f, "owner", job->owner, sizeof job->owner, err);
        rc = rc != 0 ? rc
                     : fields_number(&f, "created_at", FIELD_OPTIONAL, 0.0, 1e15, &job->created_at,
                                     err);
        job->request = rc != 0 ? NULL : json_incref(json_object_get(value, "request"));
    }
    json_decref(value);
    return rc != 0 ? rc : spec_parse(&job->spec, job->request, err);
}

/* The plan that is there, else the last one's, else one from the request. */
static int read_or_make_plan(struct job_folder *job, struct err *err)
{
    int earlier = job->attempt;

    while (earlier > 0 && !attempt_has(job->dir, earlier, "plan.json")) {
        earlier--;
    }
    if (earlier == 0) {
        TRY(plan_from_request(job, err));
    } else {
        TRY(attempt_plan_read(&job->plan, job->dir, earlier, err));
        job->plan.attempt = job->attempt;
    }
    return earlier == job->attempt ? 0 : attempt_plan_write(job->dir, &job->plan, err);
}

int job_folder_open(struct job_folder *job, const char *dir, struct err *err)
{
    memset(job, 0, sizeof *job);
    if (realpath(dir, job->dir) == NULL) {
        return FAIL(err, ERR_NOT_FOUND, "job folder %s: %s", dir, strerror(errno));
    }
    const char *slash = strrchr(job->dir, '/');
    text_clean(job->id, sizeof job->id, slash == NULL ? job->dir : slash + 1);

    const int newest = attempt_newest(job->dir);
    const bool is_fresh = newest > 0 && job_pid_attempt(job->dir) < newest &&
                          !attempt_has(job->dir, newest, "exit.json");
    job->attempt = is_fresh ? newest : newest + 1;
    TRY(make_attempt(job->dir, job->attempt, err));
    TRY(read_spec(job, err));
    return read_or_make_plan(job, err);
}

void job_folder_close(struct job_folder *job)
{
    spec_free(&job->spec);
    json_decref(job->request);
    job->request = NULL;
}
