/* verbs_jobs.c - jobs: plan, submit, ls, show, cancel, save, pause, resume, events, metrics, checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "server/cli/when.h"

/* Upload the file of a word "field=FILE" and set the field to its id. */
static int upload_field(struct cli *c, json_t *request, const char *word, struct err *err)
{
    const size_t length = strcspn(word, "=");
    json_t *file = NULL;
    char *text = NULL, field[128];

    if (word[length] != '=' || length == 0 || length >= sizeof field) {
        return FAIL(err, ERR_BAD_REQUEST, "--upload takes FIELD=FILE, not %s", word);
    }
    (void)snprintf(field, sizeof field, "%.*s", (int)length, word);
    if (json_object_get(request, field) != NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, field, "%s is given twice", field);
    }
    TRY(cli_upload(c, word + length + 1, NULL, NULL, &file, &text, err));
    const int failed = json_object_set(request, field, json_object_get(file, "id"));
    free(text);
    json_decref(file);
    return failed == 0 ? 0 : FAIL(err, ERR_BAD_REQUEST, "the field %s is not UTF-8 text", field);
}

int cli_request(struct cli *c, json_t *grid, json_t **request, struct err *err)
{
    json_t *const words = json_object();
    json_t *fields = NULL;
    const char *const spec = c->args.value[OPTION_SPEC];
    int rc = 0;

    *request = NULL;
    if (c->args.words > 0) {
        rc = cli_fields(c, &fields, err);
    }
    for (int i = 0; rc == 0 && i < c->args.words; i++) {
        rc = grid != NULL ? assign_swept(words, grid, c->args.word[i], fields, err)
                          : assign_field(words, c->args.word[i], fields, err);
    }
    if (rc == 0 && spec != NULL) {
        rc = assign_load_object(request, spec, err);
    } else if (rc == 0) {
        *request = json_object();
    }
    for (int i = 0; rc == 0 && i < c->args.uploads; i++) {
        rc = upload_field(c, words, c->args.upload[i], err);
    }
    if (rc == 0 && json_object_update(*request, words) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    if (rc != 0) {
        json_decref(*request);
        *request = NULL;
    }
    json_decref(words);
    json_decref(fields);
    return rc;
}

int verb_plan(struct cli *c, struct err *err)
{
    json_t *request = NULL, *plan = NULL, *bytes = NULL;
    const char *region = NULL;
    char text[24];

    TRY(cli_request(c, NULL, &request, err));
    const int rc = cli_call(c, "POST", "/v1/plan", request, &plan, err);
    json_decref(request);
    if (rc != 0 || plan == NULL) {
        return rc;
    }
    cli_line("fits", json_is_true(json_object_get(plan, "fits")) ? "yes" : "no");
    cli_line("parameters", show_count(text, cli_number(plan, "parameters")));
    cli_line("layout", cli_text(plan, "layout"));
    cli_line("memory", show_bytes(text, cli_integer(plan, "memory_bytes")));
    if (cli_integer(plan, "devices") > 1) {
        cli_line("on each device", show_bytes(text, cli_integer(plan, "device_bytes")));
    }
    json_object_foreach(json_object_get(plan, "memory"), region, bytes)
    {
        char name[64];
        (void)snprintf(name, sizeof name, "  %.40s", region);
        if (json_integer_value(bytes) > 0) {
            cli_line(name, show_bytes(text, json_integer_value(bytes)));
        }
    }
    cli_line("advice", cli_text(plan, "advice"));
    json_decref(plan);
    return 0;
}

int cli_create(struct cli *c, const char *path, json_t *body, json_t **made, char **text,
               struct err *err)
{
    unsigned char random[16];
    char key[64] = "Idempotency-Key: ";
    size_t used = strlen(key);
    int rc = 0;

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return FAIL(err, ERR_IO, "no random numbers: %s", strerror(errno));
    }
    for (size_t i = 0; i < sizeof random; i++) {
        used += (size_t)snprintf(key + used, sizeof key - used, "%02x", random[i]);
    }
    for (int tries = 0; tries < 3; tries++) {
        struct http_reply reply;
        const struct http_request post = {
            .method = "POST", .path = path, .header = key, .json = body, .quiet_s = 120};

        rc = http_send(c->http, &post, &reply, err);
        *made = rc == 0 && reply.body != NULL ? json_loadb(reply.body, reply.bytes, 0, NULL) : NULL;
        const bool again = rc != 0 && http_may_retry(&reply, rc);
        *text = rc == 0 ? reply.body : NULL;
        if (rc == 0) {
            reply.body = NULL;
        }
        http_reply_fini(&reply);
        if (!again) {
            break;
        }
    }
    if (rc == 0 && cli_text(*made, "id")[0] == '\0') {
        rc = FAIL(err, ERR_IO, "the server's answer has no id");
    }
    return rc;
}

