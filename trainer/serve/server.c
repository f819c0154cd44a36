/* server.c - a model behind a socket. */
#include "trainer/serve/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "trainer/base/clock.h"
#include "trainer/base/io.h"
#include "trainer/serve/client.h"
#include "trainer/serve/reply.h"

enum { CLIENTS_MAX = 256, BACKLOG = 64, SLEEP_MS = 1000, FIXED = 3 };

struct server {
    struct texts *texts;
    struct prompter *prompter;
    const struct server_options *o;
    int listener, signals; /* -1: none */
    struct client *clients[CLIENTS_MAX];
    int count;
    double asked; /* when something was last under way, in seconds */
    bool leaving;
};

static void stop_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
}

void server_block(void)
{
    sigset_t set;

    stop_signals(&set);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The address of a socket whose path may be longer than an address holds: by way of its folder, which
 * *dir keeps open. */
static int address_of(struct sockaddr_un *out, int *dir, const char *path, struct err *err)
{
    char folder[IO_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;

    if (slash == NULL) {
        (void)snprintf(folder, sizeof folder, ".");
    } else {
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path);
    }
    *dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dir < 0) {
        return FAIL(err, ERR_IO, "the folder of the socket %.200s can't be opened: %s", path,
                    strerror(errno));
    }
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", *dir, name);
    if (name[0] == '\0' || n >= (int)sizeof out->sun_path) {
        (void)close(*dir);
        return FAIL(err, ERR_BAD_REQUEST, "the name of the socket is empty or too long");
    }
    return 0;
}

/* Nobody answers at an address that exists. */
static bool is_dead(const struct sockaddr_un *a)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool dead =
        fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;

    if (fd >= 0) {
        (void)close(fd);
    }
    return dead;
}

static int listen_at(int *fd, const char *path, struct err *err)
{
    struct sockaddr_un a;
    int dir = -1, why = 0;

    TRY(address_of(&a, &dir, path, err));
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t mask = umask(0177);
    int rc = *fd < 0 ? -1 : bind(*fd, (const struct sockaddr *)&a, sizeof a);
    if (rc != 0 && errno == EADDRINUSE && is_dead(&a)) {
        (void)unlink(a.sun_path);
        rc = bind(*fd, (const struct sockaddr *)&a, sizeof a);
    }
    rc = rc == 0 ? listen(*fd, BACKLOG) : rc;
    why = errno;
    (void)umask(mask);
    (void)close(dir);
    if (rc == 0) {
        return 0;
    }
    return why == EADDRINUSE
               ? FAIL(err, ERR_BAD_STATE, "another process serves at %.200s", path)
               : FAIL(err, ERR_IO, "the socket %.200s can't be made: %s", path, strerror(why));
}

static void accept_clients(struct server *s)
{
    struct err err = {0};

    while (s->count < CLIENTS_MAX) {
        const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        if (client_open(&s->clients[s->count], fd, s->prompter, &err) != 0) {
            (void)close(fd);
            return;
        }
        client_say(s->clients[s->count++], reply_hello(s->texts, s->prompter));
    }
}

/* Take a request over, whatever becomes of it. */
static int add_request(struct server *s, struct client *c, struct serve_request *r, struct err *err)
{
    struct token_list prompt = {0};
    const struct job *j = NULL;

    if (texts_has(s->texts, &c->listener, r->id)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "id", "a request with this id is under way");
    }
    if (texts_jobs(s->texts) >= s->o->queue) {
        return FAIL(err, ERR_TOO_MANY, "%d requests wait or run already; try again later",
                    texts_jobs(s->texts));
    }
    if (!r->has_seed && getrandom(&r->sampling.seed, sizeof r->sampling.seed, 0) < 0) {
        r->sampling.seed = (uint64_t)(clock_seconds() * 1e9);
    }
    const int rc = prompter_make(s->prompter, &prompt, r, err);
    if (rc != 0) {
        token_list_free(&prompt);
        return rc;
    }
    TRY(texts_add(s->texts, &j, r, &prompt, &c->listener, err));
    client_say(c, reply_accepted(j));
    return 0;
}

static void take_line(struct server *s, struct client *c, const char *line, size_t bytes)
{
    struct serve_request r;
    struct err err = {0};
    char id[REQUEST_ID] = "";

    int rc = request_parse(&r, line, bytes, &err);
    (void)snprintf(id, sizeof id, "%s", r.id);
    if (rc == 0 && !r.cancel) {
        rc = add_request(s, c, &r, &err);
    } else if (rc == 0 && texts_cancel(s->texts, &c->listener, r.id) == 0) {
        rc = FAIL_PARAM(&err, ERR_NOT_FOUND, "cancel", "no such request is under way");
    } else if (rc == 0) {
        rc = FAIL(&err, ERR_INTERRUPTED, "the request was cancelled");
    }
    if (rc != 0) {
        client_say(c, reply_error(id, &err));
    }
    request_fini(&r);
}

