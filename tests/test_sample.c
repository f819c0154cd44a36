/* test_sample.c - the next token against a plain reference; penalties; log probabilities. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/sample.h"

enum { V = 300 };

static uint64_t state = 1;

static double uniform(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-53;
}

static struct sampler *sampler_of(int64_t vocab)
{
    struct sampler *s = NULL;
    struct err err = {0};

    CHECK(sampler_new(&s, vocab, &err) == 0, "%s", err.text);
    return s;
}

/* Which tokens a choice allows: all sorted, then cut, in the plainest way. */
static void allow(bool allowed[V], const real *logits, const struct sampling *c)
{
    double p[V], sum = 0.0, kept = 0.0, most = -1e300;
    int order[V], n = V;

    for (int i = 0; i < V; i++) {
        most = fmax(most, (double)logits[i]);
        order[i] = i;
    }
    for (int i = 1; i < V; i++) { /* by insertion: stable */
        for (int k = i; k > 0 && logits[order[k]] > logits[order[k - 1]]; k--) {
            const int t = order[k];
            order[k] = order[k - 1];
            order[k - 1] = t;
        }
    }
    n = c->top_k > 0 && c->top_k < V ? (int)c->top_k : V;
    for (int i = 0; i < n; i++) {
        p[i] = exp(((double)logits[order[i]] - most) / c->temperature);
        sum += p[i];
    }
    memset(allowed, 0, V * sizeof *allowed);
    for (int i = 0; i < n && (i == 0 || (kept < c->top_p * sum && p[i] >= c->min_p)); i++) {
        allowed[order[i]] = true;
        kept += p[i];
    }
}

static void only_what_the_choice_allows_is_taken_and_all_of_it(void)
{
    static const struct sampling choices[] = {
        {.temperature = 1.0, .top_p = 1.0},
        {.temperature = 1.0, .top_p = 0.5},
        {.temperature = 0.7, .top_p = 0.9},
        {.temperature = 2.0, .top_p = 1.0, .top_k = 7},
        {.temperature = 1.5, .top_p = 0.8, .top_k = 40},
        {.temperature = 1.0, .top_p = 1.0, .min_p = 0.2},
        {.temperature = 2.0, .top_p = 0.95, .min_p = 0.3, .top_k = 20},
    };
    struct sampler *s = sampler_of(V);
    real logits[V];
    bool allowed[V];

    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const double width = i % 2 == 0 ? 3.0 : 30.0;
        bool seen[V] = {false};
        for (int v = 0; v < V; v++) {
            logits[v] = (real)(width * (uniform() - 0.5));
        }
        logits[17] = logits[201] = (real)(width * 0.52); /* ties */
        allow(allowed, logits, &choices[i]);
        for (int64_t place = 0; place < 20000; place++) {
            seen[sampler_next(s, logits, V, &choices[i], place)] = true;
        }
        double sum = 0.0;
        for (int v = 0; v < V; v++) {
            sum += exp((double)logits[v] / choices[i].temperature);
        }
        for (int v = 0; v < V; v++) {
            EXPECT(!seen[v] || allowed[v]);
            /* a token that is likely enough comes in so many draws */
            EXPECT(seen[v] || !allowed[v] ||
                   exp((double)logits[v] / choices[i].temperature) / sum < 1e-3);
        }
    }
    sampler_free(s);
}

static void logits_that_are_no_numbers_still_give_a_token(void)
{
    const struct sampling c = {.temperature = 1.0, .top_p = 0.5};
    struct sampler *s = sampler_of(5);
    const real logits[5] = {NAN, NAN, NAN, NAN, NAN};

    const int32_t id = sampler_next(s, logits, 5, &c, 0);
    EXPECT(id >= 0 && id < 5);
    sampler_free(s);
}

static void penalties_follow_their_formulas(void)
{
    const struct logit_bias bias[2] = {{0, 1.5F}, {4, -2.0F}};
    const real logits[6] = {1, -2, 3, -4, 5, 6};
    const int32_t ids[7] = {5, 1, 1, 2, 3, 2, 2}; /* three of the prompt, four of the text */
    struct sampler *s = sampler_of(6);
    struct penalties p = {.repetition = 1.0};

    EXPECT(sampler_penalise(s, logits, 6, &p, ids, 3, 7) == logits);
    p.bias = bias;
    p.bias_count = 2;
    const real *out = sampler_penalise(s, logits, 6, &p, ids, 3, 7);
    const double biased[6] = {2.5, -2, 3, -4, 3, 6};
    for (int i = 0; i < 6; i++) {
        EXPECT_NEAR(out[i], biased[i], 1e-6);
    }
    p = (struct penalties){.repetition = 1.0, .frequency = 0.5, .presence = 0.25};
    for (int again = 0; again < 2; again++) { /* nothing is left over from the call before */
        out = sampler_penalise(s, logits, 6, &p, ids, 3, 7);
        const double counted[6] = {1, -2, 3 - 3 * 0.5 - 0.25, -4 - 0.5 - 0.25, 5, 6};
        for (int i = 0; i < 6; i++) {
            EXPECT_NEAR(out[i], counted[i], 1e-6);
        }
    }
    p = (struct penalties){.repetition = 2.0};
    out = sampler_penalise(s, logits, 6, &p, ids, 3, 7);
    const double repeated[6] = {1, -4, 1.5, -8, 5, 3};
    for (int i = 0; i < 6; i++) {
        EXPECT_NEAR(out[i], repeated[i], 1e-6);
    }
    EXPECT(logits[5] > 5.9F && logits[5] < 6.1F);
    sampler_free(s);
}

static void log_probabilities_are_those_of_the_softmax(void)
{
    struct logprobs p;
    real logits[V];
    double sum = 0.0;

    for (int v = 0; v < V; v++) {
        logits[v] = (real)(8.0 * uniform());
        sum += exp((double)logits[v]);
    }
    logprobs_make(&p, logits, V, 123, 9);
    EXPECT_NEAR(p.chosen, (double)logits[123] - log(sum), 1e-12);
    EXPECT(p.top_count == 9);
    for (int i = 0; i < 9; i++) {
        int larger = 0;
        for (int v = 0; v < V; v++) {
            larger += logits[v] > logits[p.top[i].id];
        }
        EXPECT(larger == i);
        EXPECT_NEAR(p.top[i].logprob, (double)logits[p.top[i].id] - log(sum), 1e-12);
    }
    logits[7] = logits[3] = 100;
    logprobs_make(&p, logits, V, 3, 1000);
    EXPECT(p.top_count == LOGPROBS_MAX && p.top[0].id == 3 && p.top[1].id == 7);
    logprobs_make(&p, logits, V, 3, 0);
    EXPECT(p.top_count == 0);
}

int main(void)
{
    RUN(only_what_the_choice_allows_is_taken_and_all_of_it);
    RUN(logits_that_are_no_numbers_still_give_a_token);
    RUN(penalties_follow_their_formulas);
    RUN(log_probabilities_are_those_of_the_softmax);
    return tap_done();
}
