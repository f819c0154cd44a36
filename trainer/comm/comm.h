/* comm.h - a group of ranks that exchange tensors.
 *
 * Back ends fill `struct comm_ops`: self.c is a group of one. Every operation starts work and returns a
 * ticket; comm_wait() ends it. Tensors of a started operation belong to it until then. Sums are taken in
 * rank order, so that a group gives the same bits every run. A lost peer ends the rank.
 */
#ifndef TRAINER_COMM_COMM_H
#define TRAINER_COMM_COMM_H

#include "kernels/kernels.h"

struct comm;

/* An operation under way; 0 is one that has ended already. */
typedef uint64_t comm_ticket;

struct comm_ops {
    const char *name;
    /* In place: t becomes the sum of every rank's t; of real or f64 elements. */
    comm_ticket (*all_reduce)(struct comm *c, struct queue *q, struct tensor t);
    /* out [size n]: every rank's part [n], in rank order. */
    comm_ticket (*all_gather)(struct comm *c, struct queue *q, struct tensor out,
                              struct tensor part);
    /* part [n]: this rank's piece of the sum of every rank's t [size n]. */
    comm_ticket (*reduce_scatter)(struct comm *c, struct queue *q, struct tensor part,
                                  struct tensor t);
    /* t becomes root's t. */
    comm_ticket (*broadcast)(struct comm *c, struct queue *q, struct tensor t, int root);
    void (*wait)(struct comm *c, struct queue *q, comm_ticket ticket);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    void *impl; /* private to the back end */
};

/* all_reduce and wait for it. */
void comm_all_reduce(struct comm *c, struct queue *q, struct tensor t);

/* A group of one: every operation is a copy or nothing. */
struct comm comm_self(void);

#endif
