/* order.h - the places of waiting jobs among their owner's own of the same class (queue.h: line). */
#ifndef SERVER_ORDER_H
#define SERVER_ORDER_H

#include "server/jobs.h"

enum order_place { ORDER_FIRST, ORDER_LAST, ORDER_BEFORE, ORDER_AFTER };

/* Put `job` first, last, before or after `other` (NULL for first and last); the jobs between change places with it.
 * Nothing of another owner or another class moves. Announces the job.
 * Errors: BAD_STATE for a job that does not wait, and for an `other` that is of another owner or class or does
 * not wait. */
int order_move(struct tx *tx, const struct job_ref *job, enum order_place place,
               const struct job_ref *other, struct err *err);

#endif
