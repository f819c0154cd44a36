/* tool.h - runs hone-train for a request: a subcommand that reads, prints JSON and ends. */
#ifndef SERVER_TOOL_H
#define SERVER_TOOL_H

#include <jansson.h>

#include "trainer/base/err.h"

enum { TOOL_ARGUMENTS = 12, TOOLS_AT_ONCE = 2, TOOL_SECONDS = 110, TOOL_BYTES = 4 << 20 };

struct tools; /* all that run, for the limit and for the end */

/* `trainer` is borrowed. Errors: IO, NO_MEMORY. */
int tools_open(struct tools **out, const char *trainer, struct err *err);

/* End those that run, start no more; any thread. */
void tools_stop(struct tools *t);
void tools_close(struct tools *t); /* nobody may be in tool_run; NULL is allowed */

/* Run the trainer with the arguments, which NULL ends, for TOOL_SECONDS at most; *out is the object that it printed, whatever its
 * exit status. Waits: for a worker's thread. Errors: BUSY (TOOLS_AT_ONCE run already), TIMED_OUT, INTERRUPTED, NOT_FOUND,
 * IO (it printed no object), NO_MEMORY. */
int tool_run(json_t **out, struct tools *t, const char *const arguments[], struct err *err);

#endif
