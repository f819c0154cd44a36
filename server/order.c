/* order.c - the places of waiting jobs among their owner's own of the same class. */
#include "server/order.h"

#include <stdlib.h>
#include <string.h>

struct place {
    int64_t seq, line;
};

/* The waiting jobs of an owner and class, in their order. */
struct share {
    struct place *at; /* owned */
    int count, room;
};

static int add_place(struct share *s, int64_t seq, int64_t line, struct err *err)
{
    if (s->count == s->room) {
        const int room = s->room == 0 ? 64 : s->room * 2;
        struct place *more = realloc(s->at, (size_t)room * sizeof *more);
        if (more == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %d jobs", room);
        }
        s->at = more;
        s->room = room;
    }
    s->at[s->count++] = (struct place){seq, line};
    return 0;
}

static int load_share(struct share *s, sqlite3 *db, const struct job_ref *job, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(
        &q, db, err,
        "SELECT seq, line FROM jobs INDEXED BY jobs_desk WHERE state='queued' AND user_id=?1"
        " AND class=(SELECT class FROM jobs WHERE seq=?2) ORDER BY line, seq",
        "ii", job->user_id, job->seq));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        rc = add_place(s, sqlite3_column_int64(q, 0), sqlite3_column_int64(q, 1), err);
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* -1 when it is not among them. */
static int find_place(const struct share *s, int64_t seq)
{
    for (int i = 0; i < s->count; i++) {
        if (s->at[i].seq == seq) {
            return i;
        }
    }
    return -1;
}

/* The job goes from one index to another; lines stay where they are, so those between move by one. */
static int shift(struct share *s, int from, int to, sqlite3 *db, struct err *err)
{
    const int step = to > from ? 1 : -1;
    const int64_t seq = s->at[from].seq;

    for (int i = from; i != to; i += step) {
        s->at[i].seq = s->at[i + step].seq;
    }
    s->at[to].seq = seq;
    for (int i = from;; i += step) {
        TRY(db_run(db, err, "UPDATE jobs SET line=? WHERE seq=?", "ii", s->at[i].line,
                   s->at[i].seq));
        if (i == to) {
            return 0;
        }
    }
}

/* The index that the job gets; -1 when `other` is not of the share. */
static int find_target(const struct share *s, int from, enum order_place place,
                       const struct job_ref *other)
{
    const int at = other != NULL ? find_place(s, other->seq) : -1;

    switch (place) {
    case ORDER_FIRST: return 0;
    case ORDER_LAST: return s->count - 1;
    case ORDER_BEFORE: return at < 0 ? -1 : at - (from < at);
    case ORDER_AFTER: return at < 0 ? -1 : at + (from > at);
    }
    return -1;
}

static int move_within(struct share *s, struct tx *tx, const struct job_ref *job,
                       enum order_place place, const struct job_ref *other, struct err *err)
{
    const int from = find_place(s, job->seq);

    if (from < 0) {
        return FAIL(err, ERR_BAD_STATE, "a job that is %s has no place among waiting ones",
                    job_state_word(job->state));
    }
    const int to = find_target(s, from, place, other);
    if (to < 0) {
        return FAIL(err, ERR_BAD_STATE,
                    "%s does not wait among the jobs of the same owner and priority", other->id);
    }
    return to != from ? shift(s, from, to, tx->db, err) : 0;
}

int order_move(struct tx *tx, const struct job_ref *job, enum order_place place,
               const struct job_ref *other, struct err *err)
{
    struct share s = {0};

    int rc = load_share(&s, tx->db, job, err);
    rc = rc != 0 ? rc : move_within(&s, tx, job, place, other, err);
    free(s.at);
    return rc != 0 ? rc : job_announce(tx, job, err);
}
