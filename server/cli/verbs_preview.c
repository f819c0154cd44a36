/* verbs_preview.c - preview: the first examples as tokens, the trained ones marked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"

/* How trained tokens stand out: in colour on a terminal, in brackets elsewhere. */
struct marks {
    const char *on, *off;
};

static struct marks marks_for_output(void)
{
    const bool terminal = isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL;

    return terminal ? (struct marks){"\033[1;32m", "\033[0m"} : (struct marks){"[[", "]]"};
}

static void print_tokens(const json_t *example, struct marks marks)
{
    const json_t *labels = json_object_get(example, "labels"), *text;
    bool on = false;
    size_t i;

    json_array_foreach(json_object_get(example, "texts"), i, text)
    {
        const bool trained = json_integer_value(json_array_get(labels, i)) >= 0;
        if (trained != on) {
            (void)fputs(trained ? marks.on : marks.off, stdout);
            on = trained;
        }
        if (json_is_string(text)) {
            show_print(json_string_value(text), json_string_length(text), true);
        }
    }
    (void)fputs(on ? marks.off : "", stdout);
    (void)putchar('\n');
}

static void print_example(const json_t *example, size_t number, struct marks marks)
{
    const char *reason = cli_text(example, "reason"), *error = cli_text(example, "error");
    const int64_t line = cli_integer(example, "line"), kept = cli_integer(example, "kept");

    printf("\n-- %zu", number + 1);
    if (line > 0) {
        printf(", line %lld", (long long)line);
    }
    printf(": %lld tokens, %lld trained", (long long)kept,
           (long long)cli_integer(example, "trained"));
    if (json_is_true(json_object_get(example, "cut"))) {
        printf(", cut from %lld", (long long)cli_integer(example, "tokens"));
    }
    if (json_is_true(json_object_get(example, "skipped"))) {
        printf(", left out");
    }
    if (reason[0] != '\0') {
        printf(", ");
        show_print(reason, strlen(reason), false);
    }
    (void)putchar('\n');
    if (error[0] != '\0') {
        show_print(error, strlen(error), false);
        (void)putchar('\n');
    }
    print_tokens(example, marks);
}

static void print_preview(const json_t *preview)
{
    const struct marks marks = marks_for_output();
    const json_t *totals = json_object_get(preview, "totals"), *example;
    char text[32];
    size_t i;

    cli_line("format", cli_text(preview, "format"));
    cli_line("kind", cli_text(preview, "kind"));
    cli_line("method", cli_text(preview, "method"));
    if (cli_text(preview, "chat_template")[0] != '\0') {
        cli_line("chat_template", cli_text(preview, "chat_template"));
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)cli_integer(preview, "sequence_length"));
    cli_line("sequence_length", text);
    if (json_is_object(totals)) {
        cli_line("tokens", show_count(text, cli_number(totals, "tokens")));
        cli_line("trained", show_count(text, cli_number(totals, "trained_tokens")));
    }
    json_array_foreach(json_object_get(preview, "examples"), i, example)
    {
        print_example(example, i, marks);
    }
    if (cli_text(preview, "problem")[0] != '\0') {
        (void)putchar('\n');
        cli_line("problem", cli_text(preview, "problem"));
    }
}

/* --examples goes into the body as n. */
static int set_count(const struct cli *c, json_t *request, struct err *err)
{
    const char *text = c->args.value[OPTION_EXAMPLES];
    char *end = NULL;

    if (text == NULL) {
        return 0;
    }
    const long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > 20) {
        return FAIL(err, ERR_BAD_REQUEST, "--examples takes a number from 1 to 20, not %s", text);
    }
    return json_object_set_new(request, "n", json_integer(n)) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "there is no memory left");
}

int verb_preview(struct cli *c, struct err *err)
{
    json_t *request = NULL, *preview = NULL;

    TRY(cli_connect(c, true, err));
    TRY(cli_request(c, NULL, &request, err));
    int rc = set_count(c, request, err);
    if (rc == 0) {
        rc = cli_call(c, "POST", "/v1/preview", request, &preview, err);
    }
    json_decref(request);
    if (rc == 0 && preview != NULL) {
        print_preview(preview);
    }
    json_decref(preview);
    return rc;
}
