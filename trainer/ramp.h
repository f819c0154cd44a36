/* ramp.h - the global batch size as a function of how much was trained on: "0:16 1M:32 10M:64".
 *
 * A threshold is a number of tokens (K, M, B, T: thousand, million, billion, trillion); from the sample on that it falls
 * on, steps have that many samples. A step that begins before a threshold is of the size before. Source: Megatron-LM's
 * step-batch-size-schedule (reference/megatron.md 1.13). Without a schedule every step is of one size.
 */
#ifndef TRAINER_RAMP_H
#define TRAINER_RAMP_H

#include <stdint.h>

#include "trainer/base/err.h"

enum { RAMP_MOST = 32, RAMP_BATCH = 65536 /* most samples of a step */ };

struct ramp {
    int count;
    int64_t tokens[RAMP_MOST]; /* ascending, the first is 0        */
    int64_t size[RAMP_MOST];   /* samples of a step from there on  */
    int64_t sequence;          /* tokens of a sample               */
};

/* Read a schedule, "" being `size` throughout. Errors: BAD_SPEC (param batch_size_schedule). */
int ramp_read(struct ramp *out, const char *text, int64_t size, int64_t sequence, struct err *err);

int64_t ramp_at(const struct ramp *r, int64_t consumed); /* samples of the step after so many  */
int64_t ramp_largest(const struct ramp *r);
int64_t ramp_divisor(const struct ramp *r); /* the largest number that divides all its sizes */

/* How many samples so many steps take, and how many steps so many samples are, the last of which may be short. */
int64_t ramp_samples(const struct ramp *r, int64_t steps);
int64_t ramp_steps(const struct ramp *r, int64_t samples);

#endif