int verb_submit(struct cli *c, struct err *err)
{
    json_t *request = NULL, *job = NULL;
    char *text = NULL, id[128];
    const bool as_json = args_has(&c->args, OPT(JSON));

    if (c->args.words == 0 && c->args.uploads == 0 && c->args.value[OPTION_SPEC] == NULL) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "say what to train: FIELD=VALUE words or --spec FILE; `hone help "
                    "fields` lists the fields");
    }
    TRY(cli_connect(c, true, err));
    TRY(cli_request(c, NULL, &request, err));
    int rc = cli_create(c, "/v1/jobs", request, &job, &text, err);
    json_decref(request);
    (void)snprintf(id, sizeof id, "%s", cli_text(job, "id"));
    if (rc == 0 && as_json) {
        (void)puts(text);
    } else if (rc == 0) {
        show_print(id, strlen(id), false);
        (void)putchar('\n');
    }
    free(text);
    json_decref(job);
    if (rc == 0 && args_has(&c->args, OPT(WATCH))) {
        rc = cli_watch(c, id, err);
    }
    return rc;
}

/* When a waiting job is expected to start, and what it waits for. */
static void add_wait(struct table *t, const json_t *row)
{
    const char *const state = cli_text(row, "state");
    const int64_t at = cli_integer(row, "expected_start_at");
    char text[400], relative[48];

    if (strcmp(state, "queued") == 0 && at > 0) {
        (void)snprintf(text, sizeof text, "%s: %.300s",
                       when_relative(relative, at, (int64_t)time(NULL)), cli_text(row, "reason"));
        table_add(t, text);
    } else if (strcmp(state, "queued") == 0 || strcmp(state, "stopping") == 0) {
        table_add(t, cli_text(row, "reason"));
    } else {
        table_add(t, "");
    }
}

static void job_row(struct table *t, const json_t *row)
{
    char text[48], count[24];
    const int64_t total = cli_integer(row, "total_steps");
    const double loss = cli_number(row, "loss");

    table_add(t, cli_text(row, "id"));
    table_add(t, cli_text(row, "state"));
    table_add(t, cli_text(row, "stage"));
    (void)snprintf(text, sizeof text, "%lld/%lld", (long long)cli_integer(row, "step"),
                   (long long)total);
    table_add(t, total > 0 ? text : "");
    (void)snprintf(text, sizeof text, "%.4f", loss);
    table_add(t, isfinite(loss) ? text : "");
    table_add(t, show_count(count, cli_number(row, "tokens_per_s")));
    table_add(t, cli_text(row, "owner"));
    table_add(t, cli_text(row, "priority"));
    table_add(t, show_time(count, cli_integer(row, "created_at")));
    table_add(t, cli_text(row, "name"));
    add_wait(t, row);
}

int verb_ls(struct cli *c, struct err *err)
{
    char path[256];
    const char *const state = c->args.value[OPTION_STATE];
    const char *const mine = args_has(&c->args, OPT(MINE)) ? "?mine=1" : "";

    if (state != NULL) {
        char pattern[64];
        (void)snprintf(pattern, sizeof pattern, "/v1/jobs%s%sstate=%%", mine,
                       *mine != '\0' ? "&" : "?");
        TRY(assign_path(path, sizeof path, err, pattern, state));
    } else {
        (void)snprintf(path, sizeof path, "/v1/jobs%s", mine);
    }
    return cli_list(c, path, "ID|STATE|STAGE|>STEP|>LOSS|>TOKENS/S|OWNER|CLASS|CREATED|NAME|STARTS",
                    job_row, "no jobs; `hone submit` makes one", err);
}

static void print_number(const char *name, const json_t *job, const char *key, int decimals)
{
    const double value = cli_number(job, key);
    char text[400];

    if (isfinite(value)) {
        (void)snprintf(text, sizeof text, "%.*f", decimals, value);
        cli_line(name, text);
    }
}

/* "1, 2": the texts of a list, cut where there are very many. */
static void join(char out[256], const json_t *list, const char *key)
{
    size_t used = 0, i = 0;
    const json_t *item = NULL;

    out[0] = '\0';
    json_array_foreach(list, i, item)
    {
        const char *text = key != NULL ? cli_text(item, key) : json_string_value(item);
        if (key != NULL && json_is_null(json_object_get(item, key))) {
            text = "a private job";
        }
        if (text != NULL && used + strlen(text) + 3 < 256) {
            used += (size_t)snprintf(out + used, 256 - used, "%s%s", used > 0 ? ", " : "", text);
        }
    }
}

