/* ingest.h - from a run's events.jsonl into the store, each line exactly once.
 *
 * Rows and the offset behind the last line are written in one transaction: after a crash reading goes on
 * where the store says, and neither loses nor repeats an event.
 */
#ifndef SERVER_INGEST_H
#define SERVER_INGEST_H

#include "server/jobs.h"
#include "trainer/protocol.h"

/* What a call did. */
struct ingested {
    int events;    /* lines taken; fewer than the limit: there are no more yet */
    bool announce; /* fields of the job object changed and were not announced */
};

/* Read up to `limit` lines into the store; ref follows. On failure nothing was stored and `reader` must
 * be opened anew at ref->tail_offset. */
int ingest_read(struct tx *tx, struct job_ref *ref, struct event_reader *reader, int limit,
                struct ingested *out, struct err *err);

#endif
