/* talk.h - one request for an answer, between a client's connection and a model's process.
 *
 *   waits for a model -> asks it -> ready: what goes to the client is certain -> over
 *
 * Ready is, for a stream, when the model took the request (or takes long to load: then the stream begins
 * with comments), else when the answer is whole; a failure always. Each talk has a connection of its own
 * to the process: closing it ends the request there, and not reading from it makes the model wait.
 * The playground's thread owns talks; libmicrohttpd's threads and workers touch what the lock guards.
 */
#ifndef SERVER_TALK_H
#define SERVER_TALK_H

#include <pthread.h>
#include <sys/types.h>

#include "server/model_process.h"
#include "server/openai.h"
#include "server/route.h"

struct MHD_Connection;

/* All talks. */
struct talks {
    pthread_mutex_t lock;
    int kick;           /* eventfd: the thread has to look */
    struct talk *first; /* newest first                    */
    int count;
    bool shut;
};

struct talk {
    struct talk *next;
    struct talks *all;
    struct openai_ask ask; /* owned */
    char dir[MODEL_PATH];

    /* the playground's thread alone */
    struct openai_answer answer;
    struct model_process *on; /* NULL: none yet */
    int fd;                   /* to it; -1      */
    size_t sent, in_bytes, in_room;
    char *in; /* owned */
    bool accepted, retried;
    int64_t begun_ms, cut_ms; /* cut_ms: when the process closed the connection */

    /* guarded by the lock */
    struct MHD_Connection *c;
    int client; /* its descriptor; looked at only while the connection is suspended */
    void (*ready)(void *argument); /* the exchange waits to be told; NULL: it does not */
    void *argument;
    bool suspended, is_ready, settled, over, dropped;
    int rc;
    struct err err;
    char *out; /* owned; of the stream */
    size_t out_bytes, out_sent, out_room;
    int64_t said_ms;
};

/* A new talk with the model in a folder, one of at most `most`, of which a user has half (but one at least); *ask
 * is taken over, on failure freed. Errors: TOO_MANY, BUSY, NO_MEMORY. */
int talk_begin(struct talk **out, struct talks *all, struct openai_ask *ask, const char *dir,
               int64_t most, struct err *err);

/* Call `ready` once, from any thread, when talk_settle may be called; the connection is suspended. */
void talk_wait(struct talk *t, struct MHD_Connection *c, void (*ready)(void *), void *argument);

/* What goes to the client: an error; a body in rp, then *t is over and let go; or a stream, then t goes on. */
int talk_settle(struct talk *t, struct reply *rp, struct err *err);

/* libmicrohttpd's reader, and its end; the end is also for a talk that was never settled. */
ssize_t talk_read(void *talk, uint64_t position, char *out, size_t size);
void talk_end(void *talk);

/* End it with an error. Call with the lock held. */
void talk_interrupt(struct talk *t, const struct err *err);

/* For the playground's thread, without the lock. */
void talk_fail(struct talk *t, const struct err *err);
/* Send and receive what can be; true while more may come. False: the process closed the connection. */
bool talk_move(struct talk *t);
bool talk_wants_input(struct talk *t);
/* Look after the client: is it gone, has the stream been silent, does it begin late? */
void talk_look(struct talk *t);
void talk_hang_up(struct talk *t);
void talk_free(struct talk *t);

#endif
