/* desk.c - the queue in the store. */
#include "server/desk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/protocol.h"

enum {
    KEPT_REASONS = 100, /* waiting jobs whose reason the store has; all others' are on the board */
    NAMES = 128,        /* of jobs that reasons mention; further ones are "another job" */
    TOLD_REASONS = 10,  /* of which changes are announced                                         */
    REASON_SIZE = 256,
    DIR_SIZE = SETTING_TEXT + 64,
};

int desk_held(sqlite3 *db, const struct machine *m, uint64_t *held, struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    *held = 0;
    TRY(db_query(&rows, db, err, "SELECT device FROM leases", ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        const int d = machine_device(m, db_text(rows, 0));
        *held |= d >= 0 ? UINT64_C(1) << d : 0;
        rc = db_next(rows, &row, err);
    }
    sqlite3_finalize(rows);
    return rc;
}

int desk_devices(sqlite3 *db, const struct machine *m, int64_t job_seq, uint64_t *devices,
                 struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    *devices = 0;
    TRY(db_query(&rows, db, err, "SELECT device FROM leases WHERE job_seq=?", "i", job_seq));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        const int d = machine_device(m, db_text(rows, 0));
        *devices |= d >= 0 ? UINT64_C(1) << d : 0;
        rc = db_next(rows, &row, err);
    }
    sqlite3_finalize(rows);
    return rc;
}

/* Enter the leases of the job's attempt, and the attempt itself. */
static int grant(struct tx *tx, const struct machine *m, const struct job_ref *job,
                 uint64_t devices, int64_t now, struct err *err)
{
    char ids[MACHINE_DEVICES * (DEVICE_ID + 1)] = "";
    size_t used = 0;

    for (int d = 0; d < m->device_count; d++) {
        if ((devices >> d & 1U) == 0) {
            continue;
        }
        used += (size_t)snprintf(ids + used, sizeof ids - used, "%s%s", used == 0 ? "" : ",",
                                 m->devices[d].id);
        TRY(db_run(tx->db, err,
                   "INSERT INTO leases(device, job_seq, attempt, granted_at) VALUES(?,?,?,?)",
                   "siii", m->devices[d].id, job->seq, (int64_t)job->attempt, now));
    }
    return db_run(tx->db, err,
                  "INSERT OR REPLACE INTO attempts(job_seq, n, devices, device_count, started_at)"
                  " VALUES(?,?,?,?,?)",
                  "iisii", job->seq, (int64_t)job->attempt, ids,
                  (int64_t)__builtin_popcountll(devices), now);
}

int desk_adopt(struct tx *tx, const struct machine *m, const struct job_ref *job, uint64_t from,
               int64_t now, struct err *err)
{
    uint64_t held = 0, devices = 0;
    int64_t wanted = 1;

    TRY(desk_held(tx->db, m, &held, err));
    TRY(db_integer(&wanted, 1, tx->db, err, "SELECT devices FROM jobs WHERE seq=?", "i", job->seq));
    for (int d = 0; d < m->device_count && wanted > 0; d++) {
        const uint64_t bit = UINT64_C(1) << d;
        if ((from & ~held & bit) != 0) {
            devices |= bit;
            wanted--;
        }
    }
    return devices == 0 ? 0 : grant(tx, m, job, devices, now, err);
}

/* Row, attempt and leases of a job that starts. */
static int start_job(struct tx *tx, const struct settings *s, struct desk_round *r,
                     const struct queue_start *start, int64_t now, struct err *err)
{
    struct job_ref *job = &r->started[r->started_count];
    char dir[DIR_SIZE];

    TRY(job_at(tx->db, r->queue.jobs[start->job].seq, job, err));
    (void)snprintf(dir, sizeof dir, "%s/jobs/%s", s->data, job->id);
    const int newest = attempt_newest(dir);
    job->attempt = (newest > job->attempt ? newest : job->attempt) + 1;
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET attempt=?, stage='launching', stage_done=NULL, stage_total=NULL,"
               " stage_unit=NULL, error_code=NULL, error_message=NULL, error_param=NULL,"
               " back=NULL, retry_at=0, started_at=ifnull(started_at, ?) WHERE seq=?",
               "iii", (int64_t)job->attempt, now, job->seq));
    TRY(grant(tx, r->input.view.machine, job, start->devices, now, err));
    TRY(job_move(tx, job, JOB_STARTING, NULL, err));
    r->devices[r->started_count++] = start->devices;
    return 0;
}

