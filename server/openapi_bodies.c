/* openapi_bodies.c - what the bodies of requests look like. */
#include "server/openapi_bodies.h"

#include <string.h>

#include "trainer/spec.h"

/* An object with these properties and no others; takes them over. */
static json_t *closed(json_t *properties)
{
    return json_pack("{s:s, s:b, s:o}", "type", "object", "additionalProperties", 0, "properties",
                     properties);
}

static json_t *request_schema(void)
{
    return closed(spec_schema());
}

/* The fields of a request that PATCH changes. */
static json_t *change_schema(void)
{
    static const char *const fields[] = {"name",       "priority",    "time_limit_s",
                                         "visibility", "preemptible", "begin_at"};
    json_t *all = spec_schema(), *some = json_object();

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        (void)json_object_set(some, fields[i], json_object_get(all, fields[i]));
    }
    json_decref(all);
    return closed(some);
}

static json_t *clone_schema(void)
{
    return closed(json_pack("{s:o}", "changes", request_schema()));
}

static json_t *move_schema(void)
{
    return closed(json_pack("{s:{s:s}, s:{s:s}, s:{s:s, s:[ss]}}", "before", "type", "string",
                            "after", "type", "string", "to", "type", "string", "enum", "first",
                            "last"));
}

static json_t *array_schema(void)
{
    json_t *schema =
        closed(json_pack("{s:o, s:{s:s, s:{s:s, s:i}}, s:{s:s, s:i, s:i}, s:{s:s, s:i}}", "request",
                         request_schema(), "grid", "type", "object", "additionalProperties", "type",
                         "array", "minItems", 1, "max_running", "type", "integer", "minimum", 0,
                         "maximum", 1000, "name", "type", "string", "maxLength", 128));

    (void)json_object_set_new(schema, "required", json_pack("[ss]", "request", "grid"));
    return schema;
}

static json_t *array_change_schema(void)
{
    return closed(json_pack("{s:{s:s, s:i, s:i}}", "max_running", "type", "integer", "minimum", 0,
                            "maximum", 1000));
}

static json_t *reservation_schema(void)
{
    json_t *schema =
        closed(json_pack("{s:{s:s}, s:{s:s}, s:{s:[{s:s, s:{s:s}}, {s:s}]}, s:{s:s}, s:{s:s, s:i}}",
                         "from_at", "type", "integer", "to_at", "type", "integer", "devices",
                         "oneOf", "type", "array", "items", "type", "string", "const", "all",
                         "user", "type", "string", "note", "type", "string", "maxLength", 200));

    (void)json_object_set_new(schema, "required", json_pack("[ss]", "to_at", "devices"));
    return schema;
}

json_t *openapi_body(const char *route)
{
    static const struct {
        const char *route;
        json_t *(*make)(void);
    } bodies[] = {
        {"job_submit", request_schema},
        {"plan", request_schema},
        {"job_change", change_schema},
        {"job_clone", clone_schema},
        {"job_move", move_schema},
        {"array_new", array_schema},
        {"array_change", array_change_schema},
        {"reservation_new", reservation_schema},
    };

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        if (strcmp(bodies[i].route, route) == 0) {
            return bodies[i].make();
        }
    }
    return json_pack("{s:s}", "type", "object");
}
