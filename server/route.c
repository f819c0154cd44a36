/* route.c - the table of routes and small helpers of handlers. */
#include "server/route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "server/text.h"

const struct route routes[] = {
#define ROUTE(method, path, access, body, call, summary) \
    {METHOD_##method, path, ACCESS_##access, BODY_##body, handle_##call, #call, summary},
#include "server/routes.def"
};
const int route_count = sizeof routes / sizeof routes[0];

/* Compare the pattern with the segments; {placeholders} match any segment that is not empty. */
static bool matches(const char *pattern, const struct gate_request *in,
                    const char *param[ROUTE_PARAMS])
{
    int params = 0;

    for (int i = 0; i < in->segment_count; i++) {
        if (*pattern != '/') {
            return false;
        }
        pattern++;
        const size_t size = strcspn(pattern, "/");
        if (*pattern == '{') {
            if (in->segments[i][0] == '\0') {
                return false;
            }
            param[params++] = in->segments[i];
        } else if (strlen(in->segments[i]) != size ||
                   strncmp(in->segments[i], pattern, size) != 0) {
            return false;
        }
        pattern += size;
    }
    return *pattern == '\0';
}

const struct route *route_find(const struct gate_request *in, const char *param[ROUTE_PARAMS],
                               unsigned *allowed)
{
    const enum method wanted = in->method == METHOD_HEAD ? METHOD_GET : in->method;

    *allowed = 0;
    for (int i = 0; i < route_count; i++) {
        memset(param, 0, ROUTE_PARAMS * sizeof *param);
        if (matches(routes[i].path, in, param)) {
            if (routes[i].method == wanted) {
                return &routes[i];
            }
            *allowed |= 1U << routes[i].method;
            if (routes[i].method == METHOD_GET) {
                *allowed |= 1U << METHOD_HEAD;
            }
        }
    }
    return NULL;
}

void reply_add(struct reply *rp, const char *name, const char *fmt, ...)
{
    va_list ap;

    CHECK(rp->header_count < REPLY_HEADERS, "no room for the header %s", name);
    struct reply_header *h = &rp->headers[rp->header_count++];
    h->name = name;
    va_start(ap, fmt);
    (void)vsnprintf(h->value, sizeof h->value, fmt, ap);
    va_end(ap);
}

const char *request_header(const struct request *rq, const char *name)
{
    return gate_header(rq->headers, rq->header_count, name);
}

int request_number(const struct request *rq, const char *name, int64_t low, int64_t high,
                   int64_t preset, int64_t *out, struct err *err)
{
    const char *value = gate_query(rq->in, name);

    *out = preset;
    if (value != NULL && (!text_number(value, high, out) || *out < low)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, name, "%s must be a whole number from %lld to %lld",
                          name, (long long)low, (long long)high);
    }
    return 0;
}

int request_only(const struct request *rq, const char *const *known, struct err *err)
{
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach(rq->body, key, value)
    {
        int i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0) {
            i++;
        }
        if (known[i] == NULL) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, key, "there is no field \"%.40s\" here", key);
        }
    }
    return 0;
}
