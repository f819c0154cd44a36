/* verbs_check.c - check: what is in a file of examples, and what is wrong with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"

static void print_word(const json_t *object, const char *key)
{
    const char *text = cli_text(object, key);

    show_print(text, strlen(text), false);
}

/* "  skip    12  no_assistant  no assistant turn ...  line 3: where, also 7, 9 ..." */
static void print_reason(const json_t *reason)
{
    const json_t *lines = json_object_get(reason, "first_lines");
    const json_t *line;
    size_t i;

    printf("  ");
    print_word(reason, "action");
    printf(" %lld  ", (long long)cli_integer(reason, "count"));
    print_word(reason, "reason");
    printf(": ");
    print_word(reason, "message");
    json_array_foreach(lines, i, line)
    {
        printf("%s%lld",
               i == 0   ? "\n      line "
               : i == 1 ? "; also "
                        : ", ",
               (long long)json_integer_value(line));
        if (i == 0 && cli_text(reason, "where")[0] != '\0') {
            printf(", ");
            print_word(reason, "where");
        }
    }
    (void)putchar('\n');
}

static void print_count(const json_t *report, const char *key)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(report, key));
    cli_line(key, text);
}

static void print_report(const json_t *report)
{
    const json_t *error = json_object_get(report, "error");
    const json_t *reason;
    size_t i;

    cli_line("file", cli_text(report, "file"));
    if (cli_text(report, "format")[0] != '\0') {
        cli_line("format", cli_text(report, "format"));
        cli_line("compression", cli_text(report, "compression"));
        cli_line("kind", cli_text(report, "kind"));
        cli_line("columns", cli_text(report, "columns"));
        print_count(report, "lines");
        print_count(report, "examples");
        print_count(report, "usable");
        print_count(report, "skipped");
        if (json_object_get(report, "tokens") != NULL) {
            print_count(report, "tokens");
            print_count(report, "trained_tokens");
        }
    }
    json_array_foreach(json_object_get(report, "reasons"), i, reason)
    {
        print_reason(reason);
    }
    if (json_is_object(error)) {
        cli_line("error", cli_text(error, "message"));
    }
}

/* The address of the report on what `word` means: a local file, which is uploaded first, a file of the server, or one
 * of its data folders. */
static int report_address(struct cli *c, char *out, size_t size, const char *word, struct err *err)
{
    json_t *file = NULL;
    char *text = NULL;
    const bool is_local = strcmp(word, "-") == 0 || access(word, F_OK) == 0;

    if (!is_local && strncmp(word, "file-", 5) == 0) {
        return assign_path(out, size, err, "/v1/files/%/report", word);
    }
    if (!is_local && strchr(word, ':') != NULL) {
        return assign_path(out, size, err, "/v1/data/report?id=%", word);
    }
    TRY(cli_upload(c, word, c->args.value[OPTION_NAME], "fine-tune", &file, &text, err));
    const int rc = assign_path(out, size, err, "/v1/files/%/report", cli_text(file, "id"));
    free(text);
    json_decref(file);
    return rc;
}

/* Append "?name=value", or "&name=value" behind another one; nothing for NULL. */
static int add_query(char *address, size_t size, const char *name, const char *value,
                     struct err *err)
{
    char more[1024], pattern[64];

    if (value == NULL) {
        return 0;
    }
    (void)snprintf(pattern, sizeof pattern, "%c%s=%%", strchr(address, '?') != NULL ? '&' : '?',
                   name);
    TRY(assign_path(more, sizeof more, err, pattern, value));
    if (strlen(address) + strlen(more) >= size) {
        return FAIL(err, ERR_BAD_REQUEST, "the value of %s is too long", name);
    }
    memcpy(address + strlen(address), more, strlen(more) + 1);
    return 0;
}

int verb_check(struct cli *c, struct err *err)
{
    char address[4096];
    json_t *report = NULL;
    char *text = NULL;

    TRY(cli_connect(c, true, err));
    TRY(report_address(c, address, sizeof address, c->args.word[0], err));
    TRY(add_query(address, sizeof address, "on_problem", c->args.value[OPTION_ON_PROBLEM], err));
    TRY(add_query(address, sizeof address, "model", c->args.value[OPTION_MODEL], err));
    TRY(add_query(address, sizeof address, "sequence_length", c->args.value[OPTION_LENGTH], err));
    TRY(http_call(c->http, "GET", address, NULL, &report, &text, err));
    const json_t *error = json_object_get(report, "error");
    if (args_has(&c->args, OPT(JSON))) {
        (void)puts(text);
    } else {
        print_report(report);
    }
    if (json_is_object(error)) {
        c->exit = err_exit(err_from_word(cli_text(error, "code")));
    }
    free(text);
    json_decref(report);
    return 0;
}
