/* test_layouts.c - in float and bf16: the layout changes no more than the order of sums does. */
#include "tests/layouts.h"

static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

static void compare(const struct job_case *c, const struct mesh_sizes *sizes, double tolerance)
{
    static const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
    const struct arch a = case_arch(c);
    struct found *one = run_layout(c, &alone), *many = run_layout(c, sizes);

    EXPECT(one != NULL && many != NULL);
    if (one != NULL && many != NULL) {
        for (int i = 0; i < LAYOUT_STEPS; i++) {
            EXPECT_NEAR(many->loss[i], one->loss[i], tolerance);
            for (int rank = 0; rank < sizes->tp * sizes->cp * sizes->dp * sizes->pp; rank++) {
                EXPECT(many->skipped[rank][i] == one->skipped[0][i]);
                EXPECT(many->scale[rank][i] == one->scale[0][i]);
            }
        }
        printf("# %s: loss %.6f to %.6f, %.6f on ranks\n", c->name, one->loss[0],
               one->loss[LAYOUT_STEPS - 1], many->loss[LAYOUT_STEPS - 1]);
        EXPECT(one->loss[LAYOUT_STEPS - 1] < one->loss[0] - 0.1);
        (void)munmap(one, found_bytes(&a));
        (void)munmap(many, found_bytes(&a));
    }
}

static const struct mesh_sizes meshes[] = {
    {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1}, {.tp = 1, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
    {.tp = 2, .cp = 1, .dp = 4, .pp = 1, .ep = 1}, {.tp = 1, .cp = 1, .dp = 1, .pp = 2, .ep = 1},
    {.tp = 2, .cp = 1, .dp = 2, .pp = 2, .ep = 1}, {.tp = 2, .cp = 2, .dp = 1, .pp = 1, .ep = 1},
    {.tp = 1, .cp = 2, .dp = 2, .pp = 2, .ep = 1},
};

static void float_ranks_are_one_rank(void)
{
    static const struct job_case c = {
        .name = "f32", .config = llama, .distributed = true, .bucket = 700};

    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        compare(&c, &meshes[i], 1e-5);
    }
}

/* Masters are divided too. */
static void bf16_ranks_are_one_rank(void)
{
    static const struct job_case c = {.name = "bf16",
                                      .config = llama,
                                      .precision = PRECISION_BF16,
                                      .distributed = true,
                                      .bucket = 700};

    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        compare(&c, &meshes[i], 1e-2);
    }
}

static int skipped_of(const struct job_case *c, const struct mesh_sizes *sizes, double *scale)
{
    const struct arch a = case_arch(c);
    struct found *f = run_layout(c, sizes);
    int count = 0;

    EXPECT(f != NULL);
    for (int i = 0; f != NULL && i < LAYOUT_STEPS; i++) {
        count += f->skipped[0][i];
        EXPECT(f->skipped[0][i] || isfinite(f->norm[i]));
    }
    if (f != NULL) {
        *scale = f->scale[0][LAYOUT_STEPS - 1];
        (void)munmap(f, found_bytes(&a));
    }
    return count;
}

/* From 2^10 nothing overflows, and the scale is doubled after each three steps. From 2^23 the first steps
 * overflow, on all ranks alike: one is let pass, then each halves. */
static void fp16_ranks_are_one_rank(void)
{
    struct job_case c = {.name = "fp16",
                         .config = llama,
                         .precision = PRECISION_FP16,
                         .distributed = true,
                         .bucket = 700};
    double scale = 0.0;

    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        compare(&c, &meshes[i], 2e-3);
        EXPECT(skipped_of(&c, &meshes[i], &scale) == 0 && scale == 8192.0);
    }
    c.name = "fp16, overflows";
    c.loss_scale = 0x1p23;
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        compare(&c, &meshes[i], 1e-2);
        const int skipped = skipped_of(&c, &meshes[i], &scale);
        printf("# %d skipped, scale %g\n", skipped, scale);
        EXPECT(skipped >= 2 && skipped <= 6);
    }
}

/* Neither weights nor masters move in a step that is skipped. */
static void a_skipped_step_leaves_the_weights_of_all_ranks(void)
{
    struct job_case none = {
        .name = "fp16, nothing", .config = llama, .precision = PRECISION_FP16, .steps = -1};
    struct job_case skips = none;

    skips.steps = 1;
    skips.loss_scale = 0x1p60;
    const struct arch a = case_arch(&none);
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        struct found *before = run_layout(&none, &meshes[i]);
        struct found *after = run_layout(&skips, &meshes[i]);
        EXPECT(before != NULL && after != NULL && after->skipped[0][0]);
        if (before != NULL && after != NULL) {
            EXPECT(weight_difference(after, before, params_count(&a)) <= 0.0);
            (void)munmap(before, found_bytes(&a));
            (void)munmap(after, found_bytes(&a));
        }
    }
}

static void ranks_with_some_of_the_rows_are_one_rank(void)
{
    struct job_case c = {
        .name = "f32, sequence parallel", .config = llama, .dropout = 0.1, .sequence = true};

    compare(&c, &meshes[0], 1e-5);
    c.name = "bf16, sequence parallel";
    c.precision = PRECISION_BF16;
    compare(&c, &meshes[0], 1e-2);
}

int main(void)
{
    RUN(float_ranks_are_one_rank);
    RUN(bf16_ranks_are_one_rank);
    RUN(fp16_ranks_are_one_rank);
    RUN(a_skipped_step_leaves_the_weights_of_all_ranks);
    RUN(ranks_with_some_of_the_rows_are_one_rank);
    return tap_done();
}
