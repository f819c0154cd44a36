/* supervise.c - the thread that decides what runs, and watches it. */
#include "server/supervise.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "server/board.h"
#include "server/desk.h"
#include "server/log.h"
#include "server/playground.h"
#include "server/watch.h"

enum {
    LOOK_MS = 1000,     /* between looks when nothing is heard                          */
    BATCH_MS = 100,     /* between reads of events, so that many share a commit         */
    PASS_MS = 2000,     /* between passes while jobs wait and nothing is heard          */
    IDLE_PASS_MS = 5000 /* likewise when none waits                                     */
};

struct supervisor {
    struct watch watch;
    pthread_t thread;
    int kick;             /* eventfd */
    bool closing;         /* set before the last kick, read by the thread */
    pthread_mutex_t lock; /* guards closing */
    /* of the thread alone */
    int count, room;
    struct run **runs; /* owned */
    struct pollfd *wait;
    bool due, soon; /* a pass; the next look */
    int waiting;    /* jobs, by the last pass */
    int64_t passed_ms;
};

void job_dir(char *out, size_t size, const struct settings *settings, const char *id)
{
    (void)snprintf(out, size, "%s/jobs/%s", settings->data, id);
}

/* Room for more runs, and for what is waited for on their account. */
static bool make_room(struct supervisor *s)
{
    const int more = s->room == 0 ? 8 : 2 * s->room;

    struct run **runs = realloc(s->runs, (size_t)more * sizeof(struct run *));
    if (runs == NULL) {
        return false;
    }
    s->runs = runs;
    struct pollfd *wait = realloc(s->wait, ((size_t)more + 2) * sizeof *wait);
    if (wait == NULL) {
        return false;
    }
    s->wait = wait;
    s->room = more;
    return true;
}

/* Add a run to the list; NULL: no memory, a later look tries again. */
static struct run *add_run(struct supervisor *s, const struct job_ref *job, uint64_t devices)
{
    if (s->count == s->room && !make_room(s)) {
        return NULL;
    }
    struct run *r = run_open(&s->watch, job, devices);
    if (r != NULL) {
        s->runs[s->count++] = r;
    }
    return r;
}

static void end_run(struct supervisor *s, int i)
{
    run_close(&s->watch, s->runs[i]);
    s->runs[i] = s->runs[--s->count];
    s->due = true;
}

static void heed(struct supervisor *s, struct run *r, enum run_fate fate)
{
    s->soon = s->soon || fate == RUN_SOON;
    for (int i = 0; i < s->count && fate == RUN_OVER; i++) {
        if (s->runs[i] == r) {
            end_run(s, i);
            return;
        }
    }
}

/* What the store says is live. */
struct found {
    const struct machine *machine;
    int count, room;
    struct job_ref *jobs; /* owned */
    uint64_t *devices;    /* owned; of each */
};

static void found_free(struct found *f)
{
    free(f->jobs);
    free(f->devices);
}

static bool find_room(struct found *f)
{
    const int more = f->room == 0 ? 16 : 2 * f->room;

    struct job_ref *jobs = realloc(f->jobs, (size_t)more * sizeof *jobs);
    if (jobs == NULL) {
        return false;
    }
    f->jobs = jobs;
    uint64_t *devices = realloc(f->devices, (size_t)more * sizeof *devices);
    if (devices == NULL) {
        return false;
    }
    f->devices = devices;
    f->room = more;
    return true;
}

static int add_found(struct found *f, sqlite3 *db, int64_t seq, struct err *err)
{
    if (f->count == f->room && !find_room(f)) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the list of runs");
    }
    TRY(job_at(db, seq, &f->jobs[f->count], err));
    TRY(desk_devices(db, f->machine, seq, &f->devices[f->count], err));
    f->count++;
    return 0;
}

