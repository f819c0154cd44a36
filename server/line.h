/* line.h - open connections and the time each may take to say what it wants.
 *
 * libmicrohttpd closes a connection on which nothing moves. A client that sends a byte a second moves
 * for ever; here its head must be complete in time and its body must keep a least rate. When three quarters of
 * the connections are in use, each new one ends the one that has rested longest: idle clients can't keep
 * others out.
 */
#ifndef SERVER_LINE_H
#define SERVER_LINE_H

#include <stdint.h>

#include "trainer/base/err.h"

struct lines; /* all connections, and the thread that looks at them twice a second */
struct line;  /* one connection */

int lines_open(struct lines **out, int64_t header_ms, int64_t idle_ms, int64_t most,
               struct err *err);
void lines_close(struct lines *l);

/* A connection begins, on socket `fd`; NULL without memory. line_end before the socket is closed. */
struct line *line_begin(struct lines *l, int fd);
void line_end(struct line *line);

/* What the connection does from now on. Any of them may be called with NULL. */
void line_head_is_due(struct line *line); /* a request was answered, the next may come */
void line_body_is_due(struct line *line); /* the head is complete                      */
void line_body_moved(struct line *line, int64_t bytes);
void line_is_ours(struct line *line); /* the request is complete: it is our turn   */

/* The connection is about to be closed although the client still sends: a copy of its socket stays open for
 * a while and swallows that. Otherwise the reply would be lost with the reset that an unread byte causes. */
void line_linger(struct line *line);

/* Close the connections that wait for a next request: the server is stopping. */
void lines_close_idle(struct lines *l);

#endif
