/* pipeline.h - a pipeline rank's step: its actions, with the messages between them.
 *
 * Receives are started as early as there is room, sends when their tensor is there; each is awaited when its tensor
 * or its room is needed. All that is sent or received lies in tensors that were planned.
 */
#ifndef TRAINER_PIPELINE_H
#define TRAINER_PIPELINE_H

#include "trainer/comm/comm.h"
#include "trainer/layout.h"
#include "trainer/traffic.h"

enum { OUTBOX = 2 }; /* messages of a kind that are on their way */

/* Where messages lie. [rooms, R D] and [OUTBOX, R D]; absent where there are none. */
struct mailbox {
    struct tensor in[LINES];
    struct tensor out[2]; /* gradients, activations */
};

/* Rooms for messages of up to rows x cols. */
void pipeline_plan(struct mailbox *m, struct layout *lo, const struct traffic *t, enum dtype type,
                   int64_t rows, int64_t cols);

/* What is done at each action. in: what came, which it may overwrite; out: to be filled and sent; either may be absent. Both
 * [rows, cols]. */
struct work {
    void *context;
    int64_t (*rows)(void *context, int micro); /* the same on all ranks */
    void (*forward)(void *context, const struct action *a, const struct errand *e, struct tensor in,
                    struct tensor out);
    void (*backward)(void *context, const struct action *a, const struct errand *e,
                     struct tensor in, struct tensor out);
};

enum { PIPELINE_ROOMS = 64 }; /* most of a ring */

/* Filled in but for what is under way, which begins as 0. */
struct pipeline {
    struct comm *comm; /* the pipeline's group, in the order of its ranks; of one: no messages */
    struct queue *q;
    const struct traffic *traffic;
    const struct mailbox *mail;
    const struct work *work;
    int64_t cols;
    /* of each line: receives that were started, and messages up to the first that is not used yet */
    int started[LINES], ended[LINES];
    int sent[2]; /* gradients, activations */
    comm_ticket incoming[LINES][PIPELINE_ROOMS], outgoing[2][OUTBOX];
};

/* Do all actions; every message has arrived when it returns. */
void pipeline_run(struct pipeline *p);

#endif
