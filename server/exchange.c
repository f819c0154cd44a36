/* exchange.c - one request and its reply. */
#include "server/exchange.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/audit_request.h"
#include "server/authorise.h"
#include "server/log.h"
#include "server/pages.h"
#include "server/rate.h"
#include "server/send.h"
#include "server/stream.h"
#include "server/talk.h"
#include "server/upload.h"

enum { SWALLOW_MAX = 1 << 20, PEER = INET6_ADDRSTRLEN };

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_WORK, PHASE_DONE, PHASE_ANSWERED };

struct exchange {
    struct task task; /* first: the worker finds the exchange by it */
    const struct exchange_host *host;
    struct MHD_Connection *c;
    struct line *line;
    char *target;
    char id[20];
    char peer[PEER];
    struct timespec started;
    enum phase phase;
    int header_count;
    bool too_many_headers, is_head;
    struct gate_header headers[GATE_HEADERS];
    struct gate_request in;
    struct request rq;
    struct identity who;
    char *body; /* what has arrived of a JSON body */
    size_t body_size, body_room;
    json_t *json;
    struct upload *upload;
    size_t swallowed; /* bytes of a body that was refused */
    struct reply reply;
    int status;
    int rc; /* of the request; err tells why when it is not 0 */
    struct err err;
};

struct exchange *exchange_begin(const struct exchange_host *host, const char *target,
                                struct MHD_Connection *c)
{
    struct exchange *x = calloc(1, sizeof *x);

    if (x == NULL) {
        return NULL;
    }
    x->host = host;
    x->c = c;
    x->reply.fd = -1;
    x->target = strdup(target);
    random_word(x->id, 16);
    clock_gettime(CLOCK_MONOTONIC, &x->started);
    if (x->target == NULL) {
        free(x);
        return NULL;
    }
    const union MHD_ConnectionInfo *context =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->line = context == NULL ? NULL : context->socket_context;
    return x;
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   size_t name_size, const char *value, size_t value_size)
{
    struct exchange *x = cls;

    (void)kind;
    if (x->header_count == GATE_HEADERS) {
        x->too_many_headers = true;
        return MHD_NO;
    }
    x->headers[x->header_count++] =
        (struct gate_header){name, value == NULL ? "" : value, name_size, value_size};
    return MHD_YES;
}

static void find_peer(struct exchange *x)
{
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(x->c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    if (address != NULL && address->client_addr->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address->client_addr, sizeof four);
        (void)inet_ntop(AF_INET, &four.sin_addr, x->peer, sizeof x->peer);
    } else if (address != NULL && address->client_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address->client_addr, sizeof six);
        (void)inet_ntop(AF_INET6, &six.sin6_addr, x->peer, sizeof x->peer);
    }
}

/* The proxy says for whom it asks: the last name of the list is its own word, the others are hearsay. */
static void find_peer_behind_proxy(struct exchange *x)
{
    const char *list = request_header(&x->rq, "X-Forwarded-For");
    struct in6_addr address;
    char name[PEER] = "";

    if (list == NULL) {
        return;
    }
    const char *comma = strrchr(list, ',');
    (void)snprintf(name, sizeof name, "%s",
                   comma == NULL ? list : comma + 1 + strspn(comma + 1, " \t"));
    if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1) {
        memcpy(x->peer, name, sizeof name);
    }
}

static int read_identity(sqlite3 *db, void *argument, struct err *err)
{
    struct exchange *x = argument;

    if (x->in.has_authorization || x->in.session[0] == '\0') {
        return auth_by_token(db, x->in.token, &x->who, err);
    }
    return auth_by_session(db, x->in.session, &x->who, err);
}

/* Whether the role of who asks allows the route; whose things it touches is the handler's to look at. */
static int check_role(const struct exchange *x, bool is_safe, struct err *err)
{
    const struct identity *who = &x->who;

    switch (x->rq.route->access) {
    case ACCESS_OPEN:
    case ACCESS_SELF: break;
    case ACCESS_MEMBER:
        return is_safe ? 0 : authorise(who, DEED_SUBMIT, who->user_id, false, "", err);
    case ACCESS_ADMIN: return authorise(who, DEED_MANAGE, who->user_id, false, "", err);
    }
    return 0;
}

/* Not more often than is good for the others. */
static int check_rate(struct exchange *x, struct err *err)
{
    const int64_t now = (int64_t)x->started.tv_sec * 1000 + x->started.tv_nsec / 1000000;
    const int64_t wait = rate_take(x->host->app->rate, &x->who, now);

    if (wait == 0) {
        return 0;
    }
    reply_add(&x->reply, "Retry-After", "%lld", (long long)(wait + 999) / 1000);
    return FAIL(err, ERR_TOO_MANY, "too many requests with this token; try again in %lld ms",
                (long long)wait);
}

