/* line.c - deadlines of connections. */
#include "server/line.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 500,
    BODY_FREE_MS = 10000,
    BODY_BYTES_PER_S = 10000,
    LINGER_MAX = 64,
    LINGER_LOOK_MS = 10,
    LINGER_MS = 10000,
    LINGER_BYTES = 64 << 20,
};

enum turn { TURN_HEAD, TURN_BODY, TURN_OURS };

struct line {
    struct lines *all;
    struct line *next, **place; /* in the list */
    int fd;
    enum turn turn;
    bool shut; /* by us: libmicrohttpd will close it */
    int64_t since_ms, limit_ms, bytes;
};

/* A socket whose client may still send. */
struct leftover {
    int fd; /* owned */
    int64_t until_ms, bytes;
};

struct lines {
    int64_t header_ms, idle_ms, most;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows and the fields of every line */
    pthread_cond_t stirred;
    bool closing;
    struct line *first;
    int64_t open; /* of the list, without those that were shut */
    int linger_count;
    struct leftover linger[LINGER_MAX];
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The client has closed its side and nothing is left to read: libmicrohttpd may not have been told (its edge
 * of epoll passed while it was busy). */
static bool is_gone(const struct line *line)
{
    char byte = 0;

    return recv(line->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static bool is_late(const struct line *line, int64_t now)
{
    const int64_t took = now - line->since_ms;

    switch (line->turn) {
    case TURN_HEAD: return took > line->limit_ms || is_gone(line);
    case TURN_BODY:
        return (took > BODY_FREE_MS && line->bytes < took * BODY_BYTES_PER_S / 1000) ||
               is_gone(line);
    case TURN_OURS: return false;
    }
    return false;
}

/* Call with the lock held. */
static void shut(struct line *line)
{
    (void)shutdown(line->fd, SHUT_RDWR); /* gone already: as well */
    line->all->open -= !line->shut;
    line->shut = true;
}

/* End the connection that has waited longest for its next request. Call with the lock held. */
static void make_room(struct lines *l)
{
    struct line *oldest = NULL;

    for (struct line *line = l->first; line != NULL; line = line->next) {
        if (line->turn == TURN_HEAD && !line->shut &&
            (oldest == NULL || line->since_ms < oldest->since_ms)) {
            oldest = line;
        }
    }
    if (oldest != NULL) {
        shut(oldest);
    }
}

/* Whether the client has ended, or has had its time. */
static bool swallow(struct leftover *l, int64_t now)
{
    char bytes[16 << 10];

    for (;;) {
        const ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n <= 0) {
            const bool more = n < 0 && (errno == EAGAIN || errno == EINTR);
            return !more || now > l->until_ms;
        }
        l->bytes += n;
        if (l->bytes > LINGER_BYTES) {
            return true;
        }
    }
}

/* Call with the lock held. */
static void swallow_all(struct lines *l, int64_t now)
{
    for (int i = l->linger_count - 1; i >= 0; i--) {
        if (l->closing || swallow(&l->linger[i], now)) {
            (void)close(l->linger[i].fd);
            l->linger[i] = l->linger[--l->linger_count];
        }
    }
}

static void *look_for_ever(void *argument)
{
    struct lines *l = argument;

    pthread_mutex_lock(&l->lock);
    while (!l->closing) {
        const int64_t now = now_ms();
        for (struct line *line = l->first; line != NULL; line = line->next) {
            if (is_late(line, now)) {
                shut(line);
            }
        }
        swallow_all(l, now);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (l->linger_count > 0 ? LINGER_LOOK_MS : LOOK_MS) * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&l->stirred, &l->lock, &until);
    }
    swallow_all(l, 0);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int lines_open(struct lines **out, int64_t header_ms, int64_t idle_ms, int64_t most,
               struct err *err)
{
    struct lines *l = calloc(1, sizeof *l);
    pthread_condattr_t monotonic;

    if (l == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for connections");
    }
    l->header_ms = header_ms;
    l->idle_ms = idle_ms;
    l->most = most;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->stirred, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&l->thread, NULL, look_for_ever, l) != 0) {
        free(l);
        return FAIL(err, ERR_NO_MEMORY, "no thread for deadlines");
    }
    *out = l;
    return 0;
}

void lines_close(struct lines *l)
{
    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_signal(&l->stirred);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->stirred);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

struct line *line_begin(struct lines *l, int fd)
{
    struct line *line = calloc(1, sizeof *line);

    if (line == NULL) {
        return NULL;
    }
    line->all = l;
    line->fd = fd;
    line->since_ms = now_ms();
    line->limit_ms = l->header_ms;
    pthread_mutex_lock(&l->lock);
    if (++l->open > l->most * 3 / 4) {
        make_room(l);
    }
    line->next = l->first;
    line->place = &l->first;
    if (l->first != NULL) {
        l->first->place = &line->next;
    }
    l->first = line;
    pthread_mutex_unlock(&l->lock);
    return line;
}

void line_end(struct line *line)
{
    if (line == NULL) {
        return;
    }
    struct lines *l = line->all;
    pthread_mutex_lock(&l->lock);
    l->open -= !line->shut;
    *line->place = line->next;
    if (line->next != NULL) {
        line->next->place = line->place;
    }
    pthread_mutex_unlock(&l->lock);
    free(line);
}

void line_linger(struct line *line)
{
    struct lines *l = line == NULL ? NULL : line->all;

    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    const int fd = l->linger_count < LINGER_MAX ? fcntl(line->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0) { /* else the client may miss the reply, as it would without this */
        l->linger[l->linger_count++] =
            (struct leftover){.fd = fd, .until_ms = now_ms() + LINGER_MS};
        pthread_cond_signal(&l->stirred);
    }
    pthread_mutex_unlock(&l->lock);
}

void lines_close_idle(struct lines *l)
{
    pthread_mutex_lock(&l->lock);
    for (struct line *line = l->first; line != NULL; line = line->next) {
        if (line->turn == TURN_HEAD) {
            shut(line);
        }
    }
    pthread_mutex_unlock(&l->lock);
}

static void turn_to(struct line *line, enum turn turn, int64_t limit_ms)
{
    if (line != NULL) {
        pthread_mutex_lock(&line->all->lock);
        line->turn = turn;
        line->since_ms = now_ms();
        line->limit_ms = limit_ms;
        line->bytes = 0;
        pthread_mutex_unlock(&line->all->lock);
    }
}

void line_head_is_due(struct line *line)
{
    if (line != NULL) { /* it may rest for a while before the next request begins */
        turn_to(line, TURN_HEAD, line->all->idle_ms + line->all->header_ms);
    }
}

void line_body_is_due(struct line *line)
{
    turn_to(line, TURN_BODY, 0);
}

void line_body_moved(struct line *line, int64_t bytes)
{
    if (line != NULL) {
        pthread_mutex_lock(&line->all->lock);
        line->bytes += bytes;
        pthread_mutex_unlock(&line->all->lock);
    }
}

void line_is_ours(struct line *line)
{
    turn_to(line, TURN_OURS, 0);
}
