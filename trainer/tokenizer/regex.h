/* regex.h - the patterns of a tokenizer.json, on PCRE2.
 *
 * Hugging Face runs them on Oniguruma with Ruby's syntax. Before PCRE2 compiles one, what the two
 * read differently is rewritten: \s \w \h and \b (the Unicode sets differ), (?m), possessive {n,m}+, \uHHHH,
 * long property names. What PCRE2 has no equal for is refused by name.
 * A pattern is hostile: its length, and the steps of each match, are bounded.
 */
#ifndef TRAINER_TOKENIZER_REGEX_H
#define TRAINER_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/err.h"

struct regex;

/* Errors: BAD_FILE, NO_MEMORY. The pattern is valid UTF-8. */
int regex_new(struct regex **out, const char *pattern, size_t bytes, struct err *err);
void regex_free(struct regex *r);

/* Does a match look at characters before it? Then text cannot be cut in front of one. */
bool regex_looks_behind(const struct regex *r);

/* What matching needs to write to: one for each thread. */
struct regex_work;
int regex_work_new(struct regex_work **out, struct err *err);
void regex_work_free(struct regex_work *w);

enum regex_found {
    REGEX_NONE,    /* no match in the rest of the text                                        */
    REGEX_MATCH,   /* [*start, *end)                                                          */
    REGEX_PARTIAL, /* only with `open`: it depends on what follows the text; from *start on   */
    REGEX_FAILED,  /* the limit of steps was reached, or no memory: err is set (BAD_FILE)     */
};

/* A text to search, valid UTF-8. */
struct regex_text {
    const char *s;
    size_t n;
    bool open; /* more text follows */
};

/* The first match at or after `from`. */
enum regex_found regex_find(const struct regex *r, struct regex_work *w,
                            const struct regex_text *text, size_t from, size_t *start, size_t *end,
                            struct err *err);

#endif