/* Who asks, and may they? A session's unsafe request must come from our own page. */
static int check_access(struct exchange *x, struct err *err)
{
    const bool is_safe = x->in.method == METHOD_GET || x->in.method == METHOD_HEAD;

    if (!is_safe && x->in.foreign) {
        return FAIL(err, ERR_FORBIDDEN, "a page of another site may not do this");
    }
    if (x->rq.route->access == ACCESS_OPEN) {
        return 0;
    }
    TRY(store_read(x->host->app->store, read_identity, x, err));
    auth_note_use(x->host->app->store, &x->who);
    TRY(check_rate(x, err));
    if (!is_safe && x->who.csrf[0] != '\0') {
        const char *csrf = request_header(&x->rq, "X-CSRF-Token");
        if (csrf == NULL || strcmp(csrf, x->who.csrf) != 0) {
            return FAIL(err, ERR_FORBIDDEN,
                        "with a session this needs the header X-CSRF-Token (see GET /v1/me)");
        }
    }
    return check_role(x, is_safe, err);
}

/* Get ready for the body that the route takes. */
static int check_body(struct exchange *x, struct err *err)
{
    const bool takes_form = x->rq.route->call == handle_file_post;

    if (x->rq.route->body == BODY_RAW || takes_form) {
        if (takes_form && x->in.content != CONTENT_FORM) {
            return FAIL(err, ERR_WRONG_TYPE, "send the file as multipart/form-data, or with PUT");
        }
        return upload_begin(&x->upload, x->host->app->uploads, x->who.user_id, x->in.length,
                            takes_form ? x->c : NULL, err);
    }
    if (x->in.length > BODY_MAX) {
        return FAIL(err, ERR_TOO_LARGE, "the body is larger than %d bytes", BODY_MAX);
    }
    if (x->in.has_body && x->in.content != CONTENT_JSON) {
        return FAIL(err, ERR_WRONG_TYPE, "send a JSON body with Content-Type: application/json");
    }
    return 0;
}

static int find_route(struct exchange *x, struct err *err)
{
    unsigned allowed = 0;
    char list[64] = "";
    size_t used = 0;

    x->rq.route = route_find(&x->in, x->rq.param, &allowed);
    if (x->rq.route == NULL && allowed == 0) {
        x->rq.route = pages_route(x->host->app->pages, &x->in);
    }
    if (x->rq.route != NULL) {
        return 0;
    }
    for (int m = 0; m < METHOD_COUNT; m++) {
        if ((allowed >> m & 1U) != 0) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                                     method_word((enum method)m));
        }
    }
    if (allowed != 0) {
        reply_add(&x->reply, "Allow", "%s", list);
        return FAIL(err, ERR_NO_METHOD, "this address knows %s", list);
    }
    return FAIL(err, ERR_NOT_FOUND, "there is no such address");
}

/* The head is complete: all that can be refused before the body comes. */
static int take_head(struct exchange *x, const char *method, const char *version, struct err *err)
{
    (void)MHD_get_connection_values_n(x->c, MHD_HEADER_KIND, take_header, x);
    const struct gate_head head = {method,     x->target,       version,
                                   x->headers, x->header_count, x->too_many_headers};
    x->rq = (struct request){.app = x->host->app,
                             .in = &x->in,
                             .headers = x->headers,
                             .header_count = x->header_count,
                             .who = &x->who,
                             .peer = x->peer};
    find_peer(x);
    if (x->host->app->settings->behind_proxy) {
        find_peer_behind_proxy(x);
    }
    TRY(gate_check(&x->in, &head, x->host->hosts, err));
    x->is_head = x->in.method == METHOD_HEAD;
    TRY(find_route(x, err));
    TRY(check_access(x, err));
    return check_body(x, err);
}

static int keep_json(struct exchange *x, const char *bytes, size_t size, struct err *err)
{
    if (size > BODY_MAX - x->body_size) {
        return FAIL(err, ERR_TOO_LARGE, "the body is larger than %d bytes", BODY_MAX);
    }
    if (x->body_size + size > x->body_room) {
        const size_t room = (x->body_size + size) * 2;
        char *more = realloc(x->body, room);
        if (more == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for the body");
        }
        x->body = more;
        x->body_room = room;
    }
    memcpy(x->body + x->body_size, bytes, size);
    x->body_size += size;
    return 0;
}

/* A piece of body. What follows a failure is swallowed for a while, so that the reply can be read, and
 * then the connection is dropped: libmicrohttpd can't answer before the body's end. */
static enum MHD_Result take_body(struct exchange *x, const char *bytes, size_t size)
{
    line_body_moved(x->line, (int64_t)size);
    if (x->rc != 0) {
        x->swallowed += size;
        return x->swallowed > SWALLOW_MAX ? MHD_NO : MHD_YES;
    }
    x->rc = x->upload != NULL ? upload_take(x->upload, bytes, size, &x->err)
                              : keep_json(x, bytes, size, &x->err);
    return MHD_YES;
}

