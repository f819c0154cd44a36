/* grads.h - gradients after the last microbatch: sums over ranks, norm, clipping. */
#ifndef TRAINER_GRADS_H
#define TRAINER_GRADS_H

#include "trainer/model.h"

/* All of this is about weights that are trained (trained.h); the others have no gradient. */

/* The groups that gradients are summed over. */
struct grad_groups {
    struct comm *tp;        /* tensor parallel                                             */
    struct comm *kv;        /* of those the ranks that hold the same key and value heads   */
    struct comm *dp;        /* data parallel                                               */
    struct comm *ep, *edp;  /* experts: that they are divided over; that have the same     */
    struct comm *pp;        /* pipeline: for the norm                                      */
    struct comm *embedding; /* first and last stage, which both hold a tied one     */
};

/* Gradients to zero, before the first microbatch of a step. */
void grads_zero(const struct model *m, const struct kernels *k, struct queue *q);

/* The sums of a step: parts of gradients (shares.h), and those of data-parallel ranks, become sums; where the optimizer's
 * state is divided, of this rank's slices alone. Begin, before the last microbatch's backward passes; tell which gradients are
 * final while these go on, or not: the sums are the same bits; finish. An operation starts as soon as all that it sums is
 * final, in an order that is the same on all ranks of a group, and is awaited in finish. */
enum { GRADS_PENDING = 32 /* operations under way */ };

struct grad_sums {
    const struct model *m;
    struct grad_groups g;
    struct queue *q;
    bool *final; /* owned [weight_count]                                 */
    int *
        missing[VECTORS]; /* owned: of the buckets of divided vectors, weights that are not final */
    struct {
        struct comm *comm;
        comm_ticket ticket;
    } pending[GRADS_PENDING];
    int started, ended; /* operations; of pending[n % GRADS_PENDING] */
    int early;          /* that started before finish */
};

/* Errors: NO_MEMORY; close is due then too. */
int grads_open(struct grad_sums *s, const struct model *m, struct err *err);
void grads_close(struct grad_sums *s);

void grads_begin(struct grad_sums *s, const struct grad_groups *g, struct queue *q);
/* Weights [from, to) of the model have their gradients. */
void grads_final(struct grad_sums *s, int from, int to);
void grads_finish(struct grad_sums *s);

/* After that: L2 norm over all gradients of the whole model, each once; NaN or infinite when any is. The same on all
 * ranks. */
double grads_norm(const struct model *m, const struct kernels *k, struct queue *q,
                  const struct grad_groups *g);

/* What a step multiplies gradients by: min(1, clip / (norm + 1e-6)); clip 0 is no clipping. */
double grads_clip_scale(double norm, double clip);

#endif
