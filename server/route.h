/* route.h - routes.def as a table, what a handler gets and what it gives back.
 *
 * A handler runs on a worker's thread and may wait for the store or the disk. It sees parsed input and
 * returns a value or an error; it never touches libmicrohttpd, status codes of errors or bytes of JSON.
 */
#ifndef SERVER_ROUTE_H
#define SERVER_ROUTE_H

#include "server/app.h"
#include "server/auth.h"
#include "server/gate.h"

/* OPEN: anybody. SELF: every role, about oneself. MEMBER: every role looks, who may submit changes. ADMIN. */
enum access { ACCESS_OPEN, ACCESS_SELF, ACCESS_MEMBER, ACCESS_ADMIN };
enum body { BODY_NONE, BODY_JSON, BODY_RAW, BODY_ANY };
enum { ROUTE_PARAMS = 3, BODY_MAX = 1 << 20, REPLY_HEADERS = 12 };

struct upload;
struct stream;
struct talk;

/* All borrowed until the reply is sent. */
struct request {
    struct app *app;
    const struct route *route;
    const struct gate_request *in;
    const struct gate_header *headers;
    int header_count;
    const char
        *param[ROUTE_PARAMS];   /* what stands in place of {id}, {step}, {name}, in order        */
    const struct identity *who; /* user_id 0 on an open route                                    */
    json_t *body;               /* an object; NULL when there is none                            */
    const char *body_text;      /* as it came                                                    */
    size_t body_size;
    struct upload
        *upload;      /* a received file; NULL when the route takes none                         */
    const char *peer; /* the client's address                                                    */
};

struct reply_header {
    const char *name; /* a constant */
    char value[256];
};

/* One of body, text, fd, stream and talk at most. All owned by the reply. */
struct reply {
    int status; /* 200 unless the handler says otherwise */
    json_t *body;
    char *text;
    size_t text_size;
    bool text_is_borrowed; /* lives as long as the program */
    int fd;                /* -1 for none; send file_size bytes from file_offset on */
    int64_t file_offset, file_size;
    struct stream *stream;
    struct talk *talk; /* the answer comes later: talk.h */
    int header_count;
    struct reply_header headers[REPLY_HEADERS];
    char changed
        [128]; /* for the audit log, where the address does not say it: what was changed to what */
};

/* Returns 0 and fills rp, or fills err and returns its code; what rp holds is freed in both cases. */
typedef int handler(const struct request *rq, struct reply *rp, struct err *err);

struct route {
    enum method method;
    const char *path;
    enum access access;
    enum body body;
    handler *call;
    const char *name, *summary;
};

extern const struct route routes[];
extern const int route_count;

/* The route of a request, HEAD being GET; NULL when there is none, and `allowed` then has a bit for each
 * method that the address knows. */
const struct route *route_find(const struct gate_request *in, const char *param[ROUTE_PARAMS],
                               unsigned *allowed);

/* A header of the reply. CHECKs that there is room. */
void reply_add(struct reply *rp, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

const char *request_header(const struct request *rq, const char *name);

/* The query ?name=N as a number within [low, high]; `preset` when it is not given.
 * Errors: BAD_REQUEST with param. */
int request_number(const struct request *rq, const char *name, int64_t low, int64_t high,
                   int64_t preset, int64_t *out, struct err *err);

/* Refuse fields of the body that are not in `known` (ended by NULL): a request says only what is understood.
 * Errors: BAD_REQUEST with param. */
int request_only(const struct request *rq, const char *const *known, struct err *err);

#define ROUTE(method, path, access, body, call, summary) handler handle_##call;
#include "server/routes.def"

#endif
