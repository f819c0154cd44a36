/* test_place.c - devices for jobs on boxes of several shapes, and against trying every set. */
#include "server/place.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tap.h"

static const uint64_t gib = (uint64_t)1 << 30;

/* A machine of `n` equal cards, all joined by `kind`, all in node 0. */
static struct machine *box(int n, enum link_kind kind, uint64_t memory)
{
    struct machine *m = calloc(1, sizeof *m);

    if (m == NULL) {
        abort();
    }
    m->device_count = n;
    for (int i = 0; i < n; i++) {
        m->devices[i].kind = DEVICE_GPU;
        m->devices[i].is_usable = true;
        m->devices[i].memory_bytes = memory;
        for (int j = 0; j < n; j++) {
            m->links[i][j].kind = i == j ? LINK_SELF : kind;
        }
    }
    return m;
}

static void join(struct machine *m, int a, int b, enum link_kind kind, int count)
{
    m->links[a][b] = m->links[b][a] = (struct link){.kind = kind, .count = count};
}

static struct view whole(const struct machine *m)
{
    struct view v = {.machine = m};

    for (int i = 0; i < m->device_count; i++) {
        v.good |= (uint64_t)1 << i;
        v.room[i] = v.capacity[i] = m->devices[i].memory_bytes;
    }
    return v;
}

static uint64_t take(const struct view *v, int devices, uint64_t bytes, uint64_t from)
{
    return place_now(v, &(struct need){.devices = devices, .bytes = bytes}, from);
}

static const char *words(const struct machine *m, uint64_t set)
{
    static char text[200];

    place_words(text, sizeof text, m, set);
    return text;
}

/* 2 x 48 GB. */
static void the_entry_tier_gives_both_cards_or_one(void)
{
    struct machine *m = box(2, LINK_PHB, 48 * gib);
    const struct view v = whole(m);

    EXPECT(take(&v, 1, gib, ~0ULL) == 1);
    EXPECT(take(&v, 1, gib, 2) == 2);
    EXPECT(take(&v, 2, 48 * gib, ~0ULL) == 3);
    EXPECT(take(&v, 2, 48 * gib + 1, ~0ULL) == 0);
    EXPECT(take(&v, 3, gib, ~0ULL) == 0);
    EXPECT(take(&v, 0, gib, ~0ULL) == 0);
    EXPECT(strcmp(words(m, 3), "GPU 0 and GPU 1, no NVLink: a PCIe host bridge "
                               "between them (PHB)") == 0);
    free(m);
}

/* 4 x 80 GB, pairs by NVLink. */
static void the_mainstream_tier_keeps_its_pairs_whole(void)
{
    struct machine *m = box(4, LINK_NODE, 80 * gib);
    const struct view v = whole(m);

    join(m, 0, 1, LINK_NVLINK, 4);
    join(m, 2, 3, LINK_NVLINK, 4);
    EXPECT(take(&v, 2, gib, ~0ULL) == 3);
    EXPECT(take(&v, 2, gib, 14) == 12);
    EXPECT(take(&v, 1, gib, ~0ULL) == 1);
    EXPECT(take(&v, 1, gib, 14) == 2); /* the odd card, not one of 2 and 3 */
    EXPECT(take(&v, 1, gib, 13) == 1);
    EXPECT(take(&v, 1, gib, 7) == 4);
    EXPECT(take(&v, 3, gib, ~0ULL) == 7);
    EXPECT(strcmp(words(m, 12), "GPU 2 and GPU 3, joined by 4 NVLinks") == 0);
    EXPECT(strcmp(words(m, 7),
                  "GPU 0, GPU 1 and GPU 2, at worst no NVLink: host bridges of one memory "
                  "node between them (NODE)") == 0);
    free(m);
}

/* 8 x 80 GB behind a switch: any set is as good as another, so the lowest numbers. */
static void the_high_tier_gives_the_lowest_numbers(void)
{
    struct machine *m = box(8, LINK_NVLINK, 80 * gib);
    const struct view v = whole(m);

    for (int i = 0; i < 64; i++) {
        m->links[i / 8][i % 8].count = 18;
        m->links[i / 8][i % 8].is_switch = true;
    }
    EXPECT(take(&v, 8, gib, ~0ULL) == 255);
    EXPECT(take(&v, 4, gib, ~0ULL) == 15);
    EXPECT(take(&v, 4, gib, 0xf6) == 0x36);
    EXPECT(take(&v, 1, gib, 0xf0) == 0x10);
    EXPECT(strcmp(words(m, 0x31),
                  "GPU 0, GPU 4 and GPU 5, at worst joined by 18 NVLinks through a switch") == 0);
    free(m);
}

