/* scale.h - the loss scale of fp16, and what skipped steps are.
 *
 * Gradients of activations of an fp16 run would vanish below 2^-24. The loss gradient is therefore multiplied by
 * a scale, and gradients of weights are divided by it before their norm is taken. A gradient that is not finite
 * means that the scale is too large: the step is skipped by all ranks, weights, optimizer state and the schedule
 * of the learning rate stay as they are. The scale follows Megatron-LM's DynamicGradScaler
 * (core/optimizer/grad_scaler.py):
 *
 *     overflow      clean = 0, tries - 1; without tries left the scale is halved, not below `lowest`
 *     clean step    clean + 1; at `window` of them clean = 0, tries are refilled and the scale is doubled
 *
 * A scale that is pinned, an overflow at the lowest scale with no tries left or too many in a row, is
 * divergence: nothing of the scaler helps.
 */
#ifndef TRAINER_SCALE_H
#define TRAINER_SCALE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/spec.h"

enum { SCALE_SKIPS = 64 /* in a row, of a scale that cannot move: then it is pinned */ };

struct scale_rules {
    bool moves;             /* else the scale is `initial` for ever */
    double initial, lowest; /* not less than `lowest`; more than 0 */
    int64_t window;         /* clean steps before the scale is doubled */
    int64_t hysteresis;     /* overflows before it is halved */
};

struct scale {
    struct scale_rules rules;
    double now;
    int64_t clean;   /* steps without overflow since the scale last changed or overflowed */
    int64_t tries;   /* overflows left before the scale is halved, this one included      */
    int64_t skipped; /* steps in all                                                      */
    int64_t in_row;  /* of them, up to now                                                */
    bool pinned;     /* the last step was an overflow that nothing could be done about    */
};

/* Of a precision without a scale: 1 for ever. */
struct scale_rules scale_rules_of(const struct spec *s);
struct scale scale_make(const struct scale_rules *rules);

/* After a step. */
void scale_see(struct scale *s, bool overflow);

/* State between two steps: a new reference, NULL when out of memory; and back, into what scale_make gave. Bit-equal
 * round trip. Errors: BAD_FILE. */
json_t *scale_json(const struct scale *s);
int scale_read(struct scale *s, const json_t *state, struct err *err);

#endif
