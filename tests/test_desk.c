/* test_desk.c - the queue in the store through random lives of a lab, on a virtual clock.
 *
 * The store, the pass, the desk and the outcomes are the server's; only time, devices and trainers are made up.
 * HONE_SEQUENCES lives are played (200 unless told otherwise); HONE_SEED plays one again. Every eighth is played
 * twice, once with restarts that throw away all that is not in the store, and must come out the same. Invariants
 * have the names of the reference (I1 to I22) and are checked by counting rows, not by the code under test.
 */
#include "server/desk.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "server/actions.h"
#include "server/outcome.h"
#include "server/store.h"
#include "tests/tap.h"
#include "trainer/base/io.h"

enum { USERS = 4, RUNS = 64, ACTIONS = 70, SEQUENCES = 200, GRACE = 120, JOBS = 400 };

/* A trainer that is there whether a server watches it or not. */
struct fake {
    int64_t seq, ends_at, told_at;
    int attempt;
    uint64_t devices;
};

struct lab {
    uint64_t seed, state;
    int64_t now;
    struct machine machine;
    uint64_t quarantined, lost, foreign; /* masks */
    struct settings settings;
    struct store *store;
    const char *dir;
    struct fake fakes[RUNS];
    int fake_count;
    int64_t last_event;
    bool restarts;
    struct desk_round *round; /* of the pass under way */
};

static int failures;

/* How often what a life is to try has happened. */
static struct {
    int starts, told, again, limits, lost, twins, waited;
} seen;

