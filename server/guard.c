/* guard.c - slows down those who guess credentials. */
#include "server/guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>

#include <string.h>

enum { PLACES = 1024, FREE = 5, WINDOW_S = 60, WAIT_MAX_S = 3600 };

struct place {
    int64_t since, until; /* first of the window; end of the wait */
    int count;            /* wrong ones in the window             */
    int64_t wait;
};

struct login_guard {
    pthread_mutex_t lock; /* guards what follows */
    struct place places[PLACES];
    int64_t told_at[PLACES]; /* 0: never */
};

int guard_open(struct login_guard **out, struct err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the guard");
    }
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void guard_close(struct login_guard *g)
{
    if (g != NULL) {
        pthread_mutex_destroy(&g->lock);
        free(g);
    }
}

static size_t place_of(const char *peer)
{
    return crc32(0, (const Bytef *)peer, (uInt)strlen(peer)) % PLACES;
}

bool guard_is_news(struct login_guard *g, const char *peer, int64_t now)
{
    int64_t *told_at = &g->told_at[place_of(peer)];

    pthread_mutex_lock(&g->lock);
    const bool is_news = *told_at == 0 || now - *told_at >= WINDOW_S;
    if (is_news) {
        *told_at = now;
    }
    pthread_mutex_unlock(&g->lock);
    return is_news;
}

int64_t guard_note(struct login_guard *g, const char *peer, int64_t now)
{
    struct place *p = &g->places[place_of(peer)];
    int64_t left = 0;

    pthread_mutex_lock(&g->lock);
    if (now < p->until) {
        left = p->until - now;
    } else if (p->count == 0 || now - p->since >= WINDOW_S + p->wait) { /* quiet since: forgiven */
        *p = (struct place){.since = now, .count = 1};
    } else if (++p->count > FREE) {
        p->wait = p->wait == 0 ? 2 : p->wait * 2;
        p->wait = p->wait > WAIT_MAX_S ? WAIT_MAX_S : p->wait;
        p->since = now;
        p->until = now + p->wait;
        left = p->wait;
    }
    pthread_mutex_unlock(&g->lock);
    return left;
}
