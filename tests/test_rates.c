/* test_rates.c - learning rates against the table computed from Megatron-LM's rules. */
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/rates.h"

static int find(const char *word, const char *const *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(word, list[i]) == 0) {
            return i;
        }
    }
    CHECK(false, "no %s", word);
    return -1;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static struct rates row_rates(const json_t *row)
{
    static const char *const shapes[] = {"constant", "linear", "cosine", "inverse-square-root",
                                         "WSD"};
    static const char *const styles[] = {"linear", "cosine", "exponential", "minus_sqrt"};

    return (struct rates){.schedule = (enum lr_schedule)find(
                              json_string_value(json_object_get(row, "style")), shapes, 5),
                          .style = (enum wsd_style)find(
                              json_string_value(json_object_get(row, "wsd_style")), styles, 4),
                          .highest = number(row, "mx"),
                          .lowest = number(row, "mn"),
                          .start = number(row, "init"),
                          .warmup = (int64_t)number(row, "warm"),
                          .total = (int64_t)number(row, "total"),
                          .decay = (int64_t)number(row, "wsd")};
}

static void equal_the_table(void)
{
    json_t *table = NULL;
    struct err err = {0};
    size_t points = 0;

    CHECK(json_parse_file(&table, "tests/golden/tables/lr_schedules.json", 1 << 20, &err) == 0,
          "%s", err.text);
    const json_t *rows = json_object_get(table, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *lr = json_object_get(row, "lr");
        const struct rates r = row_rates(row);
        for (size_t t = 0; t < json_array_size(lr); t++) {
            const double want = json_number_value(json_array_get(lr, t));
            EXPECT(fabs(rates_at(&r, (int64_t)t) - want) <= 1e-15);
            points++;
        }
    }
    EXPECT(points > 300);
    json_decref(table);
}

static void the_first_step_does_not_run_at_zero(void)
{
    const struct spec s = {.learning_rate = 1e-3,
                           .min_learning_rate = -1.0,
                           .lr_schedule = LR_COSINE,
                           .warmup_steps = 10,
                           .wsd_decay_steps = -1};
    const struct rates r = rates_make(&s, 100);

    EXPECT_NEAR(rates_at(&r, 1), 1e-4, 1e-15);
    EXPECT_NEAR(rates_at(&r, 10), 1e-3, 1e-15);
    EXPECT_NEAR(rates_at(&r, 100), 1e-4, 1e-15);
}

static void defaults_follow_from_the_number_of_steps(void)
{
    struct spec s = {.learning_rate = 1e-3,
                     .min_learning_rate = -1.0,
                     .lr_schedule = LR_WSD,
                     .warmup_steps = -1,
                     .wsd_decay_steps = -1};
    const struct rates r = rates_make(&s, 1000);

    EXPECT(r.warmup == 10 && r.decay == 100);
    EXPECT_NEAR(r.lowest, 1e-4, 1e-15);
    s.warmup_steps = 50;
    EXPECT(rates_make(&s, 20).warmup == 20);
    EXPECT(rates_make(&s, 20).decay == 0);
}

int main(void)
{
    RUN(equal_the_table);
    RUN(the_first_step_does_not_run_at_zero);
    RUN(defaults_follow_from_the_number_of_steps);
    return tap_done();
}
