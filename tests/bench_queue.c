/* bench_queue.c - what the queue costs with very many waiting jobs, in a real store on this disk.
 *
 *     bench_queue [JOBS [ROUNDS]]         10000 jobs of 20 users on 8 devices, 60 rounds, unless told otherwise
 *
 * A round ends a run, makes the pass of the supervisor, submits a job, and answers one page of the list and one of
 * the queue as the handlers do, without HTTP.
 * What is committed waits for the disk.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "server/board.h"
#include "server/draft.h"
#include "server/inventory.h"
#include "server/random.h"
#include "server/route.h"
#include "server/store.h"
#include "tests/scratch.h"
#include "trainer/base/io.h"

enum {
    JOBS = 10000,
    JOBS_MAX = 1000000,
    ROUNDS = 60,
    ROUNDS_MAX = 10000,
    USERS = 20,
    DEVICES = 8,
    FORECAST = 100
};

/* What is measured. */
enum part { LOAD, PASS, APPLY, DISPATCH, SUBMIT, LIST, LONG_LIST, QUEUE, PARTS };

static const struct {
    const char *word;
    bool has_aim;
} parts[PARTS] = {[LOAD] = {"desk_load", false},
                  [PASS] = {"queue_pass", false},
                  [APPLY] = {"plan into rows", false},
                  [DISPATCH] = {"scheduling pass, committed", true},
                  [SUBMIT] = {"submit, committed", true},
                  [LIST] = {"GET /v1/jobs (20 of them)", true},
                  [LONG_LIST] = {"GET /v1/jobs (100 of them)", false},
                  [QUEUE] = {"GET /v1/queue (100)", true}};

struct bench {
    struct app app;
    struct settings settings;
    const struct machine *machine;
    int64_t now, jobs, submitted;
    struct desk_round round; /* the last pass             */
    double took[PARTS];      /* ms, in the last round     */
};

static double ms_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void write_or_die(const struct bench *b, tx_work *work, void *argument)
{
    struct err err = {0};

    CHECK(store_write(b->app.store, work, argument, &err) == 0, "%s", err.text);
}

static int add_users(struct tx *tx, void *argument, struct err *err)
{
    char name[16];
    int64_t id = 0;

    (void)argument;
    for (int i = 0; i < USERS; i++) {
        (void)snprintf(name, sizeof name, "u%d", i);
        TRY(user_add(tx, name, ROLE_MEMBER, &id, err));
    }
    return 0;
}

/* A draft as submit makes it, the n-th. */
static struct draft make_draft(const struct bench *b, int64_t n)
{
    static const char *const classes[] = {"normal", "normal", "low", "idle"};
    struct draft d = {.devices = 1 + n % 3 * (n % 2),
                      .time_limit_s = 3600 * (1 + n % 24),
                      .preemptible = n % 4 > 1,
                      .created_at = b->now};

    random_id(d.id, "job-");
    (void)snprintf(d.name, sizeof d.name, "bench %lld", (long long)n);
    (void)snprintf(d.class, sizeof d.class, "%s", classes[n % 4]);
    d.request = json_pack("{s:s, s:{s:s}, s:i, s:i}", "training_file", "file-abcdefghijklmn",
                          "config", "model_type", "gpt2", "max_steps", 1000, "n", (int)n);
    d.references = json_object();
    d.resolved = json_dumps(d.request, JSON_COMPACT);
    d.sizing.device_bytes = (int64_t)(4 + n % 60) << 30;
    d.sizing.memory_bytes = d.sizing.device_bytes * d.devices;
    CHECK(d.request != NULL && d.references != NULL && d.resolved != NULL, "no memory");
    return d;
}

static int insert(struct tx *tx, struct bench *b, json_t **job, struct err *err)
{
    const struct identity who = {.user_id = 1 + b->submitted % USERS, .role = ROLE_MEMBER};
    struct draft d = make_draft(b, ++b->submitted);

    int rc = draft_check_room(tx, &b->app, &who, 1, err);
    rc = rc != 0 ? rc : draft_insert(tx, &d, &b->app, &who, err);
    rc = rc != 0 || job == NULL ? rc : job_object(tx->db, d.seq, NULL, job, err);
    draft_free(&d);
    return rc;
}

