/* send.h - a reply handed to libmicrohttpd. */
#ifndef SERVER_SEND_H
#define SERVER_SEND_H

#include <microhttpd.h>

#include "server/route.h"

/* Send what a handler left in rp, or, when err is not NULL, the error with rp's headers. Takes what rp
 * holds over. `close`: this is the connection's last. Returns the status sent, 0 when nothing could be. */
int send_reply(struct MHD_Connection *c, struct reply *rp, const struct err *err, const char *id,
               bool tls, bool close);

/* Free what rp holds; its headers stay. */
void reply_fini(struct reply *rp);

/* {"error": {...}} as text; the caller frees it. */
char *error_text(const struct err *err);

#endif
