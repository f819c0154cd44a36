/* rules.h - which fields of a request go together (rules.def): asked at submit and once more by the trainer. */
#ifndef TRAINER_RULES_H
#define TRAINER_RULES_H

#include "trainer/arch.h"
#include "trainer/spec.h"

enum rule {
#define RULE(id, when, field, holds, ...) RULE_##id,
#include "trainer/rules.def"
    RULE_COUNT
};

/* Samples in a microbatch: as the request has it, else the largest of 8, 4, 2 and 1 that divides the batch over data-parallel
 * ranks and leaves each rank of a pipeline a microbatch to work on. */
int64_t rules_micro_batch(const struct spec *s);

/* The first rule that a request breaks, its fields being in their ranges; RULE_COUNT when it breaks none. Without an
 * architecture (NULL) only those that need none. */
enum rule rules_broken(const struct spec *s, const struct arch *a);

/* Errors: BAD_SPEC naming the field, with the numbers and values that would work. */
int rules_check(const struct spec *s, const struct arch *a, struct err *err);

#endif
