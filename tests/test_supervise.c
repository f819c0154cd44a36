/* test_supervise.c - the supervisor with a store, a machine file and fake trainers: limits of time, silence, what is left
 * behind, starts of honed.
 */
#include "server/supervise.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "server/board.h"
#include "server/inventory.h"
#include "server/playground.h"
#include "tests/server.h"
#include "trainer/protocol.h"

enum { WAIT_MS = 60000 };

static char trainer[512];

/* A server without its HTTP. */
struct lab {
    struct settings settings;
    struct app app;
};

static void open_parts(struct lab *l)
{
    struct err err = {0};

    l->app = (struct app){.settings = &l->settings, .version = "test"};
    CHECK(store_open(&l->app.store, l->settings.data, &err) == 0 &&
              inventory_open(&l->app.inventory, &l->app, &err) == 0 &&
              board_open(&l->app.board, inventory_machine(l->app.inventory), &err) == 0 &&
              playground_open(&l->app.playground, &l->app, &err) == 0 &&
              supervisor_open(&l->app.supervisor, &l->app, &err) == 0,
          "%s", err.text);
}

static void close_parts(struct lab *l)
{
    supervisor_close(l->app.supervisor);
    playground_close(l->app.playground);
    board_close(l->app.board);
    inventory_close(l->app.inventory);
    store_close(l->app.store);
}

/* Say that the machine has so many GPUs of 8 GiB, with so much in use on each. */
static void describe(const struct lab *l, int devices, int used_gib)
{
    char text[2000] = "{\"devices\":[", aside[SETTING_TEXT + 8];

    for (int i = 0; i < devices; i++) {
        const size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n,
                       "%s{\"id\":\"g%d\",\"kind\":\"gpu\",\"memory_bytes\":%lld,"
                       "\"used_bytes\":%lld,\"free_bytes\":%lld}",
                       i == 0 ? "" : ",", i, 8LL << 30, (long long)used_gib << 30,
                       (8LL - used_gib) << 30);
    }
    const size_t end = strlen(text);
    (void)snprintf(text + end, sizeof text - end, "]}");
    (void)snprintf(aside, sizeof aside, "%s.new", l->settings.machine);
    put_text(aside, text);
    CHECK(rename(aside, l->settings.machine) == 0, "rename %s", aside);
}

/* With `devices` GPUs that nobody has. */
static struct lab *open_lab(const char *name, int devices)
{
    struct lab *l = calloc(1, sizeof *l);
    struct err err = {0};
    int64_t user = 0;

    CHECK(l != NULL, "no memory");
    l->settings = (struct settings){.max_tries = 5,
                                    .grace_seconds = 20,
                                    .drain_s = 5,
                                    .serve_models = 1,
                                    .serve_requests = 1,
                                    .time_limit_s = 1000,
                                    .no_preemption = true};
    (void)snprintf(l->settings.data, sizeof l->settings.data, "%s", in_scratch(name));
    (void)snprintf(l->settings.trainer, sizeof l->settings.trainer, "%s", trainer);
    (void)snprintf(l->settings.machine, sizeof l->settings.machine, "%.900s/machine.json",
                   l->settings.data);
    CHECK(io_make_dir(l->settings.data, &err) == 0, "%s", err.text);
    char jobs[SETTING_TEXT + 8];
    (void)snprintf(jobs, sizeof jobs, "%s/jobs", l->settings.data);
    CHECK(io_make_dir(jobs, &err) == 0, "%s", err.text);
    describe(l, devices, 0);
    open_parts(l);
    CHECK(store_write(l->app.store, add_user_ann, &user, &err) == 0, "%s", err.text);
    return l;
}

static void close_lab(struct lab *l)
{
    close_parts(l);
    free(l);
}

struct row {
    const struct lab *lab;
    const char *id, *name;
    int64_t limit_s, ran_s, requeues, device_bytes;
    char training[SETTING_TEXT]; /* path */
    /* out of read_row */
    struct job_ref job;
    char reason[300], error[300];
    int64_t leases, number;
    const char *sql;
};

