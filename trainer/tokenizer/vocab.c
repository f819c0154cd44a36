/* vocab.c - a two-way table of tokens and ids. */
#include "trainer/tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint64_t hash_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = 0x9E3779B97F4A7C15U; /* early at boot: a known one is better than none */
    }
    return seed;
}

uint64_t hash_bytes(const char *s, size_t n, uint64_t seed)
{
    uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15U);

    while (n >= 8) {
        uint64_t x;
        memcpy(&x, s, 8);
        h = (h ^ x) * 0x9FB21C651E98DF25U;
        h ^= h >> 32;
        s += 8;
        n -= 8;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++) {
        tail |= (uint64_t)(unsigned char)s[i] << 8 * i;
    }
    return hash_mix(h ^ tail);
}

/* The slot that holds the token, or the free one where it belongs. */
static size_t slot_of(const struct vocab *v, const char *token, size_t n)
{
    size_t i = hash_bytes(token, n, v->seed) & (v->slot_count - 1);

    while (v->slots[i] >= 0) {
        const struct token_place p = v->places[v->slots[i]];
        if (p.n == n && memcmp(v->pool.at + p.at, token, n) == 0) {
            break;
        }
        i = (i + 1) & (v->slot_count - 1);
    }
    return i;
}

static int grow_slots(struct vocab *v, struct err *err)
{
    const size_t count = v->slot_count == 0 ? 1024 : v->slot_count * 2;
    int32_t *old = v->slots;

    int32_t *slots = malloc(count * sizeof *slots);
    if (slots == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary of %zu tokens", count);
    }
    memset(slots, 0xFF, count * sizeof *slots);
    if (v->slot_count == 0) {
        v->seed = hash_seed();
    }
    v->slots = slots;
    v->slot_count = count;
    for (int64_t id = 0; id < v->size; id++) {
        if (v->places[id].at != SIZE_MAX) {
            v->slots[slot_of(v, v->pool.at + v->places[id].at, v->places[id].n)] = (int32_t)id;
        }
    }
    free(old);
    return 0;
}

static int grow_places(struct vocab *v, int64_t id, struct err *err)
{
    if (id >= v->room) {
        int64_t room = v->room == 0 ? 1024 : v->room;
        while (room <= id) {
            room *= 2;
        }
        struct token_place *places = realloc(v->places, (size_t)room * sizeof *places);
        if (places == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary of %lld tokens",
                        (long long)room);
        }
        v->places = places;
        v->room = room;
    }
    while (v->size <= id) {
        v->places[v->size++] = (struct token_place){.at = SIZE_MAX};
    }
    return 0;
}

int vocab_put(struct vocab *v, const char *token, size_t n, int64_t id, struct err *err)
{
    size_t other_n;

    if (id < 0 || id >= TOKEN_ID_MAX) {
        return FAIL(err, ERR_BAD_FILE, "token '%s' has id %lld, which is not in [0, %d)",
                    text_excerpt(token, n).at, (long long)id, TOKEN_ID_MAX);
    }
    const char *other = vocab_token(v, id, &other_n);
    if (other != NULL) {
        return FAIL(err, ERR_BAD_FILE, "tokens '%s' and '%s' have the same id %lld",
                    text_excerpt(other, other_n).at, text_excerpt(token, n).at, (long long)id);
    }
    if (v->used * 2 >= v->slot_count) {
        TRY(grow_slots(v, err));
    }
    const size_t slot = slot_of(v, token, n);
    if (v->slots[slot] >= 0) {
        return FAIL(err, ERR_BAD_FILE, "token '%s' has two ids, %d and %lld",
                    text_excerpt(token, n).at, v->slots[slot], (long long)id);
    }
    TRY(grow_places(v, id, err));
    const size_t place = v->pool.n;
    TRY(text_put(&v->pool, token, n, err));
    TRY(text_put(&v->pool, "", 1, err));
    v->places[id] = (struct token_place){.at = place, .n = n};
    v->slots[slot] = (int32_t)id;
    v->used++;
    return 0;
}

void vocab_free(struct vocab *v)
{
    free(v->slots);
    free(v->places);
    text_free(&v->pool);
    *v = (struct vocab){0};
}

int32_t vocab_find(const struct vocab *v, const char *token, size_t n)
{
    return v->slot_count == 0 ? -1 : v->slots[slot_of(v, token, n)];
}

const char *vocab_token(const struct vocab *v, int64_t id, size_t *n)
{
    if (id < 0 || id >= v->size || v->places[id].at == SIZE_MAX) {
        return NULL;
    }
    if (n != NULL) {
        *n = v->places[id].n;
    }
    return v->pool.at + v->places[id].at;
}
