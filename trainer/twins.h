/* twins.h - tokens that a model cannot tell apart when it writes. */
#ifndef TRAINER_TWINS_H
#define TRAINER_TWINS_H

#include "trainer/model.h"

/* How many other tokens have the output weights of `token`, up to a hundredth of their size: what a model has never met keeps the
 * values that it began with, or shrinks to the same ones. As long as these weights are not trained, no training makes
 * `token` more likely than they are. 0 when they are trained. */
int64_t twins_count(const struct model *m, int64_t token);

#endif
