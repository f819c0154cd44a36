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

/* The scale begins too high, so that some steps are skipped; it is doubled on the way. */
static void fp16_resumes_with_its_loss_scale(void)
{
    const char *low = ",\"precision\":\"fp16\",\"initial_loss_scale\":268435456,"
                      "\"loss_scale_window\":7,\"hysteresis\":3";
    const struct outcome whole = run_through("fp16-whole", low);
    const struct outcome killed = run_interrupted("fp16-killed", low, 23, SIGKILL);

    EXPECT(same(&whole, &killed));
    EXPECT(whole.skipped >= 3 && whole.skipped == killed.skipped);
    EXPECT(whole.scale == killed.scale && whole.scale < 0x1p28);
    EXPECT(whole.loss[STEPS] < 0.8 * whole.loss[1]);
    printf("# %lld skipped, scale %g, loss %.4f to %.4f\n", (long long)whole.skipped, whole.scale,
           whole.loss[1], whole.loss[STEPS]);
}

/* The scale can't go below its floor, and the loss gradient overflows there. */
static void a_pinned_loss_scale_ends_the_run(void)
{
    char dir[PATH];

    make_job(dir, "pinned",
             ",\"precision\":\"fp16\",\"initial_loss_scale\":1e12,\"min_loss_scale\":1e11");
    EXPECT(finish(start(dir)) == err_exit(ERR_DIVERGED));
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
    RUN(data_workers_change_nothing);
    RUN(the_seed_changes_the_run);
    scratch_remove();
    return tap_done();
}
