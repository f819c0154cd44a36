/* verbs_queue.c - the queue: who runs, who waits and why; prio, move, edit, clone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"
#include "server/cli/when.h"

/* The name of a job that others keep to themselves is null. */
static void add_job(struct table *t, const json_t *row)
{
    const char *const job = cli_text(row, "job");

    table_add(t, job[0] != '\0' ? job : "(private)");
    table_add(t, cli_text(row, "owner"));
    table_add(t, cli_text(row, "priority"));
}

static int print_running(const json_t *queue, int64_t now, struct err *err)
{
    struct table *const t = table_new("RUNNING|OWNER|CLASS|STATE|DEVICES|STARTED|ENDS|NAME");
    const json_t *row = NULL;
    size_t i = 0;
    char text[64];

    json_array_foreach(json_object_get(queue, "running"), i, row)
    {
        const json_t *device = NULL;
        char devices[256] = "";
        size_t k = 0, used = 0;
        json_array_foreach(json_object_get(row, "devices"), k, device)
        {
            const char *const id = json_string_value(device);
            if (id != NULL && used + strlen(id) + 2 < sizeof devices) {
                used += (size_t)snprintf(devices + used, sizeof devices - used, "%s%s",
                                         used > 0 ? "," : "", id);
            }
        }
        if (t == NULL) {
            break;
        }
        add_job(t, row);
        table_add(t, cli_text(row, "state"));
        table_add(t, devices);
        table_add(t, when_relative(text, cli_integer(row, "started_at"), now));
        const int64_t end = cli_integer(row, "expected_end_at");
        table_add(t, when_show(text, end > 0 ? end : cli_integer(row, "ends_by_at"), now));
        table_add(t, cli_text(row, "name"));
    }
    const int rc =
        t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    table_free(t);
    return rc;
}

/* The job that devices are kept for is marked with a star. */
static int print_waiting(const json_t *queue, int64_t now, struct err *err)
{
    struct table *const t =
        table_new(">PLACE|WAITING|OWNER|CLASS|>DEVICES|>MEMORY|STARTS|WHY|NAME");
    const char *const head = cli_text(json_object_get(queue, "head"), "job");
    const json_t *row = NULL;
    size_t i = 0;

    json_array_foreach(json_object_get(queue, "waiting"), i, row)
    {
        char text[64], bytes[24];
        if (t == NULL) {
            break;
        }
        const bool is_head = head[0] != '\0' && strcmp(head, cli_text(row, "job")) == 0;
        (void)snprintf(text, sizeof text, "%s%lld", is_head ? "*" : "",
                       (long long)cli_integer(row, "position"));
        table_add(t, cli_integer(row, "position") > 0 ? text : "-");
        add_job(t, row);
        (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(row, "devices"));
        table_add(t, text);
        table_add(t, show_bytes(bytes, cli_integer(row, "device_bytes")));
        table_add(t, when_show(text, cli_integer(row, "expected_start_at"), now));
        table_add(t, cli_text(row, "reason"));
        table_add(t, cli_text(row, "name"));
    }
    const int rc =
        t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    table_free(t);
    return rc;
}

static void print_totals(const json_t *queue)
{
    const size_t running = json_array_size(json_object_get(queue, "running"));
    const size_t shown = json_array_size(json_object_get(queue, "waiting"));
    const json_t *const count = json_object_get(queue, "waiting_count");
    const long long waiting =
        json_is_integer(count) ? (long long)json_integer_value(count) : (long long)shown;

    if (running == 0 && waiting == 0) {
        (void)puts("nothing runs and nothing waits");
        return;
    }
    printf("%zu running, %lld waiting", running, waiting);
    if ((long long)shown < waiting) {
        printf(" (the first %zu are shown)", shown);
    }
    if (cli_text(json_object_get(queue, "head"), "job")[0] != '\0') {
        printf("; * starts next, devices are kept for it");
    }
    (void)putchar('\n');
}

int verb_queue(struct cli *c, struct err *err)
{
    const char *const limit = c->args.value[OPTION_LIMIT];
    char path[64] = "/v1/queue";
    int64_t rows = 0;
    json_t *queue = NULL;

    if (limit != NULL) {
        TRY(args_number(&rows, "--limit", limit, 1, 1000000, err));
        (void)snprintf(path, sizeof path, "/v1/queue?limit=%lld", (long long)rows);
    }
    TRY(cli_call(c, "GET", path, NULL, &queue, err));
    if (queue == NULL) {
        return 0;
    }
    const int64_t told = cli_integer(queue, "now");
    const int64_t now = told > 0 ? told : (int64_t)time(NULL);
    int rc = print_running(queue, now, err);
    if (rc == 0 && json_array_size(json_object_get(queue, "running")) > 0) {
        (void)putchar('\n');
    }
    rc = rc != 0 ? rc : print_waiting(queue, now, err);
    if (rc == 0) {
        print_totals(queue);
    }
    json_decref(queue);
    return rc;
}

