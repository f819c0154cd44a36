/* http.h - requests to one server: JSON calls, streamed uploads, downloads and event streams.
 *
 * The token travels in a header made in this process; it is in no address and no other process's
 * arguments. Redirects are not followed, so it never goes to another host. A request whose answer says
 * {"error": ...} fails with the server's own sentence and the error code of its word.
 */
#ifndef SERVER_CLI_HTTP_H
#define SERVER_CLI_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

struct http;

/* `token` may be "". Both are copied. Errors: NO_MEMORY. */
int http_new(struct http **out, const char *url, const char *token, struct err *err);
void http_free(struct http *h);

/* Bytes of a good answer's body, as they come; false ends the request with ERR_INTERRUPTED. */
typedef bool (*http_sink)(void *self, const char *bytes, size_t count);

struct http_request {
    const char *method; /* "GET", "POST", ...                                               */
    const char *path;   /* encoded, begins with "/"                                         */
    const char *header; /* one more "Name: value", or NULL                                  */
    const char *header2;

    json_t *json; /* body; borrowed; NULL for none                                    */

    /* Or the body as a stream: `read` fills at most `room` bytes, returns how many, 0 at the end and
     * SIZE_MAX to give up. `bytes` is the length, -1 when it is not known. */
    size_t (*read)(void *self, char *out, size_t room);
    int64_t bytes;

    http_sink sink; /* NULL: the body goes to http_reply.body                 */
    bool (*opened)(void *self,
                   long status); /* a good answer's headers are there; false ends it; may be NULL */
    bool (*tick)(void *self,
                 int64_t sent); /* about once a second and on signals; false ends it; may be NULL */
    void *self;

    int quiet_s; /* give up when nothing came for so long; 0 is never */
};

struct http_reply {
    long status; /* 0 when there was no answer */
    char *body;  /* owned, ends with NUL       */
    size_t bytes;
    char etag[160]; /* with its quotes; "" when none */
    int64_t length; /* Content-Length; -1 when none  */
};

/* Send and wait for the end of the answer. *out is set in every case and needs http_reply_fini.
 * Errors: those of the answer; IO (no server, connection lost), INTERRUPTED (a callback said stop),
 * TIMED_OUT (quiet_s), TOO_LARGE (a body over 64 MiB without a sink), NO_MEMORY. */
int http_send(struct http *h, const struct http_request *request, struct http_reply *out,
              struct err *err);
void http_reply_fini(struct http_reply *r);

/* Send; parse the answer, an object. *json is a new reference; *text, when not NULL, the body as it came (the
 * caller frees it). Errors: as http_send; IO when the answer is no JSON object. */
int http_call(struct http *h, const char *method, const char *path, json_t *body, json_t **json,
              char **text, struct err *err);

/* Whether the address (with its scheme) means this machine. */
bool http_is_loopback(const char *url);

/* Whether the failure is worth another try: the connection, not the answer, went wrong. */
bool http_may_retry(const struct http_reply *r, int rc);

#endif
