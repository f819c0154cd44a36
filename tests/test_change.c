/* test_change.c - fields of a job changed while it waits or runs: what follows, and what is refused. */
#include "server/change.h"

#include <stdio.h>
#include <string.h>

#include "tests/server.h"

enum { NOW = 1000000 };

static struct store *store;

struct asked {
    const char *state, *fields; /* of the job; {"priority": "low"} */
    const char *preempts;       /* what its request says of being preemptible */
    struct err err;
    int64_t time_limit_s, preemptible, warned; /* out: columns */
    char class[8], resolved[400];
};

/* A job of class normal with a limit of 600 s, of which it ran 100 s before and 200 s in this attempt. */
static int set_job(struct tx *tx, const struct asked *a, struct err *err)
{
    const bool runs = strcmp(a->state, "running") == 0;

    TRY(db_run(tx->db, err, "DELETE FROM attempts", ""));
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET state=?, class='normal', time_limit_s=600, ran_s=100, warned=1,"
               " preemptible=0, private=0, begin_at=0, name='old',"
               " resolved=json_object('preemptible', ?, 'time_limit_s', 600)",
               "ss", a->state, a->preempts));
    return db_run(tx->db, err,
                  "INSERT INTO attempts(job_seq, n, devices, device_count, started_at, ended_at)"
                  " VALUES(1,1,'cpu0',1,?,?)",
                  "ii", (int64_t)(NOW - 200), runs ? INT64_C(0) : (int64_t)NOW);
}

static int read_columns(struct tx *tx, struct asked *a, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, tx->db, err,
                 "SELECT time_limit_s, preemptible, warned, class, resolved FROM jobs", ""));
    TRY(db_next(q, &row, err));
    a->time_limit_s = sqlite3_column_int64(q, 0);
    a->preemptible = sqlite3_column_int64(q, 1);
    a->warned = sqlite3_column_int64(q, 2);
    (void)snprintf(a->class, sizeof a->class, "%s", db_text(q, 3));
    (void)snprintf(a->resolved, sizeof a->resolved, "%s", db_text(q, 4));
    sqlite3_finalize(q);
    return 0;
}

static int do_change(struct tx *tx, void *argument, struct err *err)
{
    static const struct settings settings = {.time_limit_s = 7200, .max_time_limit_s = 86400};
    static struct spec values;
    struct asked *a = argument;
    struct job_ref ref;
    json_t *fields = json_loads(a->fields, 0, NULL);
    json_t *request = json_pack("{s:s, s:s}", "training_file", "x", "model", "x");

    CHECK(fields != NULL && json_object_update(request, fields) == 0, "%s", a->fields);
    TRY(set_job(tx, a, err));
    TRY(db_run(tx->db, err, "UPDATE attempts SET ended_at=NULL WHERE ended_at=0", ""));
    TRY(job_find(tx->db, "job-aaaaaaaaaaaaaa", NULL, DEED_SEE_JOB, &ref, err));
    CHECK(spec_parse(&values, request, err) == 0, "%s", err->text);
    const struct job_change c = {
        .fields = fields, .values = &values, .settings = &settings, .now = NOW};
    (void)job_change(tx, &ref, &c, &a->err);
    json_decref(fields);
    json_decref(request);
    return read_columns(tx, a, err);
}

static struct asked change_of(const char *preempts, const char *state, const char *fields)
{
    struct asked a = {.state = state, .fields = fields, .preempts = preempts};
    struct err err = {0};

    CHECK(store_write(store, do_change, &a, &err) == 0, "%s", err.text);
    return a;
}

static struct asked change(const char *state, const char *fields)
{
    return change_of("auto", state, fields);
}

static void a_run_may_not_get_less_time_than_it_has_had(void)
{
    struct asked a = change("running", "{\"time_limit_s\":300}");

    EXPECT(a.err.code == ERR_BAD_SPEC && strcmp(a.err.param, "time_limit_s") == 0);
    EXPECT(strstr(a.err.text, " 300,") != NULL && strstr(a.err.text, " 300 seconds") != NULL);
    EXPECT(a.time_limit_s == 600);
    a = change("running", "{\"time_limit_s\":301}");
    EXPECT(a.err.code == 0 && a.time_limit_s == 301);
    a = change("queued", "{\"time_limit_s\":100}");
    EXPECT(a.err.code == ERR_BAD_SPEC);
    a = change("queued", "{\"time_limit_s\":101}");
    EXPECT(a.err.code == 0 && a.time_limit_s == 101);
    a = change("failed", "{\"time_limit_s\":60}");
    EXPECT(a.err.code == 0 && a.time_limit_s == 60);
}

