/* seen.c - an open hash table of hashes, and the hash. */
#include "trainer/data/seen.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"

struct seen {
    size_t room, count; /* room is a power of two, at most half full */
    uint64_t at[];      /* 0: free */
};

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    return hash ^ hash >> 29;
}

uint64_t seen_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *s = bytes;

    hash = mix(hash, n);
    for (; n >= sizeof hash; n -= sizeof hash, s += sizeof hash) {
        uint64_t word;
        memcpy(&word, s, sizeof word);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, s, n);
    return mix(hash, rest);
}

/* Values come from json_parse_in_place, which bounds the depth. */
uint64_t seen_hash_json(uint64_t hash, const json_t *value) /* NOLINT(misc-no-recursion) */
{
    const char *key;
    json_t *member;
    size_t i;
    uint64_t sum = 0;

    if (value == NULL) {
        return mix(hash, 1);
    }
    hash = mix(hash, 2 + (uint64_t)json_typeof(value));
    switch (json_typeof(value)) {
    case JSON_STRING: return seen_hash(hash, json_string_value(value), json_string_length(value));
    case JSON_INTEGER: return mix(hash, (uint64_t)json_integer_value(value));
    case JSON_REAL: {
        const double real = json_real_value(value);
        return seen_hash(hash, &real, sizeof real);
    }
    case JSON_ARRAY:
        json_array_foreach(value, i, member)
        {
            hash = seen_hash_json(hash, member);
        }
        return mix(hash, json_array_size(value));
    case JSON_OBJECT:
        json_object_foreach(json_unconst(value), key, member)
        {
            sum += seen_hash_json(seen_hash(3, key, strlen(key)), member);
        }
        return mix(hash, sum);
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL: break;
    }
    return hash;
}

static struct seen *make(size_t room)
{
    struct seen *s = calloc(1, sizeof *s + room * sizeof s->at[0]);

    if (s != NULL) {
        s->room = room;
    }
    return s;
}

/* Where the hash is, or would go. */
static size_t place(const struct seen *s, uint64_t hash)
{
    size_t i = (size_t)(hash >> 7) & (s->room - 1);

    while (s->at[i] != 0 && s->at[i] != hash) {
        i = (i + 1) & (s->room - 1);
    }
    return i;
}

/* Twice the room, when half is used. */
static struct seen *grow(struct seen *old)
{
    struct seen *s = make(old == NULL ? 1024 : 2 * old->room);

    for (size_t i = 0; s != NULL && old != NULL && i < old->room; i++) {
        if (old->at[i] != 0) {
            s->at[place(s, old->at[i])] = old->at[i];
            s->count++;
        }
    }
    if (s == NULL) {
        return old;
    }
    free(old);
    return s;
}

bool seen_before(struct seen **s, uint64_t hash)
{
    hash = hash == 0 ? 1 : hash;
    if (*s == NULL || ((*s)->count >= (*s)->room / 2 && (*s)->count < SEEN_MAX)) {
        *s = grow(*s);
    }
    if (*s == NULL) {
        return false;
    }
    const size_t i = place(*s, hash);
    if ((*s)->at[i] == hash) {
        return true;
    }
    if ((*s)->count < SEEN_MAX && (*s)->count < (*s)->room / 2) {
        (*s)->at[i] = hash;
        (*s)->count++;
    }
    return false;
}

void seen_free(struct seen *s)
{
    free(s);
}
