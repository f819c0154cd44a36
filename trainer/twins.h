/* twins.h - tokens that a model cannot tell apart when it writes. */
#ifndef TRAINER_TWINS_H
#define TRAINER_TWINS_H

#include "trainer/model.h"

/* How many other tokens have the output weights of `token`, up to a twentieth of their size: what a model has never met keeps the
 * values that it began with, or shrinks to the same ones. As long as these weights are not trained, no training makes
 * `token` more likely than they are. 0 when they are trained, and where the head is on another rank. Called by all ranks of
 * the tensor-parallel group at once. */
int64_t twins_count(const struct model *m, struct comm *tp, struct queue *q, int64_t token);

/* The same of the weights in a model folder, before anything is loaded. Of most tokens only the first numbers are read. 0 as
 * well when they are not there, or not of this architecture: loading says so. */
int64_t twins_in_folder(const struct arch *a, const char *dir, int64_t token);

#endif