static int insert(struct tx *tx, void *argument, struct err *err)
{
    const struct row *r = argument;
    char inputs[SETTING_TEXT + 100];
    struct stat st;

    CHECK(stat(r->training, &st) == 0, "no file");
    (void)snprintf(inputs, sizeof inputs,
                   "{\"training_file\":{\"path\":\"%s\",\"bytes\":%lld,\"modified_ns\":%lld}}",
                   r->training, (long long)st.st_size,
                   (long long)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    return db_run(tx->db, err,
                  "INSERT INTO jobs(id, user_id, name, state, request, resolved, inputs,"
                  " created_at, ticket_at, time_limit_s, ran_s, requeues, device_bytes)"
                  " VALUES(?,1,?,'queued','{}','{}',?,1,1,?,?,?,?)",
                  "sssiiii", r->id, r->name, inputs, r->limit_s, r->ran_s, r->requeues,
                  r->device_bytes);
}

/* Submit a job that fake_trainer understands; all steps take long. */
static void submit(const struct lab *l, struct row *r)
{
    struct err err = {0};
    char dir[SETTING_TEXT + 64];

    r->lab = l;
    (void)snprintf(r->training, sizeof r->training, "%.900s/%.40s.txt", l->settings.data, r->id);
    put_text(r->training, "some text\n");
    json_t *request =
        json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", r->name, "training_file", r->training,
                  "max_steps", 100000, "tokenizer_vocab_size", 300, "config", "model_type", "gpt2");
    job_dir(dir, sizeof dir, &l->settings, r->id);
    CHECK(job_folder_create(dir, r->id, "ann", 1, request, &err) == 0, "%s", err.text);
    CHECK(store_write(l->app.store, insert, r, &err) == 0, "%s", err.text);
    json_decref(request);
    supervisor_kick(l->app.supervisor);
}

static int read_row(sqlite3 *db, void *argument, struct err *err)
{
    struct row *r = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(job_find(db, r->id, NULL, DEED_SEE_JOB, &r->job, err));
    TRY(db_integer(&r->leases, 0, db, err, "SELECT COUNT(*) FROM leases WHERE job_seq=?", "i",
                   r->job.seq));
    TRY(db_query(
        &q, db, err,
        "SELECT ifnull(back,ifnull(reason,'')), ifnull(error_code,'') FROM jobs WHERE seq=?", "i",
        r->job.seq));
    const int rc = db_next(q, &row, err);
    (void)snprintf(r->reason, sizeof r->reason, "%s", db_text(q, 0));
    (void)snprintf(r->error, sizeof r->error, "%s", db_text(q, 1));
    sqlite3_finalize(q);
    return rc;
}

static int read_number(sqlite3 *db, void *argument, struct err *err)
{
    struct row *r = argument;

    return db_integer(&r->number, 0, db, err, r->sql, "s", r->id);
}

static int64_t number(struct row *r, const char *sql)
{
    struct err err = {0};

    r->sql = sql;
    CHECK(store_read(r->lab->app.store, read_number, r, &err) == 0, "%s", err.text);
    return r->number;
}

/* Wait until the query gives that number. */
static bool comes(struct row *r, const char *sql, int64_t wanted)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    struct err err = {0};

    for (int ms = 0; ms < WAIT_MS; ms += 20) {
        if (number(r, sql) == wanted) {
            CHECK(store_read(r->lab->app.store, read_row, r, &err) == 0, "%s", err.text);
            return true;
        }
        (void)nanosleep(&pause, NULL);
    }
    CHECK(store_read(r->lab->app.store, read_row, r, &err) == 0, "%s", err.text);
    printf("# %s is %s: %s %s\n", r->id, job_state_word(r->job.state), r->reason, r->error);
    return false;
}

#define RUNS   "SELECT state='running' AND step>2 FROM jobs WHERE id=?"
#define FAILED "SELECT state='failed' FROM jobs WHERE id=?"

static int cancel(struct tx *tx, void *argument, struct err *err)
{
    struct row *r = argument;

    TRY(job_find(tx->db, r->id, NULL, DEED_SEE_JOB, &r->job, err));
    TRY(db_run(tx->db, err, "UPDATE jobs SET intent='cancel', intent_at=1 WHERE id=?", "s", r->id));
    return job_move(tx, &r->job, JOB_STOPPING, NULL, err);
}

