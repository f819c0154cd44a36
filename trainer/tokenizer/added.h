/* added.h - added tokens: found in the text before the model sees it. */
#ifndef TRAINER_TOKENIZER_ADDED_H
#define TRAINER_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/tokenizer/utf8.h"

enum { ADDED_BYTES_MAX = 1024 }; /* of one token: bounds the search */

struct added_token {
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    size_t shown_at, shown_n; /* in tokenizer.shown: what it decodes to, its content as the
                               * normalizer makes it when it is a normalized one */
};

struct trie_node;

/* Finds the leftmost of a set of strings, the longest there. {0} finds nothing. */
struct trie {
    struct trie_node *nodes; /* owned */
    size_t count, room;
    size_t longest;
    bool starts[256]; /* bytes that begin a string */
    int only;         /* the one that does, else -1 */
};

/* `token` is reported when s is found; the first of equal strings wins. Errors: BAD_FILE for a string longer than
 * ADDED_BYTES_MAX, NO_MEMORY. */
int trie_put(struct trie *t, const char *s, size_t n, int32_t token, struct err *err);
void trie_free(struct trie *t);

struct added_match {
    size_t start, end; /* with the white space that lstrip and rstrip take */
    const struct added_token *token;
};

/* Is the special token that s[start, end) spells ordinary text? */
typedef bool added_is_text(void *context, size_t start, size_t end);

/* Where a search stands. */
struct added_search {
    const struct trie *trie;
    const struct added_token *tokens; /* indexed by what the trie reports */
    added_is_text *is_text;           /* asked for each special token found */
    void *context;
    size_t from;    /* where to go on */
    size_t covered; /* end of the last match */
    size_t certain; /* matches must start before here */
};

bool added_next(struct added_search *a, const char *s, size_t n, struct added_match *m);

/* A word character for single_word: Rust's \w. */
bool char_is_word(uint32_t c);

#endif
