/* store.h - the database: one thread writes, any thread reads.
 *
 * Writes are functions, queued and run in order by one thread; what is queued at once is committed at
 * once (a transaction each would cost an fsync each). Every function runs in its own savepoint: its
 * error undoes its own changes alone. store_write returns after the commit, so what it says is on disk.
 * Events announced inside a write are handed to one listener, in the order of their numbers, after the
 * commit. WAL, synchronous=FULL. A damaged database is refused by name, never made anew.
 */
#ifndef SERVER_STORE_H
#define SERVER_STORE_H

#include "server/db.h"

/* An event on its way to the streams. */
struct news {
    struct news *next;
    int64_t n;       /* number of the event              */
    int64_t user_id; /* owner of the job                 */
    bool is_private; /* the job is: not for others       */
    char job[24];    /* id of the job                    */
    char type[24];   /* word of protocol.def, or "job"   */
    char *body;      /* owned; JSON object on one line   */
    char *others;    /* owned; the same for those who may not change the job; NULL: as body */
};

struct store; /* open database with its threads and connections */

/* What a write sees: the connection and the list of news. */
struct tx {
    sqlite3 *db;
    struct news **tail; /* where the next piece of news is hung */
};

typedef int tx_work(struct tx *tx, void *argument, struct err *err);
typedef int db_work(sqlite3 *db, void *argument, struct err *err);
typedef void news_listener(void *listener, const struct news *first);

/* Open DIR/honed.db, migrate it (a copy of the older version stays beside it), check it and start the
 * writer. Errors: IO (damaged, newer than this program, not ours), DISK_FULL. */
int store_open(struct store **out, const char *dir, struct err *err);

/* Finish what is queued, stop the writer, close. NULL is allowed. */
void store_close(struct store *s);

/* Who hears news; called on the writer's thread. Set before the first write that has any. */
void store_listen(struct store *s, news_listener *call, void *listener);

/* Run `work` and wait for its commit. Not from inside a write. */
int store_write(struct store *s, tx_work *work, void *argument, struct err *err);

/* Run `work` some time later; errors are only logged. `argument` is freed with free(). */
void store_post(struct store *s, tx_work *work, void *argument);

/* Run `work` on a reading connection, inside one read transaction. Keep it short. */
int store_read(struct store *s, db_work *work, void *argument, struct err *err);

/* A random word made with the database; first part of every event id. */
const char *store_epoch(const struct store *s);

/* Hang a piece of news on the transaction. Takes its texts over. */
int tx_announce(struct tx *tx, const struct news *what, struct err *err);

#endif
