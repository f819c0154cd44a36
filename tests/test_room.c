/* test_room.c - how much of a device's memory a job may have. */
#include "server/room.h"
#include "tests/tap.h"

static const uint64_t GB = UINT64_C(1) << 30;

/* 64 GB, of which the system keeps 2 and a margin 6. */
static struct device card(void)
{
    return (struct device){
        .kind = DEVICE_GPU, .memory_bytes = 64 * GB, .reserved_bytes = 2 * GB, .is_usable = true};
}

static const uint64_t CAPACITY = UINT64_C(56) << 30;

static void add(struct device_now *now, uint64_t bytes, bool is_ours)
{
    now->processes[now->process_count++] =
        (struct device_process){.pid = 100, .bytes = bytes, .is_ours = is_ours};
}

static void a_free_card_has_what_is_free_without_the_margin(void)
{
    const struct device d = card();
    struct device_now now = {.free_bytes = 62 * GB};

    EXPECT(room_now(&d, &now, CAPACITY) == 56 * GB);
    now.free_bytes = 40 * GB;
    EXPECT(room_now(&d, &now, CAPACITY) == 34 * GB);
    now.free_bytes = 5 * GB;
    EXPECT(room_now(&d, &now, CAPACITY) == 0);
    now.free_bytes = 64 * GB;
    EXPECT(room_now(&d, &now, CAPACITY) == 56 * GB);
    now.free_bytes = 40 * GB;
    EXPECT(room_now(&d, &now, 0) == 0); /* the margin is all that there is */
}

static void a_run_leaves_its_own_memory_and_no_others(void)
{
    const struct device d = card();
    struct device_now now = {.used_bytes = 51 * GB, .free_bytes = 11 * GB};

    add(&now, 50 * GB, true);
    EXPECT(room_after_run(&d, &now, CAPACITY, false) == 56 * GB);
    add(&now, 1 * GB, false);
    EXPECT(room_foreign(&d, &now) == 1 * GB);
    EXPECT(room_after_run(&d, &now, CAPACITY, false) == 55 * GB);
    add(&now, 2 * GB, false);
    EXPECT(room_after_run(&d, &now, CAPACITY, false) == 53 * GB);
    now.free_bytes = 0; /* what the run has just taken is its own */
    EXPECT(room_after_run(&d, &now, CAPACITY, false) == 53 * GB);
}

static void a_described_card_shows_only_what_the_description_says(void)
{
    const struct device d = card();
    struct device_now now = {.used_bytes = 20 * GB, .free_bytes = 42 * GB};

    EXPECT(room_after_run(&d, &now, CAPACITY, true) == 36 * GB);
    EXPECT(room_after_run(&d, &now, CAPACITY, true) == room_now(&d, &now, CAPACITY));
    add(&now, 15 * GB, true); /* this leaves */
    EXPECT(room_after_run(&d, &now, CAPACITY, true) == 51 * GB);
    add(&now, 5 * GB, false); /* this does not */
    EXPECT(room_after_run(&d, &now, CAPACITY, true) == 51 * GB);
}

static void others_that_compute_make_a_card_busy_but_a_display_does_not(void)
{
    const struct device d = card();
    struct device_now now = {.used_bytes = 30 * GB, .free_bytes = 32 * GB};

    EXPECT(!room_is_busy(&d, &now));
    add(&now, 28 * GB, true);
    add(&now, 2 * GB, false);
    EXPECT(!room_is_busy(&d, &now));
    now.processes[1].bytes++;
    EXPECT(room_is_busy(&d, &now));
    now.processes[1].bytes = 0; /* it does not say how much */
    EXPECT(room_foreign(&d, &now) == 30 * GB && room_is_busy(&d, &now));
    now.processes[0].bytes = 0; /* ours need not say */
    EXPECT(room_foreign(&d, &now) == 30 * GB);
    now.process_count = 1;
    EXPECT(room_foreign(&d, &now) == 0 && !room_is_busy(&d, &now));
    now.process_count = DEVICE_PROCESSES + 1; /* who knows */
    EXPECT(room_is_busy(&d, &now));
}

static void absurd_numbers_do_not_wrap(void)
{
    const struct device d = card();
    struct device_now now = {.used_bytes = UINT64_MAX, .free_bytes = UINT64_MAX};

    add(&now, UINT64_MAX, false);
    add(&now, UINT64_MAX, false);
    EXPECT(room_foreign(&d, &now) == 64 * GB && room_after_run(&d, &now, CAPACITY, false) == 0);
    add(&now, UINT64_MAX, true);
    EXPECT(room_after_run(&d, &now, CAPACITY, true) == CAPACITY);
    EXPECT(room_now(&d, &now, UINT64_MAX) == UINT64_MAX);
}

static void slots_share_what_main_memory_has(void)
{
    struct main_memory m = {.free = 10, .touched = 3, .untouched = 4};

    EXPECT(room_slot_now(&m, 100) == 6 && room_slot_now(&m, 5) == 5);
    EXPECT(room_slot_after(&m, 100) == 13 && room_slot_after(&m, 7) == 7);
    m.loaned = 20; /* models leave when they are asked */
    EXPECT(room_slot_now(&m, 100) == 6 && room_slot_after(&m, 100) == 33);
    m.untouched = 11;
    EXPECT(room_slot_now(&m, 100) == 0);
    m.touched = UINT64_MAX;
    EXPECT(room_slot_after(&m, 100) == 100);
}

int main(void)
{
    RUN(a_free_card_has_what_is_free_without_the_margin);
    RUN(a_run_leaves_its_own_memory_and_no_others);
    RUN(a_described_card_shows_only_what_the_description_says);
    RUN(others_that_compute_make_a_card_busy_but_a_display_does_not);
    RUN(absurd_numbers_do_not_wrap);
    RUN(slots_share_what_main_memory_has);
    return tap_done();
}