static int find_live(sqlite3 *db, void *argument, struct err *err)
{
    struct found *f = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT seq FROM jobs INDEXED BY jobs_live"
                 " WHERE state NOT IN('succeeded','failed','cancelled')"
                 " AND state IN('starting','running','stopping') ORDER BY seq",
                 ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        rc = add_found(f, db, sqlite3_column_int64(q, 0), err);
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* A run without leases: the store was made anew, or is older than they are. */
struct adoption {
    const struct supervisor *s;
    const struct job_ref *job;
    uint64_t devices;
};

static int adopt(struct tx *tx, void *argument, struct err *err)
{
    struct adoption *a = argument;
    const struct machine *m = inventory_machine(a->s->watch.app->inventory);
    struct view *view = malloc(sizeof *view);

    if (view == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a view of the machine");
    }
    int rc = inventory_view(a->s->watch.app->inventory, &a->s->watch.reading, tx->db, 0, view, err);
    rc = rc != 0 ? rc : desk_adopt(tx, m, a->job, view->good, watch_now(&a->s->watch), err);
    rc = rc != 0 ? rc : desk_devices(tx->db, m, a->job->seq, &a->devices, err);
    free(view);
    return rc;
}

static void watch_again(struct supervisor *s, const struct job_ref *job, uint64_t devices)
{
    struct adoption a = {.s = s, .job = job, .devices = devices};
    struct err err = {0};

    log_line("%s: watched again (attempt %d, %s)", job->id, job->attempt,
             job_state_word(job->state));
    if (devices == 0 && store_write(s->watch.app->store, adopt, &a, &err) != 0) {
        log_line("%s: %s", job->id, err.text);
    }
    (void)add_run(s, job, a.devices);
}

/* Bring the list in line with the store: new ones (after a start of honed), changed intents. */
static void update_list(struct supervisor *s, const struct found *f)
{
    for (int i = 0; i < f->count; i++) {
        int k = 0;
        while (k < s->count && s->runs[k]->job.seq != f->jobs[i].seq) {
            k++;
        }
        if (k < s->count) {
            s->runs[k]->job = f->jobs[i];
        } else {
            watch_again(s, &f->jobs[i], f->devices[i]);
        }
    }
}

/* A pass: what it needs and what came of it. */
struct pass {
    struct supervisor *s;
    uint64_t loans; /* devices that models are on */
    struct view view;
    struct desk_round round;
    uint64_t held; /* after it */
    struct offer offer;
};

static int dispatch(struct tx *tx, void *argument, struct err *err)
{
    struct pass *p = argument;
    const struct watch *w = &p->s->watch;
    const struct machine *m = inventory_machine(w->app->inventory);
    uint64_t held = 0;

    TRY(desk_held(tx->db, m, &held, err));
    TRY(inventory_view(w->app->inventory, &w->reading, tx->db, held | p->loans, &p->view, err));
    TRY(desk_dispatch(tx, w->app->settings, &p->view, p->loans, watch_now(w), &p->round, err));
    return desk_held(tx->db, m, &p->held, err);
}

/* Do what the pass has put into the store. */
static void carry_out(struct supervisor *s, const struct desk_round *round)
{
    for (int i = 0; i < round->started_count; i++) {
        struct run *r = add_run(s, &round->started[i], round->devices[i]);
        if (r != NULL) { /* else the next look finds it in the store */
            heed(s, r, run_launch(&s->watch, r));
        }
    }
    for (int i = 0; i < round->told_count; i++) {
        for (int k = 0; k < s->count; k++) {
            if (s->runs[k]->job.seq == round->told[i].seq) {
                s->runs[k]->job = round->told[i];
                heed(s, s->runs[k], run_look(&s->watch, s->runs[k]));
                break;
            }
        }
    }
}

/* Devices that no job holds or is to have next. */
static uint64_t spare(const struct pass *p)
{
    uint64_t next = p->round.plan.head >= 0 ? p->round.plan.head_devices : 0;

    for (int i = 0; i < p->round.plan.start_count; i++) {
        next |= p->round.plan.starts[i].devices;
    }
    return p->view.good & ~p->view.busy & ~p->held & ~next;
}

static void make_pass(struct supervisor *s)
{
    struct playground *playground = s->watch.app->playground;
    struct pass *p = calloc(1, sizeof *p);
    struct err err = {0};

    s->due = false;
    s->passed_ms = watch_ms();
    if (p == NULL) {
        log_line("queue: no memory for a pass");
        return;
    }
    p->s = s;
    p->loans = playground_hold(playground);
    if (store_write(s->watch.app->store, dispatch, p, &err) != 0) {
        log_line("queue: %s", err.text);
        playground_lend(playground, NULL);
    } else {
        s->waiting = p->round.plan.waiting - p->round.started_count;
        board_put(s->watch.app->board, &p->round);
        carry_out(s, &p->round);
        p->offer.spare = spare(p);
        p->offer.wanted = p->round.wanted;
        memcpy(p->offer.room, p->view.room, sizeof p->offer.room);
        playground_lend(playground, &p->offer); /* waits a moment for models to leave */
        s->due = p->round.wanted != 0 || s->due;
    }
    desk_round_free(&p->round);
    free(p);
}

static void look_around(struct supervisor *s)
{
    const struct app *app = s->watch.app;
    struct found f = {.machine = inventory_machine(app->inventory)};
    struct err err = {0};

    inventory_get(app->inventory, &s->watch.reading);
    s->soon = false;
    if (store_read(app->store, find_live, &f, &err) != 0) {
        log_line("queue: %s", err.text);
        found_free(&f);
        return;
    }
    update_list(s, &f);
    found_free(&f);
    for (int i = s->count - 1; i >= 0; i--) { /* backwards: a finished one leaves its place */
        heed(s, s->runs[i], run_look(&s->watch, s->runs[i]));
    }
    if (s->due || watch_ms() - s->passed_ms >= (s->waiting > 0 ? PASS_MS : IDLE_PASS_MS)) {
        make_pass(s);
    }
}

/* Wait for a kick, a change in a watched folder, or the time. */
static void wait_for_news(struct supervisor *s)
{
    struct pollfd none[2], *wait = s->wait != NULL ? s->wait : none;
    char text[4096];
    uint64_t kicks = 0;
    nfds_t count = 1;

    wait[0] = (struct pollfd){.fd = s->kick, .events = POLLIN};
    for (int i = 0; i < s->count; i++) {
        if (s->runs[i]->child_fd >= 0) {
            wait[count++] = (struct pollfd){.fd = s->runs[i]->child_fd, .events = POLLIN};
        }
    }
    /* the first while not for events, so that they gather */
    if (poll(wait, count, s->due ? 0 : BATCH_MS) == 0 && !s->due && !s->soon) {
        wait[count] = (struct pollfd){.fd = s->watch.notify, .events = POLLIN};
        (void)poll(wait, count + 1, LOOK_MS);
    }
    /* both are emptied; that nothing was there is as good */
    s->due = read(s->kick, &kicks, sizeof kicks) > 0 || s->due;
    while (read(s->watch.notify, text, sizeof text) > 0) {
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
    s->watch.app = app;
    s->watch.zero_s = (int64_t)time(NULL) - watch_ms() / 1000;
    s->due = true;
    pthread_mutex_init(&s->lock, NULL);
    s->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->watch.notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (s->kick < 0 || s->watch.notify < 0 ||
        pthread_create(&s->thread, NULL, supervise_for_ever, s) != 0) {
        const int why = errno;
        (void)close(s->kick);
        (void)close(s->watch.notify);
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
        end_run(s, 0);
    }
    free(s->runs);
    free(s->wait);
    (void)close(s->kick);
    (void)close(s->watch.notify);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