/* Say of a job that was changed where it stands now. */
static void say_place(const json_t *job)
{
    char when[64];
    const int64_t now = (int64_t)time(NULL);

    cli_print(cli_text(job, "id"));
    printf(" is ");
    cli_print(cli_text(job, "state"));
    printf(", class ");
    cli_print(cli_text(job, "priority"));
    if (cli_integer(job, "position") > 0) {
        printf(", place %lld", (long long)cli_integer(job, "position"));
    }
    if (cli_integer(job, "expected_start_at") > 0) {
        printf(", expected to start %s",
               when_show(when, cli_integer(job, "expected_start_at"), now));
    }
    (void)putchar('\n');
}

/* Send `body`, which is given away, to the job of the first word. */
static int change(struct cli *c, const char *method, const char *pattern, json_t *body,
                  struct err *err)
{
    char id[128], path[512];
    json_t *job = NULL;
    int rc = body != NULL ? cli_job(c, c->args.word[0], id, err)
                          : FAIL(err, ERR_BAD_REQUEST, "a word is not UTF-8 text");

    rc = rc != 0 ? rc : assign_path(path, sizeof path, err, pattern, id);
    rc = rc != 0 ? rc : cli_call(c, method, path, body, &job, err);
    json_decref(body);
    if (job != NULL) {
        say_place(job);
    }
    json_decref(job);
    return rc;
}

int verb_prio(struct cli *c, struct err *err)
{
    return change(c, "PATCH", "/v1/jobs/%", json_pack("{s:s}", "priority", c->args.word[1]), err);
}

int verb_move(struct cli *c, struct err *err)
{
    const char *const where = c->args.word[1];
    const bool is_end = strcmp(where, "first") == 0 || strcmp(where, "last") == 0;
    const bool is_beside = strcmp(where, "before") == 0 || strcmp(where, "after") == 0;
    char other[128];

    if (!(is_end && c->args.words == 2) && !(is_beside && c->args.words == 3)) {
        return FAIL(
            err, ERR_BAD_REQUEST,
            "usage: hone move JOB first, hone move JOB last, hone move JOB before JOB, hone "
            "move JOB after JOB");
    }
    if (is_end) {
        return change(c, "POST", "/v1/jobs/%/move", json_pack("{s:s}", "to", where), err);
    }
    TRY(cli_job(c, c->args.word[2], other, err));
    return change(c, "POST", "/v1/jobs/%/move", json_pack("{s:s}", where, other), err);
}

/* A word for a time where the field is one and the value no number. */
static int read_time_field(json_t *changes, const char *word, bool *taken, struct err *err)
{
    static const char name[] = "begin_at=";
    int64_t at = 0;

    *taken = strncmp(word, name, sizeof name - 1) == 0;
    if (!*taken) {
        return 0;
    }
    TRY(when_parse(&at, "begin_at", word + sizeof name - 1, (int64_t)time(NULL), err));
    (void)json_object_set_new(changes, "begin_at", json_integer(at));
    return 0;
}

int cli_changes(struct cli *c, int first, json_t **changes, struct err *err)
{
    json_t *fields = NULL;
    int rc = c->args.words > first ? cli_fields(c, &fields, err) : 0;

    *changes = json_object();
    for (int i = first; rc == 0 && i < c->args.words; i++) {
        const char *const word = c->args.word[i];
        const size_t length = strcspn(word, "=");
        bool taken = false;

        if (length > 0 && length < 128 && strcmp(word + length, "=null") == 0) {
            char field[128];
            (void)snprintf(field, sizeof field, "%.*s", (int)length, word);
            rc = json_object_set_new(*changes, field, json_null()) == 0
                     ? 0
                     : FAIL(err, ERR_BAD_REQUEST, "a field name is not UTF-8 text");
            continue;
        }
        rc = read_time_field(*changes, word, &taken, err);
        rc = rc != 0 || taken ? rc : assign_field(*changes, word, fields, err);
    }
    json_decref(fields);
    if (rc != 0) {
        json_decref(*changes);
        *changes = NULL;
    }
    return rc;
}

int verb_edit(struct cli *c, struct err *err)
{
    json_t *changes = NULL;

    TRY(cli_connect(c, true, err));
    TRY(cli_changes(c, 1, &changes, err));
    return change(c, "PATCH", "/v1/jobs/%", changes, err);
}

int verb_clone(struct cli *c, struct err *err)
{
    char id[128], path[512];
    json_t *changes = NULL, *job = NULL;
    char *text = NULL;

    TRY(cli_connect(c, true, err));
    TRY(cli_job(c, c->args.word[0], id, err));
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%/clone", id));
    TRY(cli_changes(c, 1, &changes, err));
    json_t *const body = json_pack("{s:o}", "changes", changes);
    int rc = cli_create(c, path, body, &job, &text, err);
    json_decref(body);
    (void)snprintf(id, sizeof id, "%s", cli_text(job, "id"));
    if (rc == 0 && args_has(&c->args, OPT(JSON))) {
        (void)puts(text);
    } else if (rc == 0) {
        cli_print(id);
        (void)putchar('\n');
    }
    free(text);
    json_decref(job);
    return rc == 0 && args_has(&c->args, OPT(WATCH)) ? cli_watch(c, id, err) : rc;
}
