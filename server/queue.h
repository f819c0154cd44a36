/* queue.h - who is next: the scheduling pass. Pure: the same input gives the same plan.
 *
 * Order. Classes come first: urgent, normal, low, idle. Inside a class a job's key is its ticket (when it was
 * submitted) plus a penalty for what its owner used of the machine lately: usage_s over the machine's devices,
 * so that who had the whole machine for an hour waits an hour longer. Smaller is better; ties go by ticket, then
 * by number. Waiting is never capped, so that nobody starves. A user's own waiting jobs of a class share their
 * tickets: `line` says in which order they take them, so moving a job moves it past one's own jobs only.
 *
 * Pass, in that order, over eligible jobs (not blocked by dependencies, begin time, a retry's pause, a limit of
 * the owner, the cap of an array): start what place_now() finds devices for. A device is not free for a job when
 * a window that is not its user's begins before the job's own limit and grace are over. The first eligible job
 * that does not fit, though it would on good devices, is the head. A device where processes outside hold memory that
 * the job needs is not one of these: who can do only with it waits for them, and keeps nobody back.
 *
 * Head reservation. R is the earliest moment at which place_now() finds a set for the head among the devices
 * that are free then: those of runs count as free at free_at (end of the time limit and the grace; of the grace when it
 * is stopping), those of windows at their end. Memory that processes outside hold counts as theirs at every moment, also
 * under runs: no start is promised on it. S is that set. Later jobs start now only outside S, or when
 * their own limit and grace are over at R; and those of the head's owner or array only if the limits then still leave
 * room for the head. What is promised: as long as the jobs that stand before the head stay the same, no device that it
 * needs is lost, processes outside take no more memory, no limit is lowered and no window is added, it starts at R or
 * before.
 *
 * Preemption. For the head, when it would start later than a grace from now, and after it for others in order, runs of strictly worse classes that are
 * preemptible, have run for min_run_s and were preempted fewer than max_preemptions times in a day are told to save and
 * leave: the fewest that suffice together with devices that are free or being freed already and not claimed by a job
 * before. Of equally few the worst classes first, then the fewest devices, then those that began last. What is
 * being freed for a job is claimed: nothing else starts there. A pass searches for runs to preempt at most 64 times: jobs
 * behind those that it searched for wait for a pass that has fewer before them.
 *
 * Forecast. The first `forecast` waiting jobs are played forward by the same rules, limits and reservation of the head
 * included, as jobs end by their likely times (queue_forecast.c); those behind are told from the work
 * ahead alone. No start is known of a job that lacks devices, asks for more than its owner may hold, or waits for
 * a parent of which none is known.
 */
#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include "server/place.h"

enum queue_class { CLASS_URGENT, CLASS_NORMAL, CLASS_LOW, CLASS_IDLE, CLASS_COUNT };

/* Why a job waits (queue_reasons.def). */
enum wait_reason {
#define WAIT(id, word, help) WAIT_##id,
#include "server/queue_reasons.def"
    WAIT_COUNT
};
const char *queue_reason_word(enum wait_reason r); /* "user_limit" */

struct queue_job {
    int64_t seq;
    int user;  /* index into users                                        */
    int array; /* index into arrays; -1: none                             */
    enum queue_class class;
    struct need need;
    int64_t ticket;   /* when it was submitted; requeued jobs keep it        */
    int64_t line;     /* order among the owner's own of a class              */
    int64_t limit_s;  /* what is left of its time limit                  */
    int64_t likely_s; /* how long it will run most likely; limit_s where that is not known */
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

#define QUEUE_FAR (INT64_MAX / 4) /* seconds: no time is later */

/* A reservation: `devices` are not free for anybody but `user` in [from, to). */
struct queue_window {
    int64_t from, to;
    uint64_t devices;
    int user; /* index; -1: nobody, maintenance */
};

struct queue_input {
    int64_t
        now; /* 0 to QUEUE_FAR; all other times and spans may be anything, and count as at most that */
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

struct queue_leave {
    int run, job; /* indices: who is told to leave, and the waiting job that gets the devices */
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
    struct queue_start *starts;   /* owned; in order                            */
    struct queue_leave *preempts; /* owned                                    */
    struct queue_wait *waits;     /* owned; one a job, in the order of the input */
    int *order;                   /* owned; indices of waiting jobs by key      */
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

/* Names that a sentence about a wait needs; "" where there is none. */
struct queue_names {
    const char *other, *other_owner; /* of the job `other`   */
    const char *device;              /* of `device`          */
    bool is_private;                 /* `other` is not named */
};

/* The reason as one sentence for a person, times as UTC "2026-12-01 14:20". `need` and `now`: of the job. */
void queue_words(char *out, size_t size, const struct queue_wait *w, const struct need *need,
                 int64_t now, const struct queue_names *names);

/* What `usage_s` decayed from `then` to `now` is: half of it every 7 days. */
double queue_decay(double usage_s, int64_t then, int64_t now);

#endif
