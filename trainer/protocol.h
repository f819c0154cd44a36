/* protocol.h - the job folder: what the server and a run leave for each other.
 *
 *    jobs/ID/spec.json             {"id", "owner", "created_at", "request": {fields of spec.def}};
 *                                  never changed
 *    jobs/ID/attempts/N/plan.json  what attempt N was given (struct attempt_plan)
 *    jobs/ID/attempts/N/exit.json  how it ended (struct attempt_exit), written last of all
 *    jobs/ID/events.jsonl          one event a line (protocol.def); one writer at a time: the
 *                                  launcher, the preparing child, rank 0, the launcher again
 *    jobs/ID/log.txt               stdout and stderr of all ranks
 *    jobs/ID/lock                  flock held while the launcher or a rank of it lives
 *    jobs/ID/pid                   who holds it: {"pid", "start_time", "boot_id", "attempt", "group"}
 *    jobs/ID/checkpoints/          step-00001000/ and so on; latest -> step-00001000
 *
 * The life of attempt N, seen from outside:
 *
 *    plan.json ----> lock held, `started` ----> exit.json, lock free   ended, as exit.json says
 *       |                    |
 *       |                    +----> lock free, no exit.json            lost: launcher was killed
 *       +-- lock free, "attempt" in pid is smaller                     not started yet
 *
 * An attempt is started once: a launcher that finds attempt N lost starts attempt N+1 with N's
 * plan, so that the points of one attempt never overlap. A folder made by hand needs only
 * spec.json, and that may be the bare request; inputs are then paths, relative to the folder.
 *
 * Files are replaced by writing aside, fsync, rename, fsync of the folder. Unknown keys are
 * skipped.
 */
#ifndef TRAINER_PROTOCOL_H
#define TRAINER_PROTOCOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "trainer/base/err.h"
#include "trainer/spec.h"

struct shm;

#define JOB_SPEC        "spec.json"
#define JOB_EVENTS      "events.jsonl"
#define JOB_LOG         "log.txt"
#define JOB_LOCK        "lock"
#define JOB_PID         "pid"
#define JOB_ATTEMPTS    "attempts"
#define JOB_CHECKPOINTS "checkpoints"
#define JOB_LATEST      "checkpoints/latest"

enum {
    JOB_PATH_SIZE = 4096,      /* bytes of a path with its final 0                         */
    JOB_CORES_MAX = 1024,      /* most cores in a plan                                     */
    JOB_RANKS_MAX = 64,        /* most ranks of a run                                      */
    JOB_FILE_MAX = 4 << 20,    /* most bytes of spec.json, plan.json, exit.json            */
    EVENT_LINE_MAX = 64 << 10, /* most bytes of a line of events.jsonl, newline included   */
};

enum event_type {
#define EVENT(id, word, keys) EVENT_##id,
#include "trainer/protocol.def"
    EVENT_COUNT
};
enum stage {
#define STAGE(id, word) STAGE_##id,
#include "trainer/stages.def"
    STAGE_COUNT
};
/* How an attempt ends: STOPPED was told to save and leave, CANCELLED to leave. */
enum ended { ENDED_SUCCEEDED, ENDED_FAILED, ENDED_STOPPED, ENDED_CANCELLED, ENDED_COUNT };

const char *event_word(enum event_type type);      /* "checkpoint_failed" */
const char *stage_word(enum stage stage);          /* "tokenizing"        */
const char *ended_word(enum ended ended);          /* "stopped"           */
enum event_type event_from_word(const char *word); /* the COUNT of each for a word that none has */
enum stage stage_from_word(const char *word);
enum ended ended_from_word(const char *word);

/* Where rank R of a run is at home: cores [first, first + count) of `cores`, and a memory node; -1: any. */
struct rank_place {
    int first, count, node;
};

/* What an attempt was given. Paths are absolute; "" where there is none. */
struct attempt_plan {
    int attempt;    /* from 1                                              */
    int threads;    /* of each rank; 0: one per core of its place, of `cores`, or of the machine */
    int core_count; /* 0: not bound                                        */
    int cores[JOB_CORES_MAX];
    int place_count; /* 0: all ranks are wherever the run is               */
    struct rank_place places[JOB_RANKS_MAX];
    char isa[16];                   /* "": the best that the processor has                 */
    char model[JOB_PATH_SIZE];      /* folder in Hugging Face form                         */
    char adapter[JOB_PATH_SIZE];    /* folder in PEFT's form                               */
    char tokenizer[JOB_PATH_SIZE];  /* folder with tokenizer.json                          */
    char training[JOB_PATH_SIZE];   /* file                                                */
    char validation[JOB_PATH_SIZE]; /* file                                                */
    char cache[JOB_PATH_SIZE];      /* folder for tokenized files; made when missing       */
    int64_t memory_bytes;           /* what the planner granted; 0: not known              */
    int memory_node;                /* where its memory should be; -1: anywhere            */
    int devices, gpus;              /* that it holds, and how many are GPUs; 0: not known  */
    char device_ids[JOB_PATH_SIZE]; /* "cpu0,cpu1"                                         */
    char fingerprint[65];           /* of the planned layout; "": not known                */
};

struct attempt_exit {
    enum ended status;
    int64_t step; /* last finished optimizer step                                      */
    struct err
        error;  /* code ERR_NONE when there is none; a STOPPED run that had to be killed has one */
    int exit;   /* exit status of the rank that decided the end; -1 when a signal ended it */
    int signal; /* the signal that ended it; 0 when none                             */
    int rank;   /* that rank; -1 when it was before the ranks started                */
    int64_t planned_bytes; /* of the plan; 0: not known                               */
    int64_t peak_bytes;    /* the most that a rank held in main memory; 0: not known  */
    double ended_at;       /* seconds since 1970                                                */
};

