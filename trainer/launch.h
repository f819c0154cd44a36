/* launch.h - the launcher: runs one attempt of the job in a folder, as child processes, and records
 * its end.
 *
 *    launcher --fork--> prepare        validates and tokenizes; no rank exists yet
 *             --fork--> rank 0..n-1    train
 *
 * The launcher itself does next to nothing, so it outlives whatever happens to its children: it
 * holds the lock, passes signals on, kills what does not end in time, reaps all descendants, writes
 * the `ended` event and, last, exit.json. Children die with it (PR_SET_PDEATHSIG); they are in a
 * control group of their own where that may be (group.h), on the plan's cores and memory node.
 *
 *    SIGTERM to the launcher  ranks save and leave         -> "stopped"
 *    SIGINT                   ranks leave without saving   -> "cancelled"
 *    SIGUSR1                  ranks save and go on
 *    while preparing          SIGTERM and SIGINT end the child at once, SIGUSR1 is ignored
 *    grace period over        SIGKILL to all of them; still "stopped" or "cancelled", with an
 *                             error (interrupted) that says so
 *    a rank fails or dies     the others learn it from the memory that they share. SIGKILL of a rank is out of memory only with evidence
 *                             (exhaustion.h), else a lost worker; the others get 2 seconds, then SIGKILL; "failed", with the reason
 *                             of the rank that was first
 */
#ifndef TRAINER_LAUNCH_H
#define TRAINER_LAUNCH_H

#include "trainer/base/err.h"
#include "trainer/events.h"
#include "trainer/protocol.h"

/* What a step returns besides 0 (done) and an error code (with *err filled in). */
enum { LAUNCH_STOPPED = -1, LAUNCH_LEFT = -2 };

/* Runs in its own process; `events` is silent except for rank 0. stdout and stderr go to
 * log.txt. In ranks, signals_take (trainer/signals.h) says what was asked. Returns 0,
 * LAUNCH_STOPPED (saved, as asked), LAUNCH_LEFT (left, as asked) or an error code. */
typedef int launch_step(const struct job_folder *job, int rank, struct events *events,
                        struct err *err);

struct launch_steps {
    launch_step *prepare; /* called with rank 0; NULL when there is nothing to prepare */
    launch_step *rank;
    int ranks;    /* 0: as many as the job asks for (plan_mesh), which share memory (ranks.h) */
    int grace_ms; /* from SIGTERM or SIGINT to SIGKILL; 0: 120 s               */
    int peer_ms;  /* how long a rank waits for another in one exchange; 0: half an hour */
    const char *version; /* of the program, for the `started` event                  */
    const char *root;    /* below which /proc is asked about memory; NULL: the system's  */
};

/* Run the next attempt of the job in `dir` to its end. Makes the calling process a launcher for
 * the rest of its life: own session, subreaper, umask 077, no core files, signals blocked,
 * descriptors above 2 closed. It must have no threads and no children. Returns 0 when the
 * attempt succeeded, was stopped or was cancelled, else the code of its failure. Where HONE_ATTEMPT is set, only
 * that attempt: a launcher that came so late that another has run it starts no further one. Errors of its
 * own: BAD_STATE when another launcher runs this job, or has run that attempt, those of job_folder_open, IO. */
int launch_run(const char *dir, const struct launch_steps *steps, struct err *err);

#endif
