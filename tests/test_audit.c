/* test_audit.c - the chain of the audit log, its file, and what is told of changes to either. */
#include "server/audit.h"

#include <string.h>
#include <sys/stat.h>

#include "server/audit_file.h"
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

/* When a row was written, and its hash. */
struct sealed {
    int64_t n, t;
    uint8_t hash[AUDIT_HASH];
};

static int read_seal(sqlite3 *db, void *argument, struct err *err)
{
    struct sealed *s = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err, "SELECT t, hash FROM audit WHERE n=?", "i", s->n));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row && sqlite3_column_bytes(q, 1) == AUDIT_HASH) {
        s->t = sqlite3_column_int64(q, 0);
        memcpy(s->hash, sqlite3_column_blob(q, 1), AUDIT_HASH);
    }
    sqlite3_finalize(q);
    return rc;
}

/* The second of two rows, the same one each time, behind `first`. */
static struct sealed seal_behind(const char *first)
{
    struct store *s = open_store(first);
    char one[32], two[] = "job-same";
    struct sealed seal = {.n = 2};
    struct err err = {0};

    (void)snprintf(one, sizeof one, "%s", first);
    EXPECT(store_write(s, add, one, &err) == 0 && store_write(s, add, two, &err) == 0);
    EXPECT(store_read(s, read_seal, &seal, &err) == 0);
    store_close(s);
    return seal;
}

static void a_hash_depends_on_all_that_was_before(void)
{
    char first[32], second[32];

    for (int i = 0; i < 20; i++) { /* until both are of one second */
        (void)snprintf(first, sizeof first, "first%d", i);
        (void)snprintf(second, sizeof second, "second%d", i);
        const struct sealed a = seal_behind(first), b = seal_behind(second);
        if (a.t == b.t) {
            EXPECT(memcmp(a.hash, b.hash, sizeof a.hash) != 0);
            return;
        }
    }
    EXPECT_UNREACHED("no two rows of one second");
}

static void what_stands_at_the_end_of_one_text_can_not_be_moved_to_the_next(void)
{
    struct store *s = open_store("moved");
    char object[] = "x0:y", change[] = "UPDATE audit SET object='x', result='y0:ok' WHERE n=1";
    struct err err = {0};

    EXPECT(store_write(s, add, object, &err) == 0 && first_bad(s) == 0);
    EXPECT(store_write(s, run, change, &err) == 0);
    EXPECT(first_bad(s) == 1);
    store_close(s);
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
    char dir[128];
    struct audit_file f;
    struct checked c = {.dir = dir};
    struct err err = {0};
    struct stat st;
    char path[256];

    (void)snprintf(dir, sizeof dir, "%s", in_scratch("file"));
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

int main(void)
{
    scratch_make();
    RUN(a_chain_that_nobody_touched_is_whole_and_goes_on_after_a_start);
    RUN(a_row_that_was_changed_or_removed_is_named);
    RUN(a_hash_depends_on_all_that_was_before);
    RUN(what_stands_at_the_end_of_one_text_can_not_be_moved_to_the_next);
    RUN(an_entry_that_is_undone_leaves_no_gap);
    RUN(the_file_follows_the_rows_and_is_for_the_owner_alone);
    RUN(a_torn_line_is_written_again_and_the_file_of_another_store_put_aside);
    RUN(what_is_not_plain_is_escaped_and_what_is_long_is_cut);
    scratch_remove();
    return tap_done();
}