static void print_when(const char *name, const json_t *job, const char *key, int64_t now)
{
    char text[64];

    if (cli_integer(job, key) > 0) {
        cli_line(name, when_show(text, cli_integer(job, key), now));
    }
}

/* What the queue knows of the job: its class and place, its devices, its limits. */
static void print_place(const json_t *job)
{
    const int64_t now = (int64_t)time(NULL);
    char text[300], list[256];
    const json_t *const array = json_object_get(job, "array");

    cli_line("class", cli_text(job, "priority"));
    if (cli_integer(job, "position") > 0) {
        (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(job, "position"));
        cli_line("place in line", text);
    }
    print_when("expected start", job, "expected_start_at", now);
    print_when("not before", job, "begin_at", now);
    print_when("tried again", job, "retry_at", now);
    join(list, json_object_get(job, "device_ids"), NULL);
    (void)snprintf(text, sizeof text, "%lld%s%s", (long long)cli_integer(job, "devices"),
                   list[0] != '\0' ? ": " : "", list);
    cli_line("devices", text);
    cli_line("layout", cli_text(job, "layout"));
    if (cli_integer(job, "time_limit_s") > 0) {
        char span[32];
        cli_line("time limit", when_span(span, cli_integer(job, "time_limit_s")));
    }
    print_when("ends by", job, "ends_by_at", now);
    print_when("expected end", job, "expected_end_at", now);
    if (json_is_true(json_object_get(job, "private"))) {
        cli_line("seen by", "its owner and administrators");
    }
    join(list, json_object_get(job, "depends_on"), "job");
    cli_line("waits for", list);
    if (json_is_object(array)) {
        (void)snprintf(text, sizeof text, "%s, point %lld", cli_text(array, "id"),
                       (long long)cli_integer(array, "index"));
        cli_line("sweep", text);
    }
    cli_line("cloned from", cli_text(job, "cloned_from"));
}

static void print_job(const json_t *job)
{
    char text[64];
    const json_t *const error = json_object_get(job, "error");
    char *request = json_object_get(job, "request") != NULL
                        ? assign_dump(json_object_get(job, "request"))
                        : NULL;

    cli_line("id", cli_text(job, "id"));
    cli_line("name", cli_text(job, "name"));
    cli_line("owner", cli_text(job, "owner"));
    cli_line("state", cli_text(job, "state"));
    cli_line("stage", cli_text(job, "stage"));
    cli_line("reason", cli_text(job, "reason"));
    print_place(job);
    if (cli_integer(job, "total_steps") > 0) {
        (void)snprintf(text, sizeof text, "%lld of %lld", (long long)cli_integer(job, "step"),
                       (long long)cli_integer(job, "total_steps"));
        cli_line("step", text);
    }
    print_number("loss", job, "loss", 4);
    print_number("eval loss", job, "eval_loss", 4);
    print_number("tokens/s", job, "tokens_per_s", 0);
    if (cli_number(job, "eta_s") > 0.0) {
        cli_line("time left", show_duration(text, cli_number(job, "eta_s")));
    }
    if (cli_integer(job, "parameters") > 0) {
        cli_line("parameters", show_count(text, cli_number(job, "parameters")));
    }
    if (cli_integer(job, "memory_bytes") > 0) {
        cli_line("memory", show_bytes(text, cli_integer(job, "memory_bytes")));
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(job, "checkpoints"));
    cli_line("checkpoints", text);
    cli_line("created", show_time(text, cli_integer(job, "created_at")));
    cli_line("started", show_time(text, cli_integer(job, "started_at")));
    cli_line("finished", show_time(text, cli_integer(job, "finished_at")));
    cli_line("error", cli_text(error, "message"));
    cli_line("error code", cli_text(error, "code"));
    cli_line("request", request);
    free(request);
}

int verb_show(struct cli *c, struct err *err)
{
    char id[128], path[512];
    json_t *job = NULL;

    TRY(cli_job(c, c->args.word[0], id, err));
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%", id));
    TRY(cli_call(c, "GET", path, NULL, &job, err));
    if (job != NULL) {
        print_job(job);
    }
    json_decref(job);
    return 0;
}

int verb_watch(struct cli *c, struct err *err)
{
    char id[128];

    TRY(cli_connect(c, true, err));
    TRY(cli_job(c, c->args.word[0], id, err));
    return cli_watch(c, id, err);
}