static int parse_body(struct exchange *x, struct err *err)
{
    json_error_t why;

    if (x->body_size == 0) {
        if (x->rq.route->body == BODY_JSON) {
            return FAIL(err, ERR_BAD_REQUEST, "the body must be a JSON object");
        }
        return 0;
    }
    x->json = json_loadb(x->body, x->body_size, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(x->json)) {
        return x->json != NULL
                   ? FAIL(err, ERR_BAD_REQUEST, "the body must be a JSON object")
                   : FAIL(err, ERR_BAD_REQUEST, "the body is not JSON: line %d column %d: %s",
                          why.line, why.column, why.text);
    }
    x->rq.body = x->json;
    x->rq.body_text = x->body;
    x->rq.body_size = x->body_size;
    return 0;
}

static void go_on(void *exchange)
{
    struct exchange *x = exchange;

    x->phase = PHASE_DONE;
    MHD_resume_connection(x->c);
}

/* What a talk came to. A stream goes on, anything else lets it go. */
static void settle_talk(struct exchange *x)
{
    struct talk *t = x->reply.talk;

    x->rc = talk_settle(t, &x->reply, &x->err);
    if (x->rc == 0 && x->reply.body != NULL) {
        x->reply.talk = NULL;
        talk_end(t);
    }
}

/* On a worker's thread: run the handler, then let libmicrohttpd go on. */
static void work(struct task *task)
{
    struct exchange *x = (struct exchange *)task;

    x->rq.upload = x->upload;
    x->rc = x->upload != NULL ? 0 : parse_body(x, &x->err);
    if (x->rc == 0) {
        x->reply.status = 200;
        x->rc = x->rq.route->call(&x->rq, &x->reply, &x->err);
        audit_request(&x->rq, &x->reply, x->rc, true);
    }
    if (x->rc == 0 && x->reply.talk != NULL) {
        talk_wait(x->reply.talk, x->c, go_on, x);
    } else {
        go_on(x);
    }
}

static enum MHD_Result answer(struct exchange *x, bool close)
{
    if (x->rc == 0 && x->reply.talk != NULL) {
        settle_talk(x);
    }
    if (x->rc == ERR_INTERNAL || x->rc == ERR_IO || x->rc == ERR_NO_MEMORY) {
        log_line("%s %s", x->id, x->err.text);
    }
    if (x->reply.stream != NULL && x->rc == 0) {
        stream_attach(x->reply.stream, x->c);
    }
    if (close && x->in.has_body) {
        line_linger(x->line);
    }
    x->phase = PHASE_ANSWERED;
    x->status =
        send_reply(x->c, &x->reply, x->rc == 0 ? NULL : &x->err, x->id, x->host->app->tls, close);
    return x->status != 0 ? MHD_YES : MHD_NO;
}

enum MHD_Result exchange_continue(struct exchange *x, const char *method, const char *version,
                                  const char *bytes, size_t *size)
{
    const size_t given = *size;

    switch (x->phase) {
    case PHASE_HEAD:
        line_body_is_due(x->line);
        x->phase = PHASE_BODY;
        x->rc = take_head(x, method, version, &x->err);
        if (x->rc != 0) {
            audit_request(&x->rq, &x->reply, x->rc, false);
        }
        return x->rc == 0 ? MHD_YES : answer(x, x->in.has_body || x->in.text == NULL);
    case PHASE_BODY:
        if (given > 0) {
            *size = 0;
            return take_body(x, bytes, given);
        }
        line_is_ours(x->line);
        if (x->rc != 0) {
            return answer(x, true);
        }
        x->phase = PHASE_WORK;
        x->task.run = work;
        MHD_suspend_connection(x->c);
        if (!workers_add(x->host->workers, &x->task)) {
            x->rc = FAIL(&x->err, ERR_BUSY, "the server is stopping");
            x->phase = PHASE_DONE;
            MHD_resume_connection(x->c);
        }
        return MHD_YES;
    case PHASE_DONE: return answer(x, false);
    case PHASE_WORK:
    case PHASE_ANSWERED: break;
    }
    return MHD_NO;
}

static void log_end(const struct exchange *x)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t ms = (int64_t)(now.tv_sec - x->started.tv_sec) * 1000 +
                       (now.tv_nsec - x->started.tv_nsec) / 1000000;
    const size_t path =
        strcspn(x->target, "?#"); /* what follows may be a secret put there by mistake */
    log_line("%s %s %s %.*s %d %lldms", x->id, x->peer[0] != '\0' ? x->peer : "-",
             x->rq.route != NULL ? method_word(x->in.method) : "-", (int)(path < 200 ? path : 200),
             x->target, x->status, (long long)ms);
}

void exchange_end(struct exchange *x)
{
    log_end(x);
    line_head_is_due(x->line);
    upload_free(x->upload);
    reply_fini(&x->reply);
    json_decref(x->json);
    gate_free(&x->in);
    free(x->body);
    free(x->target);
    free(x);
}