/* The matrix with one bridged pair. */
static void a_second_pair_without_nvlink_says_so(void)
{
    struct machine *m = box(4, LINK_SYS, 24 * gib);
    const struct view v = whole(m);

    join(m, 0, 1, LINK_NVLINK, 12);
    join(m, 2, 3, LINK_NODE, 0);
    const uint64_t first = take(&v, 2, gib, ~0ULL), second = take(&v, 2, gib, ~first);
    EXPECT(first == 3 && second == 12);
    EXPECT(strcmp(words(m, first), "GPU 0 and GPU 1, joined by 12 NVLinks") == 0);
    EXPECT(
        strcmp(words(m, second),
               "GPU 2 and GPU 3, no NVLink: host bridges of one memory node between them (NODE)") ==
        0);
    EXPECT(take(&v, 1, gib, ~0ULL) == 4);
    EXPECT(strcmp(words(m, 4), "GPU 2") == 0 && words(m, 0)[0] == 0);
    free(m);
}

static void more_nvlinks_and_then_measured_speed_decide(void)
{
    struct machine *m = box(4, LINK_NVLINK, 24 * gib);
    const struct view v = whole(m);

    join(m, 1, 3, LINK_NVLINK, 4);
    EXPECT(take(&v, 2, gib, ~0ULL) == 10);
    for (int i = 0; i < 16; i++) {
        m->links[i / 4][i % 4].count = 2;
        m->links[i / 4][i % 4].gb_per_s = 21.0 + (i % 5) / 10.0;
    }
    EXPECT(take(&v, 2, gib, ~0ULL) == 3);
    m->links[2][3].gb_per_s = m->links[3][2].gb_per_s = 46.0;
    EXPECT(take(&v, 2, gib, ~0ULL) == 12);
    m->links[2][3].kind = LINK_SYS; /* one direction is worse */
    EXPECT(take(&v, 2, gib, ~0ULL) == 5);
    m->links[2][3].kind = LINK_NVLINK;
    m->links[3][2].kind = LINK_SYS;
    EXPECT(take(&v, 2, gib, ~0ULL) == 5);
    free(m);
}

static void a_small_job_leaves_the_large_card(void)
{
    struct machine *m = box(3, LINK_PHB, 24 * gib);
    const struct view v = whole(m);

    m->devices[0].memory_bytes = 80 * gib;
    const struct view w = whole(m);
    EXPECT(take(&v, 1, gib, ~0ULL) == 2);
    EXPECT(take(&w, 1, 30 * gib, ~0ULL) == 1);
    EXPECT(take(&w, 2, gib, ~0ULL) == 6);
    EXPECT(take(&w, 2, 30 * gib, ~0ULL) == 0);
    free(m);
}

static void sets_stay_in_a_memory_node(void)
{
    struct machine *m = box(4, LINK_NONE, 24 * gib);
    const struct view v = whole(m);

    m->devices[1].node = m->devices[2].node = 1;
    EXPECT(take(&v, 2, gib, 14) == 6);
    EXPECT(take(&v, 2, gib, ~0ULL) == 9);
    for (int i = 0; i < 4; i++) {
        m->devices[i].kind = DEVICE_CPU;
    }
    EXPECT(strcmp(words(m, 9), "CPU slot 0 and CPU slot 3") == 0);
    EXPECT(strcmp(words(m, 3), "CPU slot 0 and CPU slot 1, in 2 memory nodes") == 0);
    free(m);
}

static void busy_and_bad_devices_are_left_out(void)
{
    struct machine *m = box(4, LINK_PIX, 24 * gib);
    struct view v = whole(m);

    v.busy = 2;
    v.good = 7;
    v.room[0] = gib;
    EXPECT(take(&v, 1, 2 * gib, ~0ULL) == 4);
    EXPECT(take(&v, 2, 2 * gib, ~0ULL) == 0);
    EXPECT(take(&v, 2, gib, ~0ULL) == 5);
    EXPECT(place_ever(m, v.capacity, &(struct need){.devices = 4, .bytes = 24 * gib}));
    EXPECT(!place_ever(m, v.capacity, &(struct need){.devices = 4, .bytes = 24 * gib + 1}));
    EXPECT(!place_ever(m, v.capacity, &(struct need){.devices = 5, .bytes = 1}));
    m->devices[3].is_usable = false;
    EXPECT(!place_ever(m, v.capacity, &(struct need){.devices = 4, .bytes = 24 * gib}));
    free(m);
}

