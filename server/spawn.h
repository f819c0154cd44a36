/* spawn.h - starts the launcher of a job, the process of a model, or a program whose output is read. */
#ifndef SERVER_SPAWN_H
#define SERVER_SPAWN_H

#include <sys/types.h>

#include "trainer/base/err.h"

/* Run `trainer run dir` in a session of its own: standard input from /dev/null, output appended to
 * dir/log.txt, all other descriptors closed, signals as at login, and of the environment only what a run
 * needs, with HONE_JOB_DIR=dir and HONE_ATTEMPT=attempt (trainer/launch.h). Errors: NOT_FOUND (no such program), IO. */
int spawn_launcher(pid_t *pid, const char *trainer, const char *dir, int attempt, struct err *err);

/* Run arguments[0] likewise, but for its output, which goes to the descriptor `output`, and its errors, which are dropped.
 * The list ends with NULL. Errors: NOT_FOUND, NO_MEMORY. */
int spawn_tool(pid_t *pid, char *const arguments[], int output, struct err *err);

/* Run arguments[0] likewise, with standard input from the descriptor `input`, and both outputs appended to the file `log`.
 * Errors: NOT_FOUND, NO_MEMORY. */
int spawn_model(pid_t *pid, char *const arguments[], int input, const char *log, struct err *err);

#endif
