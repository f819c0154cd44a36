/* seen.h - which examples were there before, by a hash of 64 bits, in bounded memory. */
#ifndef TRAINER_DATA_SEEN_H
#define TRAINER_DATA_SEEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEEN_MAX = 1 << 22 }; /* examples that are remembered; later ones are only looked up */

struct seen; /* NULL: nothing was seen */

/* Whether the hash was added before; else it is added. Where there is no memory, or SEEN_MAX are known, it is not. */
bool seen_before(struct seen **s, uint64_t hash);
void seen_free(struct seen *s); /* NULL is allowed */

/* Of bytes and of JSON values (the order of keys does not matter), going on from `hash`. */
uint64_t seen_hash(uint64_t hash, const void *bytes, size_t n);
uint64_t seen_hash_json(uint64_t hash, const json_t *value);

#endif
