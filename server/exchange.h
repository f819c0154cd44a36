/* exchange.h - one request and its reply, from the first byte of the target to the last of the body. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include <microhttpd.h>

#include "server/line.h"
#include "server/route.h"
#include "server/workers.h"

/* What all exchanges share. */
struct exchange_host {
    struct app *app;
    struct workers *workers;
    const char *const *hosts; /* names of this server, ended by NULL */
};

struct exchange;

/* Begin with the raw target; NULL without memory. */
struct exchange *exchange_begin(const struct exchange_host *host, const char *target,
                                struct MHD_Connection *c);

/* libmicrohttpd's call: head complete, a piece of body, body complete, resumed. */
enum MHD_Result exchange_continue(struct exchange *x, const char *method, const char *version,
                                  const char *bytes, size_t *size);

/* The reply was sent or the client is gone. */
void exchange_end(struct exchange *x);

#endif
