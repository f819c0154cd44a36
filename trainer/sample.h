/* sample.h - the next token from logits. */
#ifndef TRAINER_SAMPLE_H
#define TRAINER_SAMPLE_H

#include <stdint.h>

#include "kernels/real.h"
#include "trainer/base/err.h"

/* As in Hugging Face: temperature first, then top_k, then top_p. */
struct sampling {
    double temperature; /* 0: the most likely token             */
    int64_t top_k;      /* 0: all                               */
    double top_p;       /* 1: all                               */
    uint64_t seed;
};

struct sampler;

/* A sampler for up to `vocab` logits. Errors: NO_MEMORY. */
int sampler_new(struct sampler **out, int64_t vocab, struct err *err);
void sampler_free(struct sampler *s);

/* The token at `place` of the text, a function of logits, choice and place only. Ties go to the smaller id. */
int32_t sampler_next(struct sampler *s, const real *logits, int64_t vocab,
                     const struct sampling *choice, int64_t place);

#endif
