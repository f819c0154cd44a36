/* args.c - the command line: a verb, its options and its words, checked against verbs.def. */
#include "server/cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    char letter;
    const char *value, *help;
} options[OPTION_COUNT] = {
#define OPTION(id, name, letter, value, help) [OPTION_##id] = {name, letter, value, help},
#include "server/cli/options.def"
};

static const struct {
    const char *name;
    int fewest, most;
    uint64_t options;
    const char *arguments, *summary;
} verbs[] = {
#define VERB(name, function, fewest, most, options, arguments, summary) \
    {name, fewest, most, options, arguments, summary},
#include "server/cli/verbs.def"
};

enum { VERBS = (int)(sizeof verbs / sizeof *verbs) };

/* Before a verb is known its options cannot be judged; they are noted and checked at the end. */
static int find_option(const char *word, size_t length)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const bool by_letter = length == 2 && word[1] == options[i].letter && word[1] != '-';
        if (by_letter ||
            (strlen(options[i].name) == length && strncmp(options[i].name, word, length) == 0)) {
            return i;
        }
    }
    return -1;
}

/* Take the option at argv[*at], with its value from "--name=value" or from the next argument. */
static int take_option(struct args *out, int argc, char **argv, int *at, struct err *err)
{
    const char *const word = argv[*at];
    const size_t length = strcspn(word, "=");
    const int id = find_option(word, length);

    if (id < 0) {
        return FAIL(err, ERR_BAD_REQUEST, "there is no option %.*s; see `hone help`", (int)length,
                    word);
    }
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (options[id].value == NULL && value != NULL) {
        return FAIL(err, ERR_BAD_REQUEST, "%s takes no value", options[id].name);
    }
    if (options[id].value != NULL && value == NULL) {
        if (*at + 1 >= argc) {
            return FAIL(err, ERR_BAD_REQUEST, "%s needs a value: %s %s", options[id].name,
                        options[id].name, options[id].value);
        }
        value = argv[++*at];
    }
    out->given |= UINT64_C(1) << id;
    out->value[id] = value;
    if (id == OPTION_UPLOAD) {
        if (out->uploads == MOST_UPLOADS) {
            return FAIL(err, ERR_BAD_REQUEST, "at most %d files can be uploaded with one job",
                        MOST_UPLOADS);
        }
        out->upload[out->uploads++] = value;
    }
    return 0;
}

static int check(const struct args *a, struct err *err)
{
    const uint64_t refused = a->given & ~(verbs[a->verb].options | OPT(HELP));

    for (int i = 0; i < OPTION_COUNT; i++) {
        if ((refused >> i & 1U) != 0) {
            return FAIL(err, ERR_BAD_REQUEST, "%s has no option %s; see `hone help %s`",
                        verbs[a->verb].name, options[i].name, verbs[a->verb].name);
        }
    }
    if (a->words < verbs[a->verb].fewest || a->words > verbs[a->verb].most) {
        return FAIL(err, ERR_BAD_REQUEST, "usage: hone %s %s", verbs[a->verb].name,
                    verbs[a->verb].arguments);
    }
    return 0;
}

int args_find_verb(const char *name)
{
    for (int i = 0; i < VERBS; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The first word is the verb, the others are its own. */
static int take_word(struct args *out, const char *word, struct err *err)
{
    if (out->verb < 0) {
        out->verb = args_find_verb(word);
        return out->verb >= 0
                   ? 0
                   : FAIL(err, ERR_BAD_REQUEST, "there is no verb %s; see `hone help`", word);
    }
    if (out->words == MOST_WORDS) {
        return FAIL(err, ERR_BAD_REQUEST, "there are more than %d words", MOST_WORDS);
    }
    out->word[out->words++] = word;
    return 0;
}

int args_parse(struct args *out, int argc, char **argv, struct err *err)
{
    bool only_words = false;

    *out = (struct args){.verb = -1};
    for (int i = 1; i < argc; i++) {
        const char *const word = argv[i];
        const bool is_option = !only_words && word[0] == '-' && word[1] != '\0';
        int rc = 0;

        if (!is_option) {
            rc = take_word(out, word, err);
        } else if (strcmp(word, "--") == 0) {
            only_words = true;
        } else if (out->verb < 0 && strcmp(word, "--version") == 0) {
            out->verb = args_find_verb("version");
        } else {
            rc = take_option(out, argc, argv, &i, err);
        }
        TRY(rc);
    }
    if (out->verb < 0 || args_has(out, OPT(HELP))) {
        out->word[0] = out->verb < 0 ? NULL : verbs[out->verb].name;
        out->words = out->verb < 0 ? 0 : 1;
        out->verb = args_find_verb("help");
        out->given = 0;
    }
    return check(out, err);
}

bool args_has(const struct args *a, uint64_t opt)
{
    return (a->given & opt) != 0;
}

void args_print_verbs(void)
{
    (void)puts("usage: hone VERB [OPTION ...] [WORD ...]\n");
    for (int i = 0; i < VERBS; i++) {
        printf("  %-12s %s\n", verbs[i].name, verbs[i].summary);
    }
    (void)puts("\nJOB is a job's id, or `latest`. `hone help VERB` tells more; `hone help fields` "
               "lists what\n"
               "a job can be told. HONE_URL and HONE_TOKEN override what `hone login` remembers.");
}

void args_print_usage(int verb)
{
    printf("usage: hone %s%s%s%s\n\n%s\n%s", verbs[verb].name,
           verbs[verb].options != 0 ? " [OPTION ...]" : "",
           verbs[verb].arguments[0] != '\0' ? " " : "", verbs[verb].arguments, verbs[verb].summary,
           verbs[verb].options != 0 ? "\n" : "");
    for (int i = 0; i < OPTION_COUNT; i++) {
        if ((verbs[verb].options >> i & 1U) == 0) {
            continue;
        }
        char left[64];
        (void)snprintf(left, sizeof left, "%s%s%s", options[i].name,
                       options[i].value != NULL ? " " : "",
                       options[i].value != NULL ? options[i].value : "");
        const char letter[6] = {'-', options[i].letter, ',', ' ', '\0'};
        printf("  %s%-22s %s\n", options[i].letter != '\0' ? letter : "    ", left,
               options[i].help);
    }
}

int args_number(int64_t *out, const char *what, const char *text, int64_t low, int64_t high,
                struct err *err)
{
    char *end = NULL;

    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high) {
        return FAIL(err, ERR_BAD_REQUEST, "%s must be a whole number from %lld to %lld, not %s",
                    what, (long long)low, (long long)high, text);
    }
    *out = value;
    return 0;
}