/* POST jobs/ID/`action` and say what the job does now. */
static int act(struct cli *c, const char *action, json_t *body, struct err *err)
{
    char id[128], path[512];
    json_t *job = NULL;

    int rc = cli_job(c, c->args.word[0], id, err);
    rc = rc != 0 ? rc : assign_path(path, sizeof path, err, "/v1/jobs/%/%", id, action);
    rc = rc != 0 ? rc : cli_call(c, "POST", path, body, &job, err);
    json_decref(body);
    if (job != NULL) {
        cli_print(cli_text(job, "id"));
        printf(" is ");
        cli_print(cli_text(job, "state"));
        (void)putchar('\n');
    }
    json_decref(job);
    return rc;
}

int verb_cancel(struct cli *c, struct err *err)
{
    return act(c, "cancel", json_pack("{s:b}", "save", args_has(&c->args, OPT(NO_SAVE)) ? 0 : 1),
               err);
}

int verb_save(struct cli *c, struct err *err)
{
    return act(c, "save", NULL, err);
}

int verb_pause(struct cli *c, struct err *err)
{
    return act(c, "pause", NULL, err);
}

int verb_resume(struct cli *c, struct err *err)
{
    return act(c, "resume", NULL, err);
}

static void event_row(struct table *t, const json_t *row)
{
    static const char *const elsewhere[] = {"id",   "object", "created_at", "t",
                                            "type", "job",    "attempt"};
    char time[24];
    json_t *const rest = json_deep_copy(row);

    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        (void)json_object_del(rest, elsewhere[i]);
    }
    char *const shown = json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(6));
    table_add(t, cli_text(row, "id"));
    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, cli_text(row, "type"));
    table_add(t, shown);
    free(shown);
    json_decref(rest);
}

/* The list at /v1/jobs/ID/`what`. */
static int list_of_job(struct cli *c, const char *what, const char *columns, cli_row row,
                       const char *nothing, struct err *err)
{
    char id[128], path[512];

    TRY(cli_job(c, c->args.word[0], id, err));
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%/%", id, what));
    return cli_list(c, path, columns, row, nothing, err);
}

int verb_events(struct cli *c, struct err *err)
{
    return list_of_job(c, "events", "ID|TIME|TYPE|WHAT", event_row, "nothing has happened yet",
                       err);
}

static void checkpoint_row(struct table *t, const json_t *row)
{
    char bytes[24], time[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, show_bytes(bytes, cli_integer(row, "bytes")));
    table_add(t, json_is_true(json_object_get(row, "final")) ? "final" : "");
    table_add(t, cli_text(row, "sha256"));
}

int verb_checkpoints(struct cli *c, struct err *err)
{
    return list_of_job(c, "checkpoints", "ID|CREATED|>SIZE|FINAL|SHA256", checkpoint_row,
                       "no checkpoint yet; `hone save JOB` asks for one", err);
}

/* A number with that many decimals; with three significant digits when `decimals` is negative. */
static void add_number(struct table *t, const json_t *column, size_t i, int decimals)
{
    const json_t *const value = json_array_get(column, i);
    char text[64] = "";

    if (json_is_number(value) && decimals >= 0) {
        (void)snprintf(text, sizeof text, "%.*f", decimals, json_number_value(value));
    } else if (json_is_number(value)) {
        (void)snprintf(text, sizeof text, "%.3g", json_number_value(value));
    }
    table_add(t, text);
}

int verb_metrics(struct cli *c, struct err *err)
{
    char id[128], path[512], points[32];
    const char *const wanted = c->args.value[OPTION_POINTS];
    int64_t most = 20;
    json_t *curve = NULL;

    if (wanted != NULL) {
        TRY(args_number(&most, "--points", wanted, 1, 1000000, err));
    }
    (void)snprintf(points, sizeof points, "%lld", (long long)most);
    TRY(cli_job(c, c->args.word[0], id, err));
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%/metrics?points=%", id, points));
    TRY(cli_call(c, "GET", path, NULL, &curve, err));
    if (curve == NULL) {
        return 0;
    }
    struct table *const table = table_new(">STEP|>LOSS|>LEARNING RATE|>GRADIENT NORM|>TOKENS/S");
    const json_t *const steps = json_object_get(curve, "steps");
    for (size_t i = 0; table != NULL && i < json_array_size(steps); i++) {
        add_number(table, steps, i, 0);
        add_number(table, json_object_get(curve, "loss"), i, 4);
        add_number(table, json_object_get(curve, "lr"), i, -1);
        add_number(table, json_object_get(curve, "grad_norm"), i, -1);
        add_number(table, json_object_get(curve, "tokens_per_s"), i, 0);
    }
    int rc = table != NULL ? table_print(table, err)
                           : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    if (rc == 0 && json_array_size(steps) == 0) {
        (void)puts("no step has been trained yet");
    }
    table_free(table);
    json_decref(curve);
    return rc;
}
