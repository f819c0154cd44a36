/* job.h - the states of a job (states.def) and what may be done in each. */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include <stdbool.h>

enum job_state {
#define STATE(id, word, final, may) JOB_##id,
#include "server/states.def"
    JOB_STATE_COUNT
};

/* What a user may ask of a job. */
enum job_action { JOB_CANCEL, JOB_SAVE, JOB_PAUSE, JOB_RESUME, JOB_ACTION_COUNT };

const char *job_state_word(enum job_state s);
enum job_state job_state_from_word(const char *word); /* JOB_STATE_COUNT for a word that none has */
bool job_state_is_final(enum job_state s);

/* Whether the diagram of states.def has an arrow from one to the other. */
bool job_may_go(enum job_state from, enum job_state to);

const char *job_action_word(enum job_action a); /* "cancel" */

/* Whether the action is possible in the state. RESUME of a job that has ended needs a checkpoint. */
bool job_allows(enum job_state s, enum job_action a, bool has_checkpoint);

#endif
