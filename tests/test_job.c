/* test_job.c - the arrows between states, and what may be asked of a job in each. */
#include "server/job.h"

#include <string.h>

#include "tests/tap.h"

static void final_states_are_left_only_to_be_queued_again(void)
{
    for (int from = 0; from < JOB_STATE_COUNT; from++) {
        for (int to = 0; to < JOB_STATE_COUNT; to++) {
            const bool may = job_may_go((enum job_state)from, (enum job_state)to);
            if (job_state_is_final((enum job_state)from)) {
                EXPECT(!may || to == JOB_QUEUED);
            }
            EXPECT(!may || from != to);
        }
    }
    EXPECT(!job_may_go(JOB_SUCCEEDED, JOB_QUEUED));
    EXPECT(job_may_go(JOB_FAILED, JOB_QUEUED) && job_may_go(JOB_CANCELLED, JOB_QUEUED));
}

static void every_word_reads_back(void)
{
    for (int s = 0; s < JOB_STATE_COUNT; s++) {
        EXPECT(job_state_from_word(job_state_word((enum job_state)s)) == (enum job_state)s);
    }
    EXPECT(job_state_from_word("canceled") == JOB_STATE_COUNT);
    EXPECT(job_state_from_word("") == JOB_STATE_COUNT);
}

/* An allowed action has an arrow to go along. */
static void actions_follow_arrows(void)
{
    for (int i = 0; i < JOB_STATE_COUNT; i++) {
        const enum job_state s = (enum job_state)i;
        if (job_allows(s, JOB_CANCEL, true)) {
            EXPECT(job_may_go(s, JOB_CANCELLED));
        }
        if (job_allows(s, JOB_RESUME, true)) {
            EXPECT(job_may_go(s, JOB_QUEUED));
        }
        if (job_allows(s, JOB_PAUSE, true)) {
            EXPECT(job_may_go(s, JOB_PAUSED) || job_may_go(s, JOB_STOPPING));
        }
        EXPECT(!job_state_is_final(s) || !job_allows(s, JOB_CANCEL, true));
        EXPECT(!job_state_is_final(s) || !job_allows(s, JOB_RESUME, false));
    }
    EXPECT(job_allows(JOB_PAUSED, JOB_RESUME, false)); /* paused in the queue: nothing to lose */
    EXPECT(!job_allows(JOB_SUCCEEDED, JOB_RESUME, true));
}

<<<<<<< HEAD
=======
static struct outcome outcome_of(const char *intent, int tries, int64_t checkpoint,
                                 const struct ending *end)
{
    const struct settings settings = {.max_tries = 3};
    const struct former nothing = {.rank = -1};
    struct job_ref job = {.state = JOB_RUNNING, .tries = tries, .checkpoint = checkpoint};

    (void)snprintf(job.intent, sizeof job.intent, "%s", intent);
    return outcome_make(&job, end, &nothing, &settings);
}

static void the_exit_file_decides(void)
{
    static const struct {
        enum ended status;
        const char *intent;
        enum err_code error;
        enum job_state want;
    } table[] = {
        {ENDED_SUCCEEDED, "", ERR_NONE, JOB_SUCCEEDED},
        {ENDED_SUCCEEDED, "cancel", ERR_NONE, JOB_SUCCEEDED}, /* it was faster */
        {ENDED_SUCCEEDED, "pause", ERR_NONE, JOB_SUCCEEDED},
        {ENDED_FAILED, "", ERR_DIVERGED, JOB_FAILED},
        {ENDED_FAILED, "pause", ERR_DISK_FULL, JOB_FAILED},
        {ENDED_FAILED, "cancel", ERR_DISK_FULL, JOB_CANCELLED},
        {ENDED_FAILED, "cancel_save", ERR_DISK_FULL, JOB_CANCELLED},
        {ENDED_STOPPED, "pause", ERR_NONE, JOB_PAUSED},
        {ENDED_STOPPED, "pause", ERR_INTERRUPTED, JOB_FAILED},
        {ENDED_STOPPED, "cancel_save", ERR_NONE, JOB_CANCELLED},
        {ENDED_CANCELLED, "cancel", ERR_NONE, JOB_CANCELLED},
        {ENDED_CANCELLED, "", ERR_NONE, JOB_QUEUED}, /* told by somebody else */
        {ENDED_STOPPED, "", ERR_NONE, JOB_QUEUED},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ending end = {.has_exit = true};
        end.exit.status = table[i].status;
        if (table[i].error != ERR_NONE) {
            err_set(&end.exit.error, table[i].error, "why");
        }
        const struct outcome o = outcome_of(table[i].intent, 0, 10, &end);
        EXPECT(o.state == table[i].want);
        EXPECT(o.state != JOB_FAILED || o.error.code == table[i].error);
        EXPECT(o.again == (o.state == JOB_QUEUED));
    }
}

static void a_lost_run_is_queued_again_a_few_times(void)
{
    const struct ending lost = {0};

    struct outcome o = outcome_of("", 0, 40, &lost);
    EXPECT(o.state == JOB_QUEUED && o.again && strstr(o.reason, "step 40") != NULL);
    o = outcome_of("", 2, -1, &lost);
    EXPECT(o.state == JOB_QUEUED && strstr(o.reason, "starts again") != NULL);
    o = outcome_of("", 3, 40, &lost);
    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_DEVICE && !o.again);
}

static void a_lost_run_that_was_to_stop_has_stopped(void)
{
    const struct ending lost = {0}, killed = {.killed = true};

    EXPECT(outcome_of("cancel", 0, 40, &lost).state == JOB_CANCELLED);
    EXPECT(outcome_of("cancel_save", 0, 40, &killed).state == JOB_CANCELLED);
    struct outcome o = outcome_of("pause", 0, 40, &killed);
    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_TIMED_OUT);
    o = outcome_of("pause", 0, 40, &lost);
    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_DEVICE);
}

static void a_run_that_did_not_start_says_why(void)
{
    struct ending end = {.not_started = true};

    err_set(&end.why, ERR_NOT_FOUND, "no trainer");
    struct outcome o = outcome_of("", 0, -1, &end);
    EXPECT(o.state == JOB_FAILED && o.error.code == ERR_NOT_FOUND);
    EXPECT(outcome_of("cancel", 0, -1, &end).state == JOB_CANCELLED);
}

>>>>>>> 027426c (The property test of the desk uses what users may ask; mutants of queue and outcomes)
int main(void)
{
    RUN(final_states_are_left_only_to_be_queued_again);
    RUN(every_word_reads_back);
    RUN(actions_follow_arrows);
    return tap_done();
}
