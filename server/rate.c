/* rate.c - how many requests a token or a session may make. */
#include "server/rate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 1024, WAYS = 4, BURST = 2, UNIT = 1000, FULL_MS = BURST * UNIT };

struct bucket {
    uint8_t key[32];     /* of a token its id, of a session its hash */
    int64_t thousandths; /* of requests that are in it              */
    int64_t at_ms;       /* as of then                               */
    bool is_used;
};

struct rate {
    int64_t per_s;
    pthread_mutex_t lock; /* guards the buckets */
    struct bucket buckets[SETS][WAYS];
};

int rate_open(struct rate **out, int64_t per_s, struct err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the rate limits");
    }
    (*out)->per_s = per_s;
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void rate_close(struct rate *r)
{
    if (r != NULL) {
        pthread_mutex_destroy(&r->lock);
        free(r);
    }
}

/* FNV-1a: the ids and hashes are random, nobody chooses them. */
static size_t set_of(const uint8_t key[32])
{
    uint32_t hash = 2166136261U;

    for (int i = 0; i < 32; i++) {
        hash = (hash ^ key[i]) * 16777619U;
    }
    return hash % SETS;
}

/* The bucket of the key, or the one that was not asked for longest, full. Call with the lock held. */
static struct bucket *find(struct rate *r, const uint8_t key[32], int64_t now_ms)
{
    struct bucket *set = r->buckets[set_of(key)], *oldest = &set[0];

    for (int i = 0; i < WAYS; i++) {
        if (set[i].is_used && memcmp(set[i].key, key, sizeof set[i].key) == 0) {
            return &set[i];
        }
        if (!set[i].is_used || (oldest->is_used && set[i].at_ms < oldest->at_ms)) {
            oldest = &set[i];
        }
    }
    *oldest =
        (struct bucket){.is_used = true, .at_ms = now_ms, .thousandths = BURST * r->per_s * UNIT};
    memcpy(oldest->key, key, sizeof oldest->key);
    return oldest;
}

int64_t rate_take(struct rate *r, const struct identity *who, int64_t now_ms)
{
    uint8_t key[32] = {0};
    int64_t wait = 0;

    if (who->token_id[0] != '\0') {
        memcpy(key, who->token_id, sizeof who->token_id);
    } else {
        memcpy(key, who->session, sizeof key);
    }
    pthread_mutex_lock(&r->lock);
    struct bucket *b = find(r, key, now_ms);
    const int64_t full = BURST * r->per_s * UNIT;
    const int64_t past = now_ms > b->at_ms ? now_ms - b->at_ms : 0;
    /* a thousandth of a request comes per_s times a millisecond; long rests fill it, and don't overflow */
    b->thousandths = past > FULL_MS ? full : b->thousandths + past * r->per_s;
    b->thousandths = b->thousandths > full ? full : b->thousandths;
    b->at_ms = now_ms;
    if (b->thousandths >= UNIT) {
        b->thousandths -= UNIT;
    } else {
        wait = (UNIT - b->thousandths + r->per_s - 1) / r->per_s;
    }
    pthread_mutex_unlock(&r->lock);
    return wait;
}
