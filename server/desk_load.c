/* desk_load.c - the queue of the store as the input of a scheduling pass. */
#include "server/desk_load.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"

enum { DAY_S = 86400, LATELY = 50 };

/* Room for one more element in a list that grows by doubling; `list` is the address of its pointer. */
static int grow(void *list, int count, size_t size, struct err *err)
{
    void *at = NULL;

    if (count != 0 && (count & (count - 1)) != 0) {
        return 0;
    }
    memcpy(&at, list, sizeof at); /* pointers of several types come here */
    void *longer = realloc(at, size * (size_t)(count == 0 ? 1 : 2 * count));
    if (longer == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the queue");
    }
    memcpy(list, &longer, sizeof longer);
    /* cppcheck-suppress memleak ; the list owns it now */
    return 0;
}

void desk_queue_free(struct desk_queue *q)
{
    free(q->jobs);
    free(q->users);
    free(q->arrays);
    free(q->windows);
    free(q->hopeless);
    *q = (struct desk_queue){0};
}

/* Jobs, users and arrays begin with the number that orders them. */
static int by_number(const void *a, const void *b)
{
    int64_t left, right;

    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return left < right ? -1 : left > right;
}

/* The index of the element with that number; -1 for none. */
static int find(const void *list, int count, size_t size, int64_t number)
{
    const char *at = count == 0 ? NULL : bsearch(&number, list, (size_t)count, size, by_number);

    return at == NULL ? -1 : (int)((size_t)(at - (const char *)list) / size);
}

int desk_queue_find(const struct desk_queue *q, int64_t seq)
{
    return find(q->jobs, q->job_count, sizeof *q->jobs, seq);
}

static int find_user(const struct desk_queue *q, int64_t id)
{
    return find(q->users, q->user_count, sizeof *q->users, id);
}

static int find_array(const struct desk_queue *q, int64_t seq)
{
    return find(q->arrays, q->array_count, sizeof *q->arrays, seq);
}

enum dependency_verdict desk_judge(const char *kind, const char *parent_state)
{
    enum dependency_kind k = DEPENDENCY_OK;

    while (k + 1 < DEPENDENCY_KIND_COUNT && strcmp(dependency_word(k), kind) != 0) {
        k++;
    }
    return dependency_judge(k, job_state_from_word(parent_state));
}

uint64_t desk_device_mask(const struct machine *m, const char *ids)
{
    const uint64_t all = m->device_count >= 64 ? UINT64_MAX : (UINT64_C(1) << m->device_count) - 1;
    char id[DEVICE_ID];
    uint64_t mask = 0;

    if (ids[0] == '\0' || strcmp(ids, "*") == 0) {
        return all;
    }
    while (*ids != '\0') {
        const size_t n = strcspn(ids, ",");
        if (n > 0 && n < sizeof id) {
            memcpy(id, ids, n);
            id[n] = '\0';
            const int d = machine_device(m, id);
            mask |= d >= 0 ? UINT64_C(1) << d : 0;
        }
        ids += n;
        ids += *ids == ',';
    }
    return mask;
}

static int load_users(struct desk_queue *q, sqlite3 *db, const struct settings *s, int64_t now,
                      struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err,
                 "SELECT u.id, ifnull(u.max_devices,?), ifnull(u.max_running,?),"
                 " ifnull(x.decayed,0), ifnull(x.at,0)"
                 " FROM users u LEFT JOIN usage x ON x.user_id=u.id ORDER BY u.id",
                 "ii", s->user_devices, s->user_running));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        rc = grow(&q->users, q->user_count, sizeof *q->users, err);
        if (rc == 0) {
            q->users[q->user_count++] = (struct queue_user){
                .id = sqlite3_column_int64(rows, 0),
                .max_devices = sqlite3_column_int(rows, 1),
                .max_running = sqlite3_column_int(rows, 2),
                .usage_s =
                    queue_decay(sqlite3_column_double(rows, 3), sqlite3_column_int64(rows, 4), now),
            };
            rc = db_next(rows, &row, err);
        }
    }
    sqlite3_finalize(rows);
    return rc;
}

