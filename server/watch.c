/* watch.c - the life of a run. */
#include "server/watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/desk.h"
#include "server/ingest.h"
#include "server/log.h"
#include "server/margins.h"
#include "server/outcome.h"
#include "server/run_plan.h"
#include "server/spawn.h"
#include "server/supervise.h"

enum {
    BATCH_LINES = 2000,      /* of one commit                                                */
    ANNOUNCE_MS = 1000,      /* between job objects whose numbers alone changed              */
    SETTLE_MS = 3000,        /* what a launcher of an earlier honed may take to get its lock */
    SLACK_BYTES = 256 << 20, /* that a device may keep of a run that has left           */
    HANG_STEPS = 20,
    REASON = 256,
};

int64_t watch_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t watch_now(const struct watch *w)
{
    return w->zero_s + watch_ms() / 1000;
}

/* A write about a run. */
struct change {
    const struct watch *w;
    struct run *r;
    struct job_ref ref; /* a copy; taken over after the commit */
    struct ingested read;
    bool announced;
    const struct ending *end;
    struct outcome outcome;
    uint64_t bad; /* devices that are not as they were */
    const char *word;
    char text[REASON];
};

/* Read the events that are there. On failure the reader begins anew where the store stands. */
static int read_batch(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    /* what users asked for since the last look */
    TRY(job_at(tx->db, c->ref.seq, &c->ref, err));
    TRY(ingest_read(tx, &c->ref, c->r->reader, BATCH_LINES, &c->read, err));
    const bool due = watch_ms() - c->r->announced_ms >= ANNOUNCE_MS;
    c->r->stale_announcement = c->r->stale_announcement || c->read.announce;
    c->announced = c->r->stale_announcement && due;
    return c->announced ? job_announce(tx, &c->ref, err) : 0;
}

static void read_events(const struct watch *w, struct run *r)
{
    struct err err = {0};
    struct change c = {.w = w, .r = r};

    do {
        c.ref = r->job;
        if (r->reader == NULL &&
            event_reader_open(&r->reader, r->dir, r->job.tail_offset, &err) != 0) {
            log_line("%s: %s", r->job.id, err.text);
            return;
        }
        if (store_write(w->app->store, read_batch, &c, &err) != 0) {
            log_line("%s: events: %s", r->job.id, err.text);
            event_reader_close(r->reader);
            r->reader = NULL;
            return;
        }
        r->job = c.ref;
        r->heard_ms = c.read.events > 0 ? watch_ms() : r->heard_ms;
        if (c.announced) {
            r->stale_announcement = false;
            r->announced_ms = watch_ms();
        }
    } while (c.read.events == BATCH_LINES);
}

static int store_intent(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    TRY(job_at(tx->db, c->ref.seq, &c->ref, err));
    if (c->ref.intent[0] != '\0' || (c->ref.state != JOB_STARTING && c->ref.state != JOB_RUNNING)) {
        return 0;
    }
    TRY(db_run(tx->db, err, "UPDATE jobs SET intent=?, intent_at=? WHERE seq=?", "sii", c->word,
               watch_now(c->w), c->ref.seq));
    (void)snprintf(c->ref.intent, sizeof c->ref.intent, "%s", c->word);
    return job_move(tx, &c->ref, JOB_STOPPING, c->text, err);
}

/* Record why the run is to stop; the signal follows. */
static void tell(const struct watch *w, struct run *r, const char *intent, const char *reason)
{
    struct change c = {.w = w, .r = r, .ref = r->job, .word = intent};
    struct err err = {0};

    (void)snprintf(c.text, sizeof c.text, "%s", reason);
    if (store_write(w->app->store, store_intent, &c, &err) != 0) {
        log_line("%s: %s", r->job.id, err.text);
        return;
    }
    r->job = c.ref;
}

static int store_warning(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;
    char body[400];

    (void)snprintf(body, sizeof body,
                   "{\"t\":%lld,\"attempt\":%d,\"type\":\"warning\",\"message\":\"%s\"}",
                   (long long)watch_now(c->w), c->ref.attempt, c->text);
    TRY(db_run(tx->db, err, "UPDATE jobs SET warned=1 WHERE seq=?", "i", c->ref.seq));
    c->ref.is_warned = true;
    return job_event_add(tx, &c->ref, "warning", body, err);
}

