/* job.c - the readers of states.def. */
#include "server/job.h"

#include <string.h>

#define TO(state) (1U << JOB_##state)

static const struct {
    const char *word;
    bool final;
    unsigned may; /* bit per state that may follow */
} states[JOB_STATE_COUNT] = {
#define STATE(id, word, final, may) [JOB_##id] = {word, final, may},
#include "server/states.def"
};

const char *job_state_word(enum job_state s)
{
    return states[s].word;
}

enum job_state job_state_from_word(const char *word)
{
    int s = 0;

    while (s < JOB_STATE_COUNT && strcmp(states[s].word, word) != 0) {
        s++;
    }
    return (enum job_state)s;
}

bool job_state_is_final(enum job_state s)
{
    return states[s].final;
}

bool job_may_go(enum job_state from, enum job_state to)
{
    return (states[from].may >> to & 1U) != 0;
}

const char *job_action_word(enum job_action a)
{
    static const char *const word[JOB_ACTION_COUNT] = {[JOB_CANCEL] = "cancel",
                                                       [JOB_SAVE] = "save",
                                                       [JOB_PAUSE] = "pause",
                                                       [JOB_RESUME] = "resume"};

    return word[a];
}

bool job_allows(enum job_state s, enum job_action a, bool has_checkpoint)
{
    static const bool allowed[JOB_STATE_COUNT][JOB_ACTION_COUNT] = {
        [JOB_QUEUED] = {[JOB_CANCEL] = true, [JOB_PAUSE] = true},
        [JOB_STARTING] = {[JOB_CANCEL] = true, [JOB_PAUSE] = true},
        [JOB_RUNNING] = {[JOB_CANCEL] = true, [JOB_SAVE] = true, [JOB_PAUSE] = true},
        [JOB_STOPPING] = {[JOB_CANCEL] = true},
        [JOB_PAUSED] = {[JOB_CANCEL] = true, [JOB_RESUME] = true},
        [JOB_SUCCEEDED] = {false},
        [JOB_FAILED] = {[JOB_RESUME] = true},
        [JOB_CANCELLED] = {[JOB_RESUME] = true},
    };

    return allowed[s][a] && (a != JOB_RESUME || !job_state_is_final(s) || has_checkpoint);
}
