/* serve.h - the server as a whole: opened, run until a signal, closed. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "server/settings.h"

#define HONE_VERSION "0.1.0"

/* Run until SIGTERM or SIGINT. Errors: those of the parts, before anything is served. */
int serve(struct settings *settings, struct err *err);

#endif
