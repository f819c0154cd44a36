/* test_margins.c - what cards learn from runs that did not fit. */
#include "server/margins.h"

#include <string.h>

#include "tests/server.h"

static const uint64_t gib = (uint64_t)1 << 30;

/* A run, or with planned 0 a look only. */
struct lesson {
    const char *card;
    uint64_t planned, seen, card_bytes, margin;
};

static int learn(struct tx *tx, void *argument, struct err *err)
{
    struct lesson *l = argument;

    if (l->planned > 0) {
        TRY(margins_learn(tx, l->card, l->planned, l->seen, l->card_bytes, 5, err));
    }
    return margins_of(tx->db, l->card, &l->margin, err);
}

static uint64_t after(struct store *s, const char *card, uint64_t planned, uint64_t seen)
{
    struct lesson l = {card, planned, seen, 50 * gib, 0};
    struct err err = {0};

    EXPECT(store_write(s, learn, &l, &err) == 0);
    return l.margin;
}

static int list(sqlite3 *db, void *out, struct err *err)
{
    return margins_json(out, db, err);
}

static void a_card_learns_the_overshoot_or_two_percent(void)
{
    struct store *s = open_store_with_job("learn", "job-aaaaaaaaaaaaaa");

    EXPECT(after(s, "A", 0, 0) == 0);
    EXPECT(after(s, "A", 20 * gib, 23 * gib) == 3 * gib);
    EXPECT(after(s, "B", 0, 0) == 0);
    EXPECT(after(s, "B", 10 * gib, 0) == 10 * gib / 50);
    EXPECT(after(s, "B", 10 * gib, 9 * gib) == 2 * (10 * gib / 50));
    EXPECT(after(s, "A", 0, 0) == 3 * gib);
    store_close(s);
}

static void a_margin_stays_below_a_fifth_of_the_card(void)
{
    struct store *s = open_store_with_job("bound", "job-aaaaaaaaaaaaaa");

    for (int i = 0; i < 8; i++) {
        EXPECT(after(s, "A", 20 * gib, 23 * gib) ==
               (i < 3 ? (uint64_t)(i + 1) * 3 * gib : 10 * gib));
    }
    EXPECT(after(s, "A", gib, UINT64_MAX) == 10 * gib);
    store_close(s);
}

static void all_margins_are_listed_by_card(void)
{
    struct store *s = open_store_with_job("list", "job-aaaaaaaaaaaaaa");
    struct err err = {0};
    json_t *all = NULL;

    (void)after(s, "B", 20 * gib, 23 * gib);
    (void)after(s, "A", 20 * gib, 21 * gib);
    EXPECT(store_read(s, list, &all, &err) == 0 && json_object_size(all) == 2);
    EXPECT(json_integer_value(json_object_get(all, "A")) == (json_int_t)gib);
    EXPECT(json_integer_value(json_object_get(all, "B")) == 3 * (json_int_t)gib);
    json_decref(all);
    store_close(s);
}

static void cpu_slots_learn_together(void)
{
    const struct device slot = {.name = "CPU slot 0", .kind = DEVICE_CPU};
    const struct device other = {.name = "CPU slot 1", .kind = DEVICE_CPU};
    const struct device card = {.name = "NVIDIA L40S", .kind = DEVICE_GPU};

    EXPECT(strcmp(margins_card(&slot), margins_card(&other)) == 0);
    EXPECT(strcmp(margins_card(&card), "NVIDIA L40S") == 0);
}

int main(void)
{
    scratch_make();
    RUN(a_card_learns_the_overshoot_or_two_percent);
    RUN(a_margin_stays_below_a_fifth_of_the_card);
    RUN(all_margins_are_listed_by_card);
    RUN(cpu_slots_learn_together);
    scratch_remove();
    return tap_done();
}
