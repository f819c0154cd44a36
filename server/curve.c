/* curve.c - points and buckets of loss curves. */
#include "server/curve.h"

#include <math.h>

enum { LEVELS = 7, BITS = 4 }; /* the highest buckets cover 16^7 steps: 268 million */

int curve_begin(struct curve_writer *w, struct tx *tx, struct err *err)
{
    return db_query(
        &w->put, tx->db, err,
        "INSERT INTO curve(job_seq, level, bucket, n, last_step, loss_n, loss_sum, loss_min,"
        " loss_max, norm_n, norm_sum, lr, speed_sum) "
        "VALUES(?1,?2,?3,1,?4,?5,?6,?7,?7,?8,?9,?10,?11)"
        " ON CONFLICT(job_seq, level, bucket) DO UPDATE SET n=n+1,"
        " last_step=max(last_step, excluded.last_step), loss_n=loss_n+excluded.loss_n,"
        " loss_sum=loss_sum+excluded.loss_sum,"
        " loss_min=min(ifnull(loss_min, excluded.loss_min), ifnull(excluded.loss_min, loss_min)),"
        " loss_max=max(ifnull(loss_max, excluded.loss_max), ifnull(excluded.loss_max, loss_max)),"
        " norm_n=norm_n+excluded.norm_n, norm_sum=norm_sum+excluded.norm_sum,"
        " lr=ifnull(excluded.lr, lr), speed_sum=speed_sum+excluded.speed_sum"
        " WHERE level>0",
        "");
}

void curve_end(struct curve_writer *w)
{
    sqlite3_finalize(w->put);
    w->put = NULL;
}

int curve_add(struct curve_writer *w, int64_t job_seq, const struct curve_point *p, struct err *err)
{
    sqlite3 *db = sqlite3_db_handle(w->put);
    const bool has_loss = isfinite(p->loss), has_norm = isfinite(p->grad_norm);
    bool row = false;

    for (int64_t level = 0; level <= LEVELS; level++) {
        TRY(db_bind(w->put, err, "iiiiirrirrr", job_seq, level, p->step >> (BITS * level), p->step,
                    (int64_t)has_loss, has_loss ? p->loss : 0.0, has_loss ? p->loss : (double)NAN,
                    (int64_t)has_norm, has_norm ? p->grad_norm : 0.0, p->lr,
                    isfinite(p->tokens_per_s) ? p->tokens_per_s : 0.0));
        TRY(db_next(w->put, &row, err));
        if (level == 0 && sqlite3_changes(db) == 0) {
            return 0;
        }
    }
    return 0;
}

/* Make a bucket anew from the level below it. */
static int rebuild(struct tx *tx, int64_t job_seq, int64_t level, int64_t bucket, struct err *err)
{
    TRY(db_run(tx->db, err, "DELETE FROM curve WHERE job_seq=? AND level=? AND bucket=?", "iii",
               job_seq, level, bucket));
    return db_run(tx->db, err,
                  "INSERT INTO curve(job_seq, level, bucket, n, last_step, loss_n, loss_sum,"
                  " loss_min, loss_max, norm_n, norm_sum, lr, speed_sum)"
                  " SELECT job_seq, ?2, ?3, SUM(n), MAX(last_step), SUM(loss_n), SUM(loss_sum),"
                  " MIN(loss_min), MAX(loss_max), SUM(norm_n), SUM(norm_sum), MAX(lr),"
                  " SUM(speed_sum) FROM curve"
                  " WHERE job_seq=?1 AND level=?2-1 AND bucket>=?3*16 AND bucket<(?3+1)*16"
                  " GROUP BY job_seq",
                  "iii", job_seq, level, bucket);
}

int curve_cut(struct tx *tx, int64_t job_seq, int64_t step, struct err *err)
{
    for (int64_t level = 0; level <= LEVELS; level++) {
        TRY(db_run(tx->db, err, "DELETE FROM curve WHERE job_seq=? AND level=? AND bucket>?", "iii",
                   job_seq, level, step >> (BITS * level)));
        if (level > 0) {
            TRY(rebuild(tx, job_seq, level, step >> (BITS * level), err));
        }
    }
    return db_run(tx->db, err, "DELETE FROM evals WHERE job_seq=? AND step>?", "ii", job_seq, step);
}

int curve_add_eval(struct tx *tx, int64_t job_seq, int64_t step, double loss, double accuracy,
                   struct err *err)
{
    return db_run(tx->db, err,
                  "INSERT OR REPLACE INTO evals(job_seq, step, loss, accuracy) VALUES(?,?,?,?)",
                  "iirr", job_seq, step, loss, accuracy);
}

/* Sums over neighbouring buckets: one point of the answer. */
struct sum {
    int64_t n, last_step, loss_n, norm_n;
    double loss, low, high, norm, lr, speed;
};

static void add_row(struct sum *s, sqlite3_stmt *q)
{
    s->n += sqlite3_column_int64(q, 0);
    s->last_step = sqlite3_column_int64(q, 1);
    if (sqlite3_column_int64(q, 2) > 0) {
        const double low = sqlite3_column_double(q, 4), high = sqlite3_column_double(q, 5);
        s->low = s->loss_n == 0 || low < s->low ? low : s->low;
        s->high = s->loss_n == 0 || high > s->high ? high : s->high;
        s->loss_n += sqlite3_column_int64(q, 2);
        s->loss += sqlite3_column_double(q, 3);
    }
    s->norm_n += sqlite3_column_int64(q, 6);
    s->norm += sqlite3_column_double(q, 7);
    s->lr = sqlite3_column_double(q, 8);
    s->speed += sqlite3_column_double(q, 9);
}

