/* cli.c - what the verbs of `hone` share: the command line, the server, printing. */
#include "server/cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/show.h"

enum { PAGE_ROWS = 100 };

int cli_connect(struct cli *c, bool needs_token, struct err *err)
{
    if (c->http == NULL) {
        TRY(config_load(&c->config, err));
        TRY(http_new(&c->http, c->config.url, c->config.token, err));
    }
    if (needs_token && c->config.token[0] == '\0') {
        return FAIL(
            err, ERR_UNAUTHORIZED,
            "there is no token for %s; run `hone login %s --token-file FILE`, or set HONE_TOKEN",
            c->config.url, c->config.url);
    }
    return 0;
}

static void print_answer(const char *text)
{
    const size_t bytes = strlen(text);

    (void)fwrite(text, 1, bytes, stdout);
    if (bytes == 0 || text[bytes - 1] != '\n') {
        (void)putchar('\n');
    }
}

int cli_call(struct cli *c, const char *method, const char *path, json_t *body, json_t **json,
             struct err *err)
{
    char *text = NULL;

    *json = NULL;
    TRY(cli_connect(c, true, err));
    TRY(http_call(c->http, method, path, body, json, &text, err));
    if (args_has(&c->args, OPT(JSON))) {
        print_answer(text);
        json_decref(*json);
        *json = NULL;
    }
    free(text);
    return 0;
}

/* Address of the next page: the list's own query, a page size, and the row to go on after. */
static int page_path(char path[1024], const char *list, int64_t rows, const char *after,
                     struct err *err)
{
    char limit[32];

    (void)snprintf(limit, sizeof limit, "%lld", (long long)rows);
    char pattern[512];
    (void)snprintf(pattern, sizeof pattern, "%s%climit=%%%s", list,
                   strchr(list, '?') != NULL ? '&' : '?', after != NULL ? "&after=%" : "");
    return assign_path(path, 1024, err, pattern, limit, after);
}

int cli_list(struct cli *c, const char *path, const char *columns, cli_row row, const char *nothing,
             struct err *err)
{
    struct table *const table = table_new(columns);
    char address[1024], last[256] = "";
    const char *after = c->args.value[OPTION_AFTER];
    const char *const limit = c->args.value[OPTION_LIMIT];
    int64_t left = INT64_MAX, shown = 0;
    bool more = true;
    int rc = 0;

    if (table == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    if (limit != NULL) {
        rc = args_number(&left, "--limit", limit, 1, 1000000000, err);
    }
    while (rc == 0 && more && left > 0) {
        const bool as_it_came = args_has(&c->args, OPT(JSON)) && limit != NULL;
        const int64_t rows = left < PAGE_ROWS || as_it_came ? left : PAGE_ROWS;
        json_t *page = NULL;
        const json_t *item = NULL;
        size_t i = 0;

        rc = page_path(address, path, rows, after, err);
        rc = rc != 0 ? rc : cli_call(c, "GET", address, NULL, &page, err);
        more = rc == 0 && page != NULL && json_is_true(json_object_get(page, "has_more"));
        const json_t *const items = json_object_get(page, "data");
        json_array_foreach(items, i, item)
        {
            row(table, item);
            (void)snprintf(last, sizeof last, "%s", cli_text(item, "id"));
            shown++;
            left--;
        }
        more = more && json_array_size(items) > 0 && last[0] != '\0';
        after = last;
        json_decref(page);
    }
    rc = rc != 0 ? rc : table_print(table, err);
    if (rc == 0 && shown == 0 && !args_has(&c->args, OPT(JSON))) {
        (void)puts(nothing);
    }
    table_free(table);
    return rc;
}

int cli_job(struct cli *c, const char *word, char id[128], struct err *err)
{
    json_t *page = NULL;

    if (strcmp(word, "latest") != 0) {
        if (strlen(word) >= 128) {
            return FAIL(err, ERR_BAD_REQUEST, "%s is not a job id", word);
        }
        (void)snprintf(id, 128, "%s", word);
        return 0;
    }
    TRY(cli_connect(c, true, err));
    TRY(http_call(c->http, "GET", "/v1/jobs?mine=1&limit=1", NULL, &page, NULL, err));
    (void)snprintf(id, 128, "%s", cli_text(json_array_get(json_object_get(page, "data"), 0), "id"));
    json_decref(page);
    return id[0] != '\0' ? 0
                         : FAIL(err, ERR_NOT_FOUND, "you have no job yet; `hone submit` makes one");
}

void cli_print(const char *text)
{
    show_print(text, strlen(text), false);
}

int cli_do(struct cli *c, const char *method, const char *path, json_t *body, const char *done,
           struct err *err)
{
    json_t *answer = NULL;

    TRY(cli_call(c, method, path, body, &answer, err));
    if (answer != NULL && done != NULL) {
        (void)puts(done);
    }
    json_decref(answer);
    return 0;
}

void cli_line(const char *name, const char *value)
{
    if (value == NULL || value[0] == '\0') {
        return;
    }
    printf("%-14s ", name);
    show_print(value, strlen(value), false);
    (void)putchar('\n');
}

const char *cli_text(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

int64_t cli_integer(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);

    return json_is_real(value) ? (int64_t)json_real_value(value) : json_integer_value(value);
}

double cli_number(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* The schema that `schema` is or points to with "#/a/b". */
static const json_t *resolve(const json_t *document, const json_t *schema)
{
    const char *at = json_string_value(json_object_get(schema, "$ref"));

    if (at == NULL || strncmp(at, "#/", 2) != 0) {
        return schema;
    }
    const json_t *found = document;
    for (at += 1; *at == '/' && found != NULL;) {
        char key[128];
        const size_t length = strcspn(at + 1, "/");
        (void)snprintf(key, sizeof key, "%.*s", (int)length, at + 1);
        found = json_object_get(found, key);
        at += 1 + length;
    }
    return found;
}

int cli_fields(struct cli *c, json_t **properties, struct err *err)
{
    json_t *document = NULL;

    *properties = NULL;
    TRY(cli_connect(c, false, err));
    TRY(http_call(c->http, "GET", "/openapi.json", NULL, &document, NULL, err));
    const json_t *schema = json_object_get(json_object_get(document, "paths"), "/v1/jobs");
    static const char *const way[] = {"post", "requestBody", "content", "application/json",
                                      "schema"};
    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        schema = resolve(document, json_object_get(schema, way[i]));
    }
    *properties = json_incref(json_object_get(schema, "properties"));
    json_decref(document);
    return 0;
}
