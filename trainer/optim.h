/* optim.h - gradients to weights: AdamW and masters. */
#ifndef TRAINER_OPTIM_H
#define TRAINER_OPTIM_H

#include "trainer/grads.h"

/* AdamW on every weight; a->weight_decay only on matrices. Ranks that have slices gather the weights. */
void optim_step(const struct model *m, const struct kernels *k, struct queue *q,
                const struct adamw *a, const struct grad_groups *g);

/* Masters of this rank's slices from the seed, where masters are divided: after model_init. */
void optim_init_masters(const struct model *m, uint64_t seed);

#endif
