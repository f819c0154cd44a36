/* guard.h - what a step whose numbers are not finite means. */
#ifndef TRAINER_GUARD_H
#define TRAINER_GUARD_H

#include "trainer/step.h"

/* After a step of all ranks, which all call it: 0 where its numbers are finite, and where the step was skipped and
 * the loss scale can still move. Errors: DIVERGED, with the same sentence on every rank; it names the parameter
 * whose gradient the backward pass made not finite first, and a rank that holds it. */
int guard_step(struct engine *e, const struct step_result *result, int64_t step,
               const struct spec *s, struct err *err);

#endif
