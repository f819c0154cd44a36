/* ingest.c - what each event does to the rows of its job. */
#include "server/ingest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/curve.h"

/* One call of ingest_read. */
struct batch {
    struct tx *tx;
    struct job_ref *ref;
    struct ingested *out;
    struct curve_writer curve;
    bool has_point; /* `point` is the newest of this batch, not in the job's row yet */
    struct curve_point point;
    double point_t;
};

static double number_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* A whole number of at least 0; -1 for anything else. */
static int64_t whole_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static int take_stage(struct batch *b, const json_t *o, struct err *err)
{
    b->out->announce = true;
    if (stage_from_word(text_of(o, "stage")) == STAGE_COUNT) {
        return 0;
    }
    return db_run(b->tx->db, err,
                  "UPDATE jobs SET stage=?, stage_done=NULL, stage_total=NULL, stage_unit=NULL"
                  " WHERE seq=?",
                  "si", text_of(o, "stage"), b->ref->seq);
}

static int take_progress(struct batch *b, const json_t *o, struct err *err)
{
    b->out->announce = true;
    return db_run(b->tx->db, err,
                  "UPDATE jobs SET stage_done=NULLIF(?,-1), stage_total=NULLIF(?,-1), stage_unit=?"
                  " WHERE seq=?",
                  "iisi", whole_of(o, "done"), whole_of(o, "total"), text_of(o, "unit"),
                  b->ref->seq);
}

static int take_ready(struct batch *b, const json_t *o, struct err *err)
{
    TRY(db_run(b->tx->db, err,
               "UPDATE jobs SET parameters=NULLIF(?,-1), total_steps=NULLIF(?,-1),"
               " memory_bytes=NULLIF(?,-1) WHERE seq=?",
               "iiii", whole_of(o, "parameters"), whole_of(o, "total_steps"),
               whole_of(o, "memory_bytes"), b->ref->seq));
    b->out->announce = true;
    return b->ref->state == JOB_STARTING ? job_move(b->tx, b->ref, JOB_RUNNING, NULL, err) : 0;
}

static int take_resumed(struct batch *b, const json_t *o, struct err *err)
{
    const int64_t step = whole_of(o, "from_step");

    if (step < 0) {
        return 0;
    }
    b->has_point = false;
    b->out->announce = true;
    TRY(curve_cut(b->tx, b->ref->seq, step, err));
    return db_run(b->tx->db, err,
                  "UPDATE jobs SET step=?, steps_per_s=NULL, step_t=NULL WHERE seq=?", "ii", step,
                  b->ref->seq);
}

static int take_metrics(struct batch *b, const json_t *o, double t, struct err *err)
{
    const struct curve_point p = {.step = whole_of(o, "step"),
                                  .loss = number_of(o, "loss"),
                                  .lr = number_of(o, "lr"),
                                  .grad_norm = number_of(o, "grad_norm"),
                                  .tokens_per_s = number_of(o, "tokens_per_s")};

    if (p.step < 0) {
        return 0;
    }
    b->has_point = true;
    b->point = p;
    b->point_t = t;
    return curve_add(&b->curve, b->ref->seq, &p, err);
}

static int take_eval(struct batch *b, const json_t *o, struct err *err)
{
    const int64_t step = whole_of(o, "step");

    b->out->announce = true;
    if (step < 0) {
        return 0;
    }
    TRY(curve_add_eval(b->tx, b->ref->seq, step, number_of(o, "loss"), number_of(o, "accuracy"),
                       err));
    return db_run(b->tx->db, err, "UPDATE jobs SET eval_loss=? WHERE seq=?", "ri",
                  number_of(o, "loss"), b->ref->seq);
}

static int take_checkpoint(struct batch *b, const json_t *o, double t, struct err *err)
{
    const int64_t step = whole_of(o, "step"), bytes = whole_of(o, "bytes");

    if (step < 0) {
        return 0;
    }
    b->out->announce = true;
    b->ref->checkpoint = step;
    const bool best = json_is_true(json_object_get(o, "best"));
    if (best) {
        TRY(db_run(b->tx->db, err, "UPDATE checkpoints SET best=0 WHERE job_seq=?", "i",
                   b->ref->seq));
    }
    return db_run(b->tx->db, err,
                  "INSERT OR REPLACE INTO checkpoints(job_seq, step, dir, bytes, sha256, final,"
                  " best, created_at) VALUES(?,?,?,?,?,?,?,?)",
                  "iisisiii", b->ref->seq, step, text_of(o, "dir"), bytes < 0 ? (int64_t)0 : bytes,
                  text_of(o, "sha256"), (int64_t)json_is_true(json_object_get(o, "final")),
                  (int64_t)best, (int64_t)t);
}

