/* agree.h - ranks that fail together: what went wrong in one is what all return. */
#ifndef TRAINER_AGREE_H
#define TRAINER_AGREE_H

#include "trainer/base/err.h"
#include "trainer/comm/comm.h"

/* rc: how a step went in this rank, 0 or the code of *err. Returns, in every rank of the group, 0 when it went well in
 * all, else the code of the lowest rank in which it did not, and *err is that rank's. A barrier. */
int agree(struct comm *c, struct queue *q, int rc, struct err *err);

/* The first rank's `bytes` bytes, a multiple of 4, become those of all. */
void agree_copy(struct comm *c, struct queue *q, void *value, size_t bytes);

#endif