/* Tell a run to save and leave for a better job. */
static int tell_run(struct tx *tx, struct desk_round *r, const struct queue_leave *leave,
                    int64_t now, struct err *err)
{
    const struct queue_job *run = &r->queue.jobs[leave->run];
    struct job_ref *job = &r->told[r->told_count];
    struct job_ref better;
    char reason[256];

    TRY(job_at(tx->db, run->seq, job, err));
    TRY(job_at(tx->db, r->queue.jobs[leave->job].seq, &better, err));
    if (job->intent[0] != '\0' || (job->state != JOB_STARTING && job->state != JOB_RUNNING)) {
        return 0; /* it is leaving already */
    }
    (void)snprintf(reason, sizeof reason, "saves and makes room for %s",
                   better.is_private ? "a private job" : better.id);
    TRY(db_run(tx->db, err, "UPDATE jobs SET intent='preempt', intent_at=? WHERE seq=?", "ii", now,
               job->seq));
    TRY(db_run(tx->db, err, "INSERT INTO preemptions(job_seq, at, for_seq) VALUES(?,?,?)", "iii",
               job->seq, now, better.seq));
    (void)snprintf(job->intent, sizeof job->intent, "preempt");
    TRY(job_move(tx, job, JOB_STOPPING, reason, err));
    r->told_count++;
    return 0;
}

static int by_seq(const void *a, const void *b)
{
    const struct desk_name *left = a, *right = b;

    return left->seq < right->seq ? -1 : left->seq > right->seq;
}

void desk_words(char *out, size_t size, const struct machine *m, const struct queue_wait *wait,
                const struct need *need, const struct desk_name *names, int name_count)
{
    const struct desk_name key = {.seq = wait->other};
    const struct desk_name *found =
        name_count == 0 ? NULL : bsearch(&key, names, (size_t)name_count, sizeof key, by_seq);
    const bool has_device = wait->device >= 0 && wait->device < m->device_count;
    const struct queue_names known = {.other = found != NULL ? found->id : "",
                                      .other_owner = found != NULL ? found->owner : "",
                                      .is_private = found != NULL && found->is_private,
                                      .device = has_device ? m->devices[wait->device].id : ""};

    if (wait->why == WAIT_NOT) {
        (void)snprintf(out, size, "starts as soon as a model that answers has left");
    } else {
        queue_words(out, size, wait, need, 0, &known);
    }
}

/* Whether the name is known already; *at is where it stands, or would. */
static bool has_name(const struct desk_round *r, int64_t seq, int *at)
{
    int n = r->name_count;

    while (n > 0 && r->names[n - 1].seq > seq) {
        n--;
    }
    *at = n;
    return n > 0 && r->names[n - 1].seq == seq;
}

/* Names of jobs that reasons mention: the same few ones in most. */
static int find_names(struct tx *tx, struct desk_round *r, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    int at = 0, rc = 0;

    r->names = calloc(NAMES, sizeof *r->names);
    if (r->names == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
    }
    rc = db_query(&q, tx->db, err,
                  "SELECT j.id, u.name, j.private FROM jobs j JOIN users u ON u.id=j.user_id"
                  " WHERE j.seq=?",
                  "i", INT64_C(0));
    for (int k = 0; rc == 0 && k < r->plan.waiting && r->name_count < NAMES; k++) {
        const int64_t seq = r->plan.waits[r->plan.order[k]].other;
        if (seq == 0 || has_name(r, seq, &at)) {
            continue;
        }
        rc = db_bind(q, err, "i", seq);
        rc = rc != 0 ? rc : db_next(q, &row, err);
        if (rc == 0 && row) {
            struct desk_name *n = &r->names[at];
            memmove(n + 1, n, (size_t)(r->name_count - at) * sizeof *n);
            *n = (struct desk_name){.seq = seq, .is_private = sqlite3_column_int(q, 2) != 0};
            (void)snprintf(n->id, sizeof n->id, "%s", db_text(q, 0));
            (void)snprintf(n->owner, sizeof n->owner, "%s", db_text(q, 1));
            r->name_count++;
        }
    }
    sqlite3_finalize(q);
    return rc;
}

