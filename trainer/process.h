/* process.h - what /proc says about processes: who they are, whose children, how marked.
 *
 * A process number alone names nobody: the system uses it again. Number, start time and boot
 * together do.
 */
#ifndef TRAINER_PROCESS_H
#define TRAINER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { BOOT_ID_SIZE = 40 }; /* 36 characters and a final 0, rounded up */

struct process {
    pid_t pid, parent;
    char state; /* R S D Z T X ... as in proc(5); Z has ended and only waits to be reaped */
    int64_t
        start_time; /* clock ticks since boot                                                  */
};

/* False when there is no such process. */
bool process_read(struct process *out, pid_t pid);

/* Which start of the machine this is; "" where the system does not say. */
void process_boot_id(char out[BOOT_ID_SIZE]);

/* Send a signal to the process with this number and start time. False when it has ended. */
bool process_signal(pid_t pid, int64_t start_time, int signal);

/* Call `each` for every process of the machine. Returns the sum of what it returned. */
int process_each(int (*each)(const struct process *p, void *context), void *context);

/* Does the environment that the process was started with hold the assignment "NAME=value"? */
bool process_has_mark(pid_t pid, const char *assignment);

#endif
