/* lexer.h - the words of a JSON text of known schema, read in place without memory of its own.
 *
 * For the safetensors header, which is up to 100 MB of hostile input: a JSON tree of it would need
  * twenty
 * times its size. Functions return 0 or an error code, with a text that says where.
 */
#ifndef TRAINER_CKPT_LEXER_H
#define TRAINER_CKPT_LEXER_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* What is read; all borrowed. */
struct lexer {
    char *begin, *at, *end; /* the text, and how far it is read; *end is a NUL */
    const char *file;       /* for errors */
    struct err *err;
};

/* Write the error "FILE: the header is damaged at its byte N: WANT"; returns BAD_FILE. */
int lexer_fail(struct lexer *p, const char *want);

/* Whether the whole text is UTF-8 (RFC 3629). To be called first. Errors: BAD_FILE. */
int lexer_check_utf8(struct lexer *p);

/* Pass `c` and the space around it; false when something else is next. */
bool lexer_pass(struct lexer *p, char c);

/* A string, decoded in place: *out points into the text and is overwritten by nothing else. One
 * with a NUL inside is refused. Errors: BAD_FILE. */
int lexer_string(struct lexer *p, const char **out);

/* An integer from 0 to 2^63 - 1 without fraction or exponent. Errors: BAD_FILE. */
int lexer_size(struct lexer *p, int64_t *out);

#endif
