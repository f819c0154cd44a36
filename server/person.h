/* person.h - whose process it is that holds a device: user, command, and whether it is one of ours. */
#ifndef SERVER_PERSON_H
#define SERVER_PERSON_H

#include "server/machine.h"

/* Complete user, command and is_ours of the process p->pid from /proc below `root` ("" for the system itself); what can't be told stays
 * empty. Ours are those whose HONE_JOB_DIR lies below the folder `jobs`, and those that descend from this process. */
void person_tell(struct device_process *p, const char *root, const char *jobs);

#endif
