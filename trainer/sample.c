/* sample.c - temperature, top-k, top-p (Holtzman et al. 2019, arXiv:1904.09751). */
#include "trainer/sample.h"

#include <stdlib.h>

#include "kernels/check.h"

struct candidate {
    double p; /* logit, then probability */
    int32_t id;
};

struct sampler {
    struct candidate *list; /* owned [room] */
    int64_t room;
};

int sampler_new(struct sampler **out, int64_t vocab, struct err *err)
{
    struct sampler *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->room = vocab;
        s->list = calloc((size_t)vocab, sizeof *s->list);
    }
    if (s == NULL || s->list == NULL) {
        sampler_free(s);
        return FAIL(err, ERR_NO_MEMORY, "no memory to sample from %lld tokens", (long long)vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (s != NULL) {
        free(s->list);
        free(s);
    }
}

static int by_probability(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->p > y->p || x->p < y->p) {
        return x->p > y->p ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int32_t most_likely(const real *logits, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t)best;
}

/* splitmix64 (Steele, Lea, Flood 2014) of seed and place, as a number in [0, 1). */
static double uniform(uint64_t seed, int64_t place)
{
    uint64_t x =
        seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)place * UINT64_C(0xd1b54a32d192ed03);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* Turn the first n logits, sorted, into probabilities; how many of them top_p keeps. */
static int64_t nucleus(struct candidate *list, int64_t n, double top_p)
{
    const double most = list[0].p;
    double sum = 0.0, kept = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++) {
        list[i].p = exp(list[i].p - most);
        sum += list[i].p;
    }
    while (count < n && (count == 0 || kept < top_p * sum)) {
        kept += list[count++].p;
    }
    return count;
}

int32_t sampler_next(struct sampler *s, const real *logits, int64_t vocab,
                     const struct sampling *choice, int64_t place)
{
    double sum = 0.0;
    int64_t n = vocab;

    CHECK(vocab <= s->room, "%lld logits for a sampler of %lld", (long long)vocab,
          (long long)s->room);
    if (!(choice->temperature > 0.0)) {
        return most_likely(logits, vocab);
    }
    for (int64_t i = 0; i < vocab; i++) {
        s->list[i] = (struct candidate){(double)logits[i] / choice->temperature, (int32_t)i};
    }
    qsort(s->list, (size_t)vocab, sizeof *s->list, by_probability);
    if (choice->top_k > 0 && choice->top_k < n) {
        n = choice->top_k;
    }
    n = nucleus(s->list, n, choice->top_p);
    for (int64_t i = 0; i < n; i++) {
        sum += s->list[i].p;
    }
    double left = uniform(choice->seed, place) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= s->list[i].p;
        if (left < 0.0) {
            return s->list[i].id;
        }
    }
    return s->list[n - 1].id;
}