static int push(json_t *out, const char *key, double value)
{
    json_t *number = isfinite(value) ? json_real(value) : json_null();

    return json_array_append_new(json_object_get(out, key), number);
}

/* Append a point and empty the sum. */
static int emit(json_t *out, struct sum *s)
{
    const double loss_n = (double)s->loss_n;
    int rc = json_array_append_new(json_object_get(out, "steps"), json_integer(s->last_step));

    rc |= push(out, "loss", s->loss_n > 0 ? s->loss / loss_n : (double)NAN);
    rc |= push(out, "loss_min", s->loss_n > 0 ? s->low : (double)NAN);
    rc |= push(out, "loss_max", s->loss_n > 0 ? s->high : (double)NAN);
    rc |= push(out, "lr", s->lr);
    rc |= push(out, "grad_norm", s->norm_n > 0 ? s->norm / (double)s->norm_n : (double)NAN);
    rc |= push(out, "tokens_per_s", s->speed / (double)s->n);
    *s = (struct sum){0};
    return rc;
}

/* The finest level that has at most 16 buckets for each point asked for. */
static int choose_level(sqlite3 *db, int64_t job_seq, int64_t from, int64_t to, int64_t points,
                        int64_t *level, int64_t *buckets, struct err *err)
{
    for (*level = 0;; ++*level) {
        const int64_t most = 16 * points;
        TRY(db_integer(buckets, 0, db, err,
                       "SELECT COUNT(*) FROM (SELECT 1 FROM curve WHERE job_seq=? AND level=?"
                       " AND bucket>=? AND bucket<=? LIMIT ?)",
                       "iiiii", job_seq, *level, from >> (BITS * *level), to >> (BITS * *level),
                       most + 1));
        if (*buckets <= most || *level == LEVELS) {
            return 0;
        }
    }
}

static int read_points(sqlite3 *db, int64_t job_seq, int64_t from, int64_t to, int64_t points,
                       json_t *out, struct err *err)
{
    int64_t level = 0, buckets = 0, seen = 0;
    struct sum sum = {0};
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(choose_level(db, job_seq, from, to, points, &level, &buckets, err));
    const int64_t group = buckets <= points ? 1 : (buckets + points - 1) / points;
    TRY(db_query(&q, db, err,
                 "SELECT n, last_step, loss_n, loss_sum, loss_min, loss_max, norm_n, norm_sum, lr,"
                 " speed_sum FROM curve WHERE job_seq=? AND level=? AND bucket>=? AND bucket<=?"
                 " ORDER BY bucket",
                 "iiii", job_seq, level, from >> (BITS * level), to >> (BITS * level)));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        add_row(&sum, q);
        if (++seen % group == 0 && emit(out, &sum) != 0) {
            rc = FAIL(err, ERR_NO_MEMORY, "no memory for a curve");
        }
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    if (rc == 0 && sum.n > 0 && emit(out, &sum) != 0) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a curve");
    }
    json_object_set_new(out, "every", json_integer(group << (BITS * level)));
    return rc;
}

/* NaN for null. */
static double number_at(sqlite3_stmt *q, int column)
{
    return sqlite3_column_type(q, column) != SQLITE_NULL ? sqlite3_column_double(q, column)
                                                         : (double)NAN;
}

static int read_evals(sqlite3 *db, int64_t job_seq, int64_t from, int64_t to, json_t *out,
                      struct err *err)
{
    json_t *eval = json_object_get(out, "eval");
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT step, loss, accuracy FROM evals WHERE job_seq=? AND step>=? AND step<=? "
                 "ORDER BY step",
                 "iii", job_seq, from, to));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        if (json_array_append_new(json_object_get(eval, "steps"),
                                  json_integer(sqlite3_column_int64(q, 0))) != 0 ||
            push(eval, "loss", number_at(q, 1)) != 0 ||
            push(eval, "accuracy", number_at(q, 2)) != 0) {
            rc = FAIL(err, ERR_NO_MEMORY, "no memory for a curve");
        }
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

int curve_read(sqlite3 *db, int64_t job_seq, int64_t from, int64_t to, int64_t points, json_t **out,
               struct err *err)
{
    int64_t last = 0;

    *out = json_pack("{s:s, s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:{s:[], s:[], s:[]}}",
                     "object", "metrics", "steps", "loss", "loss_min", "loss_max", "lr",
                     "grad_norm", "tokens_per_s", "eval", "steps", "loss", "accuracy");
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a curve");
    }
    int rc = read_points(db, job_seq, from, to, points, *out, err);
    if (rc == 0) {
        rc = read_evals(db, job_seq, from, to, *out, err);
    }
    if (rc == 0) {
        rc = db_integer(&last, 0, db, err,
                        "SELECT MAX(bucket) FROM curve WHERE job_seq=? AND level=0", "i", job_seq);
        json_object_set_new(*out, "last_step", json_integer(last));
    }
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
