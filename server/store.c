/* store.c - the writer's thread, the pool of readers, opening. */
#include "server/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "server/log.h"
#include "server/random.h"
#include "server/schema.h"

enum { READERS = 8 };

static const char pragmas[] =
    "PRAGMA foreign_keys=ON; PRAGMA busy_timeout=5000; PRAGMA trusted_schema=OFF;"
    "PRAGMA cell_size_check=ON; PRAGMA synchronous=FULL;"
    "PRAGMA journal_size_limit=67108864;";

/* A queued write. A waited-for one lies on its caller's stack. */
struct order {
    struct order *next;
    tx_work *work;
    void *argument;
    struct err *err; /* the caller's; NULL for a posted one, which is freed when done */
    int rc;
    bool done;
};

struct store {
    char path[4096];
    char epoch[16];
    sqlite3 *writer; /* the writer thread's alone after store_open */
    news_listener *listen;
    void *listener;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t queued, finished, reader_free;
    struct order *first, **last;
    bool closing;
    sqlite3 *idle[READERS];
    int idle_count;
};

int tx_announce(struct tx *tx, const struct news *what, struct err *err)
{
    struct news *item = malloc(sizeof *item);

    if (item == NULL || what->body == NULL) {
        free(item);
        free(what->body);
        free(what->others);
        return FAIL(err, ERR_NO_MEMORY, "no memory for an event");
    }
    *item = *what;
    item->next = NULL;
    *tx->tail = item;
    tx->tail = &item->next;
    return 0;
}

static void free_news(struct news *item)
{
    while (item != NULL) {
        struct news *next = item->next;
        free(item->body);
        free(item->others);
        free(item);
        item = next;
    }
}

/* Run one order in its savepoint; undo it and its news when it fails. */
static void run_order(struct store *s, struct tx *tx, struct order *o)
{
    struct err own = {0};
    struct err *err = o->err == NULL ? &own : o->err;
    struct news **mark = tx->tail;

    o->rc = db_script(s->writer, "SAVEPOINT one", err);
    if (o->rc == 0) {
        o->rc = o->work(tx, o->argument, err);
    }
    if (o->rc == 0) {
        o->rc = db_script(s->writer, "RELEASE one", err);
    }
    if (o->rc != 0) {
        free_news(*mark);
        *mark = NULL;
        tx->tail = mark;
        /* fails only when the whole transaction is gone already; then the commit fails too */
        (void)sqlite3_exec(s->writer, "ROLLBACK TO one; RELEASE one", NULL, NULL, NULL);
        if (o->err == NULL) {
            log_line("store: %s", own.text);
        }
    }
}

/* Run a list of orders in one transaction. When the commit fails, every order has failed. */
static void run_batch(struct store *s, struct order *first)
{
    struct news *news = NULL;
    struct tx tx = {.db = s->writer, .tail = &news};
    struct err why = {0};
    int rc = db_script(s->writer, "BEGIN IMMEDIATE", &why);

    for (struct order *o = first; o != NULL && rc == 0; o = o->next) {
        run_order(s, &tx, o);
    }
    if (rc == 0) {
        rc = db_script(s->writer, "COMMIT", &why);
    }
    if (rc != 0) {
        log_line("store: %s", why.text);
        (void)sqlite3_exec(s->writer, "ROLLBACK", NULL, NULL, NULL);
        for (struct order *o = first; o != NULL; o = o->next) {
            o->rc = rc;
            if (o->err != NULL) {
                *o->err = why;
            }
        }
    } else if (news != NULL && s->listen != NULL) {
        s->listen(s->listener, news);
    }
    free_news(news);
}

static void finish_batch(struct store *s, struct order *first)
{
    pthread_mutex_lock(&s->lock);
    while (first != NULL) {
        struct order *next = first->next; /* a waiting caller may be gone once done is set */
        if (first->err == NULL) {
            free(first->argument);
            free(first);
        } else {
            first->done = true;
        }
        first = next;
    }
    pthread_cond_broadcast(&s->finished);
    pthread_mutex_unlock(&s->lock);
}

static void *write_for_ever(void *argument)
{
    struct store *s = argument;

    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->first == NULL && !s->closing) {
            pthread_cond_wait(&s->queued, &s->lock);
        }
        struct order *batch = s->first;
        s->first = NULL;
        s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        if (batch == NULL) {
            return NULL;
        }
        run_batch(s, batch);
        finish_batch(s, batch);
    }
}

/* Call with the lock held. */
static void enqueue(struct store *s, struct order *o)
{
    CHECK(!s->closing, "write to a store that is closing");
    *s->last = o;
    s->last = &o->next;
    pthread_cond_signal(&s->queued);
}

