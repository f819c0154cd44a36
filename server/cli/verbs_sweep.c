/* verbs_sweep.c - hone sweep: a job for each point of a grid of values, and what became of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"

/* "2 running, 4 queued" from {state: jobs}. */
static void describe_counts(char out[256], json_t *counts)
{
    const char *state = NULL;
    const json_t *count = NULL;
    size_t used = 0;

    out[0] = '\0';
    json_object_foreach(counts, state, count)
    {
        if (json_integer_value(count) > 0 && used + strlen(state) + 32 < 256) {
            used += (size_t)snprintf(out + used, 256 - used, "%s%lld %s", used > 0 ? ", " : "",
                                     (long long)json_integer_value(count), state);
        }
    }
}

static void describe_best(char out[256], const json_t *best)
{
    out[0] = '\0';
    if (json_is_object(best)) {
        (void)snprintf(out, 256, "%.100s: eval loss %.4f at step %lld", cli_text(best, "job"),
                       cli_number(best, "eval_loss"), (long long)cli_integer(best, "step"));
    }
}

static void sweep_row(struct table *t, const json_t *row)
{
    char text[256], time[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, cli_text(row, "owner"));
    (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(row, "total"));
    table_add(t, text);
    describe_counts(text, json_object_get(row, "counts"));
    table_add(t, text);
    describe_best(text, json_object_get(row, "best"));
    table_add(t, text);
    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, cli_text(row, "name"));
}

/* "learning_rate=0.001 seed=2" */
static void add_values(struct table *t, json_t *values)
{
    const char *field = NULL;
    json_t *value = NULL;
    char out[400] = "";
    size_t used = 0;

    json_object_foreach(values, field, value)
    {
        char *const text = assign_dump(value);
        if (text != NULL && used + strlen(field) + strlen(text) + 3 < sizeof out) {
            used += (size_t)snprintf(out + used, sizeof out - used, "%s%s=%s", used > 0 ? " " : "",
                                     field, text);
        }
        free(text);
    }
    table_add(t, out);
}

static void add_loss(struct table *t, const json_t *row, const char *key)
{
    const double loss = cli_number(row, key);
    char text[64] = "";

    if (isfinite(loss)) {
        (void)snprintf(text, sizeof text, "%.4f", loss);
    }
    table_add(t, text);
}

static int print_points(const json_t *array, struct err *err)
{
    struct table *const t = table_new(">POINT|JOB|STATE|>STEP|>LOSS|>BEST EVAL|VALUES");
    const json_t *row = NULL;
    size_t i = 0;

    json_array_foreach(json_object_get(array, "points"), i, row)
    {
        char text[48];
        if (t == NULL) {
            break;
        }
        (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(row, "index"));
        table_add(t, text);
        table_add(t, cli_text(row, "job"));
        table_add(t, cli_text(row, "state"));
        (void)snprintf(text, sizeof text, "%lld/%lld", (long long)cli_integer(row, "step"),
                       (long long)cli_integer(row, "total_steps"));
        table_add(t, cli_integer(row, "total_steps") > 0 ? text : "");
        add_loss(t, row, "loss");
        add_loss(t, row, "best_eval_loss");
        add_values(t, json_object_get(row, "values"));
    }
    const int rc =
        t != NULL ? table_print(t, err) : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    table_free(t);
    return rc;
}

static int print_sweep(const json_t *array, struct err *err)
{
    char text[256];

    cli_line("id", cli_text(array, "id"));
    cli_line("name", cli_text(array, "name"));
    cli_line("owner", cli_text(array, "owner"));
    describe_counts(text, json_object_get(array, "counts"));
    cli_line("jobs", text);
    if (cli_integer(array, "max_running") > 0) {
        (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(array, "max_running"));
        cli_line("at a time", text);
    }
    describe_best(text, json_object_get(array, "best"));
    cli_line("best", text);
    return print_points(array, err);
}