static void take_lines(struct server *s, struct client *c)
{
    bool too_long = false;
    size_t bytes = 0;

    for (char *line = client_line(c, &bytes, &too_long); line != NULL;
         line = client_line(c, &bytes, &too_long)) {
        take_line(s, c, line, bytes);
        free(line);
    }
    if (too_long) {
        struct err err = {0};
        err_set(&err, ERR_TOO_LARGE, "a line is longer than %d bytes", REQUEST_LINE);
        client_say(c, reply_error("", &err));
        client_write(c);
        c->gone = true;
    }
}

/* Let go of clients that are gone, or have said and heard all. */
static void sweep_clients(struct server *s)
{
    const double now = clock_seconds();

    for (int i = s->count - 1; i >= 0; i--) {
        struct client *c = s->clients[i];
        const bool idle = c->ended && c->out_bytes == 0 && !texts_has(s->texts, &c->listener, NULL);
        const bool deaf = client_waits(c) && now - c->moved > (double)s->o->patience_seconds;
        if (c->gone || idle || deaf) {
            (void)texts_cancel(s->texts, &c->listener, NULL);
            client_close(c);
            s->clients[i] = s->clients[--s->count];
        }
    }
}

static void take_signal(struct server *s)
{
    struct signalfd_siginfo got;

    while (read(s->signals, &got, sizeof got) > 0) {
        s->leaving = true;
    }
}

/* Wait `ms` at most for news, and take them in. */
static void hear(struct server *s, int ms)
{
    struct pollfd wait[CLIENTS_MAX + FIXED] = {
        {.fd = s->signals, .events = POLLIN},
        {.fd = s->count < CLIENTS_MAX ? s->listener : -1, .events = POLLIN},
        {.fd = s->o->with_parent ? STDIN_FILENO : -1, .events = 0}};

    for (int i = 0; i < s->count; i++) {
        const struct client *c = s->clients[i];
        const short in = c->ended ? 0 : POLLIN, out = c->out_bytes > 0 ? POLLOUT : 0;
        wait[FIXED + i] = (struct pollfd){.fd = c->fd, .events = (short)(in | out)};
    }
    const nfds_t all = (nfds_t)FIXED + (nfds_t)s->count;

    if (poll(wait, all, ms) <= 0) {
        return;
    }
    take_signal(s);
    s->leaving = s->leaving || (wait[2].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    for (int i = 0; i < s->count; i++) {
        struct client *c = s->clients[i];
        const short news = wait[FIXED + i].revents;
        if ((news & POLLIN) != 0) {
            client_read(c);
            take_lines(s, c);
        }
        c->gone = c->gone || (news & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    }
    if ((wait[1].revents & POLLIN) != 0) {
        accept_clients(s);
    }
}

static void speak(struct server *s)
{
    for (int i = 0; i < s->count; i++) {
        client_write(s->clients[i]);
    }
}

static void serve_clients(struct server *s)
{
    bool busy = false;

    s->asked = clock_seconds();
    while (!s->leaving) {
        hear(s, busy ? 0 : SLEEP_MS);
        sweep_clients(s);
        busy = texts_step(s->texts);
        speak(s);
        const double now = clock_seconds();
        if (texts_jobs(s->texts) > 0) {
            s->asked = now;
        } else if (s->o->idle_seconds > 0 && now - s->asked >= (double)s->o->idle_seconds) {
            s->leaving = true;
        }
    }
}

/* Say so to everyone whose request ends with us. */
static void leave(struct server *s)
{
    struct err err = {0};

    err_set(&err, ERR_INTERRUPTED, "the model is leaving");
    for (int i = 0; i < s->count; i++) {
        if (texts_cancel(s->texts, &s->clients[i]->listener, NULL) > 0) {
            client_say(s->clients[i], reply_error("", &err));
        }
        client_write(s->clients[i]);
        client_close(s->clients[i]);
    }
}

int server_run(struct texts *x, struct prompter *p, const struct server_options *o, struct err *err)
{
    struct server *s = calloc(1, sizeof *s);
    sigset_t set;

    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to serve");
    }
    *s = (struct server){.texts = x, .prompter = p, .o = o, .listener = -1};
    server_block();
    stop_signals(&set);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = s->signals < 0 ? FAIL(err, ERR_IO, "no signals: %s", strerror(errno))
                            : listen_at(&s->listener, o->path, err);
    if (rc == 0) {
        serve_clients(s);
        (void)unlink(o->path);
        leave(s);
    }
    if (s->listener >= 0) {
        (void)close(s->listener);
    }
    if (s->signals >= 0) {
        (void)close(s->signals);
    }
    free(s);
    return rc;
}
