/* curve.h - loss curves in the store: points as reported, and buckets of 16, 256, 4096 ... steps.
 *
 * A curve of a million points is drawn from some thousand buckets: reading adds up at most 16 of them
 * for each point asked for, never the points themselves.
 */
#ifndef SERVER_CURVE_H
#define SERVER_CURVE_H

#include "server/store.h"

struct curve_point {
    int64_t step;
    double loss, lr, grad_norm, tokens_per_s; /* NaN where not finite or not told */
};

/* Writes points of many calls with one prepared statement. */
struct curve_writer {
    sqlite3_stmt *put;
};

int curve_begin(struct curve_writer *w, struct tx *tx, struct err *err);
void curve_end(struct curve_writer *w);

/* A point; a second one of the same step is ignored. */
int curve_add(struct curve_writer *w, int64_t job_seq, const struct curve_point *p,
              struct err *err);

/* Forget all points beyond `step`, evaluations too. */
int curve_cut(struct tx *tx, int64_t job_seq, int64_t step, struct err *err);

int curve_add_eval(struct tx *tx, int64_t job_seq, int64_t step, double loss, double accuracy,
                   struct err *err);

/* At most `points` points of the steps [from, to], in the shape of routes.def (job_metrics). */
int curve_read(sqlite3 *db, int64_t job_seq, int64_t from, int64_t to, int64_t points, json_t **out,
               struct err *err);

#endif
