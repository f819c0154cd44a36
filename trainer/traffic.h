/* traffic.h - what a pipeline rank does in a step with what it gets and gives, decided before the step.
 *
 * Beside the order of actions (schedule.h): in which slot each keeps its activations, which messages come from
 * which neighbour and in what order. Chunk c of rank r is stage c pp + r; the output of a stage's forward pass goes
 * to the next stage, the gradient of its input to the one before. Messages from a neighbour come in the order in
 * which it works, so they are taken in that order, into a ring of rooms, each as early as a room is free. With two
 * ranks both neighbours are one, and what comes need not be wanted in the order in which it comes: the ring is as
 * long as that takes, and one longer where a message can come while another is used. No order of waits locks ranks up
 * (tests/test_traffic.c plays them all).
 */
#ifndef TRAINER_TRAFFIC_H
#define TRAINER_TRAFFIC_H

#include "trainer/schedule.h"

/* Neighbours; with two ranks LINE_BEFORE is both. */
enum { LINE_BEFORE, LINE_AFTER, LINES };

/* What comes from a neighbour. */
struct traffic_line {
    int peer;  /* of the pipeline's group            */
    int count; /* messages                           */
    int rooms; /* of the ring: message i is in i % rooms */
    int *used; /* owned: by which action of the list */
};

/* What an action does beside its work. */
struct errand {
    int slot;     /* of its kept activations, where all chunks use one pool of slots */
    int own_slot; /* and where each chunk has its own                                */
    int line;     /* where its input comes from; -1: from nowhere                    */
    int message;  /* which of the line                                               */
    int to;       /* rank that gets its output; -1: nobody                           */
};

enum { TRAFFIC_CHUNKS = 16 };

struct traffic {
    struct pipe pipe;
    /* Of the chunks: gets the gradient of its output from the stage behind; gives that of its input to the one before.
     * Below all that is trained nothing is given. */
    bool gets[TRAFFIC_CHUNKS], gives[TRAFFIC_CHUNKS];
    struct action *actions; /* owned [capacity] */
    struct errand *errands; /* owned [capacity] */
    int count, capacity;
    int slots, own_slots[TRAFFIC_CHUNKS]; /* in use at a time */
    struct traffic_line line[LINES];
    struct action *theirs; /* owned [capacity]: a neighbour's actions */
    int *place;            /* owned [capacity]: of an action in the list */
};

/* Room for steps of up to the pipe's microbatches. Errors: NO_MEMORY. */
int traffic_new(struct traffic *t, const struct pipe *p, struct err *err);
void traffic_free(struct traffic *t);

/* Fill in a training step, from gets and gives. */
void traffic_train(struct traffic *t);

/* Fill in the forward passes of `micros` microbatches. */
void traffic_pass(struct traffic *t, int micros);

#endif