/* What runs of the moment have used counts too; then what everybody used is seen against their weight. */
static int weigh_usage(struct desk_queue *q, sqlite3 *db, int64_t now, struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    for (int i = 0; i < q->job_count; i++) {
        const struct queue_job *j = &q->jobs[i];
        if (j->held != 0 && now > j->started_at) {
            q->users[j->user].usage_s +=
                (double)(now - j->started_at) * __builtin_popcountll(j->held);
        }
    }
    TRY(db_query(&rows, db, err, "SELECT id, weight FROM users WHERE weight<>1", ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        const int u = find_user(q, sqlite3_column_int64(rows, 0));
        const double weight = sqlite3_column_double(rows, 1);
        if (u >= 0 && weight > 0) {
            q->users[u].usage_s /= weight;
        }
        rc = db_next(rows, &row, err);
    }
    sqlite3_finalize(rows);
    return rc;
}

static int load_arrays(struct desk_queue *q, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err,
                 "SELECT seq, max_running FROM arrays WHERE seq IN("
                 " SELECT array_seq FROM jobs INDEXED BY jobs_desk WHERE state='queued'"
                 "  AND array_seq IS NOT NULL"
                 " UNION SELECT array_seq FROM jobs INDEXED BY jobs_live"
                 "  WHERE state NOT IN('succeeded','failed','cancelled')"
                 "  AND state IN('starting','running','stopping') AND array_seq IS NOT NULL)"
                 " ORDER BY seq",
                 ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        rc = grow(&q->arrays, q->array_count, sizeof *q->arrays, err);
        if (rc == 0) {
            q->arrays[q->array_count++] = (struct queue_array){
                .seq = sqlite3_column_int64(rows, 0), .max_running = sqlite3_column_int(rows, 1)};
            rc = db_next(rows, &row, err);
        }
    }
    sqlite3_finalize(rows);
    return rc;
}

/* The columns that waiting jobs and runs have in common, in this order. */
#define COMMON                                                                                \
    "j.seq, j.user_id, j.array_seq, j.class, j.devices, j.device_bytes, j.ticket_at, j.line," \
    " j.time_limit_s-j.ran_s, j.preemptible"
enum { COMMON_COUNT = 10 };

static struct queue_job read_common(const struct desk_queue *q, sqlite3_stmt *rows)
{
    const int64_t left = sqlite3_column_int64(rows, 8);
    struct queue_job j = {
        .seq = sqlite3_column_int64(rows, 0),
        .user = find_user(q, sqlite3_column_int64(rows, 1)),
        .array = sqlite3_column_type(rows, 2) == SQLITE_NULL
                     ? -1
                     : find_array(q, sqlite3_column_int64(rows, 2)),
        .class = queue_class_from_word(db_text(rows, 3)),
        .need = {.devices = sqlite3_column_int(rows, 4),
                 .bytes = (uint64_t)sqlite3_column_int64(rows, 5)},
        .ticket = sqlite3_column_int64(rows, 6),
        .line = sqlite3_column_int64(rows, 7),
        .limit_s = left > 1 ? left : 1,
        .preemptible = sqlite3_column_int(rows, 9) != 0,
    };

    j.likely_s = j.limit_s;
    j.class = j.class == CLASS_COUNT ? CLASS_NORMAL : j.class;
    return j;
}

/* When its devices are free again: at its time limit, or when it is stopping soon; and by its speed. */
static void foresee_end(struct queue_job *j, sqlite3_stmt *rows, const struct settings *s,
                        int64_t now)
{
    const int64_t told = sqlite3_column_int64(rows, COMMON_COUNT + 1);
    const int64_t steps = sqlite3_column_int64(rows, COMMON_COUNT + 3);
    const double speed = sqlite3_column_double(rows, COMMON_COUNT + 4);

    j->started_at = sqlite3_column_int64(rows, COMMON_COUNT + 2);
    j->free_at = j->started_at + j->limit_s + s->grace_seconds;
    if (j->is_stopping && told > 0 && told + s->grace_seconds < j->free_at) {
        j->free_at = told + s->grace_seconds;
    }
    j->free_at = j->free_at > now ? j->free_at : now + 1;
    j->likely_at = j->free_at;
    if (!j->is_stopping && speed > 0 && steps >= 0 && (double)steps / speed < 1e9) {
        const int64_t at = now + 1 + (int64_t)((double)steps / speed);
        j->likely_at = at < j->free_at ? at : j->free_at;
    }
    const int64_t ran = now > j->started_at ? now - j->started_at : 0;
    j->limit_s = j->limit_s > ran ? j->limit_s - ran : 1;
}

static int count_preemptions(struct queue_job *j, sqlite3 *db, int64_t now, struct err *err)
{
    int64_t n = 0;

    TRY(db_integer(&n, 0, db, err, "SELECT COUNT(*) FROM preemptions WHERE job_seq=? AND at>?",
                   "ii", j->seq, now - DAY_S));
    j->preemptions = (int)n;
    return 0;
}