#define HOLDS(l, name, cond)                                                                   \
    do {                                                                                       \
        if (!(cond) && failures++ < 20) {                                                      \
            printf("# HONE_SEED=%llu t=%lld line %d: %s: %s\n", (unsigned long long)(l)->seed, \
                   (long long)(l)->now, __LINE__, name, #cond);                                \
        }                                                                                      \
    } while (0)

static uint32_t pick(struct lab *l, uint32_t below)
{
    l->state = l->state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(l->state >> 33) % below;
}

static bool chance(struct lab *l, uint32_t percent)
{
    return pick(l, 100) < percent;
}

static void write_or_die(struct lab *l, tx_work *work, void *argument)
{
    struct err err = {0};

    CHECK(store_write(l->store, work, argument, &err) == 0, "seed %llu: %s",
          (unsigned long long)l->seed, err.text);
}

/* I17: numbers of events grow. */
static void hear(void *listener, const struct news *first)
{
    struct lab *l = listener;

    for (const struct news *n = first; n != NULL; n = n->next) {
        HOLDS(l, "I17", n->n > l->last_event);
        l->last_event = n->n;
    }
}

static void open_lab(struct lab *l)
{
    struct err err = {0};

    CHECK(store_open(&l->store, l->dir, &err) == 0, "%s", err.text);
    store_listen(l->store, hear, l);
}

static int add_users(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;
    char name[24];

    for (int i = 0; i < USERS; i++) {
        int64_t id = 0;
        (void)snprintf(name, sizeof name, "u%d", i);
        TRY(user_add(tx, name, ROLE_MEMBER, &id, err));
        CHECK(id == i + 1, "user %d", i);
    }
    for (int i = 1; i <= 2; i++) {
        (void)snprintf(name, sizeof name, "array%d", i);
        TRY(db_run(tx->db, err,
                   "INSERT INTO arrays(id, user_id, name, request, grid, total, max_running,"
                   " created_at) VALUES(?,?,'','{}','{}',100,?,0)",
                   "sii", name, (int64_t)i, (int64_t)(1 + pick(l, 3))));
    }
    return 0;
}

static void found_lab(struct lab *l, uint64_t seed, const char *dir, bool restarts)
{
    struct err err = {0};

    memset(l, 0, sizeof *l);
    l->seed = seed;
    l->state = seed * 2862933555777941757U + 3037000493U;
    l->now = 1000000;
    l->dir = dir;
    l->restarts = restarts;
    l->machine.device_count = 1 + (int)pick(l, 6);
    for (int i = 0; i < l->machine.device_count; i++) {
        (void)snprintf(l->machine.devices[i].id, DEVICE_ID, "gpu%d", i);
        l->machine.devices[i].memory_bytes = (uint64_t)(8 + 8 * pick(l, 2)) << 30;
        l->machine.devices[i].is_usable = true;
    }
    l->settings = (struct settings){.max_tries = 2,
                                    .retry_s = 30,
                                    .grace_seconds = GRACE,
                                    .preempt_after_s = 300,
                                    .max_preemptions = 2,
                                    .no_preemption = chance(l, 20)};
    (void)snprintf(l->settings.data, sizeof l->settings.data, "%s", dir);
    CHECK(io_remove_tree(dir, &err) == 0 && io_make_dir(dir, &err) == 0, "%s", err.text);
    open_lab(l);
    write_or_die(l, add_users, l);
}

static struct view see(const struct lab *l)
{
    struct view v = {.machine = &l->machine};

    v.good = ((UINT64_C(1) << l->machine.device_count) - 1) & ~l->quarantined & ~l->lost;
    v.busy = v.good & l->foreign;
    for (int d = 0; d < l->machine.device_count; d++) {
        v.capacity[d] = l->machine.devices[d].memory_bytes;
        v.room[d] = (l->foreign >> d & 1U) != 0 ? 0 : v.capacity[d];
    }
    return v;
}

static int depend(struct tx *tx, struct lab *l, int64_t seq, struct err *err)
{
    static const enum dependency_kind kinds[] = {DEPENDENCY_OK, DEPENDENCY_OK, DEPENDENCY_ENDED,
                                                 DEPENDENCY_NOT_OK};
    const struct identity who = {.user_id = 1, .role = ROLE_ADMIN};
    struct dependencies d = {.count = 1, .at[0].kind = kinds[pick(l, 4)]};
    struct err refused = {0};

    (void)snprintf(d.at[0].job, RANDOM_ID, "job-%u", 1 + pick(l, (uint32_t)seq));
    (void)err;
    (void)dependencies_add(tx, &who, &d, seq, &refused); /* what can't be met is refused */
    return 0;
}

static int submit(struct tx *tx, void *argument, struct err *err)
{
    static const char *const classes[] = {"urgent", "normal", "normal", "low", "idle"};
    struct lab *l = argument;
    const uint32_t class = pick(l, 5);
    struct job_ref job;
    char id[40];
    int64_t seq = 0;

    TRY(db_integer(&seq, 0, tx->db, err, "SELECT ifnull(MAX(seq),0) FROM jobs", ""));
    (void)snprintf(id, sizeof id, "job-%lld", (long long)++seq);
    const int64_t array = chance(l, 25) ? 1 + pick(l, 2) : 0;
    TRY(db_run(tx->db, err,
               "INSERT INTO jobs(seq, id, user_id, name, state, stage, request, resolved, inputs,"
               " created_at, ticket_at, line, class, devices, device_bytes, time_limit_s, requeues,"
               " preemptible, private, begin_at, array_seq) VALUES(?1,?2,?3,'','queued','waiting',"
               "'{}','{}','{}',?4,?4,?1,?5,?6,?7,?8,?9,?10,?11,?12,NULLIF(?13,0))",
               "isiisiiiiiiii", seq, id, array != 0 ? array : 1 + (int64_t)pick(l, USERS), l->now,
               classes[class], (int64_t)(1 + pick(l, (uint32_t)l->machine.device_count) % 3),
               (int64_t)(1 + pick(l, 12)) << 30, (int64_t)(60 + pick(l, 4000)),
               (int64_t)chance(l, 15), (int64_t)(class >= 3 || chance(l, 10)),
               (int64_t)chance(l, 10), chance(l, 10) ? l->now + pick(l, 2000) : INT64_C(0), array));
    if (seq > 1 && chance(l, 30)) {
        TRY(depend(tx, l, seq, err));
    }
    TRY(job_at(tx->db, seq, &job, err));
    return job_announce(tx, &job, err);
}

/* Somebody asks something of a job. */
static int ask(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;
    struct job_ref job;
    int64_t last = 0;

    TRY(db_integer(&last, 0, tx->db, err, "SELECT MAX(seq) FROM jobs", ""));
    if (last == 0) {
        return 0;
    }
    TRY(job_at(tx->db, 1 + pick(l, (uint32_t)last), &job, err));
    struct err refused = {0}; /* what is not possible in the job's state */
    switch ((enum job_action)pick(l, JOB_ACTION_COUNT)) {
    case JOB_CANCEL:
        (void)job_cancel(tx, &job, chance(l, 30), &refused);
        /* every other time it is the next pass that finds what that means for others */
        return job.state == JOB_CANCELLED && chance(l, 50) ? desk_settle_children(tx, &job, err)
                                                           : 0;
    case JOB_PAUSE: (void)job_pause(tx, &job, &refused); return 0;
    case JOB_RESUME:
        job.checkpoint = 1;
        (void)job_resume(tx, &job, &refused);
        return 0;
    case JOB_SAVE:
    case JOB_ACTION_COUNT: break;
    }
    return 0;
}

static int change_limits(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;

    TRY(db_run(tx->db, err, "UPDATE users SET max_running=?, max_devices=? WHERE id=?", "iii",
               (int64_t)pick(l, 4), (int64_t)pick(l, 4), 1 + (int64_t)pick(l, USERS)));
    return db_run(tx->db, err, "UPDATE arrays SET max_running=? WHERE seq=?", "ii",
                  1 + (int64_t)pick(l, 3), 1 + (int64_t)pick(l, 2));
}

static int reserve(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;
    const int64_t from = l->now + pick(l, 3000);
    char id[64], devices[16];

    (void)snprintf(id, sizeof id, "reservation-%lld-%u", (long long)l->now, pick(l, 1000));
    (void)snprintf(devices, sizeof devices, "gpu%u", pick(l, (uint32_t)l->machine.device_count));
    return db_run(tx->db, err,
                  "INSERT INTO reservations(id, from_at, to_at, devices, user_id, note, created_by,"
                  " created_at) VALUES(?,?,?,?,NULLIF(?,0),'','',?)",
                  "siisii", id, from, from + 60 + pick(l, 2000), devices, (int64_t)pick(l, 3),
                  l->now);
}

/* A word for runs that have used up their time, or of which a device is gone. */
static int press(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;

    for (int i = 0; i < l->fake_count; i++) {
        struct fake *f = &l->fakes[i];
        const char *word = NULL;
        struct job_ref job;
        int64_t started = 0;
        TRY(job_at(tx->db, f->seq, &job, err));
        TRY(db_integer(&started, 0, tx->db, err,
                       "SELECT started_at FROM attempts WHERE job_seq=? AND n=?", "ii", f->seq,
                       (int64_t)job.attempt));
        if ((f->devices & l->lost) != 0) {
            word = "card_lost";
        } else if (job.ran_s + l->now - started >= job.time_limit_s) {
            word = "time_limit";
        }
        if (word != NULL && job.intent[0] == '\0' &&
            (job.state == JOB_RUNNING || job.state == JOB_STARTING)) {
            TRY(db_run(tx->db, err, "UPDATE jobs SET intent=?, intent_at=? WHERE seq=?", "sii",
                       word, l->now, f->seq));
            TRY(job_move(tx, &job, JOB_STOPPING, word, err));
            (void)snprintf(job.intent, sizeof job.intent, "%s", word);
        }
        if (job.intent[0] != '\0' && f->told_at == 0) {
            const int64_t gone = l->now + 1 + pick(l, GRACE - 1);
            f->told_at = l->now;
            f->ends_at = f->ends_at < gone ? f->ends_at : gone;
        } else if (job.state == JOB_STARTING && chance(l, 80)) {
            TRY(job_move(tx, &job, JOB_RUNNING, NULL, err));
        }
    }
    return 0;
}

/* How a trainer ends: as told, or in one of the ways of the world. */
static struct ending make_ending(struct lab *l, const struct job_ref *job)
{
    struct ending end = {.has_exit = true,
                         .exit = {.rank = -1, .exit = 0, .step = (int64_t)pick(l, 3)}};
    const uint32_t fate = pick(l, 100);

    if (job->intent[0] != '\0' && fate < 85) {
        end.exit.status = strcmp(job->intent, "cancel") == 0 ? ENDED_CANCELLED : ENDED_STOPPED;
    } else if (fate < 55) {
        end.exit.status = ENDED_SUCCEEDED;
    } else if (fate < 65) {
        end.exit.status = ENDED_FAILED;
        err_set(&end.exit.error, chance(l, 50) ? ERR_NO_MEMORY : ERR_DIVERGED, "its own fault");
    } else if (fate < 85) {
        end.exit.status = ENDED_FAILED;
        end.exit.rank = 0;
        end.exit.signal = chance(l, 70) ? 11 : 7;
        err_set(&end.exit.error, ERR_DEVICE, "rank 0 was ended by a signal");
    } else {
        end.has_exit = false; /* its launcher died */
    }
    return end;
}

struct finish {
    struct lab *l;
    struct fake *fake;
};

static int end_one(struct tx *tx, void *argument, struct err *err)
{
    const struct finish *f = argument;
    struct former before;
    struct job_ref job;

    TRY(job_at(tx->db, f->fake->seq, &job, err));
    const struct ending end = make_ending(f->l, &job);
    TRY(outcome_former(tx->db, &job, &before, err));
    const struct outcome o = outcome_make(&job, &end, &before, &f->l->settings);
    const bool is_own_fault =
        end.has_exit && end.exit.status == ENDED_FAILED && end.exit.error.code != ERR_DEVICE;
    HOLDS(f->l, "never tried again after a fault of its own",
          !is_own_fault || o.state == JOB_FAILED || o.state == JOB_CANCELLED);
    HOLDS(f->l, "tried again at most max_tries times",
          !o.again || job.tries < f->l->settings.max_tries);
    HOLDS(f->l, "I22",
          strcmp(job.intent, "cancel") != 0 || o.state == JOB_CANCELLED ||
              o.state == JOB_SUCCEEDED);
    seen.again += o.again;
    seen.limits += strcmp(job.intent, "time_limit") == 0;
    seen.lost += strcmp(job.intent, "card_lost") == 0;
    return outcome_store(tx, &job, &o, &end, f->l->now, err);
}

static void end_trainers(struct lab *l)
{
    for (int i = l->fake_count - 1; i >= 0; i--) {
        struct finish f = {.l = l, .fake = &l->fakes[i]};
        if (l->fakes[i].ends_at <= l->now) {
            HOLDS(l, "I15: gone within the grace",
                  l->fakes[i].told_at == 0 || l->now - l->fakes[i].told_at <= GRACE + 400);
            write_or_die(l, end_one, &f);
            l->fakes[i] = l->fakes[--l->fake_count];
        }
    }
}

/* The first number that a query gives; a and b are bound when it asks for values. */
static int64_t number(sqlite3 *db, const char *sql, int64_t a, int64_t b)
{
    struct err err = {0};
    int64_t n = 0;
    const int rc = strchr(sql, '?') != NULL ? db_integer(&n, 0, db, &err, sql, "ii", a, b)
                                            : db_integer(&n, 0, db, &err, sql, "");

    CHECK(rc == 0, "%s", err.text);
    return n;
}

/* A job was given devices: was it its turn? */
static void check_start(struct lab *l, sqlite3 *db, const struct job_ref *job, uint64_t devices)
{
    const int64_t seq = job->seq;

    HOLDS(l, "I20", (devices & (l->quarantined | l->lost)) == 0);
    HOLDS(l, "busy devices are not given out", (devices & l->foreign) == 0);
    HOLDS(l, "I12 running",
          number(db,
                 "SELECT max_running=0 OR max_running IS NULL OR (SELECT COUNT(*) FROM jobs WHERE"
                 " user_id=u.id AND state IN('starting','running','stopping'))<=max_running"
                 " FROM users u WHERE id=?1+0*?2",
                 job->user_id, 0) == 1);
    HOLDS(
        l, "I12 devices",
        number(db,
               "SELECT max_devices=0 OR max_devices IS NULL OR (SELECT COUNT(*) FROM leases l JOIN"
               " jobs j ON j.seq=l.job_seq WHERE j.user_id=u.id)<=max_devices"
               " FROM users u WHERE id=?1+0*?2",
               job->user_id, 0) == 1);
    HOLDS(l, "I13",
          job->attempt > 1 ||
              number(db,
                     "SELECT COUNT(*) FROM dependencies d JOIN jobs p ON p.seq=d.parent_seq"
                     " WHERE d.job_seq=?1+0*?2 AND NOT CASE d.kind"
                     " WHEN 'afterok' THEN p.state='succeeded' WHEN 'afternotok' THEN"
                     " p.state='failed' ELSE p.state IN('succeeded','failed','cancelled') END",
                     seq, 0) == 0);
    HOLDS(l, "I14",
          number(db,
                 "SELECT COUNT(*) FROM arrays a WHERE (SELECT COUNT(*) FROM jobs j WHERE"
                 " j.array_seq=a.seq AND j.state IN('starting','running','stopping'))>a.max_running"
                 " AND a.seq=(SELECT array_seq FROM jobs WHERE seq=?1+0*?2)",
                 seq, 0) == 0);
    HOLDS(
        l, "I18",
        number(db,
               "SELECT COUNT(*) FROM reservations r JOIN leases x ON x.device=r.devices"
               " JOIN jobs j ON j.seq=x.job_seq WHERE j.seq=?1 AND r.to_at>?2"
               " AND r.from_at<?2+max(j.time_limit_s-j.ran_s,0) AND ifnull(r.user_id,0)<>j.user_id",
               seq, l->now) == 0);
    HOLDS(l, "begin and retry",
          number(db, "SELECT begin_at<=?2 AND retry_at<=?2 FROM jobs WHERE seq=?1", seq, l->now) ==
              1);
}

static int dispatch(struct tx *tx, void *argument, struct err *err)
{
    struct lab *l = argument;
    const struct view view = see(l);
    struct desk_round *r = l->round;
    const uint64_t not_yet = chance(l, 10) ? UINT64_C(1) << pick(l, 6) : 0;

    TRY(desk_dispatch(tx, &l->settings, &view, not_yet, l->now, r, err));
    seen.waited += r->wanted != 0;
    uint64_t held = 0;
    TRY(desk_held(tx->db, &l->machine, &held, err));
    for (int i = 0; i < r->started_count; i++) {
        HOLDS(l, "devices of models are waited for", (r->devices[i] & not_yet) == 0);
        check_start(l, tx->db, &r->started[i], r->devices[i]);
        seen.starts++;
        CHECK(l->fake_count < RUNS, "too many runs");
        l->fakes[l->fake_count++] = (struct fake){.seq = r->started[i].seq,
                                                  .attempt = r->started[i].attempt,
                                                  .devices = r->devices[i],
                                                  .ends_at = l->now + 1 + pick(l, 900)};
    }
    for (int i = 0; i < r->told_count; i++) {
        const int k = desk_queue_find(&r->queue, r->told[i].seq);
        seen.told++;
        HOLDS(l, "I10 preemptible", k >= 0 && r->queue.jobs[k].preemptible);
        HOLDS(l, "I10 has run", l->now - r->queue.jobs[k].started_at >= 300);
        HOLDS(l, "I10 not too often", r->queue.jobs[k].preemptions < 2);
        HOLDS(l, "I10 switched on", !l->settings.no_preemption);
    }
    if (r->plan.head >= 0) {
        const struct queue_job *head = &r->queue.jobs[r->plan.head];
        HOLDS(l, "I5: the head does not fit",
              r->queue.window_count > 0 ||
                  place_now(&view, &head->need, view.good & ~view.busy & ~held & ~not_yet) == 0 ||
                  r->told_count > 0 || r->wanted != 0);
    }
    return 0;
}

#define LIVE "state IN('starting','running','stopping')"

/* Each counts rows that must not be there. */
static const struct {
    const char *name, *sql;
} rules[] = {
    {"I2: a run holds what it asked for",
     "SELECT COUNT(*) FROM jobs j WHERE " LIVE
     " AND devices<>(SELECT COUNT(*) FROM leases l WHERE l.job_seq=j.seq AND l.attempt=j.attempt)"},
    {"I2: all granted at once", "SELECT COUNT(*) FROM(SELECT 1 FROM leases GROUP BY job_seq"
                                " HAVING MIN(granted_at)<>MAX(granted_at))"},
    {"I3: leases of runs alone",
     "SELECT COUNT(*) FROM leases l JOIN jobs j ON j.seq=l.job_seq WHERE NOT (" LIVE ")"},
    {"I4: one live attempt of a run",
     "SELECT COUNT(*) FROM jobs j WHERE (" LIVE
     ")<>(SELECT COUNT(*) FROM attempts a WHERE a.job_seq=j.seq AND a.ended_at IS NULL)"},
    {"I4: it is the newest",
     "SELECT COUNT(*) FROM jobs j JOIN attempts a ON a.job_seq=j.seq AND a.ended_at IS NULL"
     " WHERE a.n<>j.attempt"},
    {"attempts are numbered without gaps",
     "SELECT COUNT(*) FROM jobs j WHERE attempt<>(SELECT COUNT(*) FROM attempts a"
     " WHERE a.job_seq=j.seq)"},
    {"I19: use is the sum of leases",
     "SELECT COUNT(*) FROM users u WHERE ifnull((SELECT device_s FROM usage x WHERE "
     "x.user_id=u.id),0)"
     "<>(SELECT ifnull(SUM(a.device_count*(a.ended_at-a.started_at)),0) FROM attempts a"
     " JOIN jobs j ON j.seq=a.job_seq WHERE j.user_id=u.id AND a.ended_at IS NOT NULL)"},
    {"I13: nothing waits for what can't come",
     "SELECT COUNT(*) FROM dependencies d JOIN jobs j ON j.seq=d.job_seq"
     " JOIN jobs p ON p.seq=d.parent_seq WHERE j.state='queued' AND j.attempt=0 AND"
     " ((d.kind='afterok' AND p.state IN('failed','cancelled'))"
     " OR (d.kind='afternotok' AND p.state IN('succeeded','cancelled')))"},
    {"an intent is for runs", "SELECT COUNT(*) FROM jobs WHERE intent<>'' AND state<>'stopping'"},
    {"only what ended has an end", "SELECT COUNT(*) FROM jobs WHERE (finished_at IS NOT NULL)<>"
                                   "(state IN('succeeded','failed','cancelled'))"},
    {"waiting jobs say what they wait for",
     "SELECT COUNT(*) FROM jobs WHERE state='queued' AND ifnull(reason,'')=''"},
};

static int check_rows(sqlite3 *db, void *argument, struct err *err)
{
    struct lab *l = argument;
    int64_t live = 0;

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        HOLDS(l, rules[i].name, number(db, rules[i].sql, 0, 0) == 0);
    }
    TRY(db_integer(&live, 0, db, err, "SELECT COUNT(*) FROM jobs WHERE " LIVE, ""));
    HOLDS(l, "no run is lost or doubled", live == l->fake_count);
    for (int i = 0; i < l->fake_count; i++) {
        uint64_t held = 0;
        TRY(desk_devices(db, &l->machine, l->fakes[i].seq, &held, err));
        HOLDS(l, "I1", held == l->fakes[i].devices);
    }
    return 0;
}

