/* client.c - a connection of `hone-train serve`. */
#include "trainer/serve/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainer/base/clock.h"
#include "trainer/serve/reply.h"

enum { READ_BYTES = 64 << 10 };

static struct client *client_of(struct listener *l)
{
    return (struct client *)l;
}

static void put(struct listener *l, const struct job *j, const struct piece *p)
{
    struct client *c = client_of(l);

    client_say(c, reply_piece(c->prompter, j, p));
    if (j->ended == j->request.n) {
        client_say(c, reply_usage(j));
    }
}

static void fail(struct listener *l, const struct job *j, const struct err *err)
{
    client_say(client_of(l), reply_error(j->request.id, err));
}

static bool may_go(struct listener *l)
{
    return !client_waits(client_of(l));
}

int client_open(struct client **out, int fd, struct prompter *p, struct err *err)
{
    struct client *c = calloc(1, sizeof *c);

    if (c == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a client");
    }
    c->listener = (struct listener){.put = put, .fail = fail, .may_go = may_go};
    c->prompter = p;
    c->fd = fd;
    c->moved = clock_seconds();
    *out = c;
    return 0;
}

void client_close(struct client *c)
{
    (void)close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

bool client_waits(const struct client *c)
{
    return c->gone || c->out_bytes - c->out_sent > CLIENT_UNREAD;
}

/* Room for `more` bytes behind *used. */
static bool make_room(char **bytes, size_t *room, size_t used, size_t more)
{
    if (used + more > *room) {
        char *larger = realloc(*bytes, 2 * (used + more));
        if (larger == NULL) {
            return false;
        }
        *bytes = larger;
        *room = 2 * (used + more);
    }
    return true;
}

void client_read(struct client *c)
{
    while (!c->ended && !c->gone && c->in_bytes <= REQUEST_LINE) {
        if (!make_room(&c->in, &c->in_room, c->in_bytes, READ_BYTES)) {
            c->gone = true;
            return;
        }
        const ssize_t n = recv(c->fd, c->in + c->in_bytes, READ_BYTES, MSG_DONTWAIT);
        if (n > 0) {
            c->in_bytes += (size_t)n;
        } else if (n == 0) {
            c->ended = true;
        } else if (errno != EINTR) {
            c->gone = errno != EAGAIN;
            return;
        }
    }
}

char *client_line(struct client *c, size_t *bytes, bool *too_long)
{
    char *end = c->in_bytes == 0 ? NULL : memchr(c->in, '\n', c->in_bytes);

    *too_long = end == NULL && c->in_bytes > REQUEST_LINE;
    if (end == NULL) {
        return NULL;
    }
    *bytes = (size_t)(end - c->in);
    char *line = malloc(*bytes + 1);
    if (line == NULL) {
        c->gone = true;
        return NULL;
    }
    memcpy(line, c->in, *bytes);
    line[*bytes] = '\0';
    c->in_bytes -= *bytes + 1;
    memmove(c->in, end + 1, c->in_bytes);
    return line;
}

void client_say(struct client *c, char *line)
{
    const size_t n = line == NULL ? 0 : strlen(line);

    if (line == NULL || !make_room(&c->out, &c->out_room, c->out_bytes, n)) {
        c->gone = true;
    } else {
        memcpy(c->out + c->out_bytes, line, n);
        c->out_bytes += n;
    }
    free(line);
}

void client_write(struct client *c)
{
    while (!c->gone && c->out_sent < c->out_bytes) {
        const ssize_t n = send(c->fd, c->out + c->out_sent, c->out_bytes - c->out_sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) {
            c->moved = clock_seconds();
            c->out_sent += (size_t)n;
        } else if (errno != EINTR) {
            c->gone = errno != EAGAIN;
            break;
        }
    }
    if (c->out_sent == c->out_bytes) {
        c->out_sent = c->out_bytes = 0;
    }
}
