/* command_check.c - `hone-train check`: the report of a file of examples, in words or as JSON. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/commands.h"
#include "trainer/data/check.h"

static const char usage[] =
    "usage: hone-train check FILE [options]\n"
    "  --json              the report as JSON; what forbids to use the file stands in \"error\"\n"
    "  --policy JSON       what to do about reasons: {\"broken_json\": \"skip\"}; refuse, skip or "
    "accept\n"
    "  --model DIR         count tokens as training from this model folder, or with this "
    "tokenizer, would\n"
    "  --sequence-length N examples have N + 1 tokens at most; more is cut off\n"
    "  --chat-template T   a built-in template's name, or its text; default: the folder's\n"
    "  --name NAME         what messages call the file\n"
    "  --reasons           print all reasons, what is done about each, and what it may be changed "
    "to\n";

struct choices {
    bool json, reasons;
    const char *name, *model, *chat_template;
    long long sequence_length;
    json_t *policy; /* owned */
};

static void print_reasons(void)
{
    for (int i = 0; i < REASON_COUNT; i++) {
        const enum reason r = (enum reason)i;
        printf("%-17s %-7s (", reason_name(r), action_name(reason_default(r)));
        for (int a = 0, shown = 0; a < ACTION_COUNT; a++) {
            if (reason_allows(r, (enum action)a)) {
                printf("%s%s", shown++ > 0 ? "|" : "", action_name((enum action)a));
            }
        }
        printf(") %s\n", reason_message(r));
    }
}

static const char *word(const json_t *all, const char *key, const char *otherwise)
{
    const char *value = json_string_value(json_object_get(all, key));

    return value != NULL ? value : otherwise;
}

static long long number(const json_t *all, const char *key)
{
    return (long long)json_integer_value(json_object_get(all, key));
}

/* "lines 3, 9, 12, ..." of a reason. */
static void print_lines(const json_t *reason)
{
    const json_t *lines = json_object_get(reason, "first_lines");
    json_t *line;
    size_t i;

    json_array_foreach(lines, i, line)
    {
        printf("%s%lld",
               i > 0                        ? ", "
               : json_array_size(lines) > 1 ? "  lines "
                                            : "  line ",
               (long long)json_integer_value(line));
    }
    if (number(reason, "count") > (long long)json_array_size(lines) && json_array_size(lines) > 0) {
        printf(", ...");
    }
    printf("\n");
}

/* "  64 to 127 tokens: 12 examples" for each length that there is. */
static void print_lengths(const json_t *lengths)
{
    const json_t *edges = json_object_get(lengths, "edges"), *count;
    size_t i;

    json_array_foreach(json_object_get(lengths, "counts"), i, count)
    {
        printf("  %7lld to %7lld tokens: %lld\n",
               (long long)json_integer_value(json_array_get(edges, i)),
               (long long)json_integer_value(json_array_get(edges, i + 1)) - 1,
               (long long)json_integer_value(count));
    }
}

static void print_report(const json_t *all, const char *name)
{
    const char *packing = word(all, "compression", "none");
    json_t *reason;
    size_t i;

    printf("%s: %s%s%s", name, word(all, "format", "?"), strcmp(packing, "none") != 0 ? ", " : "",
           strcmp(packing, "none") != 0 ? packing : "");
    if (word(all, "kind", NULL) != NULL && word(all, "columns", NULL) != NULL) {
        printf(", %s examples (%s)", word(all, "kind", ""), word(all, "columns", ""));
    }
    printf("\n%lld lines, %lld examples: %lld usable, %lld not\n", number(all, "lines"),
           number(all, "examples"), number(all, "usable"), number(all, "skipped"));
    if (json_object_get(all, "tokens") != NULL) {
        printf("%lld tokens, %lld of them trained\n", number(all, "tokens"),
               number(all, "trained_tokens"));
        print_lengths(json_object_get(all, "lengths"));
    }
    json_array_foreach(json_object_get(all, "reasons"), i, reason)
    {
        printf("  %-6s %7lld  %s: %s\n", word(reason, "action", ""), number(reason, "count"),
               word(reason, "reason", ""), word(reason, "message", ""));
        if (word(reason, "where", NULL) != NULL) {
            printf("                  first: %s\n", word(reason, "where", ""));
        }
        if (json_array_size(json_object_get(reason, "first_lines")) > 0) {
            printf("                ");
            print_lines(reason);
        }
    }
}

