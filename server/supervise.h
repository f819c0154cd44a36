/* supervise.h - runs jobs: one at a time, in the order of their submission.
 *
 * One thread: it starts launchers (`hone-train run JOBDIR`, each in a session of its own, so that they
 * outlive honed), reads their events into the store, passes on what users ask, and records how attempts
 * end. What it has to do is told by the store and the job folders alone, so a honed that is started
 * again simply goes on.
 *
 *    queued -> row `starting`, attempt N+1 -> plan.json -> launcher -> `ready` -> row `running`
 *    asked to stop: row `stopping` with the intent, then the signal; after the grace period SIGKILL
 *    lock free: the last events are read, then exit.json decides; without it the run is lost and, a few
 *    times, queued again
 */
#ifndef SERVER_SUPERVISE_H
#define SERVER_SUPERVISE_H

#include "server/app.h"

struct supervisor;

/* Start the thread. Errors: IO, NO_MEMORY. */
int supervisor_open(struct supervisor **out, const struct app *app, struct err *err);

/* Stop the thread; launchers go on. NULL is allowed. */
void supervisor_close(struct supervisor *s);

/* A job was submitted or asked for something: look now. Any thread. */
void supervisor_kick(struct supervisor *s);

/* DATA/jobs/ID. */
void job_dir(char *out, size_t size, const struct settings *settings, const char *id);

#endif