static int fill(struct tx *tx, void *argument, struct err *err)
{
    struct bench *b = argument;

    for (int64_t i = 0; i < b->jobs; i++) {
        TRY(insert(tx, b, NULL, err));
    }
    return 0;
}

static int submit(struct tx *tx, void *argument, struct err *err)
{
    json_t *job = NULL;

    const int rc = insert(tx, argument, &job, err);
    json_decref(job);
    return rc;
}

/* The oldest run succeeds. */
static int end_run(struct tx *tx, void *argument, struct err *err)
{
    const struct bench *b = argument;
    const struct desk_end done = {.cause = "", .rank = -1, .step = 1000};
    struct job_ref job;
    int64_t seq = 0;

    TRY(db_integer(&seq, 0, tx->db, err, "SELECT MIN(job_seq) FROM leases", ""));
    if (seq == 0) {
        return 0;
    }
    TRY(job_at(tx->db, seq, &job, err));
    TRY(desk_release(tx, &job, &done, b->now, err));
    return job_move(tx, &job, JOB_SUCCEEDED, NULL, err);
}

/* The two parts of a pass that can be had alone, then the pass of the supervisor; all within its write. */
static int dispatch(struct tx *tx, void *argument, struct err *err)
{
    struct bench *b = argument;
    struct desk_queue q = {0};
    struct queue_plan plan = {0};
    struct reading reading;
    struct view view;
    uint64_t held = 0;

    inventory_get(b->app.inventory, &reading);
    TRY(desk_held(tx->db, b->machine, &held, err));
    TRY(inventory_view(b->app.inventory, &reading, tx->db, held, &view, err));
    const double start = ms_now();
    int rc = desk_load(&q, tx->db, &b->settings, b->machine, b->now, err);
    const double loaded = ms_now();
    const struct queue_input in = {.now = b->now,
                                   .view = view,
                                   .job_count = q.job_count,
                                   .user_count = q.user_count,
                                   .jobs = q.jobs,
                                   .users = q.users,
                                   .preempts = true,
                                   .min_run_s = b->settings.preempt_after_s,
                                   .max_preemptions = b->settings.max_preemptions,
                                   .grace_s = b->settings.grace_seconds,
                                   .forecast = FORECAST};
    rc = rc != 0 ? rc : queue_pass(&plan, &in, err);
    const double planned = ms_now();
    rc = rc != 0 ? rc : desk_dispatch(tx, &b->settings, &view, 0, b->now, &b->round, err);
    b->took[LOAD] = loaded - start;
    b->took[PASS] = planned - loaded;
    b->took[APPLY] = ms_now() - planned - b->took[LOAD] - b->took[PASS];
    queue_plan_free(&plan);
    desk_queue_free(&q);
    return rc;
}

/* One answer of a handler, as u0 asks. */
static double ask(const struct bench *b, handler *call, const char *limit)
{
    const struct gate_request in = {
        .query_count = 1, .query_keys = {"limit"}, .query_values = {limit}};
    struct app app = b->app;
    const struct identity who = {.user_id = 1, .name = "u0", .role = ROLE_MEMBER};
    const struct request rq = {.app = &app, .in = &in, .who = &who};
    struct reply rp = {.status = 200, .fd = -1};
    struct err err = {0};

    const double start = ms_now();
    CHECK(call(&rq, &rp, &err) == 0, "%s", err.text);
    char *text = json_dumps(rp.body, JSON_COMPACT);
    const double end = ms_now();
    CHECK(text != NULL, "no memory");
    free(text);
    json_decref(rp.body);
    return end - start;
}

static void play(struct bench *b)
{
    b->now += 60;
    write_or_die(b, end_run, b);
    desk_round_free(&b->round);
    double start = ms_now();
    write_or_die(b, dispatch, b);
    /* what was done twice to be measured is taken off */
    b->took[DISPATCH] = ms_now() - start - b->took[LOAD] - b->took[PASS];
    board_put(b->app.board, &b->round);
    start = ms_now();
    write_or_die(b, submit, b);
    b->took[SUBMIT] = ms_now() - start;
    b->took[LIST] = ask(b, handle_jobs_list, "20");
    b->took[LONG_LIST] = ask(b, handle_jobs_list, "100");
    b->took[QUEUE] = ask(b, handle_queue, "100");
}

