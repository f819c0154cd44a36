/* test_decode.c - cached generation in the float build; sampling. */
#include "tests/decode.h"
#include "trainer/sample.h"

static void cached_logits_are_those_of_a_whole_forward_pass(void)
{
    decode_all(1e-4);
}

static const real logits[5] = {1.0F, 3.0F, 2.0F, 3.0F, -1.0F};

static int32_t draw(struct sampler *s, struct sampling choice, int64_t place)
{
    return sampler_next(s, logits, 5, &choice, place);
}

static void temperature_0_takes_the_first_of_the_most_likely(void)
{
    struct sampler *s = NULL;
    struct err err = {0};

    EXPECT(sampler_new(&s, 5, &err) == 0);
    for (int64_t i = 0; i < 20; i++) {
        EXPECT(draw(s, (struct sampling){.temperature = 0.0, .top_p = 1.0}, i) == 1);
        EXPECT(draw(s, (struct sampling){.temperature = 1.0, .top_k = 1, .top_p = 1.0}, i) == 1);
        EXPECT(draw(s, (struct sampling){.temperature = 1.0, .top_p = 0.0}, i) == 1);
    }
    sampler_free(s);
}

static void frequencies_are_the_probabilities(void)
{
    enum { DRAWS = 20000 };
    struct sampler *s = NULL;
    struct err err = {0};
    int count[5] = {0};
    double sum = 0.0;

    EXPECT(sampler_new(&s, 5, &err) == 0);
    for (int64_t i = 0; i < DRAWS; i++) {
        count[draw(s, (struct sampling){.temperature = 2.0, .top_p = 1.0, .seed = 7}, i)]++;
    }
    for (int i = 0; i < 5; i++) {
        sum += exp((double)logits[i] / 2.0);
    }
    for (int i = 0; i < 5; i++) {
        EXPECT(fabs((double)count[i] / DRAWS - exp((double)logits[i] / 2.0) / sum) < 0.015);
    }
    sampler_free(s);
}

static void top_k_and_top_p_cut_the_tail(void)
{
    struct sampler *s = NULL;
    struct err err = {0};
    bool seen[5] = {false}, seen_p[5] = {false};

    EXPECT(sampler_new(&s, 5, &err) == 0);
    for (int64_t i = 0; i < 2000; i++) {
        seen[draw(s, (struct sampling){.temperature = 5.0, .top_k = 3, .top_p = 1.0}, i)] = true;
        seen_p[draw(s, (struct sampling){.temperature = 1.0, .top_p = 0.75}, i)] = true;
    }
    EXPECT(!seen[0] && seen[1] && seen[2] && seen[3] && !seen[4]);
    EXPECT(!seen_p[0] && seen_p[1] && !seen_p[2] && seen_p[3] && !seen_p[4]);
    sampler_free(s);
}

static void the_seed_decides(void)
{
    const struct sampling a = {.temperature = 1.0, .top_p = 1.0, .seed = 1};
    const struct sampling b = {.temperature = 1.0, .top_p = 1.0, .seed = 2};
    struct sampler *s = NULL;
    struct err err = {0};
    int apart = 0;

    EXPECT(sampler_new(&s, 5, &err) == 0);
    for (int64_t i = 0; i < 200; i++) {
        EXPECT(draw(s, a, i) == draw(s, a, i));
        apart += draw(s, a, i) != draw(s, b, i);
    }
    EXPECT(apart > 20);
    sampler_free(s);
}

int main(void)
{
    RUN(cached_logits_are_those_of_a_whole_forward_pass);
    RUN(temperature_0_takes_the_first_of_the_most_likely);
    RUN(frequencies_are_the_probabilities);
    RUN(top_k_and_top_p_cut_the_tail);
    RUN(the_seed_decides);
    return tap_done();
}
