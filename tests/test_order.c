/* test_order.c - moving a waiting job among its owner's own of the same class. */
#include "server/order.h"

#include <stdio.h>
#include <string.h>

#include "tests/server.h"

/* Jobs of ann: a b c d wait as normal ones between which x (low), y (running) and z (of bob) stand. */
static const struct {
    const char *id, *state, *class;
    int64_t user;
} rows[] = {
    {"job-a", "queued", "normal", 1}, {"job-x", "queued", "low", 1},
    {"job-b", "queued", "normal", 1}, {"job-y", "running", "normal", 1},
    {"job-c", "queued", "normal", 1}, {"job-z", "queued", "normal", 2},
    {"job-d", "queued", "normal", 1},
};

static struct store *store;

static int add_rows(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    TRY(db_run(tx->db, err, "DELETE FROM events", ""));
    TRY(db_run(tx->db, err, "DELETE FROM jobs", ""));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        TRY(db_run(tx->db, err,
                   "INSERT INTO jobs(id, user_id, name, state, class, request, resolved, inputs,"
                   " created_at, line) VALUES(?,?,'',?,?,'{}','{}','{}',1,?)",
                   "sissi", rows[i].id, rows[i].user, rows[i].state, rows[i].class,
                   (int64_t)(10 * i)));
    }
    return 0;
}

static int add_bob(struct tx *tx, void *unused, struct err *err)
{
    int64_t id = 0;

    (void)unused;
    return user_add(tx, "bob", ROLE_MEMBER, &id, err);
}

struct asked {
    const char *job, *other;
    enum order_place place;
};

static int do_move(struct tx *tx, void *argument, struct err *err)
{
    const struct asked *a = argument;
    struct job_ref job, other;

    TRY(job_find(tx->db, a->job, NULL, DEED_SEE_JOB, &job, err));
    if (a->other != NULL) {
        TRY(job_find(tx->db, a->other, NULL, DEED_SEE_JOB, &other, err));
    }
    return order_move(tx, &job, a->place, a->other != NULL ? &other : NULL, err);
}

static int read_order(sqlite3 *db, void *out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;
    char *text = out;

    TRY(db_query(&q, db, err,
                 "SELECT substr(id,5) FROM jobs WHERE class='normal' ORDER BY line, seq", ""));
    while (db_next(q, &row, err) == 0 && row) {
        *text++ = db_text(q, 0)[0];
    }
    *text = '\0';
    sqlite3_finalize(q);
    return 0;
}

/* The order of all normal ones after a move from the order of the rows; "" when it was refused. */
static const char *after(const char *job, enum order_place place, const char *other)
{
    static char order[16];
    struct asked a = {job, other, place};
    struct err err = {0};

    EXPECT(store_write(store, add_rows, NULL, &err) == 0);
    const int rc = store_write(store, do_move, &a, &err);
    EXPECT(store_read(store, read_order, order, &err) == 0);
    if (rc != 0) {
        EXPECT(err.code == ERR_BAD_STATE && err.text[0] != '\0');
        EXPECT(strcmp(order, "abyczd") == 0);
        return "";
    }
    return order;
}

static void a_job_goes_past_its_owners_own_and_nobody_elses(void)
{
    EXPECT(strcmp(after("job-d", ORDER_FIRST, NULL), "daybzc") == 0);
    EXPECT(strcmp(after("job-a", ORDER_LAST, NULL), "bcydza") == 0);
    EXPECT(strcmp(after("job-d", ORDER_BEFORE, "job-b"), "adybzc") == 0);
    EXPECT(strcmp(after("job-a", ORDER_BEFORE, "job-c"), "bayczd") == 0);
    EXPECT(strcmp(after("job-a", ORDER_AFTER, "job-c"), "bcyazd") == 0);
    EXPECT(strcmp(after("job-d", ORDER_AFTER, "job-a"), "adybzc") == 0);
    EXPECT(strcmp(after("job-z", ORDER_FIRST, NULL), "abyczd") == 0);
}

static void a_move_to_where_it_is_changes_nothing(void)
{
    EXPECT(strcmp(after("job-a", ORDER_FIRST, NULL), "abyczd") == 0);
    EXPECT(strcmp(after("job-d", ORDER_LAST, NULL), "abyczd") == 0);
    EXPECT(strcmp(after("job-b", ORDER_BEFORE, "job-c"), "abyczd") == 0);
    EXPECT(strcmp(after("job-b", ORDER_AFTER, "job-a"), "abyczd") == 0);
    EXPECT(strcmp(after("job-b", ORDER_BEFORE, "job-b"), "abyczd") == 0);
    EXPECT(strcmp(after("job-b", ORDER_AFTER, "job-b"), "abyczd") == 0);
}

static void refuses_places_among_others_and_jobs_that_do_not_wait(void)
{
    EXPECT(after("job-a", ORDER_BEFORE, "job-z")[0] == '\0');
    EXPECT(after("job-a", ORDER_AFTER, "job-x")[0] == '\0');
    EXPECT(after("job-a", ORDER_AFTER, "job-y")[0] == '\0');
    EXPECT(after("job-y", ORDER_FIRST, NULL)[0] == '\0');
}

int main(void)
{
    struct err err = {0};

    scratch_make();
    store = open_store_with_job("order", "job-start");
    CHECK(store_write(store, add_bob, NULL, &err) == 0, "%s", err.text);
    RUN(a_job_goes_past_its_owners_own_and_nobody_elses);
    RUN(a_move_to_where_it_is_changes_nothing);
    RUN(refuses_places_among_others_and_jobs_that_do_not_wait);
    store_close(store);
    scratch_remove();
    return tap_done();
}
