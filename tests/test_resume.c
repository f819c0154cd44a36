/* test_resume.c - real runs in job folders: a run that was killed and resumed is, bit for bit, the run that never
 * stopped; what it leaves behind is complete.
 */
#include "tests/resume.h"

static void a_killed_run_resumes_as_if_it_had_never_stopped(void)
{
    const struct outcome whole = run_through("whole", "");
    const struct outcome killed = run_interrupted("killed", "", 17, SIGKILL);
    const struct outcome told = run_interrupted("told", "", 17, SIGTERM);

    EXPECT(whole.attempts == 1 && killed.attempts == 2 && told.attempts == 2);
    EXPECT(whole.loss[STEPS] < 0.8 * whole.loss[1]);
    EXPECT(same(&whole, &killed));
    EXPECT(same(&whole, &told));
    printf("# loss %.4f to %.4f, weights %.12s\n", whole.loss[1], whole.loss[STEPS], whole.weights);
}

static void bf16_resumes_from_its_masters(void)
{
    const char *low = ",\"precision\":\"bf16\",\"recompute\":\"full\"";
    const struct outcome whole = run_through("bf16-whole", low);
    const struct outcome killed = run_interrupted("bf16-killed", low, 23, SIGKILL);

    EXPECT(same(&whole, &killed));
}

/* A skipped step does not move the learning rate. */
static void expect_rates_wait(const struct outcome *run)
{
    for (int i = 2; i <= STEPS; i++) {
        const bool waited = run->skipped[i - 1] > (i > 2 ? run->skipped[i - 2] : 0);
        EXPECT((run->lr[i] == run->lr[i - 1]) == waited);
    }
}

/* The scale begins too high, so that some steps are skipped; it is doubled on the way. The run is killed while it
 * still overflows, and later. */
static void fp16_resumes_with_its_loss_scale(void)
{
    const char *low = ",\"precision\":\"fp16\",\"initial_loss_scale\":268435456,"
                      "\"loss_scale_window\":7,\"hysteresis\":3,\"save_interval\":3,"
                      "\"warmup_steps\":0,\"lr_schedule\":\"linear\"";
    const struct outcome whole = run_through("fp16-whole", low);
    const struct outcome killed = run_interrupted("fp16-killed", low, 4, SIGKILL);
    const struct outcome later = run_interrupted("fp16-later", low, 23, SIGKILL);

    EXPECT(same(&whole, &killed) && same(&whole, &later));
    EXPECT(whole.skipped[STEPS] >= 3 && whole.skipped[4] >= 3);
    EXPECT(whole.skipped[STEPS] == killed.skipped[STEPS]);
    EXPECT(whole.scale == killed.scale && whole.scale < 0x1p28);
    EXPECT(whole.loss[STEPS] < 0.8 * whole.loss[1]);
    expect_rates_wait(&whole);
    expect_rates_wait(&killed);
    printf("# %lld skipped, %s, loss %.4f to %.4f\n", (long long)whole.skipped[STEPS], whole.scaler,
           whole.loss[1], whole.loss[STEPS]);
}

/* The scale can't go below its floor, and the loss gradient overflows there. */
static void a_pinned_loss_scale_ends_the_run(void)
{
    struct outcome out;
    char dir[PATH];

    make_job(dir, "pinned",
             ",\"precision\":\"fp16\",\"initial_loss_scale\":1e12,\"min_loss_scale\":1e11");
    EXPECT(finish(start(dir)) == err_exit(ERR_DIVERGED));
    EXPECT(read_events(&out, dir) < STEPS);
    EXPECT(strcmp(out.code, "numerical_divergence") == 0);
}

/* How often events tell that the last checkpoint is there, and final. */
static int count_told(const char *dir)
{
    struct event_reader *reader = NULL;
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;
    struct err err = {0};
    int n = 0;

    CHECK(event_reader_open(&reader, dir, 0, &err) == 0, "%s", err.text);
    while (event_reader_next(reader, &found, &e, &err) == 0 && found == EVENT_FOUND) {
        n += e.type == EVENT_CHECKPOINT &&
             json_integer_value(json_object_get(e.object, "step")) == STEPS &&
             json_is_true(json_object_get(e.object, "final"));
    }
    event_reader_close(reader);
    return n;
}

/* As if the run had been killed after the rename of its last checkpoint and before it told so. */
static void forget_last(const char *dir)
{
    char path[PATH + 20], other[PATH + 20], line[8192];

    (void)snprintf(path, sizeof path, "%s/events.jsonl", dir);
    (void)snprintf(other, sizeof other, "%s/events.other", dir);
    FILE *from = fopen(path, "r"), *to = fopen(other, "w");
    CHECK(from != NULL && to != NULL, "%s", path);
    while (fgets(line, sizeof line, from) != NULL &&
           !(strstr(line, "\"checkpoint\"") != NULL && strstr(line, "step-00000040") != NULL)) {
        CHECK(fputs(line, to) >= 0, "%s", other);
    }
    CHECK(fclose(from) == 0 && fclose(to) == 0 && rename(other, path) == 0, "%s", path);
}

static void a_checkpoint_that_was_not_told_is_told(void)
{
    char dir[PATH];

    make_job(dir, "told-late", "");
    finish_well(start(dir), dir);
    EXPECT(count_told(dir) == 1);
    forget_last(dir);
    EXPECT(count_told(dir) == 0);
    finish_well(start(dir), dir);
    EXPECT(count_told(dir) == 1);
    finish_well(start(dir), dir);
    EXPECT(count_told(dir) == 1);
}

static void data_workers_change_nothing(void)
{
    const struct outcome none = run_through("workers-none", ",\"data_workers\":0");
    const struct outcome one = run_through("workers-one", ",\"data_workers\":1");
    const struct outcome two = run_interrupted("workers-two", ",\"data_workers\":2", 12, SIGKILL);

    EXPECT(same(&none, &one));
    EXPECT(same(&none, &two));
}

static void the_seed_changes_the_run(void)
{
    const struct outcome a = run_through("seed-a", "");
    const struct outcome b = run_through("seed-b", ",\"seed\":7");

    EXPECT(!same(&a, &b));
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    RUN(a_killed_run_resumes_as_if_it_had_never_stopped);
    RUN(bf16_resumes_from_its_masters);
    RUN(fp16_resumes_with_its_loss_scale);
    RUN(a_pinned_loss_scale_ends_the_run);
    RUN(a_checkpoint_that_was_not_told_is_told);
    RUN(data_workers_change_nothing);
    RUN(the_seed_changes_the_run);
    scratch_remove();
    return tap_done();
}