/* Runs, by seq. Those without leases are left out: they hold nothing. */
static int load_runs(struct desk_queue *q, sqlite3 *db, const struct settings *s, int64_t now,
                     struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err,
                 "SELECT " COMMON
                 ", j.state, j.intent_at, a.started_at, j.total_steps-j.step, j.steps_per_s"
                 " FROM jobs j INDEXED BY jobs_live JOIN attempts a ON a.job_seq=j.seq"
                 "  AND a.n=j.attempt"
                 " WHERE j.state NOT IN('succeeded','failed','cancelled')"
                 "  AND j.state IN('starting','running','stopping')"
                 "  AND EXISTS(SELECT 1 FROM leases l WHERE l.job_seq=j.seq) ORDER BY j.seq",
                 ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        rc = grow(&q->jobs, q->job_count, sizeof *q->jobs, err);
        if (rc == 0) {
            struct queue_job *j = &q->jobs[q->job_count++];
            *j = read_common(q, rows);
            j->is_stopping = strcmp(db_text(rows, COMMON_COUNT), "stopping") == 0;
            foresee_end(j, rows, s, now);
            rc = count_preemptions(j, db, now, err);
            rc = rc != 0 ? rc : db_next(rows, &row, err);
        }
    }
    sqlite3_finalize(rows);
    return rc;
}

static int load_leases(struct desk_queue *q, sqlite3 *db, const struct machine *m, struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err, "SELECT device, job_seq FROM leases", ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        const int d = machine_device(m, db_text(rows, 0));
        const int i = desk_queue_find(q, sqlite3_column_int64(rows, 1));
        if (d >= 0 && i >= 0) {
            q->jobs[i].held |= UINT64_C(1) << d;
        }
        rc = db_next(rows, &row, err);
    }
    sqlite3_finalize(rows);
    return rc;
}

/* Runs of which the machine has no device any more take no part. */
static void drop_holders_of_nothing(struct desk_queue *q)
{
    int kept = 0;

    for (int i = 0; i < q->job_count; i++) {
        if (q->jobs[i].held != 0) {
            q->jobs[kept++] = q->jobs[i];
        }
    }
    q->job_count = kept;
}

/* Waiting jobs, by seq, behind the runs; the two are merged by the caller. */
static int load_waiting(struct desk_queue *q, bool **fresh, sqlite3 *db, struct err *err)
{
    const int runs = q->job_count;
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err,
                 "SELECT " COMMON ", j.begin_at, j.retry_at, j.attempt"
                 " FROM jobs j INDEXED BY jobs_desk WHERE j.state='queued' ORDER BY j.seq",
                 ""));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        rc = grow(&q->jobs, q->job_count, sizeof *q->jobs, err);
        rc = rc != 0 ? rc : grow(fresh, q->job_count - runs, sizeof **fresh, err);
        if (rc == 0) {
            struct queue_job *j = &q->jobs[q->job_count];
            *j = read_common(q, rows);
            j->begin_at = sqlite3_column_int64(rows, COMMON_COUNT);
            j->retry_at = sqlite3_column_int64(rows, COMMON_COUNT + 1);
            (*fresh)[q->job_count - runs] = sqlite3_column_int64(rows, COMMON_COUNT + 2) == 0;
            q->job_count++;
            rc = db_next(rows, &row, err);
        }
    }
    sqlite3_finalize(rows);
    return rc;
}

/* How long waiting jobs will run: like runs of the moment by their speed, and like those that succeeded lately. */
static int foresee_lengths(struct desk_queue *q, int runs, sqlite3 *db, struct err *err)
{
    sqlite3_stmt *row = NULL;
    bool found = false;

    TRY(db_query(&row, db, err,
                 "SELECT total(x), count(*) FROM (SELECT ended_at-started_at AS x FROM attempts"
                 " WHERE ended_at IS NOT NULL AND cause='' ORDER BY job_seq DESC, n DESC LIMIT ?)",
                 "i", (int64_t)LATELY));
    const int rc = db_next(row, &found, err);
    double sum = rc == 0 && found ? sqlite3_column_double(row, 0) : 0.0;
    int count = rc == 0 && found ? sqlite3_column_int(row, 1) : 0;
    sqlite3_finalize(row);
    for (int i = 0; i < runs; i++) {
        if (q->jobs[i].likely_at < q->jobs[i].free_at) {
            sum += (double)(q->jobs[i].likely_at - q->jobs[i].started_at);
            count++;
        }
    }
    const int64_t usual = count > 0 ? (int64_t)(sum / count) + 1 : INT64_MAX;
    for (int i = runs; i < q->job_count; i++) {
        q->jobs[i].likely_s = usual < q->jobs[i].limit_s ? usual : q->jobs[i].limit_s;
    }
    return rc;
}

/* A waiting job and one of its parents. Rows of jobs are wide: most parents are in the queue themselves, and
 * are not looked up. */