/* I17: every step of every job is an arrow of states.def, told once. */
static int check_events(sqlite3 *db, void *argument, struct err *err)
{
    struct lab *l = argument;
    enum job_state at = JOB_STATE_COUNT;
    sqlite3_stmt *q = NULL;
    int64_t job = 0;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT e.job_seq, json_extract(e.body,'$.state'), j.state FROM events e"
                 " JOIN jobs j ON j.seq=e.job_seq WHERE e.type='job' ORDER BY e.job_seq, e.n",
                 ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        const enum job_state next = job_state_from_word(db_text(q, 1));
        if (sqlite3_column_int64(q, 0) != job) {
            HOLDS(l, "I17 begins", next == JOB_QUEUED);
        } else {
            HOLDS(l, "I17 arrow", next == at || job_may_go(at, next));
        }
        job = sqlite3_column_int64(q, 0);
        at = next;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    HOLDS(
        l, "I17 ends where the job is",
        number(db,
               "SELECT COUNT(*) FROM jobs j WHERE state<>(SELECT json_extract(body,'$.state') FROM"
               " events e WHERE e.job_seq=j.seq AND type='job' ORDER BY n DESC LIMIT 1)",
               0, 0) == 0);
    return rc;
}

/* All that a life has left, as a number. */
static int digest(sqlite3 *db, void *out, struct err *err)
{
    static const char *const tables[] = {
        "SELECT seq||state||attempt||tries||ran_s||retry_at||ifnull(back,'')||ifnull(reason,'')||"
        "ifnull(error_code,'') FROM jobs ORDER BY seq",
        "SELECT job_seq||'.'||n||devices||started_at||ifnull(ended_at,'')||ifnull(cause,'') FROM"
        " attempts ORDER BY job_seq, n",
        "SELECT user_id||' '||device_s||' '||decayed FROM usage ORDER BY user_id",
        "SELECT job_seq||' '||at||' '||for_seq FROM preemptions ORDER BY job_seq, at, for_seq",
        "SELECT n||' '||job_seq||type FROM events ORDER BY n",
    };
    uint64_t hash = 1469598103934665603U;

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        sqlite3_stmt *q = NULL;
        bool row = true;
        TRY(db_query(&q, db, err, tables[i], ""));
        int rc = db_next(q, &row, err);
        while (rc == 0 && row) {
            for (const char *c = db_text(q, 0); *c != '\0'; c++) {
                hash = (hash ^ (unsigned char)*c) * 1099511628211U;
            }
            rc = db_next(q, &row, err);
        }
        sqlite3_finalize(q);
        TRY(rc);
    }
    *(uint64_t *)out = hash;
    return 0;
}