static void the_ceiling_and_the_default_are_the_servers(void)
{
    struct asked a = change("running", "{\"time_limit_s\":86401}");

    EXPECT(a.err.code == ERR_BAD_SPEC && strstr(a.err.text, "86400") != NULL);
    a = change("running", "{\"time_limit_s\":86400}");
    EXPECT(a.err.code == 0 && a.time_limit_s == 86400);
    a = change("running", "{\"time_limit_s\":null}");
    EXPECT(a.err.code == 0 && a.time_limit_s == 7200);
    EXPECT(strstr(a.resolved, "\"time_limit_s\":7200") != NULL);
}

static void a_job_with_more_time_is_warned_again(void)
{
    EXPECT(change("running", "{\"time_limit_s\":700}").warned == 0);
    EXPECT(change("running", "{\"time_limit_s\":500}").warned == 1);
    EXPECT(change("running", "{\"name\":\"x\"}").warned == 1);
}

static void what_is_preemptible_by_itself_follows_the_priority(void)
{
    EXPECT(change("queued", "{\"priority\":\"low\"}").preemptible == 1);
    EXPECT(change("queued", "{\"priority\":\"idle\"}").preemptible == 1);
    EXPECT(change("queued", "{\"priority\":\"normal\"}").preemptible == 0);
    EXPECT(change("queued", "{\"preemptible\":\"yes\"}").preemptible == 1);
    const struct asked a = change("running", "{\"priority\":\"low\",\"preemptible\":\"no\"}");
    EXPECT(a.preemptible == 0 && strcmp(a.class, "low") == 0);
    EXPECT(strstr(a.resolved, "\"preemptible\":\"no\"") != NULL);
}

static void what_the_owner_said_of_being_preemptible_stays(void)
{
    EXPECT(change_of("no", "queued", "{\"priority\":\"low\"}").preemptible == 0);
    EXPECT(change_of("yes", "queued", "{\"name\":\"x\"}").preemptible == 1);
    EXPECT(change_of("yes", "queued", "{\"preemptible\":null}").preemptible == 0);
}

static void what_means_nothing_in_a_state_is_refused(void)
{
    static const struct {
        const char *state, *field, *value;
        bool may;
    } cases[] = {
        {"succeeded", "priority", "\"low\"", false},
        {"failed", "priority", "\"low\"", false},
        {"cancelled", "preemptible", "\"no\"", false},
        {"paused", "priority", "\"low\"", true},
        {"succeeded", "time_limit_s", "900", false},
        {"cancelled", "time_limit_s", "900", true},
        {"running", "begin_at", "5", false},
        {"starting", "begin_at", "5", false},
        {"queued", "begin_at", "5", true},
        {"paused", "begin_at", "5", true},
        {"stopping", "priority", "\"low\"", true},
        {"succeeded", "name", "\"x\"", true},
        {"failed", "visibility", "\"private\"", true},
    };
    char fields[64];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(fields, sizeof fields, "{\"%s\":%s}", cases[i].field, cases[i].value);
        const struct asked a = change(cases[i].state, fields);
        EXPECT(a.err.code == (cases[i].may ? 0 : ERR_BAD_STATE));
        EXPECT(cases[i].may || strcmp(a.err.param, cases[i].field) == 0);
    }
}

int main(void)
{
    scratch_make();
    store = open_store_with_job("change", "job-aaaaaaaaaaaaaa");
    RUN(a_run_may_not_get_less_time_than_it_has_had);
    RUN(the_ceiling_and_the_default_are_the_servers);
    RUN(a_job_with_more_time_is_warned_again);
    RUN(what_is_preemptible_by_itself_follows_the_priority);
    RUN(what_the_owner_said_of_being_preemptible_stays);
    RUN(what_means_nothing_in_a_state_is_refused);
    store_close(store);
    scratch_remove();
    return tap_done();
}