/* Warn of the time limit, and stop the run when it is reached. */
static void mind_limit(const struct watch *w, struct run *r)
{
    const int64_t limit = r->job.time_limit_s;
    const int64_t ran = r->job.ran_s + (watch_ms() - r->began_ms) / 1000;
    const int64_t warn =
        w->app->settings->warn_s < limit / 2 ? w->app->settings->warn_s : limit / 2;
    struct change c = {.w = w, .r = r, .ref = r->job};
    struct err err = {0};

    if (ran >= limit) {
        tell(w, r, "time_limit", "has reached its time limit; saves and leaves");
    } else if (warn > 0 && ran >= limit - warn && !r->job.is_warned) {
        (void)snprintf(c.text, sizeof c.text,
                       "the time limit of %lld s is reached in %lld s: the run is told to save and "
                       "leave then",
                       (long long)limit, (long long)(limit - ran));
        if (store_write(w->app->store, store_warning, &c, &err) != 0) {
            log_line("%s: %s", r->job.id, err.text);
            return;
        }
        r->job = c.ref;
    }
}

/* Is its silence longer than a run's that works? */
static void mind_silence(const struct watch *w, struct run *r)
{
    const int64_t patience = w->app->settings->hang_s * 1000;
    const double steps_ms = r->job.steps_per_s > 0 ? HANG_STEPS * 1000.0 / r->job.steps_per_s : 0.0;
    const int64_t silent = watch_ms() - r->heard_ms;

    if (patience > 0 && silent > patience && (double)silent > steps_ms) {
        tell(w, r, "hang", "nothing was heard of it for too long; it is ended and tried again");
    }
}

static void mind_devices(const struct watch *w, struct run *r)
{
    const struct machine *m = inventory_machine(w->app->inventory);
    char reason[REASON];

    for (int d = 0; d < m->device_count; d++) {
        if ((r->devices >> d & 1U) != 0 && w->reading.now[d].fault == FAULT_LOST) {
            (void)snprintf(reason, sizeof reason, "its device %s is lost; it is tried on others",
                           m->devices[d].id);
            tell(w, r, "card_lost", reason);
            return;
        }
    }
}

/* What honed itself has to say to a run that nobody told to stop. */
static void mind(const struct watch *w, struct run *r)
{
    if (r->job.intent[0] == '\0' && r->over_ms == 0) {
        mind_devices(w, r);
    }
    if (r->job.intent[0] == '\0' && r->over_ms == 0) {
        mind_limit(w, r);
    }
    if (r->job.intent[0] == '\0' && r->over_ms == 0) {
        mind_silence(w, r);
    }
}

/* The signal that says what the intent means; 0 for no intent. A run whose device is gone can't save. */
static int signal_of(const char *intent)
{
    if (intent[0] == '\0') {
        return 0;
    }
    return strcmp(intent, "cancel") == 0      ? SIGINT
           : strcmp(intent, "card_lost") == 0 ? SIGKILL
                                              : SIGTERM;
}

/* Pass the intent on, and end a run that does not follow it. */
static void press(const struct watch *w, struct run *r)
{
    const int wanted = signal_of(r->job.intent);
    const int64_t grace_ms = w->app->settings->grace_seconds * 1000, now = watch_ms();
    struct err err = {0};

    if (wanted == 0) {
        return;
    }
    if (wanted != r->asked && job_signal(r->dir, wanted, &err) == 0) {
        log_line("%s: told to stop: %s", r->job.id, r->job.intent);
        r->asked_ms = r->asked == 0 ? now : r->asked_ms;
        r->asked = wanted;
        r->killed = r->killed || wanted == SIGKILL;
    }
    if (r->asked != 0 && now - r->asked_ms > grace_ms && !r->killed) {
        log_line("%s: killed: it did not leave in %lld s", r->job.id, (long long)grace_ms / 1000);
        r->killed = job_signal(r->dir, SIGKILL, &err) == 0;
    }
}

static void close_child(struct run *r)
{
    if (r->child_fd >= 0) {
        (void)close(r->child_fd);
        r->child_fd = -1;
    }
}

