/* test_audit.c - the chain of the audit log, its file, and what is told of changes to either. */
#include "server/audit.h"

#include <string.h>
#include <sys/stat.h>

#include "server/audit_file.h"
#include "server/caretaker.h"
#include "server/prune.h"
#include "server/rate.h"
#include "tests/server.h"

enum { ROWS = 20 };

static const struct identity ann = {.user_id = 1, .name = "ann", .token_id = "abcdefghij"};

static int add(struct tx *tx, void *object, struct err *err)
{
    const struct audit_entry e = {&ann, "127.0.0.1", "job_cancel", object, "ok"};

    return audit_add(tx, &e, err);
}

static int run(struct tx *tx, void *sql, struct err *err)
{
    return db_run(tx->db, err, sql, "");
}

struct checked {
    int64_t bad, rows;
    const char *dir;
};

static int check(sqlite3 *db, void *argument, struct err *err)
{
    struct checked *c = argument;

    return audit_check(db, &c->bad, &c->rows, err);
}

static int check_file(sqlite3 *db, void *argument, struct err *err)
{
    struct checked *c = argument;

    return audit_file_check(db, c->dir, &c->bad, err);
}

static struct store *open_store(const char *name)
{
    return open_store_with_job(name, "job-aaaaaaaaaaaaaa");
}

static void add_rows(struct store *s, int n)
{
    struct err err = {0};
    char object[32];

    for (int i = 0; i < n; i++) {
        (void)snprintf(object, sizeof object, "job-%d", i);
        EXPECT(store_write(s, add, object, &err) == 0);
    }
}

static int64_t first_bad(struct store *s)
{
    struct checked c = {0};
    struct err err = {0};

    EXPECT(store_read(s, check, &c, &err) == 0);
    return c.bad;
}

static void a_chain_that_nobody_touched_is_whole_and_goes_on_after_a_start(void)
{
    struct store *s = open_store("whole");
    struct checked c = {0};
    struct err err = {0};

    EXPECT(store_read(s, check, &c, &err) == 0 && c.bad == 0 && c.rows == 0);
    add_rows(s, ROWS);
    store_close(s);
    EXPECT(store_open(&s, in_scratch("whole"), &err) == 0);
    add_rows(s, ROWS);
    EXPECT(store_read(s, check, &c, &err) == 0 && c.bad == 0 && c.rows == 2 * (int64_t)ROWS);
    store_close(s);
}

static void a_row_that_was_changed_or_removed_is_named(void)
{
    static const struct {
        const char *sql;
        int64_t bad;
    } table[] = {
        {"UPDATE audit SET object='job-x' WHERE n=7", 7},
        {"UPDATE audit SET user='bob' WHERE n=1", 1},
        {"UPDATE audit SET token='' WHERE n=20", 20},
        {"UPDATE audit SET address='::1' WHERE n=3", 3},
        {"UPDATE audit SET action='job_pause' WHERE n=4", 4},
        {"UPDATE audit SET result='not_found' WHERE n=5", 5},
        {"UPDATE audit SET t=t+1 WHERE n=6", 6},
        {"UPDATE audit SET hash=zeroblob(32) WHERE n=8", 8},
        {"UPDATE audit SET hash=x'' WHERE n=8", 8},
        {"UPDATE audit SET object=object||char(0)||'x' WHERE n=9", 9},
        {"UPDATE audit SET object='ok', result=object WHERE n=10", 10},
        {"UPDATE audit SET user=user||token, token='' WHERE n=11", 11},
        {"DELETE FROM audit WHERE n=12", 12},
        {"DELETE FROM audit WHERE n=1", 1},
        {"DELETE FROM audit WHERE n>17", 18},
        {"DELETE FROM audit", 1},
        {"UPDATE audit SET n=n+100 WHERE n>=15", 15},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char name[32], *sql = strdup(table[i].sql);
        struct err err = {0};
        (void)snprintf(name, sizeof name, "changed%zu", i);
        struct store *s = open_store(name);
        add_rows(s, ROWS);
        EXPECT(first_bad(s) == 0);
        EXPECT(store_write(s, run, sql, &err) == 0);
        const int64_t bad = first_bad(s);
        if (bad != table[i].bad) {
            printf("# %s: %lld\n", table[i].sql, (long long)bad);
        }
        EXPECT(bad == table[i].bad);
        add_rows(s, 3); /* what comes later covers nothing up */
        EXPECT(first_bad(s) == table[i].bad);
        free(sql);
        store_close(s);
    }
}

