/* test_store.c - commits, savepoints, news, migrations, damage. */
#include "server/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/schema.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* Open a store in a folder of its own. */
static struct store *open_in(const char *dir)
{
    struct store *s = NULL;
    struct err err = {0};

    EXPECT(io_make_dir(dir, &err) == 0);
    EXPECT(store_open(&s, dir, &err) == 0);
    return s;
}

static int put_key(struct tx *tx, void *key, struct err *err)
{
    return db_run(tx->db, err, "INSERT INTO about(key, value) VALUES(?, 'x')", "s",
                  (const char *)key);
}

static int put_key_and_fail(struct tx *tx, void *key, struct err *err)
{
    TRY(put_key(tx, key, err));
    return FAIL(err, ERR_BAD_STATE, "changed my mind");
}

static int count_keys(sqlite3 *db, void *out, struct err *err)
{
    return db_integer(out, -1, db, err, "SELECT COUNT(*) FROM about WHERE key<>'epoch'", "");
}

static int64_t keys_in(struct store *s)
{
    int64_t n = -1;
    struct err err = {0};

    EXPECT(store_read(s, count_keys, &n, &err) == 0);
    return n;
}

static void an_error_undoes_its_own_changes_alone(void)
{
    struct store *s = open_in(in_scratch("undo"));
    struct err err = {0};
    char a[] = "a", b[] = "b";

    EXPECT(store_write(s, put_key, a, &err) == 0);
    EXPECT(store_write(s, put_key_and_fail, b, &err) == ERR_BAD_STATE);
    EXPECT(strcmp(err.text, "changed my mind") == 0);
    EXPECT(keys_in(s) == 1);
    EXPECT(store_write(s, put_key, a, &err) != 0); /* the key is there already */
    EXPECT(store_write(s, put_key, b, &err) == 0);
    EXPECT(keys_in(s) == 2);
    store_close(s);
}

enum { THREADS = 8, KEYS = 50 };

struct writer {
    struct store *store;
    int number, failed;
};

static void *write_many(void *argument)
{
    struct writer *w = argument;
    struct err err = {0};
    char key[32];

    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof key, "%d-%d", w->number, i);
        /* every fifth fails inside a batch that others share */
        const int rc = i % 5 == 4 ? store_write(w->store, put_key_and_fail, key, &err)
                                  : store_write(w->store, put_key, key, &err);
        w->failed += rc != 0;
    }
    return NULL;
}

static void many_threads_write_at_once(void)
{
    struct store *s = open_in(in_scratch("many"));
    struct writer writers[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.store = s, .number = i};
        EXPECT(pthread_create(&threads[i], NULL, write_many, &writers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(writers[i].failed == KEYS / 5);
    }
    EXPECT(keys_in(s) == (int64_t)THREADS * (KEYS - KEYS / 5));
    store_close(s);
}

/* Hears news. */
struct listener {
    int64_t last;
    int count, bad;
};

static void hear(void *listener, const struct news *first)
{
    struct listener *l = listener;

    for (; first != NULL; first = first->next) {
        l->bad += first->n != l->last + 1 || strcmp(first->type, "test") != 0;
        l->last = first->n;
        l->count++;
    }
}

static int tell(struct tx *tx, void *argument, struct err *err)
{
    const bool *fails = argument;
    struct news item = {.type = "test"};

    TRY(db_run(tx->db, err,
               "INSERT INTO users(name, role, created_at) VALUES(hex(randomblob(8)),"
               " 'member', 0)",
               ""));
    item.n = sqlite3_last_insert_rowid(tx->db);
    item.body = strdup("{}");
    TRY(tx_announce(tx, &item, err));
    return *fails ? FAIL(err, ERR_BAD_STATE, "told in vain") : 0;
}

static void news_comes_in_order_and_only_of_what_was_committed(void)
{
    struct store *s = open_in(in_scratch("news"));
    struct listener l = {0};
    struct err err = {0};
    bool yes = true, no = false;

    store_listen(s, hear, &l);
    for (int i = 0; i < 30; i++) {
        EXPECT((store_write(s, tell, i % 3 == 1 ? &yes : &no, &err) == 0) == (i % 3 != 1));
    }
    store_close(s);
    EXPECT(l.count == 20 && l.bad == 0);
}

static void posted_writes_are_done_before_closing(void)
{
    const char *dir = in_scratch("post");
    struct store *s = open_in(dir);
    char key[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        store_post(s, put_key, strdup(key));
    }
    store_close(s);
    s = open_in(dir);
    EXPECT(keys_in(s) == 100);
    store_close(s);
}

static void the_epoch_stays(void)
{
    const char *dir = in_scratch("epoch");
    char first[32];
    struct store *s = open_in(dir);

    (void)snprintf(first, sizeof first, "%s", store_epoch(s));
    EXPECT(strlen(first) == 10);
    store_close(s);
    s = open_in(dir);
    EXPECT(strcmp(first, store_epoch(s)) == 0);
    store_close(s);
    s = open_in(in_scratch("epoch2"));
    EXPECT(strcmp(first, store_epoch(s)) != 0);
    store_close(s);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;

    EXPECT(sqlite3_open(path, &db) == SQLITE_OK);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

static void a_newer_store_is_refused(void)
{
    const char *dir = in_scratch("newer");
    struct err err = {0};
    char path[IO_PATH_MAX];
    struct store *s = open_in(dir);

    store_close(s);
    (void)snprintf(path, sizeof path, "%s/honed.db", dir);
    run_sql(path, "PRAGMA user_version=9999");
    EXPECT(store_open(&s, dir, &err) == ERR_IO && strstr(err.text, "newer") != NULL);
    /* and was not touched */
    run_sql(path, "SELECT * FROM users; SELECT * FROM jobs");
}

static void damage_is_named_and_nothing_made_anew(void)
{
    const char *dir = in_scratch("damaged");
    struct err err = {0};
    char path[IO_PATH_MAX];
    struct store *s = open_in(dir);
    char *bytes = NULL;
    size_t size = 0;

    for (int i = 0; i < 200; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key %d", i);
        EXPECT(store_write(s, put_key, key, &err) == 0);
    }
    store_close(s);
    (void)snprintf(path, sizeof path, "%s/honed.db", dir);
    EXPECT(io_read_file(&bytes, &size, path, 1 << 26, &err) == 0);
    for (size_t i = 4096; i < size; i += 7) { /* the header stays whole */
        bytes[i] = (char)(i * 31 & 0x7f);
    }
    put_file(path, bytes, size);
    EXPECT(store_open(&s, dir, &err) == ERR_IO);
    EXPECT(strstr(err.text, path) != NULL || strstr(err.text, "malformed") != NULL);
    put_text(path, "this is no database, but it is long enough to be looked at as one");
    EXPECT(store_open(&s, dir, &err) == ERR_IO);
    free(bytes);
}

static void no_migration_left_a_step_out(void)
{
    EXPECT(schema_version >= 1);
    for (int i = 0; i < schema_version; i++) {
        EXPECT(schema_steps[i] != NULL && schema_steps[i][0] != '\0');
    }
}

int main(void)
{
    scratch_make();
    RUN(an_error_undoes_its_own_changes_alone);
    RUN(many_threads_write_at_once);
    RUN(news_comes_in_order_and_only_of_what_was_committed);
    RUN(posted_writes_are_done_before_closing);
    RUN(the_epoch_stays);
    RUN(a_newer_store_is_refused);
    RUN(damage_is_named_and_nothing_made_anew);
    RUN(no_migration_left_a_step_out);
    scratch_remove();
    return tap_done();
}
