/* prune.c - old events go. */
#include "server/prune.h"

enum { EVENTS_AT_ONCE = 500, JOBS_AT_ONCE = 500 };

/* Where the work has got to. */
struct pruning {
    int64_t before, keep, removed;
    int64_t job;        /* seq of the last job that was looked at */
    int64_t cut;        /* of `job`: events before this one go    */
    int64_t gone;       /* in the last transaction                */
    bool is_at_the_end; /* no job is left                         */
};

/* The next job that has more than it may keep. */
static int find_job(sqlite3 *db, void *argument, struct err *err)
{
    struct pruning *p = argument;

    for (int i = 0; i < JOBS_AT_ONCE; i++) {
        TRY(db_integer(&p->job, 0, db, err,
                       "SELECT MIN(seq) FROM jobs WHERE seq>?"
                       " AND state IN('succeeded','failed','cancelled') AND finished_at<?",
                       "ii", p->job, p->before));
        p->is_at_the_end = p->job == 0;
        if (p->is_at_the_end) {
            return 0;
        }
        TRY(db_integer(&p->cut, 0, db, err,
                       "SELECT n FROM events WHERE job_seq=?1 ORDER BY n DESC LIMIT 1 OFFSET ?2",
                       "ii", p->job, p->keep - 1));
        int64_t more = 0;
        TRY(db_integer(&more, 0, db, err, "SELECT 1 FROM events WHERE job_seq=? AND n<? LIMIT 1",
                       "ii", p->job, p->cut));
        if (more != 0) {
            return 0;
        }
    }
    p->cut = 0;
    return 0;
}

static int remove_some(struct tx *tx, void *argument, struct err *err)
{
    struct pruning *p = argument;
    int64_t last = 0;

    TRY(db_integer(&last, 0, tx->db, err,
                   "SELECT MAX(n) FROM (SELECT n FROM events WHERE job_seq=? AND n<?"
                   " ORDER BY n LIMIT ?)",
                   "iii", p->job, p->cut, (int64_t)EVENTS_AT_ONCE));
    TRY(db_run(tx->db, err, "DELETE FROM events WHERE job_seq=? AND n<=?", "ii", p->job, last));
    p->gone = sqlite3_changes(tx->db);
    return db_run(tx->db, err,
                  "INSERT INTO about(key, value) VALUES('pruned', CAST(?1 AS TEXT)) ON "
                  "CONFLICT(key) DO UPDATE"
                  " SET value=excluded.value WHERE CAST(value AS INTEGER)<?1",
                  "i", last);
}

int prune_events(struct store *store, int64_t before, int64_t keep, int64_t *removed,
                 struct err *err)
{
    struct pruning p = {.before = before, .keep = keep < 1 ? 1 : keep};
    int rc = store_read(store, find_job, &p, err);

    *removed = 0;
    while (rc == 0 && !p.is_at_the_end && *removed < PRUNE_MOST) {
        p.gone = EVENTS_AT_ONCE;
        while (rc == 0 && p.cut > 0 && p.gone == EVENTS_AT_ONCE && *removed < PRUNE_MOST) {
            rc = store_write(store, remove_some, &p, err);
            *removed += rc == 0 ? p.gone : 0;
        }
        rc = rc != 0 ? rc : store_read(store, find_job, &p, err);
    }
    return rc;
}

int prune_newest(sqlite3 *db, int64_t *n, struct err *err)
{
    return db_integer(n, 0, db, err, "SELECT CAST(value AS INTEGER) FROM about WHERE key='pruned'",
                      "");
}
