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

/* After the last microbatch: parts of gradients (shares.h), and those of data-parallel ranks, become sums; where the
 * optimizer's state is divided, of this rank's slices alone. */
void grads_sum(const struct model *m, const struct grad_groups *g, struct queue *q);

/* After grads_sum: L2 norm over all gradients of the whole model, each once; NaN or infinite when any is. The same on all
 * ranks. */
double grads_norm(const struct model *m, const struct kernels *k, struct queue *q,
                  const struct grad_groups *g);

/* What a step multiplies gradients by: min(1, clip / (norm + 1e-6)); clip 0 is no clipping. */
double grads_clip_scale(double norm, double clip);

#endif
