/* test_place.c - which devices a job gets. */
#include <stdlib.h>
#include <string.h>

#include "server/place.h"
#include "tests/tap.h"

static struct machine machine;
static struct view view;

/* GPUs of one size, all links SYS. */
static void make_gpus(int count, uint64_t bytes)
{
    memset(&machine, 0, sizeof machine);
    memset(&view, 0, sizeof view);
    machine.device_count = count;
    view.machine = &machine;
    for (int i = 0; i < count; i++) {
        machine.devices[i].kind = DEVICE_GPU;
        machine.devices[i].is_usable = true;
        view.good |= UINT64_C(1) << i;
        view.room[i] = view.capacity[i] = bytes;
        for (int k = 0; k < count; k++) {
            machine.links[i][k].kind = i == k ? LINK_SELF : LINK_SYS;
        }
    }
}

static void join(int a, int b, enum link_kind kind, int count)
{
    machine.links[a][b] = machine.links[b][a] = (struct link){.kind = kind, .count = count};
}

static uint64_t place(int devices, uint64_t bytes, uint64_t from)
{
    const struct need n = {devices, bytes};

    return place_now(&view, &n, from);
}

static void a_pair_with_nvlink_comes_first(void)
{
    char words[200];

    make_gpus(4, 100);
    join(0, 1, LINK_NVLINK, 12);
    join(2, 3, LINK_NODE, 0);
    EXPECT(place(2, 50, 15) == 3);
    EXPECT(place(2, 50, 15 & ~3U) == 12);
    place_words(words, sizeof words, &machine, 3);
    EXPECT(strcmp(words, "GPU 0 and GPU 1, joined by 12 NVLinks") == 0);
    place_words(words, sizeof words, &machine, 12);
    EXPECT(strstr(words, "GPU 2 and GPU 3, no NVLink") != NULL);
}

static void a_single_device_leaves_pairs_whole(void)
{
    make_gpus(5, 100);
    join(0, 1, LINK_NVLINK, 4);
    join(3, 4, LINK_NVLINK, 4);
    EXPECT(place(1, 50, 31) == 1U << 2);
    EXPECT(place(1, 50, 27) == 1);
    EXPECT(place(1, 50, 25) ==
           1); /* the pair 0-1 is broken already: 1 is taken, but 3-4 is whole */
}

static void four_of_eight_stay_in_their_half(void)
{
    make_gpus(8, 100);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 8; k++) {
            if (i != k) {
                join(i, k, i / 4 == k / 4 ? LINK_PIX : LINK_SYS, 0);
            }
        }
    }
    EXPECT(place(4, 50, 255) == 15);
    EXPECT(place(4, 50, 255 & ~1U) == 0xf0);
    EXPECT(place(2, 50, 255 & ~7U) == 0x30);
    EXPECT(place(8, 50, 255) == 255);
    EXPECT(place(9, 50, 255) == 0);
}

static void memory_decides_first(void)
{
    make_gpus(3, 100);
    join(0, 1, LINK_NVLINK, 4);
    view.room[1] = 40;
    EXPECT(place(2, 50, 7) == 5);
    EXPECT(place(2, 40, 7) == 3);
    EXPECT(place(3, 50, 7) == 0);
    view.room[0] = 60;
    EXPECT(place(1, 50, 5) ==
           1); /* 1 and 0 are free of it: the tighter fit, though its pair is cut */
}

static void busy_and_bad_devices_are_left_out(void)
{
    make_gpus(2, 100);
    view.busy = 1;
    EXPECT(place(1, 50, 3) == 2);
    view.good = 1;
    EXPECT(place(1, 50, 3) == 0);
}

static uint64_t state = 1;

static uint32_t pick(uint32_t below)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(state >> 33) % below;
}

/* The order of strength of test matrices, without the code under test. */
static int rank_of(int a, int b)
{
    const struct link *l = &machine.links[a][b];

    return l->kind == LINK_NVLINK ? 100 + l->count : 10 - (int)l->kind;
}

static int worst_of(uint64_t set)
{
    int worst = 1000;

    for (int a = 0; a < 8; a++) {
        for (int b = a + 1; b < 8; b++) {
            if ((set >> a & 1) != 0 && (set >> b & 1) != 0 && rank_of(a, b) < worst) {
                worst = rank_of(a, b);
            }
        }
    }
    return worst;
}

/* On random matrices no other set has a better worst link. */
static void no_set_is_better_connected(void)
{
    for (int round = 0; round < 500; round++) {
        make_gpus(8, 100);
        for (int a = 0; a < 8; a++) {
            view.room[a] = 50 + pick(100);
            for (int b = a + 1; b < 8; b++) {
                const enum link_kind kind = (enum link_kind)(1 + pick(6));
                join(a, b, kind, kind == LINK_NVLINK ? 1 + (int)pick(18) : 0);
            }
        }
        const int devices = 2 + (int)pick(5);
        const uint64_t set = place(devices, 60, 255);
        for (uint64_t other = 1; other < 256; other++) {
            bool fits = __builtin_popcountll(other) == devices;
            for (int i = 0; i < 8; i++) {
                fits = fits && ((other >> i & 1) == 0 || view.room[i] >= 60);
            }
            EXPECT(!fits || (set != 0 && worst_of(set) >= worst_of(other)));
        }
        EXPECT(set == 0 || __builtin_popcountll(set) == devices);
    }
}

static void sixty_four_devices_are_placed_too(void)
{
    make_gpus(64, 100);
    for (int a = 0; a < 64; a++) {
        for (int b = 0; b < 64; b++) {
            if (a != b && a / 8 == b / 8) {
                join(a, b, LINK_NVLINK, 18);
            }
        }
    }
    EXPECT(place(8, 50, ~UINT64_C(1)) == UINT64_C(0xff) << 8);
    EXPECT(place(4, 50, ~UINT64_C(0)) != 0);
    EXPECT(worst_of(0) == 1000 && __builtin_popcountll(place(16, 50, ~UINT64_C(0))) == 16);
}

int main(void)
{
    RUN(a_pair_with_nvlink_comes_first);
    RUN(a_single_device_leaves_pairs_whole);
    RUN(four_of_eight_stay_in_their_half);
    RUN(memory_decides_first);
    RUN(busy_and_bad_devices_are_left_out);
    RUN(no_set_is_better_connected);
    RUN(sixty_four_devices_are_placed_too);
    return tap_done();
}
