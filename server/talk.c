/* talk.c - one request for an answer. */
#include "server/talk.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "server/send.h"
#include "trainer/base/json.h"

enum {
    BACKLOG = 256 << 10,       /* bytes that a client has not read before the model waits       */
    LINE_MAX_BYTES = 16 << 20, /* of the model                                             */
    EARLY_MS = 3000,           /* a stream begins after this, whatever the model does           */
    SILENCE_MS = 10000,        /* a comment goes out after this                                 */
    READ_BYTES = 64 << 10,
    SEND_BUFFER = 128 << 10,
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void kick(const struct talks *all)
{
    const uint64_t one = 1;

    (void)!write(all->kick, &one, sizeof one); /* fails only when kicks are waiting already */
}

/* How many of the user there are. Call with the lock held. */
static int count_of(const struct talks *all, int64_t user_id)
{
    int n = 0;

    for (const struct talk *t = all->first; t != NULL; t = t->next) {
        n += t->ask.user_id == user_id;
    }
    return n;
}

/* Whether there is room for one more. Call with the lock held. */
static int check_room(const struct talks *all, int64_t user_id, int64_t most, struct err *err)
{
    const int64_t share = most / 2 > 1 ? most / 2 : 1;
    const int own = count_of(all, user_id);

    if (all->shut) {
        return FAIL(err, ERR_BUSY, "the server is stopping");
    }
    if (own >= share) {
        return FAIL(err, ERR_TOO_MANY,
                    "%d requests of yours wait for an answer already; try again later", own);
    }
    if (all->count >= most) {
        return FAIL(err, ERR_TOO_MANY, "%d requests wait for an answer already; try again later",
                    all->count);
    }
    return 0;
}

int talk_begin(struct talk **out, struct talks *all, struct openai_ask *ask, const char *dir,
               int64_t most, struct err *err)
{
    struct talk *t = calloc(1, sizeof *t);
    int rc = 0;

    if (t == NULL) {
        openai_ask_fini(ask);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a request");
    }
    t->all = all;
    t->ask = *ask;
    *ask = (struct openai_ask){0};
    t->fd = t->client = -1;
    t->begun_ms = t->said_ms = now_ms();
    (void)snprintf(t->dir, sizeof t->dir, "%s", dir);
    rc = openai_answer_init(&t->answer, &t->ask, err);
    pthread_mutex_lock(&all->lock);
    rc = rc != 0 ? rc : check_room(all, t->ask.user_id, most, err);
    if (rc == 0) {
        t->next = all->first;
        all->first = t;
        all->count++;
    }
    pthread_mutex_unlock(&all->lock);
    if (rc != 0) {
        talk_free(t);
        return rc;
    }
    kick(all);
    *out = t;
    return 0;
}

void talk_free(struct talk *t)
{
    talk_hang_up(t);
    openai_answer_fini(&t->answer);
    openai_ask_fini(&t->ask);
    free(t->in);
    free(t->out);
    free(t);
}

void talk_hang_up(struct talk *t)
{
    if (t->fd >= 0) {
        (void)close(t->fd);
        t->fd = -1;
    }
    t->in_bytes = 0;
}

/* Let the connection go on where it waits for us. Call with the lock held. */
static void wake(struct talk *t)
{
    if (t->ready != NULL && t->is_ready) {
        void (*ready)(void *) = t->ready;
        t->ready = NULL;
        ready(t->argument);
    } else if (t->suspended) {
        t->suspended = false;
        MHD_resume_connection(t->c);
    }
}

/* Call with the lock held. */
static bool append(struct talk *t, const char *text)
{
    const size_t n = strlen(text);

    if (t->out_sent == t->out_bytes) {
        t->out_sent = t->out_bytes = 0;
    }
    if (t->out_bytes + n > t->out_room) {
        char *more = realloc(t->out, 2 * (t->out_bytes + n));
        if (more == NULL) {
            return false;
        }
        t->out = more;
        t->out_room = 2 * (t->out_bytes + n);
    }
    memcpy(t->out + t->out_bytes, text, n);
    t->out_bytes += n;
    t->said_ms = now_ms();
    return true;
}

void talk_interrupt(struct talk *t, const struct err *err)
{
    if (t->over) {
        return;
    }
    if (t->settled) { /* the stream has begun: its client knows an object with `error` */
        char *text = error_text(err);
        if (text != NULL) {
            (void)(append(t, "data: ") && append(t, text) && append(t, "\n\n"));
        }
        free(text);
    } else {
        t->rc = (int)err->code;
        t->err = *err;
    }
    t->over = t->is_ready = true;
    wake(t);
}

void talk_fail(struct talk *t, const struct err *err)
{
    pthread_mutex_lock(&t->all->lock);
    talk_interrupt(t, err);
    pthread_mutex_unlock(&t->all->lock);
    talk_hang_up(t);
}

void talk_wait(struct talk *t, struct MHD_Connection *c, void (*ready)(void *), void *argument)
{
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int size = SEND_BUFFER;

    if (fd != NULL) {
        (void)setsockopt(fd->connect_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    pthread_mutex_lock(&t->all->lock);
    t->c = c;
    t->client = fd == NULL ? -1 : fd->connect_fd;
    t->ready = ready;
    t->argument = argument;
    wake(t);
    pthread_mutex_unlock(&t->all->lock);
}

int talk_settle(struct talk *t, struct reply *rp, struct err *err)
{
    pthread_mutex_lock(&t->all->lock);
    const int rc = t->rc;
    *err = rc != 0 ? t->err : *err;
    t->settled = true;
    pthread_mutex_unlock(&t->all->lock);
    if (rc != 0) {
        return rc;
    }
    if (t->ask.stream) {
        reply_add(rp, "Content-Type", "text/event-stream");
        reply_add(rp, "X-Accel-Buffering", "no");
        return 0;
    }
    rp->body = openai_answer_body(&t->answer);
    return rp->body != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for an answer");
}

ssize_t talk_read(void *talk, uint64_t position, char *out, size_t size)
{
    struct talk *t = talk;
    ssize_t given = 0;

    (void)position;
    pthread_mutex_lock(&t->all->lock);
    const size_t left = t->out_bytes - t->out_sent;
    if (left > 0) {
        given = (ssize_t)(left < size ? left : size);
        memcpy(out, t->out + t->out_sent, (size_t)given);
        t->out_sent += (size_t)given;
        if (left > BACKLOG / 2 && left - (size_t)given <= BACKLOG / 2) {
            kick(t->all);
        }
    } else if (t->over) {
        given = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        t->suspended = true;
        MHD_suspend_connection(t->c);
    }
    pthread_mutex_unlock(&t->all->lock);
    return given;
}

void talk_end(void *talk)
{
    struct talk *t = talk;
    struct talks *all = t->all;

    pthread_mutex_lock(&all->lock);
    t->dropped = true; /* the playground's thread frees it */
    t->suspended = false;
    t->ready = NULL;
    kick(all);
    pthread_mutex_unlock(&all->lock);
}

bool talk_wants_input(struct talk *t)
{
    pthread_mutex_lock(&t->all->lock);
    const bool wants = !t->over && t->out_bytes - t->out_sent < BACKLOG;
    pthread_mutex_unlock(&t->all->lock);
    return wants;
}

static void take_line(struct talk *t, const char *line, size_t bytes)
{
    struct err err = {0};
    json_t *o = json_loadb(line, bytes, JSON_ALLOW_NUL, NULL);
    char *text = NULL;

    int rc = json_is_object(o) ? openai_answer_take(&t->answer, o, &text, &err)
                               : FAIL(&err, ERR_INTERNAL, "the model's process said no JSON");
    json_decref(o);
    t->accepted = t->accepted || t->answer.accepted > 0;
    const bool complete = rc == 0 && openai_answer_is_complete(&t->answer);
    pthread_mutex_lock(&t->all->lock);
    if (rc == 0 && text != NULL && !append(t, text)) {
        rc = FAIL(&err, ERR_NO_MEMORY, "no memory for an answer");
    }
    if (rc != 0) {
        talk_interrupt(t, &err);
    } else {
        t->over = complete;
        t->is_ready = t->is_ready || complete || (t->ask.stream && t->accepted);
        if (complete || text != NULL || t->ready != NULL) {
            wake(t);
        }
    }
    pthread_mutex_unlock(&t->all->lock);
    free(text);
}

static void take_lines(struct talk *t)
{
    size_t done = 0;

    for (;;) {
        const char *line = t->in + done;
        const char *end = memchr(line, '\n', t->in_bytes - done);
        if (end == NULL) {
            break;
        }
        take_line(t, line, (size_t)(end - line));
        done += (size_t)(end - line) + 1;
    }
    t->in_bytes -= done;
    if (t->in_bytes > 0) {
        memmove(t->in, t->in + done, t->in_bytes);
    }
}

/* Read once; 0: nothing there, 1: something, -1: closed. */
static int read_some(struct talk *t)
{
    struct err err = {0};

    if (t->in_bytes + READ_BYTES > t->in_room) {
        const size_t room = 2 * (t->in_bytes + READ_BYTES);
        char *more = room > LINE_MAX_BYTES ? NULL : realloc(t->in, room);
        if (more == NULL) {
            err_set(&err, ERR_NO_MEMORY, "no memory for an answer");
            talk_fail(t, &err);
            return -1;
        }
        t->in = more;
        t->in_room = room;
    }
    const ssize_t n = recv(t->fd, t->in + t->in_bytes, READ_BYTES, MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    t->in_bytes += (size_t)n;
    take_lines(t);
    return 1;
}

bool talk_move(struct talk *t)
{
    const size_t left = strlen(t->ask.lines) - t->sent;

    if (left > 0) {
        const ssize_t n = send(t->fd, t->ask.lines + t->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        t->sent += n > 0 ? (size_t)n : 0; /* a failure is seen by reading */
    }
    while (t->fd >= 0 && talk_wants_input(t)) {
        const int got = read_some(t);
        if (got <= 0) {
            return got == 0;
        }
    }
    return true;
}

/* Whether the client of a suspended connection has closed it; libmicrohttpd does not look. Call with the
 * lock held. */
static bool is_gone(const struct talk *t)
{
    char byte = 0;

    if (t->client < 0 || (t->ready == NULL && !t->suspended)) {
        return false;
    }
    const ssize_t n = recv(t->client, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void talk_look(struct talk *t)
{
    struct err err = {0};
    const int64_t now = now_ms();

    pthread_mutex_lock(&t->all->lock);
    if (!t->over && is_gone(t)) {
        err_set(&err, ERR_INTERRUPTED, "the client has gone");
        talk_interrupt(t, &err);
    }
    if (t->ask.stream && !t->is_ready && now - t->begun_ms >= EARLY_MS) {
        t->is_ready = true;
        wake(t);
    }
    if (t->suspended && !t->over && now - t->said_ms >= SILENCE_MS) {
        if (append(t, ": hb\n\n")) {
            wake(t);
        }
    }
    pthread_mutex_unlock(&t->all->lock);
}
