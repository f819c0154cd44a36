/* test_caretaker.c - what is done beside requests: the audit file, old events. */
#include "server/caretaker.h"

#include <string.h>

#include "server/prune.h"
#include "tests/server.h"

static const struct identity ann = {.user_id = 1, .name = "ann", .token_id = "abcdefghij"};

static int run(struct tx *tx, void *sql, struct err *err)
{
    return db_run(tx->db, err, sql, "");
}

static void the_caretaker_writes_what_was_noted(void)
{
    struct store *s = open_store_with_job("caretaker", "job-aaaaaaaaaaaaaa");
    struct settings settings = {0};
    struct caretaker *c = NULL;
    char path[SETTING_TEXT + 16], *text = NULL;
    size_t size = 0;
    struct err err = {0};
    const struct audit_entry e = {&ann, "::1", "user_change", "bob", "ok"};
    const struct audit_entry refused = {&ann, "::1", "user_change", "eve", "permission_denied"};

    (void)snprintf(settings.data, sizeof settings.data, "%s", in_scratch("caretaker"));
    EXPECT(caretaker_open(&c, s, &settings, &err) == 0);
    caretaker_note(c, &refused, false);
    caretaker_note(c, &e, true);
    caretaker_close(c);
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", settings.data);
    EXPECT(io_read_file(&text, &size, path, 1 << 20, &err) == 0);
    EXPECT(text != NULL && strstr(text, "permission_denied") != NULL);
    EXPECT(text != NULL && strstr(text, "\"object\":\"bob\"") != NULL);
    free(text);
    store_close(s);
}

static int count_events(sqlite3 *db, void *argument, struct err *err)
{
    return db_integer(argument, 0, db, err, "SELECT COUNT(*) FROM events", "");
}

static int newest_pruned(sqlite3 *db, void *argument, struct err *err)
{
    return prune_newest(db, argument, err);
}

static int add_events(struct tx *tx, void *argument, struct err *err)
{
    const int64_t *job = argument;

    for (int i = 0; i < 1200; i++) {
        TRY(db_run(tx->db, err, "INSERT INTO events(job_seq, type, body) VALUES(?,'progress','{}')",
                   "i", *job));
    }
    return 0;
}

static void old_events_go_but_for_the_last_of_each_job(void)
{
    struct store *s = open_store_with_job("prune", "job-aaaaaaaaaaaaaa");
    struct err err = {0};
    char second[] = "job-bbbbbbbbbbbbbb";
    char end[] = "UPDATE jobs SET state='failed', finished_at=1000";
    char start[] = "UPDATE jobs SET state='running', finished_at=NULL WHERE seq=2";
    int64_t one = 1, two = 2, n = 0, removed = 0;

    EXPECT(store_write(s, add_job_row, second, &err) == 0);
    EXPECT(store_write(s, add_events, &one, &err) == 0);
    EXPECT(store_write(s, add_events, &two, &err) == 0);
    EXPECT(store_write(s, run, end, &err) == 0 && store_write(s, run, start, &err) == 0);
    EXPECT(prune_events(s, 1000, 100, &removed, &err) == 0 && removed == 0);
    EXPECT(store_read(s, newest_pruned, &n, &err) == 0 && n == 0);
    EXPECT(prune_events(s, 1001, 100, &removed, &err) == 0 && removed == 1100);
    EXPECT(store_read(s, count_events, &n, &err) == 0 && n == 1300);
    EXPECT(store_read(s, newest_pruned, &n, &err) == 0 && n == 1100);
    EXPECT(prune_events(s, 1001, 100, &removed, &err) == 0 && removed == 0);
    EXPECT(prune_events(s, 1001, 0, &removed, &err) == 0 && removed == 99); /* one stays */
    store_close(s);
}

int main(void)
{
    scratch_make();
    RUN(the_caretaker_writes_what_was_noted);
    RUN(old_events_go_but_for_the_last_of_each_job);
    scratch_remove();
    return tap_done();
}
