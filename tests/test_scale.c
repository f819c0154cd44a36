/* test_scale.c - the loss scale: Megatron's rules step by step, what is pinned, and its state. */
#include <math.h>
#include <string.h>

#include "tests/tap.h"
#include "trainer/scale.h"

static const struct scale_rules megatron = {
    .moves = true, .initial = 4294967296.0, .lowest = 1.0, .window = 1000, .hysteresis = 2};

static void see(struct scale *s, int64_t times, bool overflow)
{
    for (int64_t i = 0; i < times; i++) {
        scale_see(s, overflow);
    }
}

static void the_first_overflow_is_let_pass_and_every_further_one_halves(void)
{
    struct scale s = scale_make(&megatron);

    EXPECT(s.now == 0x1p32);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p32 && s.skipped == 1);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p31);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p30);
    see(&s, 1, false);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p29 && s.skipped == 4 && s.in_row == 1);
}

/* A clean step between overflows refills nothing: only a whole window does. */
static void only_a_clean_window_refills_what_is_let_pass(void)
{
    struct scale s = scale_make(&megatron);

    see(&s, 2, true);
    see(&s, 999, false);
    EXPECT(s.now == 0x1p31 && s.clean == 999 && s.tries == 0);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p30 && s.clean == 0);
    see(&s, 1000, false);
    EXPECT(s.now == 0x1p31 && s.clean == 0 && s.tries == 2);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p31 && s.tries == 1);
    see(&s, 1, true);
    EXPECT(s.now == 0x1p30 && s.tries == 0);
}

static void doubles_after_a_window_of_clean_steps(void)
{
    struct scale s = scale_make(&megatron);

    see(&s, 999, false);
    EXPECT(s.now == 0x1p32);
    see(&s, 1, false);
    EXPECT(s.now == 0x1p33);
    see(&s, 999, false);
    EXPECT(s.now == 0x1p33);
    see(&s, 1, false);
    EXPECT(s.now == 0x1p34);
    see(&s, 500, false);
    see(&s, 1, true);
    see(&s, 999, false);
    EXPECT(s.now == 0x1p34);
    see(&s, 1, false);
    EXPECT(s.now == 0x1p35 && s.skipped == 1);
}

/* From 2^32 down: one overflow is let pass, 32 halve, and at 1 the next is one too many. */
static void is_pinned_by_an_overflow_at_the_lowest_scale(void)
{
    struct scale s = scale_make(&megatron);

    for (int i = 1; i <= 33; i++) {
        see(&s, 1, true);
        EXPECT(s.now == (i == 1 ? 0x1p32 : ldexp(1.0, 33 - i)) && !s.pinned);
    }
    EXPECT(s.now == 1.0);
    see(&s, 1, true);
    EXPECT(s.pinned && s.now == 1.0 && s.in_row == 34 && s.skipped == 34);
    see(&s, 1, false);
    EXPECT(!s.pinned && s.in_row == 0 && s.skipped == 34);
}

static void the_lowest_scale_need_not_be_reached_by_halves(void)
{
    const struct scale_rules rules = {
        .moves = true, .initial = 10.0, .lowest = 3.0, .window = 2, .hysteresis = 1};
    struct scale s = scale_make(&rules);

    see(&s, 1, true);
    EXPECT(s.now == 5.0 && !s.pinned);
    see(&s, 1, true);
    EXPECT(s.now == 3.0 && !s.pinned);
    see(&s, 1, true);
    EXPECT(s.now == 3.0 && s.pinned);
}

/* At the lowest scale what is let pass is let pass there too. */
static void is_not_pinned_while_overflows_are_let_pass(void)
{
    struct scale_rules rules = megatron;

    rules.initial = 1.0;
    rules.hysteresis = 3;
    struct scale s = scale_make(&rules);
    see(&s, 2, true);
    EXPECT(!s.pinned);
    see(&s, 1, true);
    EXPECT(s.pinned);
}