static void an_entry_that_is_undone_leaves_no_gap(void)
{
    struct store *s = open_store("undone");
    struct err err = {0};
    char bad[] = "INSERT INTO audit(n) VALUES(5)";

    add_rows(s, 4);
    EXPECT(store_write(s, run, bad, &err) != 0);
    add_rows(s, 4);
    EXPECT(first_bad(s) == 0);
    store_close(s);
}

static char *read_lines(const char *dir)
{
    char path[256], *text = NULL;
    size_t size = 0;
    struct err err = {0};

    (void)snprintf(path, sizeof path, "%s/audit.jsonl", dir);
    return io_read_file(&text, &size, path, 1 << 20, &err) == 0 ? text : NULL;
}

static int count_lines(const char *text)
{
    int n = 0;

    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        n += *p == '\n';
    }
    return n;
}

static void the_file_follows_the_rows_and_is_for_the_owner_alone(void)
{
    struct store *s = open_store("file");
    const char *dir = strdup(in_scratch("file"));
    struct audit_file f;
    struct checked c = {.dir = dir};
    struct err err = {0};
    struct stat st;
    char path[256];

    add_rows(s, 600); /* more than a page */
    EXPECT(audit_file_open(&f, s, dir, &err) == 0);
    EXPECT(audit_file_follow(&f, s, &err) == 0 && audit_file_follow(&f, s, &err) == 0);
    audit_file_close(&f);
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", dir);
    EXPECT(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    add_rows(s, 5);
    EXPECT(audit_file_open(&f, s, dir, &err) == 0 && f.written == 600);
    EXPECT(audit_file_follow(&f, s, &err) == 0);
    audit_file_close(&f);
    char *text = read_lines(dir);
    EXPECT(count_lines(text) == 605);
    EXPECT(text != NULL && strstr(text, "\"user\":\"ann\",\"token\":\"abcdefghij\"") != NULL);
    EXPECT(store_read(s, check_file, &c, &err) == 0 && c.bad == 0);
    free(text);
    char change[] = "UPDATE audit SET hash=randomblob(32) WHERE n=77";
    EXPECT(store_write(s, run, change, &err) == 0);
    EXPECT(store_read(s, check_file, &c, &err) == 0 && c.bad == 77);
    store_close(s);
    free((void *)(uintptr_t)dir);
}

static void a_torn_line_is_written_again_and_the_file_of_another_store_put_aside(void)
{
    struct store *s = open_store("torn");
    char dir[128], path[256];
    struct audit_file f;
    struct checked c = {.dir = dir};
    struct err err = {0};

    (void)snprintf(dir, sizeof dir, "%s", in_scratch("torn"));
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", dir);
    add_rows(s, 3);
    EXPECT(audit_file_open(&f, s, dir, &err) == 0 && audit_file_follow(&f, s, &err) == 0);
    audit_file_close(&f);
    char *text = read_lines(dir);
    EXPECT(text != NULL && io_write_file(path, text, strlen(text) - 20, &err) == 0);
    free(text);
    EXPECT(audit_file_open(&f, s, dir, &err) == 0 && f.written == 2);
    EXPECT(audit_file_follow(&f, s, &err) == 0);
    audit_file_close(&f);
    text = read_lines(dir);
    EXPECT(count_lines(text) == 4);
    free(text);
    EXPECT(store_read(s, check_file, &c, &err) == 0 && c.bad == 0);
    store_close(s);

    s = open_store("other");
    EXPECT(audit_file_open(&f, s, dir, &err) == 0 && f.written == 0);
    EXPECT(read_lines(dir) == NULL);
    audit_file_close(&f);
    store_close(s);
}

static void what_is_not_plain_is_escaped_and_what_is_long_is_cut(void)
{
    struct store *s = open_store("escaped");
    char dir[128], object[2000];
    struct audit_file f;
    struct err err = {0};

    (void)snprintf(dir, sizeof dir, "%s", in_scratch("escaped"));
    memset(object, '\x1b', sizeof object);
    memcpy(object, "a\r\nb\"", 5);
    object[sizeof object - 1] = '\0';
    EXPECT(store_write(s, add, object, &err) == 0);
    EXPECT(audit_file_open(&f, s, dir, &err) == 0 && audit_file_follow(&f, s, &err) == 0);
    audit_file_close(&f);
    char *text = read_lines(dir);
    EXPECT(count_lines(text) == 1 && strlen(text) < 1000);
    EXPECT(text != NULL && strstr(text, "a\\\\x0d\\\\x0ab\\\"\\\\x1b") != NULL);
    EXPECT(text != NULL && strchr(text, '\x1b') == NULL);
    EXPECT(first_bad(s) == 0);
    free(text);
    store_close(s);
}

static void the_caretaker_writes_what_was_noted(void)
{
    struct store *s = open_store("caretaker");
    struct settings settings = {0};
    struct caretaker *c = NULL;
    struct err err = {0};
    const struct audit_entry e = {&ann, "::1", "user_change", "bob", "ok"};
    const struct audit_entry refused = {&ann, "::1", "user_change", "eve", "permission_denied"};

    (void)snprintf(settings.data, sizeof settings.data, "%s", in_scratch("caretaker"));
    EXPECT(caretaker_open(&c, s, &settings, &err) == 0);
    caretaker_note(c, &refused, false);
    caretaker_note(c, &e, true);
    caretaker_close(c);
    char *text = read_lines(settings.data);
    EXPECT(count_lines(text) == 2 && strstr(text, "permission_denied") != NULL);
    free(text);
    EXPECT(first_bad(s) == 0);
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
    struct store *s = open_store("prune");
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

static void a_token_has_a_burst_then_its_rate_and_others_have_theirs(void)
{
    const struct identity bob = {.user_id = 2, .token_id = "bbbbbbbbbb"};
    const struct identity session = {.user_id = 1, .session = {1, 2, 3}};
    struct rate *r = NULL;
    struct err err = {0};
    int passed = 0;

    EXPECT(rate_open(&r, 50, &err) == 0);
    for (int i = 0; i < 200; i++) {
        passed += rate_take(r, &ann, 1000) == 0;
    }
    EXPECT(passed == 100);
    EXPECT(rate_take(r, &ann, 1000) == 20);
    EXPECT(rate_take(r, &ann, 1019) == 1);
    EXPECT(rate_take(r, &ann, 1020) == 0 && rate_take(r, &ann, 1020) == 20);
    EXPECT(rate_take(r, &bob, 1020) == 0 && rate_take(r, &session, 1020) == 0);
    passed = 0;
    for (int64_t ms = 2000; ms < 12000; ms++) { /* ten seconds of a request each millisecond */
        passed += rate_take(r, &ann, ms) == 0;
    }
    EXPECT(passed >= 500 && passed <= 550);
    passed = 0;
    for (int i = 0; i < 200; i++) {
        passed += rate_take(r, &ann, INT64_MAX / 2) == 0;
    }
    EXPECT(passed == 100); /* a long rest gives no more than a burst */
    rate_close(r);
}

static void ten_thousand_tokens_fit_in_the_table_and_the_busy_one_stays_limited(void)
{
    struct rate *r = NULL;
    struct err err = {0};
    struct identity other = {.user_id = 2};
    int passed = 0;

    EXPECT(rate_open(&r, 1, &err) == 0);
    for (int i = 0; i < 10000; i++) {
        (void)snprintf(other.token_id, sizeof other.token_id, "t%09d", i);
        EXPECT(rate_take(r, &other, i) == 0);
        passed += rate_take(r, &ann, i) == 0;
    }
    EXPECT(passed <= 2 + 10); /* the burst, and one a second */
    rate_close(r);
}

int main(void)
{
    scratch_make();
    RUN(a_chain_that_nobody_touched_is_whole_and_goes_on_after_a_start);
    RUN(a_row_that_was_changed_or_removed_is_named);
    RUN(an_entry_that_is_undone_leaves_no_gap);
    RUN(the_file_follows_the_rows_and_is_for_the_owner_alone);
    RUN(a_torn_line_is_written_again_and_the_file_of_another_store_put_aside);
    RUN(what_is_not_plain_is_escaped_and_what_is_long_is_cut);
    RUN(the_caretaker_writes_what_was_noted);
    RUN(old_events_go_but_for_the_last_of_each_job);
    RUN(a_token_has_a_burst_then_its_rate_and_others_have_theirs);
    RUN(ten_thousand_tokens_fit_in_the_table_and_the_busy_one_stays_limited);
    scratch_remove();
    return tap_done();
}
