/* openapi.c - GET /openapi.json: routes.def and spec.def as an OpenAPI 3.1 document. */
#include <stdio.h>
#include <string.h>

#include "server/openapi_bodies.h"
#include "server/route.h"

enum { QUERIES = 8 };

/* Query parameters, by handler. */
static const struct {
    const char *route;
    const char *names[QUERIES];
} queries[] = {
    {"file_put", {"filename", "purpose"}},
    {"files_list", {"after", "limit", "order", "purpose"}},
    {"jobs_list", {"after", "limit", "order", "state", "mine", "owner"}},
    {"tokens_list", {"after", "limit", "order"}},
    {"audit_list", {"after", "limit", "order", "user", "action"}},
    {"users_list", {"after", "limit", "order"}},
    {"arrays_list", {"after", "limit", "order"}},
    {"reservations_list", {"after", "limit", "order"}},
    {"job_events", {"after", "limit", "order", "type"}},
    {"job_metrics", {"points", "from", "to"}},
    {"checkpoints_list", {"after", "limit", "order"}},
    {"stream", {"jobs", "topics", "lastEventId"}},
};

static json_t *parameter(const char *name, size_t size, const char *in, bool required)
{
    return json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", name, size, "in", in, "required",
                     required, "schema", "type", "string");
}

static json_t *parameters_of(const struct route *r)
{
    json_t *out = json_array();

    for (const char *p = strchr(r->path, '{'); p != NULL; p = strchr(p + 1, '{')) {
        json_array_append_new(out, parameter(p + 1, strcspn(p + 1, "}"), "path", true));
    }
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        for (int k = 0; strcmp(queries[i].route, r->name) == 0 && k < QUERIES; k++) {
            const char *name = queries[i].names[k];
            if (name != NULL) {
                json_array_append_new(out, parameter(name, strlen(name), "query", false));
            }
        }
    }
    return out;
}

static json_t *body_of(const struct route *r)
{
    if (r->body == BODY_RAW) {
        return json_pack("{s:b, s:{s:{}}}", "required", 1, "content", "application/octet-stream");
    }
    if (strcmp(r->name, "file_post") == 0) {
        return json_pack("{s:b, s:{s:{s:{s:s, s:{s:{s:s, s:s}, s:{s:s}}}}}}", "required", 1,
                         "content", "multipart/form-data", "schema", "type", "object", "properties",
                         "file", "type", "string", "format", "binary", "purpose", "type", "string");
    }
    return json_pack("{s:b, s:{s:{s:o}}}", "required", r->body == BODY_JSON, "content",
                     "application/json", "schema", openapi_body(r->name));
}

static json_t *operation(const struct route *r)
{
    json_t *out =
        json_pack("{s:s, s:s, s:o, s:{s:{s:s}, s:{s:s}}}", "operationId", r->name, "summary",
                  r->summary, "parameters", parameters_of(r), "responses", "2XX", "description",
                  r->summary, "default", "$ref", "#/components/responses/Error");

    if (r->body != BODY_NONE) {
        (void)json_object_set_new(out, "requestBody", body_of(r));
    }
    if (r->access == ACCESS_OPEN) {
        (void)json_object_set_new(out, "security", json_array());
    }
    return out;
}

static json_t *components(void)
{
    return json_pack(
        "{s:{s:{s:s, s:{s:{s:{s:s, s:{s:{s:s, s:{s:{s:s}, s:{s:s}, s:{s:[ss]}, s:{s:s}}}}}}}}},"
        " s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}}",
        "responses", "Error", "description", "what was wrong", "content", "application/json",
        "schema", "type", "object", "properties", "error", "type", "object", "properties",
        "message", "type", "string", "type", "type", "string", "param", "type", "string", "null",
        "code", "type", "string", "securitySchemes", "token", "type", "http", "scheme", "bearer",
        "session", "type", "apiKey", "in", "cookie", "name", "hone_session");
}

int handle_openapi(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const words[METHOD_COUNT] = {"get", "head",  "post",
                                                    "put", "patch", "delete"};
    json_t *paths = json_object();

    for (int i = 0; i < route_count; i++) {
        json_t *path = json_object_get(paths, routes[i].path);
        if (path == NULL) {
            path = json_object();
            (void)json_object_set_new(paths, routes[i].path, path);
        }
        (void)json_object_set_new(path, words[routes[i].method], operation(&routes[i]));
    }
    rp->body = json_pack("{s:s, s:{s:s, s:s}, s:[{s:[]}, {s:[]}], s:o, s:o}", "openapi", "3.1.0",
                         "info", "title", "Hone", "version", rq->app->version, "security", "token",
                         "session", "paths", paths, "components", components());
    return rp->body != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for the document");
}