static int take_checkpoint_gone(struct batch *b, const json_t *o, struct err *err)
{
    b->out->announce = true;
    return db_run(b->tx->db, err, "DELETE FROM checkpoints WHERE job_seq=? AND step=?", "ii",
                  b->ref->seq, whole_of(o, "step"));
}

/* The row of the job keeps what the newest point says, and a smoothed pace. */
static int keep_point(struct batch *b, struct err *err)
{
    if (!b->has_point) {
        return 0;
    }
    b->has_point = false;
    b->out->announce = true;
    return db_run(b->tx->db, err,
                  "UPDATE jobs SET loss=?1, tokens_per_s=?2,"
                  " steps_per_s=CASE WHEN step_t IS NULL OR ?4<=step_t OR ?3<=step THEN steps_per_s"
                  "  WHEN steps_per_s IS NULL THEN (?3-step)/(?4-step_t)"
                  "  ELSE 0.8*steps_per_s+0.2*(?3-step)/(?4-step_t) END,"
                  " step=?3, step_t=?4 WHERE seq=?5",
                  "rriri", b->point.loss, b->point.tokens_per_s, b->point.step, b->point_t,
                  b->ref->seq);
}

static int apply(struct batch *b, const struct event *e, struct err *err)
{
    switch (e->type) {
    case EVENT_STAGE: return take_stage(b, e->object, err);
    case EVENT_PROGRESS: return take_progress(b, e->object, err);
    case EVENT_READY: return take_ready(b, e->object, err);
    case EVENT_RESUMED: return take_resumed(b, e->object, err);
    case EVENT_METRICS: return take_metrics(b, e->object, e->t, err);
    case EVENT_EVAL: return take_eval(b, e->object, err);
    case EVENT_CHECKPOINT: return take_checkpoint(b, e->object, e->t, err);
    case EVENT_CHECKPOINT_GONE: return take_checkpoint_gone(b, e->object, err);
    case EVENT_STARTED:
    case EVENT_DATA:
    case EVENT_SAMPLE:
    case EVENT_STOPPED_EARLY:
    case EVENT_CHECKPOINT_FAILED:
    case EVENT_WARNING:
    case EVENT_ERROR:
    case EVENT_ENDED:
    case EVENT_COUNT: break;
    }
    return 0;
}

/* A line that is no event becomes a warning, so that it is not lost silently. */
static int store_bad_line(struct batch *b, const struct event *e, struct err *err)
{
    json_t *o =
        json_pack("{s:f, s:i, s:s, s:o}", "t", e->t, "attempt", b->ref->attempt, "type", "warning",
                  "message", json_sprintf("a line of events.jsonl was skipped: %s", e->why));
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    const int rc = text == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for an event")
                                : job_event_add(b->tx, b->ref, "warning", text, err);
    free(text);
    return rc;
}

static int store_line(struct batch *b, const struct event *e, struct err *err)
{
    char *text = strndup(e->line, e->length);
    int rc = text == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for an event")
                          : job_event_add(b->tx, b->ref, event_word(e->type), text, err);

    free(text);
    return rc != 0 ? rc : apply(b, e, err);
}

static int read_lines(struct batch *b, struct event_reader *reader, int limit, struct err *err)
{
    enum event_found found = EVENT_FOUND_NONE;
    struct event e;

    while (b->out->events < limit) {
        memset(&e, 0, sizeof e);
        TRY(event_reader_next(reader, &found, &e, err));
        if (found == EVENT_FOUND_NONE) {
            return 0;
        }
        if (found == EVENT_FOUND_BAD) {
            TRY(store_bad_line(b, &e, err));
        } else if (e.type != EVENT_COUNT) {
            TRY(store_line(b, &e, err));
        }
        b->ref->tail_offset = e.end;
        b->out->events++;
    }
    return 0;
}

int ingest_read(struct tx *tx, struct job_ref *ref, struct event_reader *reader, int limit,
                struct ingested *out, struct err *err)
{
    const struct job_ref before = *ref;
    struct batch b = {.tx = tx, .ref = ref, .out = out};

    *out = (struct ingested){0};
    TRY(curve_begin(&b.curve, tx, err));
    int rc = read_lines(&b, reader, limit, err);
    if (rc == 0) {
        rc = keep_point(&b, err);
    }
    if (rc == 0 && ref->tail_offset != before.tail_offset) {
        rc = db_run(tx->db, err, "UPDATE jobs SET tail_offset=? WHERE seq=?", "ii",
                    ref->tail_offset, ref->seq);
    }
    curve_end(&b.curve);
    if (rc != 0) {
        *ref = before;
    }
    return rc;
}
