/* server.h - a model behind a socket: lines of JSON in and out (request.h, reply.h).
 *
 * One thread: it reads what clients ask, runs a step of the batch, and writes what came of it, as long as
 * there is something to do; else it sleeps. A client that does not read stops its own texts only, and after
 * some time is let go; one that is gone ends them. It ends on SIGTERM or SIGINT, when nothing was asked for a while, or when standard
 * input ends, which is how it leaves with the process that started it.
 */
#ifndef TRAINER_SERVE_SERVER_H
#define TRAINER_SERVE_SERVER_H

#include "trainer/serve/prompt.h"
#include "trainer/serve/texts.h"

struct server_options {
    const char *path;         /* of the socket; made here, mode 0600, removed at the end          */
    int64_t idle_seconds;     /* 0: never                                                         */
    int64_t patience_seconds; /* a client that keeps texts waiting and does not read is let go    */
    int64_t queue;            /* requests that may wait or run                                    */
    bool with_parent;         /* end when standard input does                                     */
};

/* Serve until told to leave. Blocks SIGTERM, SIGINT, SIGPIPE in this process: call it, or at least
 * server_block, before there are threads. Errors: BAD_STATE (somebody serves there), IO, NO_MEMORY. */
int server_run(struct texts *x, struct prompter *p, const struct server_options *o,
               struct err *err);
void server_block(void);

#endif
