/* http.h - libmicrohttpd: from a socket to a handler and back.
 *
 *    socket -> head complete: gate, route, identity, limits -> body -> worker: handler -> reply
 *
 * Threads of libmicrohttpd only move bytes; a request whose handler runs is suspended. Whatever goes
 * wrong is answered in one shape: {"error": {"message", "type", "param", "code"}}.
 */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "server/app.h"
#include "server/workers.h"

struct http;

/* Bind the address and port of the settings. Errors: BAD_REQUEST (address, certificate), BAD_STATE (the
 * port is taken). */
int http_open(struct http **out, struct app *app, struct workers *workers, struct err *err);

/* The port in use; the one taken when the settings say 0. */
int http_port(const struct http *h);

/* Take no new connections. */
void http_quiesce(struct http *h);

/* Wait until no connection is open, `ms` at most. */
void http_drain(struct http *h, int ms);

/* Close all connections. No work may be under way: workers_stop comes before. NULL is allowed. */
void http_close(struct http *h);

#endif