static void end(struct row *r)
{
    struct err err = {0};

    CHECK(store_write(r->lab->app.store, cancel, r, &err) == 0, "%s", err.text);
    supervisor_kick(r->lab->app.supervisor);
    EXPECT(comes(r, "SELECT state='cancelled' FROM jobs WHERE id=?", 1));
    EXPECT(r->leases == 0);
}

static void a_run_is_warned_saves_at_its_time_limit_and_ends_as_timed_out(void)
{
    struct lab *l = open_lab("limit", 1);
    struct row r = {.id = "job-limit", .name = "ms=20 save=100000", .limit_s = 60, .ran_s = 54};

    l->settings.warn_s = 4;
    submit(l, &r);
    EXPECT(comes(&r,
                 "SELECT COUNT(*) FROM events e JOIN jobs j ON j.seq=e.job_seq"
                 " WHERE j.id=? AND e.type='warning'",
                 1));
    EXPECT(r.job.state == JOB_RUNNING);
    EXPECT(comes(&r, FAILED, 1));
    EXPECT(strcmp(r.error, "timed_out") == 0);
    EXPECT(r.job.checkpoint > 0); /* it saved, so that it can be resumed */
    EXPECT(r.leases == 0);
    EXPECT(number(&r, "SELECT ran_s=0 AND warned=0 OR ran_s>=59 FROM jobs WHERE id=?") == 1);
    EXPECT(number(&r, "SELECT cause='time_limit' FROM attempts a JOIN jobs j ON j.seq=a.job_seq"
                      " WHERE j.id=?") == 1);
    close_lab(l);
}

static void a_job_that_asks_for_it_queues_again_at_its_time_limit(void)
{
    struct lab *l = open_lab("again", 1);
    struct row r = {
        .id = "job-again", .name = "ms=20 save=100000", .limit_s = 60, .ran_s = 58, .requeues = 1};

    submit(l, &r);
    EXPECT(comes(&r, "SELECT attempt=2 AND state='running' FROM jobs WHERE id=?", 1));
    EXPECT(number(&r, "SELECT ran_s FROM jobs WHERE id=?") == 0);
    EXPECT(r.job.tries == 0);
    EXPECT(r.job.checkpoint > 0);
    end(&r);
    close_lab(l);
}

static void a_run_that_is_silent_for_too_long_is_ended_and_tried_again(void)
{
    struct lab *l = open_lab("hang", 1);
    struct row r = {.id = "job-hang", .name = "ms=20 hang_at=5 once", .limit_s = 1000};

    l->settings.hang_s = 4;
    l->settings.grace_seconds = 2;
    submit(l, &r);
    EXPECT(comes(&r, "SELECT attempt=2 AND step>5 FROM jobs WHERE id=?", 1));
    EXPECT(r.job.tries == 1);
    EXPECT(number(&r, "SELECT a.cause='hang' FROM attempts a JOIN jobs j ON j.seq=a.job_seq"
                      " WHERE j.id=? AND a.n=1") == 1);
    /* not before its time: the silence, and then the grace */
    EXPECT(number(&r, "SELECT a.ended_at-a.started_at>=6 FROM attempts a JOIN jobs j"
                      " ON j.seq=a.job_seq WHERE j.id=? AND a.n=1") == 1);
    end(&r);
    close_lab(l);
}

static void a_run_may_be_silent_for_as_long_as_twenty_of_its_steps(void)
{
    struct lab *l = open_lab("slow", 1);
    struct row r = {.id = "job-slow", .name = "ms=400 nap_at=6", .limit_s = 1000};

    l->settings.hang_s = 2;
    submit(l, &r);
    EXPECT(comes(&r, "SELECT step>=8 FROM jobs WHERE id=?", 1));
    EXPECT(r.job.attempt == 1 && r.job.state == JOB_RUNNING);
    end(&r);
    close_lab(l);
}

static void a_supervisor_that_starts_goes_on_with_what_it_finds(void)
{
    struct lab *l = open_lab("start", 2);
    struct row a = {.id = "job-a", .name = "ms=20", .limit_s = 1000};
    struct row b = {.id = "job-b", .name = "ms=20", .limit_s = 1000};

    submit(l, &a);
    submit(l, &b);
    EXPECT(comes(&a, RUNS, 1));
    EXPECT(comes(&b, RUNS, 1));
    close_parts(l);
    open_parts(l);
    EXPECT(comes(&a, "SELECT step>20 FROM jobs WHERE id=?", 1));
    EXPECT(a.job.attempt == 1 && a.leases == 1);
    EXPECT(comes(&b, RUNS, 1));
    EXPECT(b.job.attempt == 1 && b.leases == 1);
    end(&a);
    end(&b);
    close_lab(l);
}