/* Call /v1/arrays/ID... with `body`, which is given away, and print the sweep that comes back. */
static int sweep_call(struct cli *c, const char *method, const char *pattern, json_t *body,
                      struct err *err)
{
    char path[512];
    json_t *array = NULL;
    int rc = assign_path(path, sizeof path, err, pattern, c->args.word[1]);

    rc = rc != 0 ? rc : cli_call(c, method, path, body, &array, err);
    json_decref(body);
    rc = rc == 0 && array != NULL ? print_sweep(array, err) : rc;
    json_decref(array);
    return rc;
}

/* Add the words beside the grid that the server wants; *body takes the request and the grid over. */
static int sweep_body(const struct cli *c, json_t **body, json_t *request, json_t *grid,
                      struct err *err)
{
    const char *const cap = c->args.value[OPTION_MAX_RUNNING];
    int64_t most = 0;

    *body = json_pack("{s:o, s:o}", "request", request, "grid", grid);
    if (*body == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    if (json_object_size(json_object_get(*body, "grid")) == 0) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "a sweep needs a field with several values, as in learning_rate=[1e-3,3e-4]; "
                    "`hone submit` queues a single job");
    }
    if (cap != NULL) {
        TRY(args_number(&most, "--max-running", cap, 1, 1000, err));
        (void)json_object_set_new(*body, "max_running", json_integer(most));
    }
    return 0;
}

static int sweep_new(struct cli *c, struct err *err)
{
    json_t *grid = json_object(), *request = NULL, *body = NULL, *array = NULL;
    char *text = NULL;
    int rc = cli_connect(c, true, err);

    rc = rc != 0 ? rc : cli_request(c, grid, &request, err);
    if (rc != 0) {
        json_decref(grid);
        return rc;
    }
    rc = sweep_body(c, &body, request, grid, err);
    rc = rc != 0 ? rc : cli_create(c, "/v1/arrays", body, &array, &text, err);
    if (rc == 0 && args_has(&c->args, OPT(JSON))) {
        (void)puts(text);
    } else if (rc == 0) {
        cli_print(cli_text(array, "id"));
        printf(" has %lld jobs\n", (long long)cli_integer(array, "total"));
    }
    free(text);
    json_decref(array);
    json_decref(body);
    return rc;
}

int verb_sweep(struct cli *c, struct err *err)
{
    const char *const what = c->args.words > 0 ? c->args.word[0] : "";
    int64_t most = 0;

    if (strcmp(what, "ls") == 0 && c->args.words == 1) {
        return cli_list(c, "/v1/arrays", "ID|OWNER|>JOBS|STATES|BEST|CREATED|NAME", sweep_row,
                        "no sweeps; `hone sweep FIELD=[VALUE,VALUE] ...` makes one", err);
    }
    if (strcmp(what, "show") == 0 && c->args.words == 2) {
        return sweep_call(c, "GET", "/v1/arrays/%", NULL, err);
    }
    if (strcmp(what, "cancel") == 0 && c->args.words == 2) {
        return sweep_call(c, "POST", "/v1/arrays/%/cancel",
                          json_pack("{s:b}", "save", args_has(&c->args, OPT(NO_SAVE)) ? 0 : 1),
                          err);
    }
    if (strcmp(what, "cap") == 0 && c->args.words == 3) {
        TRY(args_number(&most, "N", c->args.word[2], 0, 1000, err));
        return sweep_call(c, "PATCH", "/v1/arrays/%",
                          json_pack("{s:I}", "max_running", (json_int_t)most), err);
    }
    if (c->args.words > 0 && strchr(what, '=') == NULL) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "usage: hone sweep FIELD=VALUE FIELD=[VALUE,VALUE] ..., hone sweep ls, hone "
                    "sweep show ID, hone sweep cap ID N, hone sweep cancel ID");
    }
    return sweep_new(c, err);
}
