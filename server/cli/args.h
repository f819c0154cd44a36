/* args.h - the command line: a verb, its options and its words, checked against verbs.def. */
#ifndef SERVER_CLI_ARGS_H
#define SERVER_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum option {
#define OPTION(id, name, letter, value, help) OPTION_##id,
#include "server/cli/options.def"
    OPTION_COUNT
};

#define OPT(id) (UINT64_C(1) << OPTION_##id)

enum { MOST_WORDS = 256, MOST_UPLOADS = 16 };

struct args {
    int verb;                        /* row of verbs.def */
    uint64_t given;                  /* OPT bits */
    const char *value[OPTION_COUNT]; /* of an option with a value; the last one when repeated */
    const char *upload[MOST_UPLOADS];
    int uploads;
    const char *word[MOST_WORDS];
    int words;
};

/* Read argv[1..]. All pointers in *out are argv's. No words at all, --help and --version are the verbs
 * help and version. Errors: BAD_REQUEST. */
int args_parse(struct args *out, int argc, char **argv, struct err *err);

bool args_has(const struct args *a, uint64_t opt);

/* Print the list of verbs, or one verb with its options. */
void args_print_verbs(void);
void args_print_usage(int verb);

/* The row of a verb; -1 when there is none. */
int args_find_verb(const char *name);

/* A whole number in [low, high] from a word of the user; `what` names it in the error. Errors: BAD_REQUEST. */
int args_number(int64_t *out, const char *what, const char *text, int64_t low, int64_t high,
                struct err *err);

#endif