static void reap(struct run *r)
{
    int status = 0;

    if (r->child != 0 && waitpid(r->child, &status, WNOHANG) == r->child) {
        r->child = 0;
        r->child_ended = true;
        r->child_status = status;
        close_child(r);
    }
}

/* Devices of the run that still hold what it had: processes of ours, or memory that nobody else owns up to. */
static uint64_t unclean(const struct watch *w, const struct run *r)
{
    const struct machine *m = inventory_machine(w->app->inventory);
    uint64_t bad = 0;

    for (int d = 0; d < m->device_count; d++) {
        const struct device_now *n = &w->reading.now[d];
        uint64_t others = 0;
        bool is_ours = false;
        if ((r->devices >> d & 1U) == 0 || n->fault == FAULT_LOST) {
            continue;
        }
        for (int i = 0; i < n->process_count && i < DEVICE_PROCESSES; i++) {
            is_ours = is_ours || n->processes[i].is_ours;
            others += n->processes[i].is_ours ? 0 : n->processes[i].bytes;
        }
        const uint64_t before = r->used_before[d] > m->devices[d].reserved_bytes
                                    ? r->used_before[d]
                                    : m->devices[d].reserved_bytes;
        /* main memory is everybody's: only its processes tell */
        const bool is_kept =
            m->devices[d].kind == DEVICE_GPU && n->used_bytes > before + others + SLACK_BYTES;
        bad |= is_ours || is_kept ? UINT64_C(1) << d : 0;
    }
    return bad;
}

static int store_draining(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    TRY(job_at(tx->db, c->ref.seq, &c->ref, err));
    if (c->ref.state != JOB_STOPPING) {
        return job_move(tx, &c->ref, JOB_STOPPING, c->text, err);
    }
    TRY(db_run(tx->db, err, "UPDATE jobs SET reason=? WHERE seq=?", "si", c->text, c->ref.seq));
    return job_announce(tx, &c->ref, err);
}

/* Whether nothing of the run is left. Until drain_s is over the job says what it waits for; then true too,
 * and *bad are the devices that are not to be given to anybody. */
static bool is_gone(struct watch *w, struct run *r, uint64_t *bad)
{
    const int64_t now = watch_ms();
    struct change c = {.w = w, .r = r, .ref = r->job};
    struct err err = {0};

    r->over_ms = r->over_ms != 0 ? r->over_ms : now;
    const int swept = job_sweep(r->dir);
    if (swept > 0 && !r->drains) {
        log_line("%s: ended %d processes that were left", r->job.id, swept);
    }
    inventory_refresh(w->app->inventory, &w->reading);
    *bad = unclean(w, r);
    if (swept == 0 && *bad == 0) {
        return true;
    }
    if (now - r->over_ms > w->app->settings->drain_s * 1000) {
        *bad = swept > 0 ? r->devices : *bad;
        return true;
    }
    if (now - r->over_ms > 1000 && !r->drains) {
        r->drains = true;
        (void)snprintf(c.text, sizeof c.text, "%s",
                       swept > 0 ? "is over, but a process of it does not end"
                                 : "is over, but its devices have not their memory back");
        if (store_write(w->app->store, store_draining, &c, &err) == 0) {
            r->job = c.ref;
        }
    }
    return false;
}

/* A run that did not fit where it was to: the next one is given more room on such devices. The launcher's
 * sentence has what was planned and seen; what the device has is added. */
static int learn(struct tx *tx, struct change *c, struct err *err)
{
    const struct machine *m = inventory_machine(c->w->app->inventory);
    const int64_t peak = c->end->exit.peak_bytes;
    const char *last = "";
    int64_t planned = 0;

    TRY(db_integer(&planned, 0, tx->db, err, "SELECT device_bytes FROM jobs WHERE seq=?", "i",
                   c->ref.seq));
    for (int d = 0; d < m->device_count && planned > 0; d++) {
        const struct device *device = &m->devices[d];
        char text[600];
        if ((c->r->devices >> d & 1U) == 0 || strcmp(last, margins_card(device)) == 0) {
            continue;
        }
        if (last[0] == '\0') {
            (void)snprintf(text, sizeof text, "%.400s; %.60s has %.2f GiB for jobs",
                           c->outcome.error.text, device->id,
                           (double)(device->memory_bytes - device->reserved_bytes) / 0x1p30);
            err_set(&c->outcome.error, ERR_NO_MEMORY, "%s", text);
        }
        last = margins_card(device);
        TRY(margins_learn(tx, last, (uint64_t)planned, (uint64_t)peak, device->memory_bytes,
                          watch_now(c->w), err));
    }
    return 0;
}

