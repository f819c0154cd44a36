/* scale.c - Megatron's rules of the dynamic loss scale. */
#include "trainer/scale.h"

#include "kernels/check.h"
#include "trainer/base/json.h"

struct scale_rules scale_rules_of(const struct spec *s)
{
    struct scale_rules rules = {.initial = 1.0, .lowest = 1.0, .window = 1, .hysteresis = 1};

    if (s->precision != PRECISION_FP16) {
        return rules;
    }
    if (s->loss_scale > 0.0) {
        rules.initial = rules.lowest = s->loss_scale;
        return rules;
    }
    return (struct scale_rules){.moves = true,
                                .initial = s->initial_loss_scale,
                                .lowest = s->min_loss_scale,
                                .window = s->loss_scale_window,
                                .hysteresis = s->hysteresis};
}

struct scale scale_make(const struct scale_rules *rules)
{
    CHECK(rules->lowest > 0.0 && rules->initial >= rules->lowest, "a scale of %g, at least %g",
          rules->initial, rules->lowest);
    CHECK(rules->window >= 1 && rules->hysteresis >= 1, "%lld overflows in %lld steps",
          (long long)rules->hysteresis, (long long)rules->window);
    return (struct scale){.rules = *rules, .now = rules->initial, .tries = rules->hysteresis};
}

static void see_overflow(struct scale *s)
{
    s->skipped++;
    s->in_row++;
    s->clean = 0;
    s->tries -= s->tries > 0;
    s->pinned =
        s->rules.moves ? s->tries == 0 && s->now <= s->rules.lowest : s->in_row >= SCALE_SKIPS;
    if (s->rules.moves && s->tries == 0) {
        s->now = s->now * 0.5 > s->rules.lowest ? s->now * 0.5 : s->rules.lowest;
    }
}

void scale_see(struct scale *s, bool overflow)
{
    s->pinned = false;
    if (overflow) {
        see_overflow(s);
        return;
    }
    s->in_row = 0;
    if (!s->rules.moves) {
        return;
    }
    s->clean++;
    if (s->clean == s->rules.window) {
        s->clean = 0;
        s->tries = s->rules.hysteresis;
        s->now *= 2.0;
    }
}

json_t *scale_json(const struct scale *s)
{
    return json_pack("{s:f, s:I, s:I, s:I, s:I}", "scale", s->now, "clean_steps",
                     (json_int_t)s->clean, "overflows_left", (json_int_t)s->tries, "skipped_steps",
                     (json_int_t)s->skipped, "skipped_in_a_row", (json_int_t)s->in_row);
}

int scale_read(struct scale *s, const json_t *state, struct err *err)
{
    const struct fields f = {state, "the loss scale of trainer.json", ERR_BAD_FILE};
    const double highest = 1e300;

    TRY(fields_number(&f, "scale", FIELD_REQUIRED, s->rules.lowest, highest, &s->now, err));
    TRY(fields_integer(&f, "clean_steps", FIELD_REQUIRED, 0, s->rules.window - 1, &s->clean, err));
    TRY(fields_integer(&f, "overflows_left", FIELD_REQUIRED, 0, s->rules.hysteresis, &s->tries,
                       err));
    TRY(fields_integer(&f, "skipped_steps", FIELD_REQUIRED, 0, INT64_MAX, &s->skipped, err));
    return fields_integer(&f, "skipped_in_a_row", FIELD_REQUIRED, 0, s->skipped, &s->in_row, err);
}