static int take_dependency(struct desk_queue *q, int runs, struct queue_job *j, sqlite3_stmt *row,
                           sqlite3_stmt *parent, struct err *err)
{
    const int64_t seq = sqlite3_column_int64(row, 1);
    enum dependency_verdict verdict = DEPENDENCY_WAITS;
    bool found = false;

    if (find(q->jobs + runs, q->job_count - runs, sizeof *q->jobs, seq) < 0) {
        TRY(db_bind(parent, err, "i", seq));
        TRY(db_next(parent, &found, err));
        CHECK(found, "no job row %lld", (long long)seq);
        verdict = desk_judge(db_text(row, 2), db_text(parent, 0));
    }
    if (verdict == DEPENDENCY_WAITS && j->parent == 0) {
        j->parent = seq;
    }
    const int n = q->hopeless_count;
    if (verdict == DEPENDENCY_LOST && (n == 0 || q->hopeless[n - 1] != j->seq)) {
        TRY(grow(&q->hopeless, n, sizeof *q->hopeless, err));
        q->hopeless[q->hopeless_count++] = j->seq;
    }
    return 0;
}

/* Both lists go by seq, so one walk along the two is enough. */
static int load_dependencies(struct desk_queue *q, int runs, const bool *fresh, sqlite3 *db,
                             struct err *err)
{
    sqlite3_stmt *rows = NULL, *parent = NULL;
    bool row = true;
    int at = runs;

    if (at == q->job_count) {
        return 0;
    }
    int rc = db_query(&parent, db, err, "SELECT state FROM jobs WHERE seq=?", "i", INT64_C(0));
    rc = rc != 0 ? rc
                 : db_query(&rows, db, err,
                            "SELECT job_seq, parent_seq, kind FROM dependencies WHERE job_seq>=?"
                            " ORDER BY job_seq, parent_seq",
                            "i", q->jobs[at].seq);
    rc = rc != 0 ? rc : db_next(rows, &row, err);
    while (rc == 0 && row) {
        const int64_t seq = sqlite3_column_int64(rows, 0);
        while (at < q->job_count && q->jobs[at].seq < seq) {
            at++;
        }
        if (at == q->job_count) {
            break;
        }
        if (q->jobs[at].seq == seq && fresh[at - runs]) {
            rc = take_dependency(q, runs, &q->jobs[at], rows, parent, err);
        }
        rc = rc != 0 ? rc : db_next(rows, &row, err);
    }
    sqlite3_finalize(rows);
    sqlite3_finalize(parent);
    return rc;
}

static int load_windows(struct desk_queue *q, sqlite3 *db, const struct machine *m, int64_t now,
                        struct err *err)
{
    sqlite3_stmt *rows = NULL;
    bool row = true;

    TRY(db_query(&rows, db, err,
                 "SELECT from_at, to_at, devices, ifnull(user_id,0) FROM reservations"
                 " WHERE to_at>? ORDER BY from_at, seq",
                 "i", now));
    int rc = db_next(rows, &row, err);
    while (rc == 0 && row) {
        rc = grow(&q->windows, q->window_count, sizeof *q->windows, err);
        if (rc == 0) {
            q->windows[q->window_count++] = (struct queue_window){
                .from = sqlite3_column_int64(rows, 0),
                .to = sqlite3_column_int64(rows, 1),
                .devices = desk_device_mask(m, db_text(rows, 2)),
                .user = find_user(q, sqlite3_column_int64(rows, 3)),
            };
            rc = db_next(rows, &row, err);
        }
    }
    sqlite3_finalize(rows);
    return rc;
}

/* Runs are few: each is put in its place among the waiting jobs behind them. */
static void merge_runs(struct desk_queue *q, int runs)
{
    for (int r = runs - 1; r >= 0; r--) {
        const struct queue_job run = q->jobs[r];
        int low = r + 1, high = q->job_count;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (q->jobs[middle].seq < run.seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        memmove(&q->jobs[r], &q->jobs[r + 1], (size_t)(low - 1 - r) * sizeof run);
        q->jobs[low - 1] = run;
    }
}

int desk_load(struct desk_queue *out, sqlite3 *db, const struct settings *s,
              const struct machine *m, int64_t now, struct err *err)
{
    bool *fresh = NULL;

    *out = (struct desk_queue){0};
    TRY(load_users(out, db, s, now, err));
    TRY(load_arrays(out, db, err));
    TRY(load_runs(out, db, s, now, err));
    TRY(load_leases(out, db, m, err));
    drop_holders_of_nothing(out);
    TRY(weigh_usage(out, db, now, err));
    TRY(load_windows(out, db, m, now, err));
    const int runs = out->job_count;
    int rc = load_waiting(out, &fresh, db, err);
    rc = rc != 0 ? rc : foresee_lengths(out, runs, db, err);
    rc = rc != 0 ? rc : load_dependencies(out, runs, fresh, db, err);
    free(fresh);
    if (rc == 0) {
        merge_runs(out, runs);
    }
    return rc;
}
