/* supervise.c - the thread that runs jobs. */
#include "server/supervise.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/ingest.h"
#include "server/log.h"
#include "server/outcome.h"
#include "server/playground.h"
#include "server/references.h"
#include "server/spawn.h"
#include "trainer/base/io.h"

enum {
    LIVE_MAX = 16,      /* runs that are watched; more than one only after trouble      */
    LOOK_MS = 1000,     /* between looks when nothing is heard                          */
    BATCH_MS = 100,     /* between reads of events, so that many share a commit         */
    BATCH_LINES = 2000, /* of one commit                                                */
    ANNOUNCE_MS = 1000, /* between job objects whose numbers alone changed              */
    SETTLE_MS = 3000,   /* what a launcher of an earlier honed may take to get its lock */
    DIR_PATH = SETTING_TEXT + 64,
};

/* A job that is starting, running or stopping. */
struct live {
    struct job_ref job;
    char dir[DIR_PATH];
    pid_t child;  /* launcher that this process started; 0 for another's or none */
    int child_fd; /* readable when it has ended; -1 for none                   */
    bool child_ended;
    int child_status;
    int watch; /* of inotify; -1 for none */
    struct event_reader *reader;
    int64_t since_ms, asked_ms, announced_ms;
    int64_t
        orphaned_ms; /* when the launcher was first missed while its lock was held; 0: it is there */
    int asked;       /* signal that was sent for the intent; 0 for none */
    bool killed, stale_announcement;
};

struct supervisor {
    const struct app *app;
    pthread_t thread;
    int kick, notify;     /* eventfd, inotify */
    bool closing;         /* set before the last kick, read by the thread */
    pthread_mutex_t lock; /* guards closing */
    int count;
    struct live live[LIVE_MAX];
};

