/* http.c - the listening daemon. */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/exchange.h"
#include "server/line.h"
#include "server/log.h"
#include "trainer/base/io.h"

enum { CONNECTION_MEMORY = 32 << 10, HOSTS = SETTING_LIST + 8, PEM_MAX = 1 << 20, BACKLOG = 128 };

struct http {
    struct MHD_Daemon *daemon;
    struct lines *lines;
    struct exchange_host host;
    const char *hosts[HOSTS];
    char own_host[SETTING_TEXT + 2];
    char *certificate, *key; /* owned; NULL without TLS */
    int port;
};

/* Leaves %-escapes as they are: the gate decodes them, once and after splitting. */
static size_t keep_escapes(void *cls, struct MHD_Connection *c, char *text)
{
    (void)cls;
    (void)c;
    return strlen(text);
}

static void *begin_request(void *cls, const char *target, struct MHD_Connection *c)
{
    const struct http *h = cls;

    return exchange_begin(&h->host, target, c);
}

static enum MHD_Result continue_request(void *cls, struct MHD_Connection *c, const char *url,
                                        const char *method, const char *version, const char *bytes,
                                        size_t *size, void **state)
{
    (void)cls;
    (void)c;
    (void)url; /* cut and decoded by the library; the exchange has the raw target */
    return *state == NULL ? MHD_NO : exchange_continue(*state, method, version, bytes, size);
}

static void end_request(void *cls, struct MHD_Connection *c, void **state,
                        enum MHD_RequestTerminationCode why)
{
    (void)cls;
    (void)c;
    (void)why;
    if (*state != NULL) {
        exchange_end(*state);
        *state = NULL;
    }
}

static void note_connection(void *cls, struct MHD_Connection *c, void **context,
                            enum MHD_ConnectionNotificationCode what)
{
    struct http *h = cls;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        line_end(*context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = fd == NULL ? NULL : line_begin(h->lines, fd->connect_fd);
}

__attribute__((format(printf, 2, 0))) static void log_library(void *cls, const char *fmt,
                                                              va_list ap)
{
    char text[300];

    (void)cls;
    (void)vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "Failed to send", 14) !=
        0) { /* a client that left: the usual end of a stream */
        log_line("microhttpd: %s", text);
    }
}

static void list_hosts(struct http *h, const struct settings *s)
{
    int n = 0;

    h->hosts[n++] = "localhost";
    h->hosts[n++] = "127.0.0.1";
    h->hosts[n++] = "[::1]";
    (void)snprintf(h->own_host, sizeof h->own_host, strchr(s->listen, ':') != NULL ? "[%s]" : "%s",
                   s->listen);
    h->hosts[n++] = h->own_host;
    for (int i = 0; i < s->allowed_host.count; i++) {
        h->hosts[n++] = s->allowed_host.at[i];
    }
    h->hosts[n] = NULL;
}

/* The port that a socket is bound to. */
static int read_port(int fd, int *port, struct err *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    socklen_t size = sizeof bound;

    memset(&bound, 0, sizeof bound);
    if (getsockname(fd, &bound.any, &size) != 0) {
        return FAIL(err, ERR_IO, "no address: %s", strerror(errno));
    }
    *port = ntohs(bound.any.sa_family == AF_INET6 ? bound.six.sin6_port : bound.four.sin_port);
    return 0;
}

/* A listening socket of our own, so that a taken port is told from other failures. */
static int listen_on(const struct settings *s, int *port, int *fd, struct err *err)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *where = NULL;
    char service[16];
    const int yes = 1;
    int rc = 0;

    (void)snprintf(service, sizeof service, "%d", (int)s->port);
    if (getaddrinfo(s->listen, service, &hints, &where) != 0) {
        return FAIL(err, ERR_BAD_REQUEST, "--listen wants an address in numbers, not \"%.100s\"",
                    s->listen);
    }
    *fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
        rc = FAIL(err, ERR_IO, "no socket: %s", strerror(errno));
    } else if (bind(*fd, where->ai_addr, where->ai_addrlen) != 0 || listen(*fd, BACKLOG) != 0) {
        const int why = errno;
        rc = why == EADDRINUSE
                 ? FAIL(err, ERR_BAD_STATE,
                        "port %s of %s is taken, perhaps by another honed; choose one with --port",
                        service, s->listen)
                 : FAIL(err, ERR_BAD_REQUEST, "honed can't listen on %s port %s: %s", s->listen,
                        service, strerror(why));
    }
    freeaddrinfo(where);
    if (rc == 0) {
        rc = read_port(*fd, port, err);
    }
    if (rc != 0 && *fd >= 0) {
        (void)close(*fd);
    }
    return rc;
}

static int read_pem(char **out, const char *path, struct err *err)
{
    size_t size = 0;

    return io_read_file(out, &size, path, PEM_MAX, err);
}

static int start(struct http *h, const struct settings *s, int fd, struct err *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, h->certificate},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, h->key},
                                   {MHD_OPTION_END, 0, NULL}};

    if (h->certificate == NULL) {
        tls[0].option = MHD_OPTION_END;
    } else {
        flags |= MHD_USE_TLS;
    }
    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, continue_request, h, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)s->threads,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)s->idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_URI_LOG_CALLBACK,
        begin_request, h, MHD_OPTION_NOTIFY_COMPLETED, end_request, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, h, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (h->daemon == NULL) {
        (void)close(fd);
        return FAIL(err, ERR_BAD_REQUEST, "the HTTP server does not start%s",
                    h->certificate == NULL ? "" : "; are the certificate and its key right?");
    }
    return 0;
}

int http_open(struct http **out, struct app *app, struct workers *workers, struct err *err)
{
    const struct settings *s = app->settings;
    struct http *h = calloc(1, sizeof *h);
    int fd = -1;

    if (h == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the HTTP server");
    }
    h->host = (struct exchange_host){.app = app, .workers = workers, .hosts = h->hosts};
    list_hosts(h, s);
    int rc = lines_open(&h->lines, s->header_seconds * 1000, s->idle_seconds * 1000,
                        s->max_connections, err);
    if (rc == 0 && s->tls_cert[0] != '\0') {
        rc = read_pem(&h->certificate, s->tls_cert, err);
    }
    if (rc == 0 && s->tls_cert[0] != '\0') {
        rc = read_pem(&h->key, s->tls_key, err);
    }
    if (rc == 0) {
        rc = listen_on(s, &h->port, &fd, err);
    }
    if (rc == 0) {
        rc = start(h, s, fd, err);
    }
    if (rc != 0) {
        http_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_quiesce(struct http *h)
{
    const int fd = MHD_quiesce_daemon(h->daemon);

    if (fd >= 0) {
        (void)close(fd);
    }
}

static bool is_idle(const struct http *h)
{
    const union MHD_DaemonInfo *now =
        MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    return now == NULL || now->num_connections == 0;
}

void http_drain(struct http *h, int ms)
{
    for (int waited = 0; waited < ms && !is_idle(h); waited += 20) {
        lines_close_idle(h->lines);
        (void)usleep(20000);
    }
}

void http_close(struct http *h)
{
    if (h == NULL) {
        return;
    }
    if (h->daemon != NULL) {
        MHD_stop_daemon(h->daemon);
    }
    lines_close(h->lines);
    free(h->certificate);
    free(h->key);
    free(h);
}
