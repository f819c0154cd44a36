/* actions.h - what may be asked of a job, in the store: cancel, pause, resume. */
#ifndef SERVER_ACTIONS_H
#define SERVER_ACTIONS_H

#include "server/jobs.h"

/* Cancel it, with a checkpoint first where `save`; nothing when it is cancelled already. pause likewise.
 * Errors: BAD_STATE. */
int job_cancel(struct tx *tx, struct job_ref *job, bool save, struct err *err);
int job_pause(struct tx *tx, struct job_ref *job, struct err *err);

/* Queue it again, in its place; its time limit begins to count anew. Errors: BAD_STATE. */
int job_resume(struct tx *tx, struct job_ref *job, struct err *err);

/* BAD_STATE with the state and the action. */
int job_refuse(const struct job_ref *job, enum job_action action, struct err *err);

#endif