static void a_job_is_never_on_gpus_and_cpu_slots_at_once(void)
{
    struct machine *m = box(4, LINK_PIX, 24 * gib);
    const struct view v = whole(m);

    m->devices[0].kind = m->devices[1].kind = DEVICE_CPU;
    EXPECT(take(&v, 1, gib, ~0ULL) == 4);
    EXPECT(take(&v, 2, gib, ~0ULL) == 12);
    EXPECT(take(&v, 2, gib, 7) == 3);
    EXPECT(take(&v, 3, gib, ~0ULL) == 0);
    EXPECT(!place_ever(m, v.capacity, &(struct need){.devices = 3, .bytes = 1}));
    free(m);
}

/* Random boxes: links of few kinds, so that ties are many. */
static uint32_t roll(uint32_t *state, uint32_t sides)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 8) % sides;
}

static struct machine *random_box(uint32_t *state, int n)
{
    struct machine *m = box(n, LINK_SYS, 24 * gib);

    for (int i = 0; i < n; i++) {
        m->devices[i].memory_bytes = (24 + 8 * (uint64_t)roll(state, 3)) * gib;
        m->devices[i].node = (int)roll(state, 3) - 1;
        for (int j = 0; j < i; j++) {
            const enum link_kind kind = (enum link_kind)(1 + roll(state, LINK_NONE));
            join(m, i, j, roll(state, 3) == 0 ? LINK_NVLINK : kind, (int)roll(state, 5));
            m->links[i][j].gb_per_s = m->links[j][i].gb_per_s =
                roll(state, 2) == 0 ? 0.0 : (double)(10 << roll(state, 4));
        }
    }
    return m;
}

static int64_t nvlinks(const struct link *l)
{
    return l->kind != LINK_NVLINK ? 0 : l->count < 1 ? 1 : l->count;
}

/* The rules of place.c once more, written down for a whole set: a row of numbers, the smaller the better. */
static void judge(int64_t out[7], const struct machine *m, uint64_t set, uint64_t free)
{
    const int64_t near[] = {0, 0, (int64_t)1 << 36, (int64_t)1 << 24, 1 << 12, 1, 0, 0};
    uint64_t nodes = 0;

    memset(out, 0, 7 * sizeof *out);
    for (int i = 0; i < m->device_count; i++) {
        const bool has_i = (set >> i & 1) != 0;
        if (has_i) {
            out[4] += (int64_t)(m->devices[i].memory_bytes / gib);
            nodes |= m->devices[i].node < 0 ? 0 : (uint64_t)1 << m->devices[i].node;
            out[6] -= (int64_t)1 << (40 - i); /* lower numbers */
        }
        for (int j = i + 1; j < m->device_count; j++) {
            const struct link *l = &m->links[i][j];
            const bool has_j = (set >> j & 1) != 0;
            if (has_i && has_j) {
                out[0] = (int64_t)l->kind > out[0] ? (int64_t)l->kind : out[0];
                out[1] -= nvlinks(l) * 1000000;
                out[1] -= l->gb_per_s > 0.0 ? (int64_t)(log2(l->gb_per_s / 10.0) * 4.0 + 17.5) : 0;
            } else if (((set | free) >> i & (set | free) >> j & 1) != 0 && has_i != has_j) {
                out[3] += nvlinks(l);
                out[5] += near[l->kind];
            }
        }
    }
    out[2] = __builtin_popcountll(nodes);
}

static void the_choice_is_the_best_of_all_sets(void)
{
    uint32_t state = 7;
    int wrong = 0;

    for (int round = 0; round < 3000; round++) {
        const int n = 2 + (int)roll(&state, 7), want = 1 + (int)roll(&state, (uint32_t)n);
        struct machine *m = random_box(&state, n);
        const struct view v = whole(m);
        const uint64_t bytes = (20 + 8 * (uint64_t)roll(&state, 3)) * gib;
        const uint64_t from = roll(&state, 4) == 0 ? roll(&state, 1U << n) : (1U << n) - 1;
        uint64_t best = 0;
        int64_t least[7] = {0}, row[7];

        for (uint64_t set = 1; set < 1U << n; set++) {
            bool fits = (set & ~from) == 0 && __builtin_popcountll(set) == want;
            for (int i = 0; i < n; i++) {
                fits = fits && ((set >> i & 1) == 0 || m->devices[i].memory_bytes >= bytes);
            }
            if (!fits) {
                continue;
            }
            judge(row, m, set, from);
            int k = 0;
            while (k < 6 && row[k] == least[k]) {
                k++;
            }
            if (best == 0 || row[k] < least[k]) {
                best = set;
                memcpy(least, row, sizeof least);
            }
        }
        if (take(&v, want, bytes, from) != best) {
            wrong++;
        }
        free(m);
    }
    EXPECT(wrong == 0);
}

