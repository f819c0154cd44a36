/* app.h - what the handlers share; made by main.c, in this order, and closed in the reverse. */
#ifndef SERVER_APP_H
#define SERVER_APP_H

#include "server/settings.h"
#include "server/store.h"

struct app {
    const struct settings *settings;
    const char *version;
    char url[320]; /* "http://127.0.0.1:8642", as an owner of this machine reaches it */
    bool tls;      /* we speak TLS ourselves                                          */
    bool secure;   /* clients come over TLS, ours or a proxy's                        */
    struct store *store;
    struct roots *roots;
    struct pages *pages;
    struct uploads *uploads;
    struct login_guard *guard;
    struct rate *rate;
    struct caretaker *caretaker;
    struct streams *streams;
    struct playground *playground;
    struct supervisor *supervisor;
    struct tools *tools;
    struct inventory *inventory;
    struct board *board;
};

#endif
