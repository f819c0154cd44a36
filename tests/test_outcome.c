/* test_outcome.c - what follows from the end of an attempt. */
#include "server/outcome.h"

#include <string.h>

#include "tests/tap.h"

static const struct settings settings = {.max_tries = 2, .retry_s = 30};
static const struct former nothing = {.rank = -1};

static struct job_ref job_with(const char *intent)
{
    struct job_ref job = {.state = JOB_RUNNING, .checkpoint = 20, .time_limit_s = 600};

    (void)snprintf(job.intent, sizeof job.intent, "%s", intent);
    return job;
}

static struct ending exit_with(enum ended status, enum err_code code, int signal)
{
    struct ending end = {.has_exit = true,
                         .exit = {.status = status, .signal = signal, .step = 30}};

    if (code != ERR_NONE) {
        err_set(&end.exit.error, code, "it went wrong");
    }
    return end;
}

static struct outcome after(const char *intent, struct ending end)
{
    const struct job_ref job = job_with(intent);

    return outcome_make(&job, &end, &nothing, &settings);
}

static void what_ends_well_has_succeeded_whatever_it_was_told(void)
{
    static const char *const intents[] = {"",        "cancel",     "cancel_save", "pause",
                                          "preempt", "time_limit", "card_lost",   "hang"};

    for (size_t i = 0; i < sizeof intents / sizeof intents[0]; i++) {
        const struct outcome o = after(intents[i], exit_with(ENDED_SUCCEEDED, ERR_NONE, 0));
        EXPECT(o.state == JOB_SUCCEEDED);
        EXPECT(o.cause[0] == '\0' && !o.again);
    }
}

static void faults_of_the_job_are_never_tried_again(void)
{
    static const enum err_code own[] = {
        ERR_NO_MEMORY, ERR_DIVERGED, ERR_BAD_TRAINING_FILE, ERR_BAD_VALIDATION_FILE,
        ERR_DISK_FULL, ERR_NO_MODEL, ERR_BAD_SPEC,          ERR_NO_TOKENS};
    static const char *const intents[] = {"",          "preempt", "time_limit",
                                          "card_lost", "hang",    "pause"};

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        for (size_t k = 0; k < sizeof intents / sizeof intents[0]; k++) {
            const struct outcome o = after(intents[k], exit_with(ENDED_FAILED, own[i], 0));
            EXPECT(o.state == JOB_FAILED && !o.again);
            EXPECT(o.error.code == own[i]);
            EXPECT(strcmp(o.cause, "failed") == 0);
        }
    }
}

static void failures_of_the_machine_are_tried_again_later_each_time(void)
{
    struct job_ref job = job_with("");
    const struct ending died = exit_with(ENDED_FAILED, ERR_DEVICE, 11), lost = {0};
    struct outcome o = outcome_make(&job, &died, &nothing, &settings);

    EXPECT(o.state == JOB_QUEUED && o.again && o.retry_s == 30);
    EXPECT(strcmp(o.cause, "worker_lost") == 0);
    EXPECT(strcmp(o.reason, "it went wrong; goes on from step 20") == 0);
    job.tries = 1;
    job.checkpoint = -1;
    o = outcome_make(&job, &lost, &nothing, &settings);
    EXPECT(o.state == JOB_QUEUED && o.again && o.retry_s == 60);
    EXPECT(strcmp(o.cause, "lost") == 0);
    EXPECT(strcmp(o.reason, "the run was lost; starts again") == 0);
    job.tries = 2;
    o = outcome_make(&job, &died, &nothing, &settings);
    EXPECT(o.state == JOB_FAILED && !o.again);
    EXPECT(o.error.code == ERR_DEVICE);
    EXPECT(strstr(o.error.text, "it was tried 3 times") != NULL);
}

static void a_run_that_the_machine_takes_while_it_is_paused_is_paused(void)
{
    struct job_ref job = job_with("pause");
    const struct ending died = exit_with(ENDED_FAILED, ERR_DEVICE, 9), lost = {0};
    struct outcome o = outcome_make(&job, &died, &nothing, &settings);

    EXPECT(o.state == JOB_PAUSED && !o.again);
    EXPECT(strcmp(o.reason, "it went wrong while it was being paused; goes on from step 20") == 0);
    job.checkpoint = -1;
    o = outcome_make(&job, &lost, &nothing, &settings);
    EXPECT(o.state == JOB_PAUSED && !o.again && o.error.code == ERR_NONE);
    EXPECT(strcmp(o.reason, "the run was lost while it was being paused; starts again") == 0);
}

static void the_pause_before_a_try_has_an_end(void)
{
    struct job_ref job = job_with("");
    struct settings many = settings;

    many.max_tries = 100;
    job.tries = 99;
    const struct outcome o = outcome_make(&job, &(struct ending){0}, &nothing, &many);
    EXPECT(o.again && o.retry_s == 30 << 10);
}

static void who_dies_twice_before_its_first_step_is_given_up(void)
{
    const struct job_ref job = job_with("");
    struct ending end = exit_with(ENDED_FAILED, ERR_DEVICE, 11);
    struct former before = {.rank = 1, .signal = 11, .step = 0};

    end.exit.rank = 1;
    end.exit.step = 0;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_FAILED);
    EXPECT(outcome_make(&job, &end, &nothing, &settings).state == JOB_QUEUED);
    before.signal = 7;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_QUEUED);
    before.signal = 11;
    before.rank = 0;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_QUEUED);
    before.rank = 1;
    before.step = 1;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_QUEUED);
    before.step = 0;
    end.exit.step = 1;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_QUEUED);
    /* without a signal there is nothing to compare */
    end.exit.signal = before.signal = 0;
    end.exit.step = 0;
    EXPECT(outcome_make(&job, &end, &before, &settings).state == JOB_QUEUED);
}

