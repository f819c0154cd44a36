/* stream.h - server-sent events: what was stored, then what comes, to everyone who may see it.
 *
 * News arrives from the store, after its commit and in order, and goes into a ring that all streams
 * read. A stream is a cursor into the sequence of event numbers. While the ring has what comes next it
 * reads from there; when it has fallen behind the ring (or begins with an old Last-Event-ID) a worker
 * reads the store for it, a piece at a time. So nobody is skipped and a slow reader costs its cursor
 * alone. A waiting stream is a suspended connection; one thread wakes those that have something, ten
 * times a second at most (what came in between goes out together), and sends a comment every 15 s.
 */
#ifndef SERVER_STREAM_H
#define SERVER_STREAM_H

#include <sys/types.h>

#include "server/auth.h"
#include "server/workers.h"

enum { STREAM_JOBS = 32, STREAMS_ALL = 512 };

struct MHD_Connection;
struct streams;
struct stream;

/* What a stream is asked to show. */
struct stream_wish {
    struct identity who;
    int64_t after; /* number of the last event that the client has; -1 to begin with what comes */
    bool reset;    /* it has an id that is not of this store: say `reset` first                 */
    int job_count; /* 0: all that the user may see */
    char jobs[STREAM_JOBS][RANDOM_ID];
    uint32_t topics; /* bit per row of protocol.def; bit EVENT_COUNT for `job`; 0 for all */
};

int streams_open(struct streams **out, struct store *store, struct workers *workers, int per_user,
                 struct err *err);
/* End all streams and take no new ones; then wait until their connections are gone (http_close). */
void streams_shut(struct streams *s);
void streams_close(struct streams *s);

/* The store's listener. */
void streams_publish(void *streams, const struct news *first);

/* End the streams of a token or a session that is no more. */
void streams_revoke(struct streams *s, const struct identity *who);
/* End all streams of a user whose rights have changed: who may comes again and sees what he may now. */
void streams_revoke_user(struct streams *s, int64_t user_id);

/* A new stream. Errors: TOO_MANY, BUSY (shutting), NO_MEMORY. */
int stream_begin(struct stream **out, struct streams *s, const struct stream_wish *wish,
                 struct err *err);

/* Tell its connection, before the reply is queued. */
void stream_attach(struct stream *stream, struct MHD_Connection *c);

/* libmicrohttpd's reader and its end. */
ssize_t stream_read(void *stream, uint64_t position, char *out, size_t size);
void stream_end(void *stream);

#endif