static void act(struct lab *l)
{
    const uint32_t what = pick(l, 100);
    const uint64_t device = UINT64_C(1) << pick(l, (uint32_t)l->machine.device_count);

    if (what < 40) {
        write_or_die(l, submit, l);
    } else if (what < 60) {
        write_or_die(l, ask, l);
    } else if (what < 66) {
        write_or_die(l, change_limits, l);
    } else if (what < 69) {
        write_or_die(l, reserve, l);
    } else if (what < 74) {
        l->lost ^= device;
    } else if (what < 77) {
        l->quarantined ^= device;
    } else if (what < 80) {
        l->foreign ^= device;
    } else if (what < 84 && l->restarts) {
        store_close(l->store);
        open_lab(l);
    }
    l->now += chance(l, 60) ? pick(l, 60) : pick(l, 400);
}

static uint64_t live(uint64_t seed, const char *dir, bool restarts)
{
    struct lab *l = calloc(1, sizeof *l);
    struct desk_round round;
    struct err err = {0};
    uint64_t sum = 0;

    CHECK(l != NULL, "no memory");
    found_lab(l, seed, dir, restarts);
    l->round = &round;
    for (int i = 0; i < ACTIONS; i++) {
        act(l);
        end_trainers(l);
        write_or_die(l, press, l);
        write_or_die(l, dispatch, l);
        desk_round_free(&round);
        EXPECT(store_read(l->store, check_rows, l, &err) == 0);
    }
    EXPECT(store_read(l->store, check_events, l, &err) == 0);
    EXPECT(store_read(l->store, digest, &sum, &err) == 0);
    store_close(l->store);
    free(l);
    return sum;
}