int store_write(struct store *s, tx_work *work, void *argument, struct err *err)
{
    struct order o = {.work = work, .argument = argument, .err = err};

    CHECK(!pthread_equal(pthread_self(), s->thread), "a write inside a write");
    pthread_mutex_lock(&s->lock);
    enqueue(s, &o);
    while (!o.done) {
        pthread_cond_wait(&s->finished, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return o.rc;
}

void store_post(struct store *s, tx_work *work, void *argument)
{
    struct order *o = calloc(1, sizeof *o);

    if (o == NULL) {
        free(argument);
        return;
    }
    o->work = work;
    o->argument = argument;
    pthread_mutex_lock(&s->lock);
    enqueue(s, o);
    pthread_mutex_unlock(&s->lock);
}

int store_read(struct store *s, db_work *work, void *argument, struct err *err)
{
    pthread_mutex_lock(&s->lock);
    while (s->idle_count == 0) {
        pthread_cond_wait(&s->reader_free, &s->lock);
    }
    sqlite3 *db = s->idle[--s->idle_count];
    pthread_mutex_unlock(&s->lock);

    int rc = db_script(db, "BEGIN", err);
    if (rc == 0) {
        rc = work(db, argument, err);
        (void)sqlite3_exec(db, "COMMIT", NULL, NULL, NULL); /* nothing was written */
    }

    pthread_mutex_lock(&s->lock);
    s->idle[s->idle_count++] = db;
    pthread_cond_signal(&s->reader_free);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Keep a copy of the store as it was at version `from`, beside it. */
static int keep_copy(struct store *s, int from, struct err *err)
{
    char copy[4200];

    (void)snprintf(copy, sizeof copy, "%s.version%d", s->path, from);
    if (unlink(copy) == 0) {
        log_line("store: replacing an older copy %s", copy);
    }
    return db_run(s->writer, err, "VACUUM INTO ?", "s", copy);
}

static int migrate(struct store *s, struct err *err)
{
    char step_end[64];
    int64_t version = 0;

    TRY(db_integer(&version, 0, s->writer, err, "PRAGMA user_version", ""));
    if (version > schema_version) {
        return FAIL(err, ERR_IO,
                    "%s was written by a newer honed (its version is %d, this program knows %d)",
                    s->path, (int)version, schema_version);
    }
    if (version > 0 && version < schema_version) {
        TRY(keep_copy(s, (int)version, err));
    }
    if (version < schema_version) {
        /* tables that others refer to can be made anew only so; no effect inside a transaction */
        TRY(db_script(s->writer, "PRAGMA foreign_keys=OFF", err));
    }
    for (int v = (int)version; v < schema_version; v++) {
        (void)snprintf(step_end, sizeof step_end, "PRAGMA user_version=%d; COMMIT", v + 1);
        TRY(db_script(s->writer, "BEGIN IMMEDIATE", err));
        TRY(db_script(s->writer, schema_steps[v], err));
        TRY(db_script(s->writer, step_end, err));
    }
    return db_script(s->writer, "PRAGMA foreign_keys=ON", err);
}

static int check_whole(struct store *s, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, s->writer, err, "PRAGMA quick_check(1)", ""));
    int rc = db_next(q, &row, err);
    if (rc == 0 && (!row || strcmp(db_text(q, 0), "ok") != 0)) {
        rc = FAIL(
            err, ERR_IO,
            "the database %s is damaged (%.100s); put a copy in its place, or run `honed rebuild`",
            s->path, row ? db_text(q, 0) : "no answer");
    }
    sqlite3_finalize(q);
    return rc;
}

/* Make the epoch with the first opening, read it at all others. */
static int read_epoch(struct store *s, struct err *err)
{
    char fresh[sizeof s->epoch];
    sqlite3_stmt *q = NULL;
    bool row = false;

    random_word(fresh, 10);
    TRY(db_run(s->writer, err, "INSERT OR IGNORE INTO about(key, value) VALUES('epoch', ?)", "s",
               fresh));
    TRY(db_query(&q, s->writer, err, "SELECT value FROM about WHERE key='epoch'", ""));
    const int rc = db_next(q, &row, err);
    (void)snprintf(s->epoch, sizeof s->epoch, "%s", rc == 0 && row ? db_text(q, 0) : fresh);
    sqlite3_finalize(q);
    return rc;
}

static int open_connection(sqlite3 **out, const char *path, int flags, struct err *err)
{
    const int rc = sqlite3_open_v2(path, out, flags | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc != SQLITE_OK || *out == NULL) {
        return FAIL(err, ERR_IO, "cannot open the database %s: %s", path, sqlite3_errstr(rc));
    }
    return db_script(*out, pragmas, err);
}

static int open_files(struct store *s, struct err *err)
{
    TRY(open_connection(&s->writer, s->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    if (db_script(s->writer, "PRAGMA journal_mode=WAL", err) != 0) {
        return FAIL(err, ERR_IO, "%s can't be used as a database: %s", s->path,
                    sqlite3_errmsg(s->writer));
    }
    TRY(check_whole(s, err));
    TRY(migrate(s, err));
    TRY(read_epoch(s, err));
    for (int i = 0; i < READERS; i++) {
        TRY(open_connection(&s->idle[i], s->path, SQLITE_OPEN_READONLY, err));
        s->idle_count++;
    }
    return 0;
}

static void close_files(struct store *s)
{
    for (int i = 0; i < READERS; i++) {
        (void)sqlite3_close(s->idle[i]);
    }
    if (s->writer != NULL) {
        (void)sqlite3_exec(s->writer, "PRAGMA optimize", NULL, NULL, NULL);
        (void)sqlite3_close(s->writer);
    }
    free(s);
}

int store_open(struct store **out, const char *dir, struct err *err)
{
    struct store *s = calloc(1, sizeof *s);

    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the store");
    }
    (void)snprintf(s->path, sizeof s->path, "%s/honed.db", dir);
    s->last = &s->first;
    const int rc = open_files(s, err);
    if (rc != 0) {
        close_files(s);
        return rc;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->queued, NULL);
    pthread_cond_init(&s->finished, NULL);
    pthread_cond_init(&s->reader_free, NULL);
    if (pthread_create(&s->thread, NULL, write_for_ever, s) != 0) {
        close_files(s);
        return FAIL(err, ERR_NO_MEMORY, "no thread for the store");
    }
    *out = s;
    return 0;
}

void store_close(struct store *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->queued);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->queued);
    pthread_cond_destroy(&s->finished);
    pthread_cond_destroy(&s->reader_free);
    pthread_mutex_destroy(&s->lock);
    close_files(s);
}

void store_listen(struct store *s, news_listener *call, void *listener)
{
    s->listen = call;
    s->listener = listener;
}

const char *store_epoch(const struct store *s)
{
    return s->epoch;
}