static int store_outcome(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;
    const struct machine *m = inventory_machine(c->w->app->inventory);
    struct former before;

    TRY(job_at(tx->db, c->ref.seq, &c->ref, err));
    TRY(outcome_former(tx->db, &c->ref, &before, err));
    c->outcome = outcome_make(&c->ref, c->end, &before, c->w->app->settings);
    if (c->end->has_exit && c->end->exit.error.code == ERR_NO_MEMORY) {
        TRY(learn(tx, c, err));
    }
    TRY(outcome_store(tx, &c->ref, &c->outcome, c->end, watch_now(c->w), err));
    for (int d = 0; d < m->device_count; d++) {
        if ((c->bad >> d & 1U) != 0) {
            (void)snprintf(c->text, sizeof c->text,
                           "%s had left, and the device was not free %lld s later", c->ref.id,
                           (long long)c->w->app->settings->drain_s);
            TRY(inventory_quarantine(c->w->app->inventory, tx, d, c->text, NULL, err));
        }
    }
    return 0;
}

/* Record how the attempt ended, once nothing of it is left. */
static enum run_fate finish(struct watch *w, struct run *r, const struct ending *end)
{
    struct err err = {0};
    struct change c = {.w = w, .r = r, .end = end};

    if (!is_gone(w, r, &c.bad)) {
        return RUN_SOON;
    }
    read_events(w, r);
    c.ref = r->job;
    if (store_write(w->app->store, store_outcome, &c, &err) != 0) {
        log_line("%s: %s", r->job.id, err.text); /* the next look tries again */
        return RUN_GOES_ON;
    }
    if (c.bad != 0) {
        log_line("%s: its devices are quarantined: %s", c.ref.id, c.text);
        inventory_reload(w->app->inventory);
    }
    log_line("%s: attempt %d ended: %s%s%s", c.ref.id, c.ref.attempt, job_state_word(c.ref.state),
             c.ref.state == JOB_FAILED ? ": " : "",
             c.ref.state == JOB_FAILED ? c.outcome.error.text : "");
    return RUN_OVER;
}

/* Fail a job that can't be started. */
static enum run_fate finish_unstarted(struct watch *w, struct run *r, const struct err *why)
{
    const struct ending end = {.not_started = true, .why = *why};

    return finish(w, r, &end);
}

static int undo_start(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    TRY(job_at(tx->db, c->ref.seq, &c->ref, err));
    return c->ref.state == JOB_STARTING ? desk_unstart(tx, &c->ref, c->text, err) : 0;
}

enum run_fate run_launch(struct watch *w, struct run *r)
{
    struct change c = {.w = w, .r = r, .ref = r->job};
    struct err err = {0};
    bool fits = true;

    inventory_refresh(w->app->inventory, &w->reading);
    for (int d = 0; d < MACHINE_DEVICES; d++) {
        r->used_before[d] = w->reading.now[d].used_bytes;
    }
    int rc = run_plan_write(w->app, r->dir, &r->job, r->devices, &w->reading, &fits, &err);
    if (rc == 0 && !fits && r->job.intent[0] == '\0') {
        (void)snprintf(c.text, sizeof c.text, "its devices have not the memory any more");
        log_line("%s: %s; it waits again", r->job.id, c.text);
        if (store_write(w->app->store, undo_start, &c, &err) != 0) {
            log_line("%s: %s", r->job.id, err.text);
            return RUN_GOES_ON;
        }
        return c.ref.state == JOB_QUEUED ? RUN_OVER : RUN_GOES_ON;
    }
    if (rc == 0) {
        rc = spawn_launcher(&r->child, w->app->settings->trainer, r->dir, r->job.attempt, &err);
    }
    r->child_ended = false;
    r->since_ms = r->began_ms = r->heard_ms = watch_ms();
    if (rc != 0) {
        return finish_unstarted(w, r, &err);
    }
    r->child_fd = pidfd_open(r->child, 0); /* without it the end is seen a little later */
    log_line("%s: attempt %d started as process %d", r->job.id, r->job.attempt, (int)r->child);
    return RUN_GOES_ON;
}

