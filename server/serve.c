/* serve.c - the server as a whole.
 *
 * Threads, each with its owner:
 *    main             waits for signals (here)
 *    threads          libmicrohttpd's; move bytes (http.c)
 *    workers          run handlers (workers.c)
 *    store            the only writer of the database (store.c)
 *    inventory        reads the machine (inventory.c); at the first start another measures it
 *    cards            asks the driver of NVIDIA's cards, which may hang (cards.c)
 *    supervisor       decides what runs, and watches it (supervise.c)
 *    playground       starts models and asks them (playground.c)
 *    pulse            wakes event streams (stream.c)
 *    deadlines        ends slow connections (line.c)
 *    caretaker        writes the file of the audit log, removes what is old (caretaker.c)
 */
#include "server/serve.h"

#include <arpa/inet.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/account.h"
#include "server/app.h"
#include "server/board.h"
#include "server/caretaker.h"
#include "server/draft.h"
#include "server/guard.h"
#include "server/home.h"
#include "server/http.h"
#include "server/inventory.h"
#include "server/log.h"
#include "server/pages.h"
#include "server/playground.h"
#include "server/rate.h"
#include "server/roots.h"
#include "server/stream.h"
#include "server/supervise.h"
#include "server/tool.h"
#include "server/upload.h"

enum { DRAIN_MS = 2000 };

struct server {
    struct app app;
    struct workers *workers;
    struct http *http;
};

static bool is_loopback(const char *address)
{
    struct in_addr four;
    struct in6_addr six;

    if (inet_pton(AF_INET, address, &four) == 1) {
        return ntohl(four.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static int check_exposure(const struct settings *s, struct err *err)
{
    const bool has_cert = s->tls_cert[0] != '\0', has_key = s->tls_key[0] != '\0';

    if (has_cert != has_key) {
        return FAIL(err, ERR_BAD_REQUEST, "--tls-cert and --tls-key go together");
    }
    if (!is_loopback(s->listen) && !has_cert && !s->behind_proxy) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "listening on %s beyond this machine needs --tls-cert and --tls-key, or "
                    "--behind-proxy when a proxy adds TLS",
                    s->listen);
    }
    return 0;
}

/* Not before there are threads: they inherit what is blocked. */
static void prepare_process(sigset_t *stop)
{
    struct rlimit files;
    const struct rlimit none = {0, 0};

    (void)umask(077);
    (void)setrlimit(RLIMIT_CORE, &none); /* a core file would hold tokens */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    sigemptyset(stop);
    sigaddset(stop, SIGINT);
    sigaddset(stop, SIGTERM);
    sigaddset(stop, SIGHUP);
    pthread_sigmask(SIG_BLOCK, stop, NULL);
}

static int open_parts(struct server *v, struct settings *s, struct err *err)
{
    struct app *app = &v->app;

    TRY(store_open(&app->store, s->data, err));
    TRY(roots_open(&app->roots, s, err));
    TRY(pages_open(&app->pages, s->web, err));
    TRY(guard_open(&app->guard, err));
    TRY(rate_open(&app->rate, s->rate, err));
    TRY(caretaker_open(&app->caretaker, app->store, s, err));
    TRY(uploads_open(&app->uploads, s, app->store, err));
    TRY(draft_settle(app, err));
    TRY(tools_open(&app->tools, s->trainer, err));
    TRY(workers_open(&v->workers, (int)s->workers, err));
    TRY(streams_open(&app->streams, app->store, v->workers, (int)s->max_streams, err));
    store_listen(app->store, streams_publish, app->streams);
    TRY(inventory_open(&app->inventory, app, err));
    TRY(board_open(&app->board, inventory_machine(app->inventory), err));
    TRY(playground_open(&app->playground, app, err));
    TRY(http_open(&v->http, app, v->workers, err)); /* before runs: a taken port starts nothing */
    TRY(supervisor_open(&app->supervisor, app, err));
    return 0;
}

/* Where clients of this machine find us; also in DATA/honed.url. */
static int tell_address(struct server *v, struct err *err)
{
    const struct settings *s = v->app.settings;
    const bool any = strcmp(s->listen, "0.0.0.0") == 0 || strcmp(s->listen, "::") == 0;
    const char *host = any ? "127.0.0.1" : s->listen;
    char line[sizeof v->app.url + 1];

    (void)snprintf(v->app.url, sizeof v->app.url,
                   strchr(host, ':') != NULL ? "%s://[%.200s]:%d" : "%s://%.200s:%d",
                   v->app.tls ? "https" : "http", host, http_port(v->http));
    (void)snprintf(line, sizeof line, "%s\n", v->app.url);
    log_line("honed %s listens on %s, data in %s", v->app.version, v->app.url, s->data);
    TRY(account_welcome(v->app.store, s, v->app.url, err));
    return home_write(s, "honed.url", line, err); /* last: who waits for it finds the rest */
}

static void close_parts(struct server *v)
{
    struct app *app = &v->app;

    if (v->http != NULL) {
        http_quiesce(v->http);
        streams_shut(app->streams);
        playground_shut(app->playground);
        http_drain(v->http, DRAIN_MS);
        tools_stop(app->tools);
        workers_stop(v->workers);
        http_close(v->http);
    }
    supervisor_close(app->supervisor);
    playground_close(app->playground);
    workers_close(v->workers);
    if (app->store != NULL) {
        store_listen(app->store, NULL, NULL);
    }
    tools_close(app->tools);
    streams_close(app->streams);
    board_close(app->board);
    inventory_close(app->inventory);
    uploads_close(app->uploads);
    caretaker_close(app->caretaker);
    rate_close(app->rate);
    guard_close(app->guard);
    pages_close(app->pages);
    roots_close(app->roots);
    store_close(app->store);
}

int serve(struct settings *s, struct err *err)
{
    struct server v = {0};
    sigset_t stop;
    int got = 0;

    prepare_process(&stop);
    TRY(check_exposure(s, err));
    TRY(home_prepare(s, err));
    TRY(home_lock(s, err));
    home_remove(s, "honed.url"); /* of a honed that was killed */
    TRY(home_find_programs(s, err));
    v.app.settings = s;
    v.app.version = HONE_VERSION;
    v.app.tls = s->tls_cert[0] != '\0';
    v.app.secure = v.app.tls || s->behind_proxy;
    int rc = open_parts(&v, s, err);
    if (rc == 0) {
        rc = tell_address(&v, err);
    }
    while (rc == 0 && (sigwait(&stop, &got) != 0 || got == SIGHUP)) {
        log_line("settings are read at start only: restart honed to change them");
    }
    if (rc == 0) {
        log_line("stopping; runs go on");
    }
    close_parts(&v);
    home_remove(s, "honed.url");
    return rc;
}