static int take_leases(struct tx *tx, void *argument, struct err *err)
{
    (void)argument;
    return db_script(tx->db, "DELETE FROM leases; DELETE FROM attempts", err);
}

static void runs_of_a_store_without_leases_get_some(void)
{
    struct lab *l = open_lab("adopt", 2);
    struct row r = {.id = "job-adopt", .name = "ms=20", .limit_s = 1000};
    struct row next = {.id = "job-next", .name = "ms=20", .limit_s = 1000};
    struct err err = {0};

    submit(l, &r);
    EXPECT(comes(&r, RUNS, 1));
    supervisor_close(l->app.supervisor);
    EXPECT(store_write(l->app.store, take_leases, NULL, &err) == 0);
    EXPECT(supervisor_open(&l->app.supervisor, &l->app, &err) == 0);
    EXPECT(
        comes(&r, "SELECT COUNT(*) FROM leases l JOIN jobs j ON j.seq=l.job_seq WHERE j.id=?", 1));
    submit(l, &next);
    EXPECT(comes(&next, RUNS, 1));
    EXPECT(number(&next, "SELECT COUNT(DISTINCT device) FROM leases WHERE ?<>''") == 2);
    end(&r);
    end(&next);
    close_lab(l);
}

static void what_is_deaf_is_killed_and_nothing_of_it_is_left(void)
{
    struct lab *l = open_lab("deaf", 1);
    struct row r = {.id = "job-deaf", .name = "ms=20 ignore_term escape", .limit_s = 60};

    l->settings.grace_seconds = 2;
    submit(l, &r);
    EXPECT(comes(&r, RUNS, 1));
    char dir[SETTING_TEXT + 64];
    job_dir(dir, sizeof dir, &l->settings, r.id);
    end(&r);
    EXPECT(job_sweep(dir) == 0);
    EXPECT(!job_is_alive(dir));
    close_lab(l);
}

static void a_job_whose_memory_went_right_before_its_launch_waits_again(void)
{
    const struct timespec while_ = {.tv_sec = 3};
    struct lab *l = open_lab("went", 1);
    struct row r = {
        .id = "job-went", .name = "ms=20", .limit_s = 1000, .device_bytes = INT64_C(4) << 30};

    /* the pass sees the memory of a moment ago, the launch that of now */
    describe(l, 1, 7);
    submit(l, &r);
    (void)nanosleep(&while_, NULL);
    EXPECT(comes(&r, "SELECT state='queued' FROM jobs WHERE id=?", 1));
    EXPECT(r.job.attempt == 0 && r.leases == 0);
    EXPECT(number(&r, "SELECT COUNT(*) FROM attempts WHERE ?<>''") == 0);
    describe(l, 1, 0);
    EXPECT(comes(&r, RUNS, 1));
    EXPECT(r.job.attempt == 1);
    end(&r);
    close_lab(l);
}

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;

    (void)snprintf(trainer, sizeof trainer, "%.*sfake_trainer",
                   slash != NULL ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
    CHECK(access(trainer, X_OK) == 0, "%s is missing: make it first", trainer);
    scratch_make();
    RUN(a_run_is_warned_saves_at_its_time_limit_and_ends_as_timed_out);
    RUN(a_job_that_asks_for_it_queues_again_at_its_time_limit);
    RUN(a_run_that_is_silent_for_too_long_is_ended_and_tried_again);
    RUN(a_run_may_be_silent_for_as_long_as_twenty_of_its_steps);
    RUN(a_supervisor_that_starts_goes_on_with_what_it_finds);
    RUN(runs_of_a_store_without_leases_get_some);
    RUN(what_is_deaf_is_killed_and_nothing_of_it_is_left);
    RUN(a_job_whose_memory_went_right_before_its_launch_waits_again);
    scratch_remove();
    return tap_done();
}
