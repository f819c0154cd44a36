/* events.h - the writer of events.jsonl (protocol.def names the events).
 *
 * What a reader may rely on: the file holds whole lines of at most EVENT_LINE_MAX bytes, in the
 * order in which things happened, and behind the last newline at most one torn line, which it must
 * ignore. When a line can't be written whole (full disk), what was written of it is cut off again
 * and the event is lost; the next event that gets through has "lost": how many. So an event is a
 * hint, never the only record: how a run ended is in exit.json, and which checkpoints exist is what
 * lies in checkpoints/.
 *
 * A writer belongs to one thread. events_metrics, events_eval, events_progress and events_stage
 * allocate nothing.
 */
#ifndef TRAINER_EVENTS_H
#define TRAINER_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/protocol.h"

struct events;

/* Cut a torn last line off dir/events.jsonl, if any. Only while nobody writes. Errors: IO. */
int events_cut_torn_line(const char *dir, struct err *err);

/* Append to dir/events.jsonl. A writer opened with `silent` takes all calls and writes nothing
 * (ranks other than 0). Errors: IO, DISK_FULL, NO_MEMORY. */
int events_open(struct events **out, const char *dir, int attempt, bool silent, struct err *err);
void events_close(struct events *events);

/* The last finished optimizer step goes to *step, where the launcher looks when the run has
 * ended in whatever way; NULL for nowhere. Borrowed until events_close. */
void events_keep_step(struct events *events, int64_t *step);
void events_set_step(struct events *events, int64_t step);

/* One optimizer step. Sets the step too. */
struct metrics {
    int64_t step;
    double loss, lr, grad_norm;
    int64_t tokens;      /* trained so far, over all attempts */
    double tokens_per_s; /* since the last metrics event, evaluations and checkpoints not counted */
    double seconds;      /* of training so far, this attempt  */
    double loss_scale;   /* 0: the run has none               */
    int64_t skipped;     /* steps so far, for its sake        */
};
void events_metrics(struct events *events, const struct metrics *m);
void events_eval(struct events *events, int64_t step, double loss, double accuracy, int64_t tokens);
void events_stage(struct events *events, enum stage stage);

/* At most four a second are written, and always the one with done == total. `unit` as in
 * protocol.def. */
void events_progress(struct events *events, enum stage stage, int64_t done, int64_t total,
                     const char *unit);

void events_warning(struct events *events, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void events_error(struct events *events, const struct err *error);

/* Any event. Takes over the reference to `keys`, an object without "t", "attempt" and "type";
 * NULL (json_pack without memory, or with a number that is not finite) counts as lost. */
void events_send(struct events *events, enum event_type type, json_t *keys);

/* Lost so far and not yet told. */
int64_t events_lost(const struct events *events);

#endif
