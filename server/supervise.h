/* supervise.h - the thread that decides what runs, and watches it.
 *
 * It makes scheduling passes (desk.h), starts launchers (`hone-train run JOBDIR`, each in a session of its
 * own, so that they outlive honed), reads their events into the store, passes on what users ask, and
 * records how attempts end (watch.h). What it has to do is told by the store and the job folders alone, so
 * a honed that is started again simply goes on.
 *
 * A look, at least once a second and whenever something is heard:
 *    the machine as it is -> every run is looked at -> a pass, if something changed or a while has gone by:
 *    rows are committed, then what started is launched and what was told to leave is signalled -> board
 */
#ifndef SERVER_SUPERVISE_H
#define SERVER_SUPERVISE_H

#include "server/app.h"

struct supervisor;

/* Start the thread. Errors: IO, NO_MEMORY. */
int supervisor_open(struct supervisor **out, const struct app *app, struct err *err);

/* Stop the thread; launchers go on. NULL is allowed. */
void supervisor_close(struct supervisor *s);

/* A job was submitted or asked for something, or the queue is another one: look now. Any thread. */
void supervisor_kick(struct supervisor *s);

/* DATA/jobs/ID. */
void job_dir(char *out, size_t size, const struct settings *settings, const char *id);

#endif