static void a_fixed_scale_stays_and_is_pinned_by_many_in_a_row(void)
{
    const struct spec fixed = {.precision = PRECISION_FP16, .loss_scale = 512.0};
    const struct scale_rules rules = scale_rules_of(&fixed);
    struct scale s = scale_make(&rules);

    see(&s, SCALE_SKIPS - 1, true);
    EXPECT(s.now == 512.0 && !s.pinned);
    see(&s, 1, false);
    see(&s, SCALE_SKIPS - 1, true);
    EXPECT(!s.pinned);
    see(&s, 1, true);
    EXPECT(s.pinned && s.now == 512.0 && s.skipped == 2 * SCALE_SKIPS - 1);
    see(&s, 3000, false);
    EXPECT(s.now == 512.0);
}

static void other_precisions_have_a_scale_of_one(void)
{
    const struct spec s = {.precision = PRECISION_BF16,
                           .initial_loss_scale = 4.0,
                           .min_loss_scale = 1.0,
                           .loss_scale_window = 1,
                           .hysteresis = 1};
    const struct scale_rules rules = scale_rules_of(&s);
    struct scale one = scale_make(&rules);

    see(&one, 10, false);
    EXPECT(one.now == 1.0);
}

static void its_state_goes_through_json_bit_for_bit(void)
{
    struct scale_rules rules = megatron;
    struct err err = {0};

    rules.initial = 0.1 + 0.2;
    rules.lowest = 1e-3;
    struct scale s = scale_make(&rules), back = scale_make(&rules);
    see(&s, 345, false);
    see(&s, 2, true);
    see(&s, 77, false);
    see(&s, 1, true);
    char *text = NULL;
    json_t *state = scale_json(&s);
    text = json_dumps(state, 0);
    json_decref(state);
    EXPECT(text != NULL);
    state = json_loads(text, 0, NULL);
    EXPECT(scale_read(&back, state, &err) == 0);
    EXPECT(back.now == s.now && back.clean == s.clean && back.tries == s.tries &&
           back.skipped == s.skipped && back.in_row == s.in_row);
    for (int i = 0; i < 2000; i++) {
        scale_see(&s, i % 700 == 3);
        scale_see(&back, i % 700 == 3);
        EXPECT(back.now == s.now && back.clean == s.clean && back.tries == s.tries);
    }
    json_decref(state);
    free(text);
}

static void refuses_a_state_that_no_run_leaves(void)
{
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"scale\":0,\"clean_steps\":0,\"overflows_left\":2,\"skipped_steps\":0,"
        "\"skipped_in_a_row\":0}",
        "{\"scale\":4,\"clean_steps\":1000,\"overflows_left\":2,\"skipped_steps\":0,"
        "\"skipped_in_a_row\":0}",
        "{\"scale\":4,\"clean_steps\":0,\"overflows_left\":3,\"skipped_steps\":0,"
        "\"skipped_in_a_row\":0}",
        "{\"scale\":4,\"clean_steps\":0,\"overflows_left\":2,\"skipped_steps\":-1,"
        "\"skipped_in_a_row\":0}",
        "{\"scale\":4,\"clean_steps\":0,\"overflows_left\":2,\"skipped_steps\":1,"
        "\"skipped_in_a_row\":2}",
        "{\"scale\":\"4\",\"clean_steps\":0,\"overflows_left\":2,\"skipped_steps\":1,"
        "\"skipped_in_a_row\":1}"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct scale s = scale_make(&megatron);
        struct err err = {0};
        json_t *state = json_loads(bad[i], 0, NULL);
        EXPECT(state != NULL && scale_read(&s, state, &err) == ERR_BAD_FILE);
        json_decref(state);
    }
}

int main(void)
{
    RUN(the_first_overflow_is_let_pass_and_every_further_one_halves);
    RUN(only_a_clean_window_refills_what_is_let_pass);
    RUN(doubles_after_a_window_of_clean_steps);
    RUN(is_pinned_by_an_overflow_at_the_lowest_scale);
    RUN(the_lowest_scale_need_not_be_reached_by_halves);
    RUN(is_not_pinned_while_overflows_are_let_pass);
    RUN(a_fixed_scale_stays_and_is_pinned_by_many_in_a_row);
    RUN(other_precisions_have_a_scale_of_one);
    RUN(its_state_goes_through_json_bit_for_bit);
    RUN(refuses_a_state_that_no_run_leaves);
    return tap_done();
}