static void print_json(const json_t *all, const struct err *err)
{
    json_t *shown = all != NULL ? json_incref(json_unconst(all)) : json_object();

    (void)json_object_set_new(
        shown, "error",
        err->code == ERR_NONE
            ? json_null()
            : json_pack("{s:s, s:s}", "code", err_word(err->code), "message", err->text));
    (void)json_dumpf(shown, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(shown);
}

/* The report, with tokens where a model is named; an error after it is in err. */
static int make_report(struct report **report, const struct choices *c,
                       const struct example_options *o, struct err *err)
{
    struct tokenizer *t = NULL;
    struct chat_template *templated = NULL;

    if (c->model == NULL) {
        return data_check(report, o, NULL, err);
    }
    TRY(tokenizer_open(&t, c->model, err));
    int rc = chat_template_open(&templated, c->model, c->chat_template, t, err);
    if (rc == 0) {
        const struct lesson_options tokens = {
            .tokenizer = t, .templated = templated, .longest = c->sequence_length + 1};
        rc = data_check(report, o, &tokens, err);
    }
    chat_template_close(templated);
    tokenizer_close(t);
    return rc;
}

static int check(const struct choices *c, const char *path, struct err *err)
{
    const struct example_options o = {
        .path = path, .name = c->name, .blame = ERR_BAD_TRAINING_FILE, .policy = c->policy};
    struct report *report = NULL;

    const int rc = make_report(&report, c, &o, err);
    if (rc == 0) {
        *err = (struct err){0}; /* of what was tried on the way */
    }
    json_t *all = report != NULL ? report_json(report) : NULL;
    if (c->json) {
        print_json(all, err);
    } else if (all != NULL) {
        print_report(all, c->name != NULL ? c->name : path);
    }
    json_decref(all);
    report_free(report);
    return rc;
}

static int read_option(struct choices *c, int option, const char *text, struct err *err)
{
    switch (option) {
    case 'j': c->json = true; return 0;
    case 'r': c->reasons = true; return 0;
    case 'n': c->name = text; return 0;
    case 'm': c->model = text; return 0;
    case 't': c->chat_template = text; return 0;
    case 's': return command_integer("sequence-length", text, 2, 1048576, &c->sequence_length, err);
    case 'p':
        json_decref(c->policy);
        c->policy = NULL;
        return json_parse_text(&c->policy, text, strlen(text), "--policy", err);
    default: return FAIL(err, ERR_BAD_REQUEST, "see hone-train check without arguments");
    }
}

int command_check(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"reasons", no_argument, NULL, 'r'},
                                            {"name", required_argument, NULL, 'n'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"chat-template", required_argument, NULL, 't'},
                                            {"sequence-length", required_argument, NULL, 's'},
                                            {"policy", required_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    struct choices c = {.sequence_length = 1048576};
    struct err err = {0};
    int rc = 0;

    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1 && rc == 0;
         o = getopt_long(argc, argv, "", options, NULL)) {
        rc = read_option(&c, o, optarg, &err);
    }
    if (rc == 0 && c.reasons) {
        print_reasons();
    } else if (rc == 0 && optind + 1 != argc) {
        fputs(usage, stderr);
        rc = FAIL(&err, ERR_BAD_REQUEST, "one FILE is needed");
    } else if (rc == 0) {
        rc = check(&c, argv[optind], &err);
    }
    json_decref(c.policy);
    return rc != 0 ? command_failed(&err) : 0;
}
