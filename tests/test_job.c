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

int main(void)
{
    RUN(final_states_are_left_only_to_be_queued_again);
    RUN(every_word_reads_back);
    RUN(actions_follow_arrows);
    return tap_done();
}
