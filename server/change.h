/* change.h - what a job asked of the queue, changed while it waits or runs. */
#ifndef SERVER_CHANGE_H
#define SERVER_CHANGE_H

#include "server/jobs.h"
#include "server/settings.h"
#include "trainer/spec.h"

struct job_change {
    const json_t *fields;      /* its keys are what is changed                               */
    const struct spec *values; /* what they are changed to; the rest of it is not looked at  */
    const struct settings *settings;
    int64_t now;
};

/* Change name, priority, time_limit_s, visibility, preemptible, begin_at, as far as they are among the fields; the
 * job is announced. What is `auto` about being preemptible follows the priority.
 * Errors: BAD_STATE for what means nothing any more in the job's state; BAD_SPEC for a time limit above the ceiling,
 * or that the job has reached already; each with param. */
int job_change(struct tx *tx, struct job_ref *job, const struct job_change *c, struct err *err);

#endif
