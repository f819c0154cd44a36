/* mentions.h - private jobs that the object of another job names. */
#ifndef SERVER_MENTIONS_H
#define SERVER_MENTIONS_H

#include <jansson.h>

#include "server/authorise.h"
#include "server/db.h"

/* Take out of `object`, which belongs to the job `own`, the ids of jobs that `who` may not know of: null where a text is nothing else,
 * else "a private job" in their place. Errors: IO, NO_MEMORY. */
int mentions_hide(json_t *object, sqlite3 *db, const char *own, const struct identity *who,
                  struct err *err);

#endif
