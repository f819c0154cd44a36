/* rates.h - the learning rate as a function of the step.
 *
 * The shapes are those of Megatron-LM's scheduler (reference/megatron.md, 1.8; golden/tables/
 * lr_schedules.json), with one difference that DESIGN asks for: step n, counted from 1, uses rate(n), so
 * that the first step after a warmup that starts at 0 does not run with rate 0.
 */
#ifndef TRAINER_RATES_H
#define TRAINER_RATES_H

#include <stdint.h>

#include "trainer/spec.h"

struct rates {
    enum lr_schedule schedule;
    enum wsd_style style;
    double highest, lowest, start; /* start: at step 0, before the warmup */
    int64_t warmup, total, decay;  /* steps; decay: of WSD                */
};

/* Resolve what the request leaves open, for a run of `total` steps. */
struct rates rates_make(const struct spec *s, int64_t total);

/* The learning rate of optimizer step t, counted from 1; rate(0) is the start of the warmup. */
double rates_at(const struct rates *r, int64_t t);

#endif