/* A machine of eight GPUs, as a file. */
static void describe_machine(const char *path)
{
    json_t *devices = json_array();
    struct err err = {0};
    char id[16];

    for (int i = 0; i < DEVICES; i++) {
        (void)snprintf(id, sizeof id, "GPU-%d", i);
        json_array_append_new(devices, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "id", id, "name",
                                                 "GPU", "kind", "gpu", "memory_bytes",
                                                 (json_int_t)80 << 30, "used_bytes", (json_int_t)0,
                                                 "free_bytes", (json_int_t)80 << 30));
    }
    json_t *machine = json_pack("{s:s, s:o}", "name", "bench", "devices", devices);
    char *text = json_dumps(machine, 0);
    CHECK(text != NULL && io_write_file(path, text, strlen(text), &err) == 0, "%s", err.text);
    free(text);
    json_decref(machine);
}

static void open_bench(struct bench *b)
{
    const char *machine = in_scratch("machine.json");
    struct err err = {0};

    describe_machine(machine);
    b->settings = (struct settings){.max_jobs = 1000000,
                                    .time_limit_s = 604800,
                                    .preempt_after_s = 600,
                                    .max_preemptions = 3,
                                    .grace_seconds = 130};
    (void)snprintf(b->settings.data, sizeof b->settings.data, "%s", scratch);
    (void)snprintf(b->settings.machine, sizeof b->settings.machine, "%s", machine);
    b->app.settings = &b->settings;
    int rc = store_open(&b->app.store, scratch, &err);
    rc = rc != 0 ? rc : inventory_open(&b->app.inventory, &b->app, &err);
    CHECK(rc == 0, "%s", err.text);
    b->machine = inventory_machine(b->app.inventory);
    CHECK(board_open(&b->app.board, b->machine, &err) == 0, "%s", err.text);
    b->now = time(NULL);
    write_or_die(b, add_users, b);
    write_or_die(b, fill, b);
}

static void close_bench(struct bench *b)
{
    desk_round_free(&b->round);
    board_close(b->app.board);
    inventory_close(b->app.inventory);
    store_close(b->app.store);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A line for each part: median, worst, the aim. */
static void report(double *ms[PARTS], size_t rounds)
{
    for (int part = 0; part < PARTS; part++) {
        qsort(ms[part], rounds, sizeof(double), by_size);
        printf("%-30s median %7.2f ms   worst %7.2f ms%s\n", parts[part].word, ms[part][rounds / 2],
               ms[part][rounds - 1], parts[part].has_aim ? "   aim 10 ms" : "");
    }
}

static void measure(struct bench *b, size_t rounds)
{
    double *ms[PARTS];

    for (int part = 0; part < PARTS; part++) {
        ms[part] = calloc(rounds, sizeof(double));
        CHECK(ms[part] != NULL, "no memory");
    }
    for (int warm = 0; warm < 3; warm++) {
        play(b);
    }
    for (size_t round = 0; round < rounds; round++) {
        play(b);
        for (int part = 0; part < PARTS; part++) {
            ms[part][round] = b->took[part];
        }
    }
    printf("%lld jobs of %d users, %d wait on %d devices, %zu rounds\n", (long long)b->jobs, USERS,
           b->round.plan.waiting - b->round.started_count, DEVICES, rounds);
    report(ms, rounds);
    for (int part = 0; part < PARTS; part++) {
        free(ms[part]);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    const long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : ROUNDS;

    b.jobs = argc > 1 ? strtol(argv[1], NULL, 10) : JOBS;
    if (b.jobs < 1 || b.jobs > JOBS_MAX || rounds < 1 || rounds > ROUNDS_MAX) {
        (void)fprintf(stderr, "usage: bench_queue [JOBS [ROUNDS]]\n");
        return 2;
    }
    scratch_make();
    open_bench(&b);
    measure(&b, (size_t)rounds);
    close_bench(&b);
    scratch_remove();
    return 0;
}
