/* group.h - a control group (cgroup v2) around what one attempt starts: nothing gets out of it, so that all of it
 * can be found and killed whatever it did to its parents, its session, its descriptors and its environment.
 *
 * It is made below the launcher's own group, where the system has version 2 and lets us. Everywhere else there
 * is none and the caller has the subreaper and the mark in the environment (protocol.h).
 */
#ifndef TRAINER_GROUP_H
#define TRAINER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { GROUP_PATH = 1024 };

/* Make a group for attempt `attempt` of the job `id`; `out` is its folder, "" where there can be none. */
void group_make(char out[GROUP_PATH], const char *id, int attempt);

/* The calling process goes into it, and all that it starts. False when it could not; "" is allowed. */
bool group_join(const char *group);

/* Kill all that is in it; returns how many there were. Anything but a group of group_make is left alone: the name may
 * come from a file. */
int group_kill(const char *group);

/* Remove it once it is empty; waits for that up to a second. False when it is still there. */
bool group_remove(const char *group);

/* How many of it the system has killed for memory; -1 when it does not count that. */
int64_t group_memory_kills(const char *group);

#endif