/* Make the folder `dir`, whose parent exists, with spec.json. Errors: BAD_STATE when it exists,
 * IO, DISK_FULL. */
int job_folder_create(const char *dir, const char *id, const char *owner, double created_at,
                      const json_t *request, struct err *err);

/* Write attempts/N/plan.json for plan->attempt, making the folder. Errors: IO, DISK_FULL. */
int attempt_plan_write(const char *dir, const struct attempt_plan *plan, struct err *err);

/* Errors: NOT_FOUND when attempt `attempt` has none; BAD_FILE when it is damaged. */
int attempt_plan_read(struct attempt_plan *out, const char *dir, int attempt, struct err *err);
int attempt_exit_read(struct attempt_exit *out, const char *dir, int attempt, struct err *err);

/* Room on the disk is taken by attempt_exit_reserve at the start of an attempt, so that how it
 * ended can be told on a full disk too. Errors: IO, DISK_FULL. */
int attempt_exit_reserve(const char *dir, int attempt, struct err *err);
int attempt_exit_write(const char *dir, int attempt, const struct attempt_exit *end,
                       struct err *err);

/* The newest attempt that has a folder; 0 when there is none. */
int attempt_newest(const char *dir);

/* The step of the checkpoint that `latest` points to; 0 when there is none. */
int64_t job_latest_step(const char *dir);

struct run_ranks {
    int count;
    int timeout_ms;  /* a peer that is not heard of for so long hangs                     */
    struct shm *shm; /* through which they exchange tensors, borrowed; NULL: one rank alone */
};

/* A job opened for running. */
struct job_folder {
    char dir[JOB_PATH_SIZE]; /* absolute                                        */
    char id[128];            /* from spec.json, else the folder's own name      */
    char owner[128];         /* "" when spec.json is a bare request             */
    double created_at;
    json_t *request;  /* owned; as sent                                  */
    struct spec spec; /* the request, parsed                             */
    struct attempt_plan plan;
    int attempt;            /* 0 until the attempt is known                    */
    struct run_ranks ranks; /* that run it; filled in by the launcher          */
};

/* Read spec.json and pick the attempt to run: the newest with a plan that was never started,
 * else a new one with the last one's plan, else a new one with inputs from the request. The
 * caller holds the lock. On failure job->attempt says which attempt it is the end of (0: none),
 * and job_folder_close is still due. Errors: NOT_FOUND, BAD_SPEC, BAD_FILE, and
 * BAD_TRAINING_FILE, BAD_VALIDATION_FILE, NO_MODEL for inputs of a folder made by hand that are
 * not there. */
int job_folder_open(struct job_folder *job, const char *dir, struct err *err);
void job_folder_close(struct job_folder *job);

/* Take the lock; *fd holds it until it and all copies in forked children are closed. Waits a
 * moment for someone who only looks. Errors: BAD_STATE when another launcher has it, NOT_FOUND,
 * IO. */
int job_lock(int *fd, const char *dir, struct err *err);

/* Does a launcher, or a rank that outlived it, hold the lock? */
bool job_is_alive(const char *dir);

/* Record the calling process as the launcher of `attempt`, whose processes are in the control group `group`
 * (group.h; "" for none). */
int job_pid_write(const char *dir, int attempt, const char *group, struct err *err);

/* The attempt that was started last, from the pid file; 0 when none was. */
int job_pid_attempt(const char *dir);

/* The launcher that the pid file names, if it was started with this start of the machine; 0: none. Its number may be
 * another process's by now. */
pid_t job_pid_launcher(const char *dir);

/* Milliseconds since the process that the pid file names was started, by a clock that nobody sets; -1 when
 * there is no such file of this start of the machine. */
int64_t job_pid_age_ms(const char *dir);

/* Send a signal to the launcher that the pid file names: SIGTERM save and leave, SIGUSR1 save
 * and go on, SIGINT leave, SIGKILL; 0 only asks whether it is there. A process that merely has
 * its number now is left alone.
 * Errors: NOT_FOUND when the launcher is gone or has not written the file yet. */
int job_signal(const char *dir, int signal, struct err *err);

/* Kill every process that was started with HONE_JOB_DIR=dir in its environment, other than the
 * caller, and what is in the control group of the pid file, which goes when it is empty: what may be left when a launcher was killed, and may still hold the lock. A living
 * launcher is no exception: ask job_signal first. Returns how many there were. */
int job_sweep(const char *dir);

/* events.jsonl from a byte offset on, whole lines only, while it is being written. */
struct event_reader;

enum event_found {
    EVENT_FOUND_NONE, /* no further whole line yet; ask again later                 */
    EVENT_FOUND,      /* an event; type is EVENT_COUNT when this program knows none */
    EVENT_FOUND_BAD,  /* a whole line that is no event; `why` says why; skip it     */
};
struct event {
    enum event_type type;
    int attempt;
    double t;
    const json_t *object; /* borrowed until the next call; all keys                */
    const char *line;     /* borrowed until the next call; without the newline     */
    size_t length;        /* bytes of line                                         */
    int64_t end;          /* offset behind the newline: store this to go on there  */
    char why[200];
};

/* A missing file is one without lines so far. `offset` is 0 or an earlier event's `end`. Free of
 * threads. */
int event_reader_open(struct event_reader **out, const char *dir, int64_t offset, struct err *err);
void event_reader_close(struct event_reader *reader);

/* Lines longer than EVENT_LINE_MAX are bad (`line` is then NULL). Errors: IO, also when the file
 * has become shorter than what was read already. */
int event_reader_next(struct event_reader *reader, enum event_found *found, struct event *out,
                      struct err *err);

#endif
