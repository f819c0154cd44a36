/* openapi_bodies.h - what the bodies of requests look like, for the OpenAPI document. */
#ifndef SERVER_OPENAPI_BODIES_H
#define SERVER_OPENAPI_BODIES_H

#include <jansson.h>

/* JSON schema of the body of the route whose handler has that name; {"type": "object"} where nothing more is
 * said. A new reference, NULL without memory. */
json_t *openapi_body(const char *route);

#endif
