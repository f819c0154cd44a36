/* test_bubble.c - in a clock that only kernels move, steps of real ranks take what the pipeline's bubble says. */
#include "tests/bubble.h"
#include "tests/tap.h"

/* The bubble is (p - 1) / (v m) of the work: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2. */
static void a_step_takes_its_work_and_the_published_bubble(void)
{
    struct bubble_found *f = bubble_memory();

    for (int pp = 2; pp <= BUBBLE_RANKS; pp *= 2) {
        for (int chunks = 1; chunks <= 2; chunks++) {
            const struct pipe pipe = {.pp = pp, .chunks = chunks, .micros = 8};
            const double work = 3.0 * BUBBLE_LAYERS / pp * pipe.micros;
            EXPECT(bubble_run(pipe, 0.0, f));
            int64_t messages = 0;
            for (int r = 0; r < pp; r++) {
                EXPECT_NEAR(f->busy[r], work, 1e-12);
                messages += f->messages[r];
            }
            EXPECT(messages == 2 * (pp * chunks - 1) * (int64_t)pipe.micros);
            EXPECT_NEAR(bubble_of(f, pp), (double)(pp - 1) / (chunks * pipe.micros), 1e-12);
        }
    }
    (void)munmap(f, sizeof *f);
}

/* What fills a pipeline only with few microbatches: as many as ranks wait most. */
static void more_microbatches_make_it_smaller(void)
{
    struct bubble_found *f = bubble_memory();
    double before = 1e9;

    for (int micros = 2; micros <= 16; micros *= 2) {
        const struct pipe pipe = {.pp = 4, .chunks = 1, .micros = micros};
        EXPECT(bubble_run(pipe, 0.0, f));
        const double bubble = bubble_of(f, pipe.pp);
        EXPECT_NEAR(bubble, 3.0 / micros, 1e-12);
        EXPECT(bubble < before);
        before = bubble;
    }
    (void)munmap(f, sizeof *f);
}

/* Bytes of kept activations that were planned for a rank. */
static size_t planned(const struct pipe *pipe)
{
    const struct arch a = bubble_arch();
    const struct dims d = bubble_dims(&a, pipe);
    struct layout lo = {0};
    struct model *m = NULL;
    struct err err = {0};

    CHECK(model_new(&m, &d, &err) == 0, "%s", err.text);
    model_plan(m, &lo);
    model_free(m);
    return lo.region[LIFE_SAVED].peak;
}

/* The first rank keeps as many microbatches as there are ranks, the last one; each takes the same. */
static void earlier_ranks_keep_more_microbatches(void)
{
    const int pp = 4;
    size_t saved[4];

    for (int r = 0; r < pp; r++) {
        const struct pipe pipe = {.pp = pp, .rank = r, .chunks = 1, .micros = 8};
        saved[r] = planned(&pipe);
        EXPECT(r == 0 || saved[r] < saved[r - 1]);
    }
    EXPECT(saved[0] - saved[1] == saved[1] - saved[2]);
    EXPECT(saved[1] - saved[2] > 0);
    struct pipe few = {.pp = pp, .rank = 0, .chunks = 1, .micros = 2};
    EXPECT(planned(&few) == saved[2]); /* no more than the step has */
    few.micros = 32;
    EXPECT(planned(&few) == saved[0]); /* nor more with longer steps */
}

/* Interleaved: Megatron's count is (v - 1) p + 2 (p - 1 - r) + 1 chunks, each with 1 / v of the layers. */
static void virtual_stages_keep_more_smaller_ones(void)
{
    const int pp = 2, chunks = 2;
    size_t saved[2];

    for (int r = 0; r < pp; r++) {
        const struct pipe pipe = {.pp = pp, .rank = r, .chunks = chunks, .micros = 8};
        saved[r] = planned(&pipe);
        struct action *list = calloc(64, sizeof *list);
        CHECK(list != NULL, "no memory");
        const int n = schedule_make(list, &pipe);
        EXPECT(schedule_slots(list, n) == (chunks - 1) * pp + 2 * (pp - 1 - r) + 1);
        free(list);
    }
    EXPECT(saved[0] > saved[1]);
}

/* What the ranks of a run allocate is what was planned for each. */
static void what_was_planned_is_allocated(void)
{
    struct bubble_found *f = bubble_memory();

    for (int chunks = 1; chunks <= 2; chunks++) {
        struct pipe pipe = {.pp = 4, .chunks = chunks, .micros = 8};
        EXPECT(bubble_run(pipe, 0.0, f));
        for (pipe.rank = 0; pipe.rank < pipe.pp; pipe.rank++) {
            EXPECT(f->saved[pipe.rank] == planned(&pipe));
        }
    }
    (void)munmap(f, sizeof *f);
}

int main(void)
{
    RUN(a_step_takes_its_work_and_the_published_bubble);
    RUN(more_microbatches_make_it_smaller);
    RUN(earlier_ranks_keep_more_microbatches);
    RUN(virtual_stages_keep_more_smaller_ones);
    RUN(what_was_planned_is_allocated);
    return tap_done();
}
