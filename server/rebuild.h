/* rebuild.h - a new store from the job folders. */
#ifndef SERVER_REBUILD_H
#define SERVER_REBUILD_H

#include "server/settings.h"

/* Put the store aside as honed.db.old-TIME and make a new one: users by the owners of the jobs, jobs and
 * all they said from their folders, uploaded files by the jobs that used them. Tokens are not kept: the
 * first start prints a new one. Errors: BAD_STATE while honed runs, IO. */
int rebuild(const struct settings *s, struct err *err);

#endif