/* The lock is free: is it over, or not begun? */
static enum run_fate look_at_end(struct watch *w, struct run *r)
{
    struct ending end = {.killed = r->killed};
    struct err err = {0};
    const bool begun = job_pid_attempt(r->dir) >= r->job.attempt;

    if (attempt_exit_read(&end.exit, r->dir, r->job.attempt, &err) == 0) {
        end.has_exit = true;
        return finish(w, r, &end);
    }
    if (begun) {
        return finish(w, r, &end);
    }
    if (r->child_ended) {
        const int status = WIFEXITED(r->child_status) ? WEXITSTATUS(r->child_status) : 0;
        if (status == 0) {
            return finish(w, r, &end); /* killed as it began: like a run that was lost */
        }
        err_set(&err, err_from_exit(status),
                "the trainer ended with status %d before it began; see the log", status);
        return finish_unstarted(w, r, &err);
    }
    if (r->child == 0 && watch_ms() - r->since_ms > SETTLE_MS) {
        /* honed ended between the row and the launcher; one that is late must not begin after another */
        (void)job_sweep(r->dir);
        return r->job.state == JOB_STOPPING ? finish(w, r, &end) : run_launch(w, r);
    }
    return RUN_GOES_ON;
}

/* The launcher is gone, but a process that its ranks started still holds the lock: it would do so for ever. */
static void end_orphans(struct run *r)
{
    struct err err = {0};
    const bool begun = job_pid_attempt(r->dir) >= r->job.attempt;

    if (r->child != 0 || !begun || job_signal(r->dir, 0, &err) != ERR_NOT_FOUND) {
        r->orphaned_ms = 0;
    } else if (r->orphaned_ms == 0) {
        r->orphaned_ms = watch_ms();
    } else if (watch_ms() - r->orphaned_ms > SETTLE_MS) {
        log_line("%s: ended %d processes that outlived their launcher", r->job.id,
                 job_sweep(r->dir));
        r->orphaned_ms = 0;
    }
}

enum run_fate run_look(struct watch *w, struct run *r)
{
    reap(r);
    const bool alive = job_is_alive(r->dir); /* before the events: none comes after the end */
    read_events(w, r);
    mind(w, r);
    press(w, r);
    if (alive) {
        end_orphans(r);
    }
    return !alive && r->child == 0 ? look_at_end(w, r) : RUN_GOES_ON;
}

/* A folder that did not get its name yet, because we were faster or honed ended between (draft.h). */
static void name_folder(const struct run *r)
{
    char aside[RUN_DIR + 8];

    (void)snprintf(aside, sizeof aside, "%s.new", r->dir);
    if (access(r->dir, F_OK) != 0) {
        (void)rename(aside, r->dir); /* what is missing is found by who writes into it */
    }
}

struct run *run_open(const struct watch *w, const struct job_ref *job, uint64_t devices)
{
    struct run *r = calloc(1, sizeof *r);

    if (r == NULL) {
        return NULL;
    }
    r->job = *job;
    r->devices = devices;
    r->child_fd = -1;
    r->since_ms = r->began_ms = r->heard_ms = watch_ms();
    job_dir(r->dir, sizeof r->dir, w->app->settings, job->id);
    if (job_pid_attempt(r->dir) == job->attempt) {
        const int64_t age = job_pid_age_ms(r->dir);
        r->began_ms -= age > 0 ? age : 0;
    }
    name_folder(r);
    r->watch = inotify_add_watch(w->notify, r->dir, IN_MODIFY | IN_CREATE);
    return r;
}

void run_close(const struct watch *w, struct run *r)
{
    if (r->watch >= 0) {
        (void)inotify_rm_watch(w->notify, r->watch);
    }
    event_reader_close(r->reader);
    close_child(r);
    free(r);
}
