/* regex_ruby.h - rewrite a pattern from Oniguruma's reading (Ruby syntax) to PCRE2's. */
#ifndef TRAINER_TOKENIZER_REGEX_RUBY_H
#define TRAINER_TOKENIZER_REGEX_RUBY_H

#include "trainer/tokenizer/utf8.h"

/* Append to OUT what PCRE2 (UTF, UCP, MULTILINE, newline LF) has to compile. The pattern is valid UTF-8.
 * *asks_start: it has ^, \A or \G, so a match may depend on where the text starts.
 * Errors: BAD_FILE naming what has no equal, NO_MEMORY. */
int regex_from_ruby(struct text *out, bool *asks_start, const char *pattern, size_t bytes,
                    struct err *err);

#endif