void job_dir(char *out, size_t size, const struct settings *settings, const char *id)
{
    (void)snprintf(out, size, "%s/jobs/%s", settings->data, id);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A write about a live job. */
struct change {
    struct supervisor *s;
    struct live *l;
    struct ingested read;
    bool announced;
    const struct ending *end;
    struct outcome outcome;
    struct job_ref ref; /* a copy; taken over after the commit */
};

/* Read the events that are there. On failure the reader begins anew where the store stands. */
static int read_batch(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    /* what users asked for since the last look */
    TRY(job_find(tx->db, c->ref.id, NULL, DEED_SEE_JOB, &c->ref, err));
    TRY(ingest_read(tx, &c->ref, c->l->reader, BATCH_LINES, &c->read, err));
    const bool due = now_ms() - c->l->announced_ms >= ANNOUNCE_MS;
    c->l->stale_announcement = c->l->stale_announcement || c->read.announce;
    c->announced = c->l->stale_announcement && due;
    return c->announced ? job_announce(tx, &c->ref, err) : 0;
}

static void read_events(struct supervisor *s, struct live *l)
{
    struct err err = {0};
    struct change c = {.s = s, .l = l};

    do {
        c.ref = l->job;
        if (l->reader == NULL &&
            event_reader_open(&l->reader, l->dir, l->job.tail_offset, &err) != 0) {
            log_line("%s: %s", l->job.id, err.text);
            return;
        }
        if (store_write(s->app->store, read_batch, &c, &err) != 0) {
            log_line("%s: events: %s", l->job.id, err.text);
            event_reader_close(l->reader);
            l->reader = NULL;
            return;
        }
        l->job = c.ref;
        if (c.announced) {
            l->stale_announcement = false;
            l->announced_ms = now_ms();
        }
    } while (c.read.events == BATCH_LINES);
}

/* The signal that says what the intent means; 0 for no intent. */
static int signal_of(const char *intent)
{
    if (intent[0] == '\0') {
        return 0;
    }
    return strcmp(intent, "cancel") == 0 ? SIGINT : SIGTERM;
}

/* Pass the intent on, and end a run that does not follow it. */
static void press(struct supervisor *s, struct live *l)
{
    const int wanted = signal_of(l->job.intent);
    const int64_t now = now_ms();
    struct err err = {0};

    if (wanted == 0) {
        return;
    }
    if (wanted != l->asked && job_signal(l->dir, wanted, &err) == 0) {
        log_line("%s: told to %s", l->job.id, l->job.intent);
        l->asked_ms = l->asked == 0 ? now : l->asked_ms;
        l->asked = wanted;
    }
    if (l->asked != 0 && now - l->asked_ms > s->app->settings->grace_seconds * 1000 && !l->killed) {
        log_line("%s: killed: it did not leave in %lld s", l->job.id,
                 (long long)s->app->settings->grace_seconds);
        l->killed = job_signal(l->dir, SIGKILL, &err) == 0;
    }
}

static void close_child(struct live *l)
{
    if (l->child_fd >= 0) {
        (void)close(l->child_fd);
        l->child_fd = -1;
    }
}

static void reap(struct live *l)
{
    int status = 0;

    if (l->child != 0 && waitpid(l->child, &status, WNOHANG) == l->child) {
        l->child = 0;
        l->child_ended = true;
        l->child_status = status;
        close_child(l);
    }
}

static void forget(struct supervisor *s, struct live *l)
{
    if (l->watch >= 0) {
        (void)inotify_rm_watch(s->notify, l->watch);
    }
    event_reader_close(l->reader);
    close_child(l);
    *l = s->live[--s->count];
}

static int store_outcome(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;

    TRY(job_find(tx->db, c->ref.id, NULL, DEED_SEE_JOB, &c->ref, err));
    c->outcome = outcome_make(&c->ref, c->end, c->s->app->settings->max_tries);
    return outcome_store(tx, &c->ref, &c->outcome, err);
}

/* Record how the attempt ended. */
static void finish(struct supervisor *s, struct live *l, struct ending *end)
{
    struct err err = {0};
    struct change c = {.s = s, .l = l, .end = end};

    if (!end->has_exit) {
        const int swept = job_sweep(l->dir);
        if (swept > 0) {
            log_line("%s: ended %d processes that were left", l->job.id, swept);
        }
    }
    read_events(s, l);
    c.ref = l->job;
    if (store_write(s->app->store, store_outcome, &c, &err) != 0) {
        log_line("%s: %s", l->job.id, err.text); /* the next look tries again */
        return;
    }
    log_line("%s: attempt %d ended: %s%s%s", c.ref.id, c.ref.attempt, job_state_word(c.ref.state),
             c.ref.state == JOB_FAILED ? ": " : "",
             c.ref.state == JOB_FAILED ? c.outcome.error.text : "");
    forget(s, l);
}

/* Fail a job that can't be started. */
static void finish_unstarted(struct supervisor *s, struct live *l, const struct err *why)
{
    struct ending end = {.not_started = true, .why = *why};

    finish(s, l, &end);
}

static int read_references(sqlite3 *db, void *argument, struct err *err)
{
    struct change *c = argument;
    sqlite3_stmt *q = NULL;
    bool row = false;
    json_t *references = NULL, *resolved = NULL;
    struct attempt_plan *plan = calloc(1, sizeof *plan);

    if (plan == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    int rc =
        db_query(&q, db, err, "SELECT inputs, resolved FROM jobs WHERE seq=?", "i", c->ref.seq);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    if (rc == 0) {
        references = json_loads(db_text(q, 0), 0, NULL);
        resolved = json_loads(db_text(q, 1), 0, NULL);
        plan->attempt = c->ref.attempt;
        plan->threads = (int)json_integer_value(json_object_get(resolved, "threads"));
        (void)snprintf(plan->cache, sizeof plan->cache, "%s/cache", c->s->app->settings->data);
        rc = references_plan(references, plan, err);
    }
    if (rc == 0) {
        rc = attempt_plan_write(c->l->dir, plan, err);
    }
    json_decref(references);
    json_decref(resolved);
    sqlite3_finalize(q);
    free(plan);
    return rc;
}

/* Write the plan of the attempt in l->job and start its launcher. */
static void launch(struct supervisor *s, struct live *l)
{
    struct change c = {.s = s, .l = l, .ref = l->job};
    struct err err = {0};

    int rc = store_read(s->app->store, read_references, &c, &err);
    if (rc == 0) {
        rc = spawn_launcher(&l->child, s->app->settings->trainer, l->dir, &err);
    }
    l->child_ended = false;
    l->since_ms = now_ms();
    if (rc != 0) {
        finish_unstarted(s, l, &err);
        return;
    }
    l->child_fd = pidfd_open(l->child, 0); /* without it the end is seen a little later */
    log_line("%s: attempt %d started as process %d", l->job.id, l->job.attempt, (int)l->child);
}

/* The lock is free: is it over, or not begun? */
static void look_at_end(struct supervisor *s, struct live *l)
{
    struct ending end = {.killed = l->killed};
    struct err err = {0};
    const bool begun = job_pid_attempt(l->dir) >= l->job.attempt;

    if (attempt_exit_read(&end.exit, l->dir, l->job.attempt, &err) == 0) {
        end.has_exit = true;
        finish(s, l, &end);
    } else if (begun) {
        finish(s, l, &end);
    } else if (l->child_ended) {
        const int status = WIFEXITED(l->child_status) ? WEXITSTATUS(l->child_status) : 0;
        if (status != 0) {
            err_set(&err, err_from_exit(status),
                    "the trainer ended with status %d before it began; see the log", status);
            finish_unstarted(s, l, &err);
        } else {
            finish(s, l, &end); /* killed as it began: like a run that was lost */
        }
    } else if (l->child == 0 && now_ms() - l->since_ms > SETTLE_MS) {
        if (l->job.state == JOB_STOPPING) {
            finish(s, l, &end);
        } else {
            launch(s, l); /* honed ended between the row and the launcher */
        }
    }
}

/* The launcher is gone, but a process that its ranks started still holds the lock: it would do so for ever. */
static void end_orphans(struct live *l)
{
    struct err err = {0};
    const bool begun = job_pid_attempt(l->dir) >= l->job.attempt;

    if (l->child != 0 || !begun || job_signal(l->dir, 0, &err) != ERR_NOT_FOUND) {
        l->orphaned_ms = 0;
    } else if (l->orphaned_ms == 0) {
        l->orphaned_ms = now_ms();
    } else if (now_ms() - l->orphaned_ms > SETTLE_MS) {
        log_line("%s: ended %d processes that outlived their launcher", l->job.id,
                 job_sweep(l->dir));
        l->orphaned_ms = 0;
    }
}

static void look_at(struct supervisor *s, struct live *l)
{
    reap(l);
    const bool alive = job_is_alive(l->dir); /* before the events: none comes after the end */
    read_events(s, l);
    press(s, l);
    if (alive) {
        end_orphans(l);
    }
    if (!alive && l->child == 0) {
        look_at_end(s, l);
    }
}

/* What the store says is live. */
struct found {
    int count;
    struct job_ref jobs[LIVE_MAX];
};

static int find_live(sqlite3 *db, void *argument, struct err *err)
{
    struct found *f = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;

    f->count = 0;
    TRY(db_query(&q, db, err,
                 "SELECT id FROM jobs WHERE state IN('starting','running','stopping') ORDER BY seq",
                 ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row && f->count < LIVE_MAX) {
        rc = job_find(db, db_text(q, 0), NULL, DEED_SEE_JOB, &f->jobs[f->count], err);
        f->count += rc == 0;
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* A folder that did not get its name yet, because we were faster or honed ended between (draft.h). */
static void name_folder(const struct live *l)
{
    char aside[DIR_PATH + 8];

    (void)snprintf(aside, sizeof aside, "%s.new", l->dir);
    if (access(l->dir, F_OK) != 0) {
        (void)rename(aside, l->dir); /* what is missing is found by who writes into it */
    }
}

static struct live *watch_job(struct supervisor *s, const struct job_ref *job)
{
    struct live *l = &s->live[s->count++];

    *l = (struct live){.job = *job, .since_ms = now_ms(), .child_fd = -1};
    job_dir(l->dir, sizeof l->dir, s->app->settings, job->id);
    name_folder(l);
    l->watch = inotify_add_watch(s->notify, l->dir, IN_MODIFY | IN_CREATE);
    return l;
}

/* Bring the list in line with the store: new ones (after a start of honed), changed intents. */
static void update_list(struct supervisor *s, const struct found *f)
{
    for (int i = 0; i < f->count; i++) {
        int k = 0;
        while (k < s->count && s->live[k].job.seq != f->jobs[i].seq) {
            k++;
        }
        if (k < s->count) {
            s->live[k].job = f->jobs[i];
        } else if (s->count < LIVE_MAX) {
            log_line("%s: watched again (attempt %d, %s)", f->jobs[i].id, f->jobs[i].attempt,
                     job_state_word(f->jobs[i].state));
            (void)watch_job(s, &f->jobs[i]);
        }
    }
}

/* Take the first job of the queue: its row first, then the plan, then the launcher. */
static int take_first(struct tx *tx, void *argument, struct err *err)
{
    struct change *c = argument;
    bool found = false;

    TRY(job_first(tx->db, JOB_QUEUED, &c->ref, &found, err));
    if (!found) {
        c->ref.seq = 0;
        return 0;
    }
    char dir[DIR_PATH];
    job_dir(dir, sizeof dir, c->s->app->settings, c->ref.id);
    const int newest = attempt_newest(dir);
    c->ref.attempt = (newest > c->ref.attempt ? newest : c->ref.attempt) + 1;
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET attempt=?, stage='launching', stage_done=NULL, stage_total=NULL,"
               " stage_unit=NULL, error_code=NULL, error_message=NULL, error_param=NULL,"
               " started_at=ifnull(started_at, ?) WHERE seq=?",
               "iii", (int64_t)c->ref.attempt, (int64_t)time(NULL), c->ref.seq));
    return job_move(tx, &c->ref, JOB_STARTING, NULL, err);
}

static void start_next(struct supervisor *s)
{
    struct change c = {.s = s};
    struct err err = {0};

    if (store_write(s->app->store, take_first, &c, &err) != 0) {
        log_line("queue: %s", err.text);
    } else if (c.ref.seq != 0) {
        launch(s, watch_job(s, &c.ref));
    }
}

static int find_queued(sqlite3 *db, void *argument, struct err *err)
{
    struct job_ref first;

    return job_first(db, JOB_QUEUED, &first, argument, err);
}

/* Models that answer leave before a job begins. */
static bool has_room(struct supervisor *s)
{
    struct err err = {0};
    bool wanted = s->count > 0;

    if (!wanted && store_read(s->app->store, find_queued, &wanted, &err) != 0) {
        log_line("queue: %s", err.text);
    }
    return playground_make_room(s->app->playground, wanted) && s->count == 0 && wanted;
}

static void look_around(struct supervisor *s)
{
    struct found *f = malloc(sizeof *f);
    struct err err = {0};

    if (f == NULL || store_read(s->app->store, find_live, f, &err) != 0) {
        log_line("queue: %s", f == NULL ? "no memory" : err.text);
        free(f);
        return;
    }
    update_list(s, f);
    free(f);
    for (int i = s->count - 1; i >= 0; i--) { /* backwards: a finished one leaves its place */
        look_at(s, &s->live[i]);
    }
    if (has_room(s)) {
        start_next(s);
    }
}

/* Wait for a kick, a change in a watched folder, or the time. */
static void wait_for_news(struct supervisor *s)
{
    struct pollfd wait[LIVE_MAX + 2] = {{.fd = s->kick, .events = POLLIN}};
    char text[4096];
    uint64_t kicks = 0;
    nfds_t count = 1;

    for (int i = 0; i < s->count; i++) {
        if (s->live[i].child_fd >= 0) {
            wait[count++] = (struct pollfd){.fd = s->live[i].child_fd, .events = POLLIN};
        }
    }
    /* the first while not for events, so that they gather */
    if (poll(wait, count, BATCH_MS) == 0) {
        wait[count] = (struct pollfd){.fd = s->notify, .events = POLLIN};
        (void)poll(wait, count + 1, LOOK_MS);
    }
    /* both are emptied; that nothing was there is as good */
    (void)!read(s->kick, &kicks, sizeof kicks);
    while (read(s->notify, text, sizeof text) > 0) {
    }
}

static bool is_closing(struct supervisor *s)
{
    pthread_mutex_lock(&s->lock);
    const bool closing = s->closing;
    pthread_mutex_unlock(&s->lock);
    return closing;
}

static void *supervise_for_ever(void *argument)
{
    struct supervisor *s = argument;

    while (!is_closing(s)) {
        look_around(s);
        wait_for_news(s);
    }
    return NULL;
}

int supervisor_open(struct supervisor **out, const struct app *app, struct err *err)
{
    struct supervisor *s = calloc(1, sizeof *s);

    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the supervisor");
    }
    s->app = app;
    pthread_mutex_init(&s->lock, NULL);
    s->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (s->kick < 0 || s->notify < 0 ||
        pthread_create(&s->thread, NULL, supervise_for_ever, s) != 0) {
        const int why = errno;
        (void)close(s->kick);
        (void)close(s->notify);
        free(s);
        return FAIL(err, ERR_IO, "the supervisor does not start: %s", strerror(why));
    }
    *out = s;
    return 0;
}

void supervisor_kick(struct supervisor *s)
{
    const uint64_t one = 1;

    (void)!write(s->kick, &one, sizeof one); /* fails only when kicks are waiting already */
}

void supervisor_close(struct supervisor *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    supervisor_kick(s);
    pthread_join(s->thread, NULL);
    while (s->count > 0) {
        forget(s, &s->live[0]);
    }
    (void)close(s->kick);
    (void)close(s->notify);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