/* Every size of a large machine: groups of 8 by NVLink, 4 groups a node. */
static void a_large_machine_fills_whole_groups(void)
{
    struct machine *m = box(64, LINK_SYS, 80 * gib);
    const struct view v = whole(m);

    for (int i = 0; i < 64; i++) {
        m->devices[i].node = i / 32;
        for (int j = 0; j < 64; j++) {
            if (i != j && i / 8 == j / 8) {
                join(m, i, j, LINK_NVLINK, 18);
            } else if (i / 32 == j / 32 && i != j) {
                join(m, i, j, LINK_NODE, 0);
            }
        }
    }
    EXPECT(take(&v, 8, gib, ~0ULL) == 0xff);
    EXPECT(take(&v, 8, gib, ~0x10ULL) == 0xff00);
    EXPECT(take(&v, 16, gib, ~0ULL) == 0xffff);
    EXPECT(take(&v, 3, gib, ~0xf0ULL << 8 & ~0ULL) != 0);
    EXPECT(take(&v, 4, gib, ~0xf000ULL) == 0xf00); /* the broken group */
    EXPECT(take(&v, 32, gib, ~1ULL) == 0xffffffff00000000ULL);
    EXPECT(take(&v, 64, gib, ~0ULL) == ~0ULL);
    free(m);
}

/* Without any symmetry the search gives up its proof, not its sense. */
static void a_large_machine_without_symmetry_finds_its_clique(void)
{
    uint32_t state = 3;
    struct machine *m = random_box(&state, 64);
    const struct view v = whole(m);
    const int chosen[] = {5, 17, 18, 40, 41, 63};
    uint64_t want = 0;

    for (int i = 0; i < 6; i++) {
        want |= (uint64_t)1 << chosen[i];
        for (int j = 0; j < i; j++) {
            join(m, chosen[i], chosen[j], LINK_NVLINK, 18);
        }
    }
    EXPECT(take(&v, 6, gib, ~0ULL) == want);
    for (int n = 1; n <= 64; n++) {
        EXPECT(__builtin_popcountll(take(&v, n, gib, ~0ULL)) == n);
    }
    free(m);
}

/* An order of magnitude above what it takes: a search that grows with subsets takes far longer. */
#ifdef __SANITIZE_THREAD__
static const double LIMIT_US = 200000.0;
#else
static const double LIMIT_US = 20000.0;
#endif

static double call_us(const struct view *v, int devices)
{
    struct timespec a, b;
    uint64_t any = 0;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < 50; i++) {
        any |= take(v, devices, gib, ~0ULL);
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    EXPECT(any != 0);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 50.0 / 1e3;
}

static void a_choice_is_quick(void)
{
    struct machine *m = box(64, LINK_SYS, 80 * gib);
    const struct view v = whole(m);

    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 64; j++) {
            if (i != j && i / 8 == j / 8) {
                join(m, i, j, LINK_NVLINK, 18);
            }
        }
    }
    for (int n = 1; n < 64; n *= 2) {
        const double us = call_us(&v, n);
        printf("# %d of 64: %.1f us\n", n, us);
        EXPECT(us < LIMIT_US); /* far above: sanitizers and a loaded machine */
    }
    struct machine *eight = box(8, LINK_NVLINK, 80 * gib);
    const struct view w = whole(eight);
    printf("# 4 of 8: %.1f us, 1 of 8: %.1f us\n", call_us(&w, 4), call_us(&w, 1));
    free(eight);
    free(m);
}

int main(void)
{
    RUN(the_entry_tier_gives_both_cards_or_one);
    RUN(the_mainstream_tier_keeps_its_pairs_whole);
    RUN(the_high_tier_gives_the_lowest_numbers);
    RUN(a_second_pair_without_nvlink_says_so);
    RUN(more_nvlinks_and_then_measured_speed_decide);
    RUN(a_small_job_leaves_the_large_card);
    RUN(sets_stay_in_a_memory_node);
    RUN(busy_and_bad_devices_are_left_out);
    RUN(a_job_is_never_on_gpus_and_cpu_slots_at_once);
    RUN(the_choice_is_the_best_of_all_sets);
    RUN(a_large_machine_fills_whole_groups);
    RUN(a_large_machine_without_symmetry_finds_its_clique);
    RUN(a_choice_is_quick);
    return tap_done();
}