/* Keep the reason of a waiting job where it is another one now. */
static int keep_reason(struct tx *tx, const struct desk_round *r, int i, sqlite3_stmt *was,
                       struct err *err)
{
    const struct queue_wait *w = &r->plan.waits[i];
    const int64_t seq = r->queue.jobs[i].seq;
    char text[REASON_SIZE];
    bool row = false;
    struct job_ref job;

    desk_words(text, sizeof text, r->input.view.machine, w, &r->queue.jobs[i].need, r->names,
               r->name_count);
    TRY(db_bind(was, err, "i", seq));
    TRY(db_next(was, &row, err));
    if (!row || strcmp(db_text(was, 0), text) == 0) {
        return 0;
    }
    TRY(db_run(tx->db, err, "UPDATE jobs SET reason=? WHERE seq=?", "si", text, seq));
    if (w->position > TOLD_REASONS) {
        return 0;
    }
    TRY(job_at(tx->db, seq, &job, err));
    return job_announce(tx, &job, err);
}

static int keep_reasons(struct tx *tx, const struct desk_round *r, struct err *err)
{
    sqlite3_stmt *was = NULL;
    int kept = 0;

    int rc = db_query(&was, tx->db, err, "SELECT reason FROM jobs WHERE seq=?", "i", INT64_C(0));
    for (int k = 0; rc == 0 && k < r->plan.waiting && kept < KEPT_REASONS; k++) {
        const int i = r->plan.order[k];
        bool started = false;
        for (int n = 0; n < r->started_count; n++) {
            started = started || r->started[n].seq == r->queue.jobs[i].seq;
        }
        if (!started) {
            rc = keep_reason(tx, r, i, was, err);
            kept++;
        }
    }
    sqlite3_finalize(was);
    return rc;
}

static int apply(struct tx *tx, const struct settings *s, uint64_t not_yet, int64_t now,
                 struct desk_round *r, struct err *err)
{
    const size_t starts = (size_t)r->plan.start_count + 1, told = (size_t)r->plan.preempt_count + 1;

    r->started = calloc(starts, sizeof *r->started);
    r->devices = calloc(starts, sizeof *r->devices);
    r->told = calloc(told, sizeof *r->told);
    if (r->started == NULL || r->devices == NULL || r->told == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
    }
    for (int i = 0; i < r->plan.start_count; i++) {
        const struct queue_start *start = &r->plan.starts[i];
        if ((start->devices & not_yet) != 0) {
            r->wanted |= start->devices & not_yet;
        } else {
            TRY(start_job(tx, s, r, start, now, err));
        }
    }
    for (int i = 0; i < r->plan.preempt_count; i++) {
        TRY(tell_run(tx, r, &r->plan.preempts[i], now, err));
    }
    TRY(find_names(tx, r, err));
    return keep_reasons(tx, r, err);
}

