/* test_placement.c - layers to stages: evenly, by cost, as told. */
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/placement.h"

static struct arch model(int64_t layers, int64_t vocabulary)
{
    return (struct arch){.L = layers, .D = 64, .F = 256, .H = 4, .G = 4, .K = 16, .V = vocabulary};
}

static bool is(const struct placement *p, const int *layers)
{
    return memcmp(p->layers, layers, (size_t)(p->ranks * p->chunks) * sizeof(int)) == 0;
}

static void layers_are_placed_evenly_or_as_told(void)
{
    const struct arch a = model(12, 100);
    struct placement p;
    struct err err = {0};

    EXPECT(placement_make(&p, &a, 2, 2, "", 8, &err) == 0 && is(&p, (int[]){3, 3, 3, 3}));
    EXPECT(placement_first(&p, 0) == 0 && placement_first(&p, 3) == 9);
    EXPECT(placement_make(&p, &a, 3, 1, "3, 5,4", 8, &err) == 0 && is(&p, (int[]){3, 5, 4}));
    EXPECT(placement_make(&p, &a, 4, 1, "0,6,6,0", 8, &err) == 0 && is(&p, (int[]){0, 6, 6, 0}));
    EXPECT(placement_make(&p, &a, 1, 1, "", 8, &err) == 0 && is(&p, (int[]){12}));
}

/* A layer has 4 D D + 2 D F = 49152 multiplications and, at 8 tokens, 512 of attention. */
static void the_dearest_stage_is_as_cheap_as_can_be(void)
{
    struct placement p;
    struct err err = {0};
    const int64_t layer = 49152 + 512;

    struct arch a = model(12, 10); /* a head of 640: nothing */
    EXPECT(placement_make(&p, &a, 4, 1, "auto", 8, &err) == 0 && is(&p, (int[]){3, 3, 3, 3}));
    a = model(13, 3 * layer / 64); /* a head of 3 layers: 16 in all */
    EXPECT(placement_make(&p, &a, 4, 1, "auto", 8, &err) == 0 && is(&p, (int[]){4, 4, 4, 1}));
    a = model(14, 2 * layer / 64); /* of 16 places two are left over, in the dearest stages */
    EXPECT(placement_make(&p, &a, 3, 1, "auto", 8, &err) == 0 && is(&p, (int[]){5, 6, 3}));
    a = model(6, 40 * layer / 64); /* a head alone is dearer than all layers */
    EXPECT(placement_make(&p, &a, 3, 1, "auto", 8, &err) == 0);
    EXPECT(p.layers[2] == 0 && p.layers[0] + p.layers[1] == 6);
    EXPECT(placement_make(&p, &a, 1, 1, "auto", 8, &err) == 0 && is(&p, (int[]){6}));
}

/* No other placement has a cheaper dearest stage: all are tried. */
static void no_other_placement_is_better(void)
{
    struct placement p;
    struct err err = {0};

    for (int64_t L = 3; L <= 9; L++) {
        for (int64_t V = 10; V < 6000; V = V * 3 / 2) {
            const struct arch a = model(L, V);
            const double layer = 49152.0 + 512.0, head = 64.0 * (double)V, embedding = 64.0;
            double best = 1e18;
            for (int64_t i = 0; i <= L; i++) {
                for (int64_t k = 0; i + k <= L; k++) {
                    const double first = (double)i * layer + embedding, middle = (double)k * layer;
                    const double last = (double)(L - i - k) * layer + head;
                    double most = first > middle ? first : middle;
                    most = last > most ? last : most;
                    best = most < best ? most : best;
                }
            }
            EXPECT(placement_make(&p, &a, 3, 1, "auto", 8, &err) == 0);
            EXPECT(p.layers[0] + p.layers[1] + p.layers[2] == L);
            EXPECT((double)p.layers[0] * layer + embedding <= best * (1.0 + 1e-9));
            EXPECT((double)p.layers[1] * layer <= best * (1.0 + 1e-9));
            EXPECT((double)p.layers[2] * layer + head <= best * (1.0 + 1e-9));
        }
    }
}

static void what_cannot_be_placed_is_refused_with_its_numbers(void)
{
    static const struct {
        int ranks, chunks;
        const char *text, *word;
    } bad[] = {
        {5, 1, "", "12 layers do not divide among 5"},
        {2, 1, "6,7", "13 layers in all"},
        {2, 1, "6", "2 numbers"},
        {2, 1, "6,6,0", "2 numbers"},
        {2, 1, "6;6", "number 1"},
        {2, 1, "-1,13", "number 1"},
        {2, 1, "99999999999999999999,1", "number 1"},
        {2, 1, "Auto", "number 1"},
        {1, 2, "", "between 1 and 1"},
        {2, 17, "", "between 1 and 16"},
        {2, 0, "", "between 1 and 16"},
        {15, 1, "", "too many"},
        {400, 2, "", "too many"},
        {0, 1, "", "too many"},
    };
    const struct arch a = model(12, 100);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct placement p;
        struct err err = {0};
        EXPECT(placement_make(&p, &a, bad[i].ranks, bad[i].chunks, bad[i].text, 8, &err) ==
               ERR_BAD_SPEC);
        if (strstr(err.text, bad[i].word) == NULL) {
            printf("# %s\n", err.text);
        }
        EXPECT(strstr(err.text, bad[i].word) != NULL);
    }
}

int main(void)
{
    RUN(layers_are_placed_evenly_or_as_told);
    RUN(the_dearest_stage_is_as_cheap_as_can_be);
    RUN(no_other_placement_is_better);
    RUN(what_cannot_be_placed_is_refused_with_its_numbers);
    return tap_done();
}