static uint64_t environment(const char *name, uint64_t preset)
{
    const char *text = getenv(name);

    return text == NULL ? preset : strtoull(text, NULL, 10);
}

static char folder[64];

static void all_invariants_hold_in_random_lives(void)
{
    const uint64_t only = environment("HONE_SEED", 0);
    const uint64_t count = only != 0 ? 1 : environment("HONE_SEQUENCES", SEQUENCES);

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t seed = only != 0 ? only : i + 1;
        const uint64_t sum = live(seed, folder, true);
        if (seed % 8 == 0 || only != 0) {
            const bool same = live(seed, folder, false) == sum;
            seen.twins++;
            if (!same) {
                failures++;
                printf("# HONE_SEED=%llu: I16: another life without restarts\n",
                       (unsigned long long)seed);
            }
        }
    }
    EXPECT(failures == 0);
    if (count >= 50) { /* a few lives may well miss something */
        EXPECT(seen.starts > 100 && seen.told > 0 && seen.again > 0 && seen.limits > 0);
        EXPECT(seen.lost > 0 && seen.waited > 0 && seen.twins > 0);
    }
    printf("# %d starts, %d told to make room, %d tried again, %d time limits, %d lost devices\n",
           seen.starts, seen.told, seen.again, seen.limits, seen.lost);
}

