/* comm.h - a group of ranks that exchange tensors.
 *
 * Back ends fill `struct comm_ops`: self.c is a group of one, shm.c ranks of one host. Every operation starts
 * work and returns a ticket; comm_wait() ends it. Tensors of a started operation belong to it until then.
 * Operations of a group take place in the order in which its members start them, which is the same for all;
 * those of several groups may be started and awaited in any order. Sums are taken in rank order, so that a
 * group gives the same bits every run; those of bf16 and fp16 are taken in f32 and rounded once. A lost peer,
 * or one that is not heard of for too long, ends the rank.
 *
 * "rank" here is the index in the group.
 */
#ifndef TRAINER_COMM_COMM_H
#define TRAINER_COMM_COMM_H

#include "kernels/kernels.h"

struct comm;

/* An operation under way; 0 is one that has ended already. */
typedef uint64_t comm_ticket;

enum comm_kind {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_BROADCAST,
    COMM_SEND,
    COMM_RECV,
    COMM_BARRIER,
    COMM_KIND_COUNT
};
enum comm_reduction { COMM_SUM, COMM_MAX };

/* What an operation works on. */
struct comm_order {
    enum comm_kind kind;
    enum comm_reduction how; /* of sums                                                        */
    struct tensor out, in;   /* in: what this rank gives; out: what it gets; one where in place */
    int peer;                /* root, receiver or sender                                       */
    const int64_t *out_rows; /* all-to-all: rows from each rank, borrowed until the wait       */
    const int64_t *in_rows;  /* and to each                                                    */
};

struct comm_ops {
    const char *name;
    comm_ticket (*start)(struct comm *c, struct queue *q, const struct comm_order *o);
    void (*wait)(struct comm *c, struct queue *q, comm_ticket ticket);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    void *impl; /* private to the back end */
    /* what was started so far: operations, and bytes of this rank's larger tensor in them */
    int64_t count[COMM_KIND_COUNT], bytes[COMM_KIND_COUNT];
};

/* In place: t becomes the sum, or the largest, of every rank's t. */
comm_ticket comm_start_all_reduce(struct comm *c, struct queue *q, struct tensor t,
                                  enum comm_reduction how);
/* part [n]: this rank's piece of the sum of every rank's t [size n]. */
comm_ticket comm_start_reduce_scatter(struct comm *c, struct queue *q, struct tensor part,
                                      struct tensor t);
/* out [size n]: every rank's part [n], in rank order. part may be this rank's place in out. */
comm_ticket comm_start_all_gather(struct comm *c, struct queue *q, struct tensor out,
                                  struct tensor part);
/* Rows of matrices with equal columns: in_rows[r] rows of `in`, in rank order, go to rank r; out_rows[r] rows
 * of `out` come from it. What r gives me is what I expect of r. */
comm_ticket comm_start_all_to_all(struct comm *c, struct queue *q, struct tensor out,
                                  const int64_t *out_rows, struct tensor in,
                                  const int64_t *in_rows);
/* t becomes root's t. */
comm_ticket comm_start_broadcast(struct comm *c, struct queue *q, struct tensor t, int root);
/* Between two ranks; apart from the group's other operations and from those of other pairs and the other
 * direction, so that a rank may start several at once in any order. Each is met by one of equal bytes. */
comm_ticket comm_start_send(struct comm *c, struct queue *q, struct tensor t, int to);
comm_ticket comm_start_recv(struct comm *c, struct queue *q, struct tensor t, int from);
void comm_wait(struct comm *c, struct queue *q, comm_ticket ticket);

/* Start and wait. */
void comm_all_reduce(struct comm *c, struct queue *q, struct tensor t);
void comm_barrier(struct comm *c, struct queue *q);

void comm_close(struct comm *c);

const char *comm_kind_name(enum comm_kind kind); /* "all-reduce" */

/* A group of one: every operation is a copy or nothing. */
struct comm comm_self(void);

#endif
