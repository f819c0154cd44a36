/* queue.h - who is next: the scheduling pass. Pure: the same input gives the same plan.
 *
 * Order. Classes come first: urgent, normal, low, idle. Inside a class a job's key is the time that it has
 * waited since its ticket less a penalty for what its owner used of the machine lately (fair share); larger
 * is better; ties go by ticket, then by number. Waiting is never capped, so that nobody starves. A user's own
 * jobs of a class share the tickets of all of them: `line` says in which order they take them, so moving a
 * job moves it past one's own jobs only.
 *
 * Pass, in that order, over eligible jobs (not blocked by dependencies, begin time, a limit of the owner, the
 * cap of an array): start what place_now() finds devices for. The first that does not fit is the head.
 *
 * Head reservation. With the head's reservation time R and set S: R is the earliest moment at which
 * place_later() finds a set among the devices that are free then, counting those held by runs as free at
 * their end by time limit (or, when they are stopping, at the end of their grace), and S is that set. Later
 * jobs start now only on devices outside S, or when their own time limit ends at or before R. Reservations of
 * administrators are windows in which devices are not free for others. What is promised: as long as no job
 * with a better key arrives, comes back or becomes eligible, no device is lost, no limit is lowered and no
 * window is added, the head starts at R or before (and the grace of stopping runs).
 *
 * Preemption. When the head's class is strictly better, runs of lower classes that are preemptible, have run
 * for min_run_s and were preempted fewer than max_preemptions times in a day may be told to save and leave:
 * the fewest that suffice together with devices that are free or being freed already. Idle ones first, then
 * those that lose least.
 */
#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include "server/place.h"

enum queue_class { CLASS_URGENT, CLASS_NORMAL, CLASS_LOW, CLASS_IDLE, CLASS_COUNT };

/* Why a job waits, in the order in which reasons are looked for. */
enum wait_reason {
    WAIT_NOT,        /* it starts in this plan                                                   */
    WAIT_DEPENDENCY, /* `other`: seq of the first parent that has not got there                  */
    WAIT_BEGIN,      /* `at`: not before                                                         */
    WAIT_RETRY,      /* `at`: is tried again then, after a failure of the machine                */
    WAIT_USER_JOBS,  /* its owner runs `number` jobs, the limit                                  */
    WAIT_USER_DEVICES, /* its owner holds devices up to the limit `number`                         */
    WAIT_ARRAY, /* `number` of its array run, the cap                                       */
    WAIT_NEVER, /* no set of good devices is large enough now: lost or quarantined ones are missing */
    WAIT_BUSY,    /* `device`: processes outside Hone hold memory that it needs               */
    WAIT_WINDOW,  /* a reservation keeps devices until `at`                                   */
    WAIT_FREEING, /* runs were told to leave for it, `other`: one of them                     */
    WAIT_HEAD,    /* the head: needs devices that run `other` holds; R is expected_at         */
    WAIT_AHEAD,   /* `number` jobs are before it; `other`: the head                           */
    WAIT_COUNT
};

struct queue_job {
    int64_t seq;
    int user;  /* index into users                                        */
    int array; /* index into arrays; -1: none                             */
    enum queue_class class;
    struct need need;
    int64_t ticket;   /* when it was submitted; requeued jobs keep it        */
    int64_t line;     /* order among the owner's own of a class              */
    int64_t limit_s;  /* what is left of its time limit                  */
    int64_t begin_at; /* 0: at once                                      */
    int64_t retry_at; /* 0: at once                                      */
    int64_t parent;   /* seq of a parent it waits for; 0: none           */
    bool preemptible;
    int preemptions; /* in the last day                                 */
    /* of a run; held 0 for queued jobs */
    uint64_t held; /* its devices                                     */
    int64_t started_at;
    int64_t free_at;   /* when its devices are free at the latest: end of its limit and grace, or
                         * of its grace when it is stopping                */
    int64_t likely_at; /* when it ends by its speed; free_at where not known */
    bool is_stopping;
};

struct queue_user {
    int64_t id;
    double
        usage_s; /* decayed device seconds, runs of the moment included, over the user's weight */
    int max_devices, max_running; /* 0: no limit */
};

struct queue_array {
    int64_t seq;
    int max_running; /* 0: no cap */
};

/* A reservation: `devices` are not free for anybody but `user` in [from, to). */
struct queue_window {
    int64_t from, to;
    uint64_t devices;
    int user; /* index; -1: nobody, maintenance */
};

struct queue_input {
    int64_t now;
    struct view view; /* `room` of devices that runs hold is what they will leave */
    int job_count, user_count, array_count, window_count;
    const struct queue_job *jobs; /* queued and running, by seq */
    const struct queue_user *users;
    const struct queue_array *arrays;
    const struct queue_window *windows;
    bool preempts;
    int64_t min_run_s, max_preemptions, grace_s;
    int forecast; /* how many waiting jobs get an exact expected start */
};

struct queue_start {
    int job; /* index */
    uint64_t devices;
};

struct queue_wait {
    enum wait_reason why;
    int64_t number, at, other; /* as the reason says */
    int device;
    int position;        /* among waiting jobs, from 1; 0 for runs     */
    int64_t expected_at; /* 0: not known                               */
};

struct queue_plan {
    int start_count, preempt_count;
    struct queue_start *starts; /* owned; in order                            */
    int *preempts;              /* owned; indices of runs                     */
    struct queue_wait *waits;   /* owned; one a job, in the order of the input */
    int *order;                 /* owned; indices of waiting jobs by key      */
    int waiting;
    int head; /* index; -1: none                            */
    int64_t head_at;
    uint64_t head_devices;
};

/* Errors: NO_MEMORY. The plan is freed with queue_plan_free also after a failure. */
int queue_pass(struct queue_plan *out, const struct queue_input *in, struct err *err);
void queue_plan_free(struct queue_plan *p);

const char *queue_class_word(enum queue_class c);         /* "urgent" */
enum queue_class queue_class_from_word(const char *word); /* CLASS_COUNT for a word that none has */

/* What `usage_s` decayed from `then` to `now` is: half of it every 7 days. */
double queue_decay(double usage_s, int64_t then, int64_t now);

#endif
