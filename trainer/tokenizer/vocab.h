/* vocab.h - a two-way table of tokens and ids. */
#ifndef TRAINER_TOKENIZER_VOCAB_H
#define TRAINER_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/tokenizer/utf8.h"

enum { TOKEN_ID_MAX = 1 << 24 }; /* ids in a file lie below: tables are indexed by them */

/* Where a token is in the pool; n is 0 and at is SIZE_MAX for an id without one. */
struct token_place {
    size_t at, n;
};

/* {0} is the empty table. */
struct vocab {
    int32_t *slots; /* owned; open addressing, -1 is free */
    size_t slot_count, used;
    struct token_place *places; /* owned, by id */
    int64_t size, room;         /* ids lie in [0, size) */
    struct text pool;           /* the tokens, each followed by a NUL */
    uint64_t seed;              /* so that a file cannot aim at one slot */
};

/* Add a token. Errors: BAD_FILE for an id or a token that is there already or an id out of range; NO_MEMORY. */
int vocab_put(struct vocab *v, const char *token, size_t n, int64_t id, struct err *err);
void vocab_free(struct vocab *v); /* leaves {0} */

int32_t vocab_find(const struct vocab *v, const char *token, size_t n); /* -1: none */
/* NULL for an id without a token. Borrowed until the next vocab_put. */
const char *vocab_token(const struct vocab *v, int64_t id, size_t *n);

/* A hash of bytes; good bits everywhere. */
uint64_t hash_bytes(const char *s, size_t n, uint64_t seed);
/* A number nobody can guess, to seed it. */
uint64_t hash_seed(void);

static inline uint64_t hash_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93U;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93U;
    return x ^ x >> 32;
}

#endif
