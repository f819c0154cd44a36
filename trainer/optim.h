/* optim.h - gradients to weights: norm, clipping, AdamW. */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/model.h"

/* All of this is about weights that are trained (trained.h); the others have no gradient.
 *
 * Gradients to zero, before the first microbatch of a step. */
void grads_zero(const struct model *m, const struct kernels *k, struct queue *q);

/* L2 norm over all gradients; NaN or infinite when any is. */
double grads_norm(const struct model *m, const struct kernels *k, struct queue *q);

/* What a step multiplies gradients by: min(1, clip / (norm + 1e-6)); clip 0 is no clipping. */
double grads_clip_scale(double norm, double clip);

/* AdamW on every weight; a->weight_decay only on matrices. */
void optim_step(const struct model *m, const struct kernels *k, struct queue *q,
                const struct adamw *a);

#endif
