/* tool.c - a child, its output through a pipe, a time limit. */
#include "server/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "server/spawn.h"

struct tools {
    const char *trainer;
    int stop;             /* eventfd; readable, and never read, when all has to end */
    pthread_mutex_t lock; /* guards what follows */
    int running;
};

/* What a tool printed so far. */
struct output {
    char *at; /* owned */
    size_t n, room;
};

int tools_open(struct tools **out, const char *trainer, struct err *err)
{
    struct tools *t = calloc(1, sizeof *t);

    *out = NULL;
    if (t == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for tools");
    }
    t->trainer = trainer;
    t->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&t->lock, NULL);
    if (t->stop < 0) {
        const int number = errno;
        tools_close(t);
        return FAIL(err, ERR_IO, "an eventfd can't be made: %s", strerror(number));
    }
    *out = t;
    return 0;
}

void tools_stop(struct tools *t)
{
    const uint64_t one = 1;

    if (t != NULL) {
        (void)!write(t->stop, &one, sizeof one);
    }
}

void tools_close(struct tools *t)
{
    if (t == NULL) {
        return;
    }
    CHECK(t->running == 0, "%d tools run", t->running);
    if (t->stop >= 0) {
        (void)close(t->stop);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Read what is there; *ended when the child has closed its end. */
static int take(struct output *o, int fd, bool *ended, struct err *err)
{
    if (o->n + 1 >= o->room) {
        const size_t room = o->room == 0 ? 1 << 16 : o->room * 2;
        if (room > TOOL_BYTES) {
            return FAIL(err, ERR_IO, "the trainer prints more than a report takes");
        }
        char *at = realloc(o->at, room);
        if (at == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for what the trainer prints");
        }
        o->at = at;
        o->room = room;
    }
    const ssize_t got = read(fd, o->at + o->n, o->room - o->n - 1);
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
        const int number = errno;
        return FAIL(err, ERR_IO, "what the trainer prints can't be read: %s", strerror(number));
    }
    *ended = got == 0;
    o->n += got > 0 ? (size_t)got : 0;
    return 0;
}

static int read_all(struct output *o, const struct tools *t, int fd, struct err *err)
{
    const int64_t end = now_ms() + INT64_C(1000) * TOOL_SECONDS;
    bool ended = false;

    while (!ended) {
        struct pollfd on[] = {{.fd = fd, .events = POLLIN}, {.fd = t->stop, .events = POLLIN}};
        const int64_t left = end - now_ms();
        if (left <= 0) {
            return FAIL(err, ERR_TIMED_OUT,
                        "reading takes more than %d seconds; run hone-train check on the machine "
                        "of the server",
                        TOOL_SECONDS);
        }
        if (poll(on, 2, (int)left) < 0 && errno != EINTR) {
            const int number = errno;
            return FAIL(err, ERR_IO, "waiting for the trainer failed: %s", strerror(number));
        }
        if (on[1].revents != 0) {
            return FAIL(err, ERR_INTERRUPTED, "the server is stopping");
        }
        if (on[0].revents != 0) {
            TRY(take(o, fd, &ended, err));
        }
    }
    return 0;
}

/* Start it, read it, end it. */
static int run(struct output *o, const struct tools *t, char *const arguments[], struct err *err)
{
    int ends[2], status;
    pid_t pid = 0;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        const int number = errno;
        return FAIL(err, ERR_IO, "a pipe can't be made: %s", strerror(number));
    }
    int rc = spawn_tool(&pid, arguments, ends[1], err);
    (void)close(ends[1]);
    if (rc == 0) {
        rc = read_all(o, t, ends[0], err);
        (void)kill(-pid, SIGKILL); /* it has ended, or has to */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    (void)close(ends[0]);
    return rc;
}

static int begin(struct tools *t, struct err *err)
{
    pthread_mutex_lock(&t->lock);
    const bool free_place = t->running < TOOLS_AT_ONCE;
    t->running += free_place ? 1 : 0;
    pthread_mutex_unlock(&t->lock);
    return free_place
               ? 0
               : FAIL(err, ERR_BUSY, "%d files are being read already; try again in a moment",
                      TOOLS_AT_ONCE);
}

int tool_run(json_t **out, struct tools *t, const char *const arguments[], struct err *err)
{
    char *copy[TOOL_ARGUMENTS + 2] = {strdup(t->trainer)};
    struct output o = {0};
    bool whole = copy[0] != NULL;
    int n = 0;

    *out = NULL;
    for (; arguments[n] != NULL; n++) {
        CHECK(n < TOOL_ARGUMENTS, "%d arguments", n);
        copy[n + 1] = strdup(arguments[n]);
        whole = whole && copy[n + 1] != NULL;
    }
    int rc = whole ? begin(t, err) : FAIL(err, ERR_NO_MEMORY, "no memory to start the trainer");
    if (rc == 0) {
        rc = run(&o, t, copy, err);
        pthread_mutex_lock(&t->lock);
        t->running--;
        pthread_mutex_unlock(&t->lock);
    }
    if (rc == 0) {
        *out = json_loadb(o.at, o.n, JSON_REJECT_DUPLICATES, NULL);
        rc = json_is_object(*out) ? 0 : FAIL(err, ERR_IO, "the trainer ended without an answer");
    }
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    free(o.at);
    for (int i = 0; i <= n; i++) {
        free(copy[i]);
    }
    return rc;
}