/* The first parent of a job that ended otherwise than the job waits for, in words. */
static int blame(sqlite3 *db, int64_t seq, char *out, size_t size, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    (void)snprintf(out, size, "a job that it waited for is over");
    TRY(db_query(
        &q, db, err,
        "SELECT p.id, p.state, d.kind FROM dependencies d JOIN jobs p ON p.seq=d.parent_seq"
        " WHERE d.job_seq=? ORDER BY d.parent_seq",
        "i", seq));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        if (desk_judge(db_text(q, 2), db_text(q, 1)) == DEPENDENCY_LOST) {
            (void)snprintf(out, size, "%s is %s, and this job waited until it has %s",
                           db_text(q, 0), db_text(q, 1),
                           strcmp(db_text(q, 2), "afterok") == 0 ? "succeeded" : "failed");
            break;
        }
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* Cancel a waiting job whose parent ended otherwise than it waits for. */
static int cancel_child(struct tx *tx, int64_t seq, struct job_ref *job, struct err *err)
{
    char reason[REASON_SIZE];

    TRY(job_at(tx->db, seq, job, err));
    TRY(blame(tx->db, seq, reason, sizeof reason, err));
    TRY(db_run(tx->db, err, "UPDATE jobs SET stage=NULL, back=NULL WHERE seq=?", "i", seq));
    return job_move(tx, job, JOB_CANCELLED, reason, err);
}

/* The next child of a parent that can't be what the child waits for; *seq is 0 for none. */
static int hopeless_child(sqlite3 *db, int64_t parent, int64_t *seq, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    *seq = 0;
    TRY(db_query(&q, db, err,
                 "SELECT d.job_seq, d.kind, p.state FROM dependencies d"
                 " JOIN jobs p ON p.seq=d.parent_seq JOIN jobs c ON c.seq=d.job_seq"
                 " WHERE d.parent_seq=? AND c.attempt=0 AND c.state IN('queued','paused')"
                 " ORDER BY d.job_seq",
                 "i", parent));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row && *seq == 0) {
        *seq = desk_judge(db_text(q, 1), db_text(q, 2)) == DEPENDENCY_LOST
                   ? sqlite3_column_int64(q, 0)
                   : 0;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

int desk_settle_children(struct tx *tx, const struct job_ref *parent, struct err *err)
{
    int64_t *chain = malloc(sizeof *chain), child = 0;
    int depth = 1, room = 1, rc = 0;
    struct job_ref job;

    if (chain == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for dependent jobs");
    }
    chain[0] = parent->seq;
    while (rc == 0 && depth > 0) {
        rc = hopeless_child(tx->db, chain[depth - 1], &child, err);
        if (rc != 0 || child == 0) {
            depth--;
            continue;
        }
        rc = cancel_child(tx, child, &job, err);
        if (rc == 0 && depth == room) {
            int64_t *more = realloc(chain, 2 * (size_t)room * sizeof *chain);
            rc = more == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for dependent jobs") : 0;
            chain = more == NULL ? chain : more;
            room *= more == NULL ? 1 : 2;
        }
        if (rc == 0) {
            chain[depth++] = child;
        }
    }
    free(chain);
    return rc;
}

/* Load the queue; jobs whose parents ended the other way are cancelled before. */
static int load(struct tx *tx, const struct settings *s, const struct machine *m, int64_t now,
                struct desk_queue *q, struct err *err)
{
    struct job_ref job;

    TRY(desk_load(q, tx->db, s, m, now, err));
    if (q->hopeless_count == 0) {
        return 0;
    }
    for (int i = 0; i < q->hopeless_count; i++) {
        TRY(job_at(tx->db, q->hopeless[i], &job, err));
        if (job.state == JOB_QUEUED) { /* else another one's end has taken it along */
            TRY(cancel_child(tx, job.seq, &job, err));
            TRY(desk_settle_children(tx, &job, err));
        }
    }
    desk_queue_free(q);
    return desk_load(q, tx->db, s, m, now, err);
}

int desk_dispatch(struct tx *tx, const struct settings *s, const struct view *view,
                  uint64_t not_yet, int64_t now, struct desk_round *out, struct err *err)
{
    *out = (struct desk_round){0};
    TRY(load(tx, s, view->machine, now, &out->queue, err));
    out->input = (struct queue_input){
        .now = now,
        .view = *view,
        .job_count = out->queue.job_count,
        .user_count = out->queue.user_count,
        .array_count = out->queue.array_count,
        .window_count = out->queue.window_count,
        .jobs = out->queue.jobs,
        .users = out->queue.users,
        .arrays = out->queue.arrays,
        .windows = out->queue.windows,
        .preempts = !s->no_preemption,
        .min_run_s = s->preempt_after_s,
        .max_preemptions = s->max_preemptions,
        .grace_s = s->grace_seconds,
        .forecast = KEPT_REASONS,
    };
    TRY(queue_pass(&out->plan, &out->input, err));
    return apply(tx, s, not_yet, now, out, err);
}

void desk_round_free(struct desk_round *r)
{
    queue_plan_free(&r->plan);
    desk_queue_free(&r->queue);
    free(r->started);
    free(r->devices);
    free(r->told);
    free(r->names);
    *r = (struct desk_round){0};
}

/* Add device seconds to what the job's owner used. */
static int account(struct tx *tx, const struct job_ref *job, int64_t device_s, int64_t now,
                   struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    double decayed = 0;

    TRY(db_query(&q, tx->db, err, "SELECT decayed, at FROM usage WHERE user_id=?", "i",
                 job->user_id));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        decayed = queue_decay(sqlite3_column_double(q, 0), sqlite3_column_int64(q, 1), now);
    }
    sqlite3_finalize(q);
    TRY(rc);
    return db_run(tx->db, err,
                  "INSERT INTO usage(user_id, device_s, decayed, at) VALUES(?1,?2,?3,?4)"
                  " ON CONFLICT(user_id) DO UPDATE SET device_s=device_s+?2, decayed=?3, at=?4",
                  "iiri", job->user_id, device_s, decayed + (double)device_s, now);
}

int desk_release(struct tx *tx, const struct job_ref *job, const struct desk_end *end, int64_t now,
                 struct err *err)
{
    int64_t devices = 0, granted = now, device_s = 0;

    TRY(db_integer(&devices, 0, tx->db, err, "SELECT COUNT(*) FROM leases WHERE job_seq=?", "i",
                   job->seq));
    TRY(db_integer(&granted, now, tx->db, err, "SELECT MIN(granted_at) FROM leases WHERE job_seq=?",
                   "i", job->seq));
    const int64_t ended = now > granted ? now : granted;
    device_s = devices * (ended - granted);
    TRY(db_run(tx->db, err,
               "UPDATE attempts SET ended_at=?1, cause=?2, rank=?3, signal=?4,"
               " step=CASE WHEN ?5>=0 THEN ?5 ELSE (SELECT step FROM jobs WHERE seq=?6) END"
               " WHERE job_seq=?6 AND n=?7 AND ended_at IS NULL",
               "isiiiii", ended, end->cause, (int64_t)end->rank, (int64_t)end->signal, end->step,
               job->seq, (int64_t)job->attempt));
    TRY(db_run(tx->db, err, "UPDATE jobs SET ran_s=ran_s+? WHERE seq=?", "ii", ended - granted,
               job->seq));
    TRY(db_run(tx->db, err, "DELETE FROM leases WHERE job_seq=?", "i", job->seq));
    return devices == 0 ? 0 : account(tx, job, device_s, now, err);
}

int desk_unstart(struct tx *tx, struct job_ref *job, const char *reason, struct err *err)
{
    CHECK(job->state == JOB_STARTING, "%s is %s", job->id, job_state_word(job->state));
    TRY(db_run(tx->db, err, "DELETE FROM leases WHERE job_seq=?", "i", job->seq));
    TRY(db_run(tx->db, err, "DELETE FROM attempts WHERE job_seq=? AND n=?", "ii", job->seq,
               (int64_t)job->attempt));
    TRY(db_run(tx->db, err,
               "UPDATE jobs SET attempt=attempt-1, stage='waiting', stage_done=NULL,"
               " stage_total=NULL, stage_unit=NULL,"
               " started_at=CASE WHEN attempt=1 THEN NULL ELSE started_at END WHERE seq=?",
               "i", job->seq));
    job->attempt--;
    return job_move(tx, job, JOB_QUEUED, reason, err);
}
