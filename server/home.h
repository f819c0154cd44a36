/* home.h - the data folder: made, checked, locked.
 *
 *    honed.db      the store              jobs/ID/     a folder for each job (trainer/protocol.h)
 *    files/ID      uploaded files         cache/       tokenised files, shared by jobs
 *    lock          held while honed runs  admin.token  the first admin's token, mode 0600
 *    honed.url     where honed listens    settings.json  settings, when somebody wrote some
 *    machine.json  results of the self test
 */
#ifndef SERVER_HOME_H
#define SERVER_HOME_H

#include "server/settings.h"

/* Make the folder (mode 0700) and what is in it. Errors: BAD_REQUEST (a network file system, or a folder
 * full of other things), IO. */
int home_prepare(const struct settings *s, struct err *err);

/* Become the only honed of the folder until the process ends. Waits up to two seconds for the one before, whose end may
 * still be under way. Errors: BAD_STATE, IO. */
int home_lock(const struct settings *s, struct err *err);

/* Write a small file of the folder, mode 0600. Errors: IO, DISK_FULL. */
int home_write(const struct settings *s, const char *name, const char *text, struct err *err);

/* Remove a small file of the folder if it is there. */
void home_remove(const struct settings *s, const char *name);

/* Complete trainer and web of the settings, by looking around the running program. */
int home_find_programs(struct settings *s, struct err *err);

#endif