static int wait_for_retry(struct tx *tx, void *argument, struct err *err)
{
    const struct lab *l = argument;

    return db_run(
        tx->db, err,
        "INSERT INTO jobs(id, user_id, name, state, request, resolved, inputs, created_at,"
        " retry_at, begin_at) VALUES('job-a',1,'','queued','{}','{}','{}',1,?,0),"
        "('job-b',2,'','queued','{}','{}','{}',1,0,?)",
        "ii", l->now + 100, l->now + 200);
}

/* How many jobs a pass at that time starts. */
static int starts_at(struct lab *l, int64_t now)
{
    struct desk_round round;

    l->round = &round;
    l->now = now;
    write_or_die(l, dispatch, l);
    const int count = round.started_count;
    desk_round_free(&round);
    return count;
}

static void what_is_not_to_start_yet_starts_when_its_time_has_come(void)
{
    struct lab *l = calloc(1, sizeof *l);

    CHECK(l != NULL, "no memory");
    found_lab(l, 3, folder, false);
    l->machine.device_count = 4;
    for (int i = 0; i < 4; i++) {
        (void)snprintf(l->machine.devices[i].id, DEVICE_ID, "gpu%d", i);
        l->machine.devices[i].memory_bytes = UINT64_C(8) << 30;
    }
    write_or_die(l, wait_for_retry, l);
    const int64_t begin = l->now;
    EXPECT(starts_at(l, begin) == 0);
    EXPECT(starts_at(l, begin + 99) == 0);
    /* now and then a model is in the way for one pass */
    EXPECT(starts_at(l, begin + 150) + starts_at(l, begin + 151) + starts_at(l, begin + 152) == 1);
    EXPECT(starts_at(l, begin + 199) == 0);
    EXPECT(starts_at(l, begin + 250) + starts_at(l, begin + 251) + starts_at(l, begin + 252) == 1);
    store_close(l->store);
    free(l);
}

int main(void)
{
    struct err err = {0};

    /* in memory where that is there: commits wait for the disk else */
    (void)snprintf(folder, sizeof folder, "%s/hone-test-desk-%d",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    RUN(what_is_not_to_start_yet_starts_when_its_time_has_come);
    RUN(all_invariants_hold_in_random_lives);
    CHECK(io_remove_tree(folder, &err) == 0, "%s", err.text);
    return tap_done();
}
