/* utf8.h - growing byte strings and UTF-8, for the tokenizer. */
#ifndef TRAINER_TOKENIZER_UTF8_H
#define TRAINER_TOKENIZER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* Bytes with room to grow; {0} is the empty one. */
struct text {
    char *at; /* owned */
    size_t n, room;
};

int text_reserve(struct text *t, size_t more, struct err *err); /* NO_MEMORY */
int text_put(struct text *t, const char *s, size_t n, struct err *err);
/* Append the bytes that s[0..n) spells in base64. Errors: BAD_FILE "... is not base64" when it is none; NO_MEMORY. */
int text_put_base64(struct text *t, const char *s, size_t n, struct err *err);
void text_free(struct text *t); /* leaves {0} */

/* Places in a text, growing; {0} is the empty list. */
struct place_list {
    size_t *at; /* owned */
    size_t count, room;
};

int place_list_put(struct place_list *l, size_t at, struct err *err); /* NO_MEMORY */
void place_list_free(struct place_list *l);                           /* leaves {0} */

/* Length of the longest valid UTF-8 beginning of s[0..n). *cut (may be NULL) says whether what follows
 * is a character that the end of s cuts short. */
size_t utf8_prefix(const char *s, size_t n, bool *cut);

/* Length of the ill-formed part at s, which starts no valid character: what one U+FFFD stands for
 * (Unicode 15, section 3.9, "maximal subpart"). */
size_t utf8_bad(const char *s, size_t n);

/* The character at s, which is valid UTF-8; returns its length. */
size_t utf8_get(const char *s, uint32_t *c);
/* The start of the character that ends before s[at]; at > 0. */
size_t utf8_back(const char *s, size_t at);
/* Write c; returns its length, 1 to 4. */
size_t utf8_write(char *s, uint32_t c);

/* A white space character of Unicode (property White_Space), as Rust's \s. */
bool char_is_space(uint32_t c);

/* A copy of s for an error message: at most 40 bytes, what is not printable as '?'. */
struct excerpt {
    char at[48];
};
struct excerpt text_excerpt(const char *s, size_t n);

#endif
