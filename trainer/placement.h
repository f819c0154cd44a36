/* placement.h - how many layers of the model each stage of a pipeline holds.
 *
 * Stage s of p v runs on rank s % p, as its chunk s / p. The first stage has the embedding too, the last the final
 * norm and the head. Three ways to choose:
 *
 *    ""         the same number each; what does not divide is refused
 *    "auto"     so that the dearest stage costs least, by multiplications a token, embedding and head counted
 *    "4,4,3"    as it stands; 0 is allowed
 */
#ifndef TRAINER_PLACEMENT_H
#define TRAINER_PLACEMENT_H

#include "trainer/arch.h"
#include "trainer/base/err.h"

enum { PLACEMENT_STAGES = 512, PLACEMENT_CHUNKS = 16 };

struct placement {
    int ranks, chunks;            /* its product: the stages */
    int layers[PLACEMENT_STAGES]; /* of each stage           */
};

/* sequence: tokens of a sample, for "auto". Errors: BAD_SPEC (param layers_per_stage, or that of the size at fault)
 * with the numbers. */
int placement_make(struct placement *out, const struct arch *a, int ranks, int chunks,
                   const char *text, int64_t sequence, struct err *err);

/* The first layer of a stage. */
int placement_first(const struct placement *p, int stage);

#endif
