/* sample.h - the next token from logits. */
#ifndef TRAINER_SAMPLE_H
#define TRAINER_SAMPLE_H

#include <stdint.h>

#include "kernels/real.h"
#include "trainer/base/err.h"

/* As in Hugging Face: temperature first, then top_k, then top_p, then min_p. */
struct sampling {
    double temperature; /* 0: the most likely token             */
    int64_t top_k;      /* 0: all                               */
    double top_p;       /* 1: all                               */
    double min_p;       /* of the largest probability; 0: all   */
    uint64_t seed;
};

struct sampler;

/* A sampler for up to `vocab` logits. Errors: NO_MEMORY. */
int sampler_new(struct sampler **out, int64_t vocab, struct err *err);
void sampler_free(struct sampler *s);

/* The token at `place` of the text, a function of logits, choice and place only. Ties go to the smaller id. */
int32_t sampler_next(struct sampler *s, const real *logits, int64_t vocab,
                     const struct sampling *choice, int64_t place);

/* What is added to the logits of tokens before one is chosen. */
struct logit_bias {
    int32_t id;
    float bias;
};

struct penalties {
    double repetition; /* of tokens of prompt and text (arXiv:1909.05858, 4.1); 1: none */
    double frequency;  /* OpenAI's, of tokens of the text: for each time                */
    double presence;   /* once                                                          */
    const struct logit_bias *bias; /* borrowed [bias_count]; ids below vocab            */
    int64_t bias_count;
};

/* The logits with bias, then penalties: the sampler's own copy, valid until the next call, or the same where
 * nothing is to do. `ids`: the prompt's tokens, then those of the text, `count` in all. */
const real *sampler_penalise(struct sampler *s, const real *logits, int64_t vocab,
                             const struct penalties *p, const int32_t *ids, int64_t prompt,
                             int64_t count);

enum { LOGPROBS_MAX = 20 };

/* Natural logarithms of probabilities, in double, as the model gives them: at temperature 1, nothing cut. */
struct logprobs {
    double chosen;
    int top_count;
    struct {
        int32_t id;
        double logprob;
    } top[LOGPROBS_MAX]; /* the most likely tokens, falling; ties by id */
};

/* Those of token `id` and of the `top` most likely, LOGPROBS_MAX at most. */
void logprobs_make(struct logprobs *out, const real *logits, int64_t vocab, int32_t id, int top);

#endif