static void who_is_told_to_leave_is_what_it_was_told_to_be(void)
{
    const struct ending saved = exit_with(ENDED_STOPPED, ERR_NONE, 0);
    const struct ending left = exit_with(ENDED_CANCELLED, ERR_NONE, 0);
    const struct ending killed = exit_with(ENDED_STOPPED, ERR_INTERRUPTED, 9);
    const struct ending gone = {.killed = true};

    EXPECT(after("cancel", left).state == JOB_CANCELLED);
    EXPECT(after("cancel", gone).state == JOB_CANCELLED);
    EXPECT(after("cancel", exit_with(ENDED_FAILED, ERR_DEVICE, 11)).state == JOB_CANCELLED);
    EXPECT(after("cancel", exit_with(ENDED_FAILED, ERR_NO_MEMORY, 0)).state == JOB_CANCELLED);
    EXPECT(after("cancel_save", saved).state == JOB_CANCELLED);
    EXPECT(after("pause", saved).state == JOB_PAUSED);
    EXPECT(after("pause", killed).state == JOB_FAILED);
    EXPECT(after("pause", killed).error.code == ERR_INTERRUPTED);
    EXPECT(after("pause", gone).error.code == ERR_TIMED_OUT);
}

static void making_room_costs_no_try(void)
{
    const struct ending ends[] = {exit_with(ENDED_STOPPED, ERR_NONE, 0),
                                  exit_with(ENDED_STOPPED, ERR_INTERRUPTED, 9),
                                  exit_with(ENDED_FAILED, ERR_DEVICE, 11),
                                  {.killed = true}};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const struct outcome o = after("preempt", ends[i]);
        EXPECT(o.state == JOB_QUEUED && !o.again && o.retry_s == 0);
        EXPECT(strcmp(o.cause, "preempt") == 0);
        EXPECT(!o.counts_anew);
    }
}

static void a_time_limit_ends_the_job_or_begins_anew(void)
{
    struct job_ref job = job_with("time_limit");
    const struct ending saved = exit_with(ENDED_STOPPED, ERR_NONE, 0), gone = {.killed = true};
    struct outcome o = outcome_make(&job, &saved, &nothing, &settings);

    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_TIMED_OUT);
    EXPECT(strstr(o.error.text, "600 s") != NULL && strstr(o.error.text, "resume") != NULL);
    o = outcome_make(&job, &gone, &nothing, &settings);
    EXPECT(o.error.code == ERR_TIMED_OUT && strstr(o.error.text, "did not save in time") != NULL);
    job.is_requeued = true;
    o = outcome_make(&job, &saved, &nothing, &settings);
    EXPECT(o.state == JOB_QUEUED && o.counts_anew && !o.again);
}

static void lost_cards_and_hangs_count_as_failures_of_the_machine(void)
{
    const struct ending gone = {.killed = true};
    struct job_ref job = job_with("card_lost");
    struct outcome o = outcome_make(&job, &gone, &nothing, &settings);

    EXPECT(o.state == JOB_QUEUED && o.again && strcmp(o.cause, "card_lost") == 0);
    job.tries = 2;
    EXPECT(outcome_make(&job, &gone, &nothing, &settings).state == JOB_FAILED);
    o = after("hang", exit_with(ENDED_STOPPED, ERR_INTERRUPTED, 9));
    EXPECT(o.state == JOB_QUEUED && o.again && strcmp(o.cause, "hang") == 0);
    o = after("hang", exit_with(ENDED_FAILED, ERR_DEVICE, 11));
    EXPECT(o.state == JOB_QUEUED && o.again && strcmp(o.cause, "hang") == 0);
}

static void what_never_began_fails_with_its_reason(void)
{
    struct ending end = {.not_started = true};

    err_set(&end.why, ERR_NOT_FOUND, "the trainer is not there");
    const struct outcome o = after("", end);
    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_NOT_FOUND);
    EXPECT(strcmp(o.cause, "not_started") == 0);
    EXPECT(after("cancel", end).state == JOB_CANCELLED);
    EXPECT(after("preempt", end).state == JOB_QUEUED);
}

static void a_stop_from_outside_is_nobodys_wish(void)
{
    EXPECT(after("", exit_with(ENDED_STOPPED, ERR_NONE, 0)).again);
    EXPECT(after("", exit_with(ENDED_CANCELLED, ERR_NONE, 0)).state == JOB_QUEUED);
    EXPECT(after("", exit_with(ENDED_COUNT, ERR_NONE, 0)).error.code == ERR_INTERNAL);
}

int main(void)
{
    RUN(what_ends_well_has_succeeded_whatever_it_was_told);
    RUN(faults_of_the_job_are_never_tried_again);
    RUN(failures_of_the_machine_are_tried_again_later_each_time);
    RUN(a_run_that_the_machine_takes_while_it_is_paused_is_paused);
    RUN(the_pause_before_a_try_has_an_end);
    RUN(who_dies_twice_before_its_first_step_is_given_up);
    RUN(who_is_told_to_leave_is_what_it_was_told_to_be);
    RUN(making_room_costs_no_try);
    RUN(a_time_limit_ends_the_job_or_begins_anew);
    RUN(lost_cards_and_hangs_count_as_failures_of_the_machine);
    RUN(what_never_began_fails_with_its_reason);
    RUN(a_stop_from_outside_is_nobodys_wish);
    return tap_done();
}
