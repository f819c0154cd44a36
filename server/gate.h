/* gate.h - the strict look at a request's head before anything else sees it.
 *
 * libmicrohttpd takes much that other servers in front of us would read in another way, and hands on
 * what no handler should see. What passes the gate has: a known method and version, one Host that is
 * ours, a path of decoded segments without "/", "\", NUL, "." or "..", one sort of body length, header
 * names made of token characters and values without control characters. Pure function, no I/O.
 */
#ifndef SERVER_GATE_H
#define SERVER_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum method {
    METHOD_GET,
    METHOD_HEAD,
    METHOD_POST,
    METHOD_PUT,
    METHOD_PATCH,
    METHOD_DELETE,
    METHOD_COUNT
};
enum content { CONTENT_NONE, CONTENT_JSON, CONTENT_FORM, CONTENT_OTHER }; /* Content-Type */

enum { GATE_HEADERS = 64, GATE_SEGMENTS = 8, GATE_QUERIES = 16, GATE_SECRET = 128 };

struct gate_header {
    const char *name, *value;
    size_t name_size, value_size;
};

/* The head as it came; all borrowed. */
struct gate_head {
    const char *method, *target, *version;
    const struct gate_header *headers;
    int header_count;
    bool too_many_headers; /* there are more than `headers` holds */
};

/* What it means. Pointers go into `text`, which is owned. */
struct gate_request {
    char *text;
    enum method method;
    int segment_count;
    const char *segments[GATE_SEGMENTS];
    int query_count;
    const char *query_keys[GATE_QUERIES], *query_values[GATE_QUERIES];
    int64_t length; /* of the body; -1 when the head does not say */
    bool has_body;
    enum content content;
    char token[GATE_SECRET];   /* behind "Bearer "; "" without                           */
    char session[GATE_SECRET]; /* cookie hone_session; "" without                        */
    bool has_authorization;    /* of whatever kind                                       */
    bool foreign;              /* a browser says that a page of another site is behind it */
};

/* `hosts`: names that are ours, without port, ended by NULL; numbers in the forms "127.0.0.1", "[::1]".
 * On failure *out needs no gate_free. Errors: BAD_REQUEST, WRONG_HOST, NEW_METHOD, BAD_VERSION,
 * BAD_EXPECT, WRONG_TYPE (Content-Encoding), NOT_FOUND (too many segments), UNAUTHORIZED (credentials
 * that can't be any), NO_MEMORY. */
int gate_check(struct gate_request *out, const struct gate_head *in, const char *const *hosts,
               struct err *err);
void gate_free(struct gate_request *r);

const char *method_word(enum method m);

/* Value of a query key; NULL when it is not there. */
const char *gate_query(const struct gate_request *r, const char *key);

/* The header of that name (any case); NULL when there is none. NUL-terminated. */
const char *gate_header(const struct gate_header *headers, int count, const char *name);

#endif
