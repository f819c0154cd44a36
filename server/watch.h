/* watch.h - a run that is starting, running or stopping, as the supervisor's thread sees it.
 *
 *    queued -> row `starting`, attempt N+1, leases (desk.h) -> plan.json -> launcher -> `ready` -> row `running`
 *    told to stop: row `stopping` with the intent, then the signal; after the grace period SIGKILL
 *    lock free: the last events are read, then exit.json decides; without it the run was lost (outcome.h)
 *    evidence: no process of it is left and its devices are as they were -> outcome, leases given back;
 *    a device that is not after drain_s is quarantined
 *
 * Time is CLOCK_BOOTTIME throughout: a wall clock that jumps ends nothing. Not for several threads.
 */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include <sys/types.h>

#include "server/app.h"
#include "server/inventory.h"
#include "server/jobs.h"
#include "trainer/protocol.h"

/* What all runs share. */
struct watch {
    const struct app *app;
    int notify;             /* inotify                                       */
    int64_t zero_s;         /* seconds since 1970 when CLOCK_BOOTTIME was 0  */
    struct reading reading; /* of the devices; refreshed by the owner        */
};

enum { RUN_DIR = SETTING_TEXT + 64 };

struct run {
    struct job_ref job;
    char dir[RUN_DIR];
    uint64_t devices; /* that it holds                                           */
    pid_t child;      /* launcher that this process started; 0 for another's or none */
    int child_fd;     /* readable when it has ended; -1 for none                 */
    bool child_ended;
    int child_status;
    int watch; /* of inotify; -1 for none */
    struct event_reader *reader;
    int64_t since_ms; /* it is watched, or its launcher was started         */
    int64_t began_ms; /* the attempt                                        */
    int64_t heard_ms; /* the last event                                     */
    int64_t asked_ms; /* when it was told what `asked` says                 */
    int64_t announced_ms;
    int64_t orphaned_ms; /* the launcher was first missed while its lock was held; 0: it is there */
    int64_t over_ms;     /* it was first seen to be over; 0: it is not         */
    int asked;           /* signal that was sent for the intent; 0 for none    */
    bool killed, stale_announcement, drains;
    uint64_t used_before
        [MACHINE_DEVICES]; /* bytes of each device right before the launch; 0: not known */
};

/* Milliseconds of CLOCK_BOOTTIME, and seconds since 1970 by it. */
int64_t watch_ms(void);
int64_t watch_now(const struct watch *w);

/* Begin to watch a job; NULL: no memory. Its folder gets its name if a crash kept it from it. */
struct run *run_open(const struct watch *w, const struct job_ref *job, uint64_t devices);
void run_close(const struct watch *w, struct run *r);

enum run_fate {
    RUN_GOES_ON,
    RUN_SOON, /* look again in a moment                         */
    RUN_OVER, /* its end is in the store, or it waits again: close it */
};

/* Write the plan of the attempt and start its launcher. The devices are looked at anew right before: when
 * they have not the memory any more the job waits again. */
enum run_fate run_launch(struct watch *w, struct run *r);

/* Read its events, pass on what it is told, see whether it is over. */
enum run_fate run_look(struct watch *w, struct run *r);

#endif
