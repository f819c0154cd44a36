/* f64_gradients.c - gradients of whole models against central differences, dropout included.
 *
 * Dropout depends on places and the step only, so the loss is a smooth function of the weights while the step
 * stays the same.
 */
#include "tests/golden.h"

static double loss_at(struct golden *g, const struct step_input *in)
{
    struct step_result result;

    step_gradients(&g->engine, in, &result);
    return result.loss + g->engine.model->d.aux_coef * result.aux_loss +
           g->engine.model->d.z_coef * result.z_loss;
}

/* Some elements of every parameter; the worst difference, relative to the largest gradient of its tensor. */
static double worst_slope(struct golden *g, const struct step_input *in)
{
    const double step = 1e-5;
    double worst = 0.0;

    for (int i = 0; i < g->engine.model->weight_count; i++) {
        const struct weight *w = &g->engine.model->weights[i];
        if (tensor_count(w->dw) == 0) {
            continue;
        }
        const int64_t n = tensor_count(w->dw), stride = n / 4 + 1;
        double most = 0.0, keep[5];
        (void)loss_at(g, in);
        for (int64_t j = 0; j < n; j++) {
            most = fmax(most, fabs((double)((real *)w->dw.data)[j]));
        }
        for (int64_t j = 0; j < 5 && j * stride < n; j++) {
            keep[j] = (double)((real *)w->dw.data)[j * stride];
        }
        for (int64_t j = 0; j < 5 && j * stride < n && most > 1e-9; j++) {
            real *x = &((real *)w->w.data)[j * stride];
            const real old = *x;
            *x = old + (real)step;
            const double high = loss_at(g, in);
            *x = old - (real)step;
            const double low = loss_at(g, in);
            *x = old;
            worst = fmax(worst, fabs((high - low) / (2.0 * step) - keep[j]) / most);
        }
    }
    return worst;
}

static double case_slope(const char *name, struct way way)
{
    struct golden g;

    golden_open(&g, name, "batches.safetensors", way);
    struct safetensors *batches = golden_file(&g, "batches.safetensors");
    const struct step_input in = {
        .rows = &g.rows, .trained = golden_batch(&g, batches, 0), .step = 3, .seed = 5};
    const double worst = worst_slope(&g, &in);
    printf("# %s with dropout %.1f: %.2g\n", name, way.dropout, worst);
    safetensors_close(batches);
    golden_close(&g);
    return worst;
}

static void gradients_are_slopes_with_dropout(void)
{
    EXPECT(case_slope("gpt2_tied", (struct way){.dropout = 0.3}) < 1e-6);
    EXPECT(case_slope("qwen2_bias", (struct way){.dropout = 0.3}) < 1e-6);
}

static void gradients_are_slopes_when_recomputed_with_dropout(void)
{
    EXPECT(case_slope("gpt2_erf_inner",
                      (struct way){.dropout = 0.2, .micro_batch = 1, .recompute = RECOMPUTE_FULL}) <
           1e-6);
    EXPECT(case_slope("mistral_window",
                      (struct way){.dropout = 0.2, .micro_batch = 1, .recompute = RECOMPUTE_FULL}) <
           1e-6);
}

static void gradients_of_experts_are_slopes_of_all_losses(void)
{
    static const struct way ways[] = {
        {.z_coef = 0.01},
        {.z_coef = 0.1, .scaling = AUX_MEGATRON, .micro_batch = 1},
        {.z_coef = 0.1, .scaling = AUX_MEGATRON, .recompute = RECOMPUTE_FULL, .dropout = 0.2},
    };
    const struct way up = {.freeze = "*.w1.*, *norm*"}, gate = {.freeze = "*.up_proj.weight"};

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        EXPECT(case_slope("mixtral_top2of8", ways[i]) < 1e-6);
        EXPECT(case_slope("qwen2_moe_shared", ways[i]) < 1e-6);
    }
    EXPECT(case_slope("mixtral_top2of8", up) < 1e-6);
    EXPECT(case_slope("qwen2_moe_shared", gate) < 1e-6);
}

static void gradients_of_adapters_are_slopes_with_dropout(void)
{
    static const struct way once = {.dropout = 0.2, .lora_dropout = 0.3};
    static const struct way again = {
        .dropout = 0.2, .lora_dropout = 0.3, .micro_batch = 1, .recompute = RECOMPUTE_FULL};

    EXPECT(case_slope("lora_all_linear_r3", once) < 1e-6);
    EXPECT(case_slope("lora_gpt2_conv1d", once) < 1e-6);
    EXPECT(case_slope("lora_all_linear_r3", again) < 1e-6);
    EXPECT(case_slope("lora_rslora_qwen2", again) < 1e-6);
    EXPECT(case_slope("freeze_below", again) < 1e-6);
}

/* Loss of one step with dropout. */
static double dropped_loss(const char *name, int64_t micro_batch, int64_t step, uint64_t seed)
{
    struct golden g;

    golden_open(&g, name, "batches.safetensors",
                (struct way){.dropout = name[0] == 'g' ? 0.5 : 0.0,
                             .lora_dropout = 0.5,
                             .micro_batch = micro_batch});
    struct safetensors *batches = golden_file(&g, "batches.safetensors");
    const struct step_input in = {
        .rows = &g.rows, .trained = golden_batch(&g, batches, 0), .step = step, .seed = seed};
    const double loss = loss_at(&g, &in);
    safetensors_close(batches);
    golden_close(&g);
    return loss;
}

static void dropout_depends_on_step_and_seed_but_not_on_microbatches(void)
{
    static const char *const names[] = {"gpt2_tied", "lora_all_linear_r3"};

    for (int i = 0; i < 2; i++) {
        const double loss = dropped_loss(names[i], 3, 1, 1);
        EXPECT_NEAR(dropped_loss(names[i], 1, 1, 1), loss, 1e-13);
        EXPECT(fabs(dropped_loss(names[i], 3, 2, 1) - loss) > 1e-6);
        EXPECT(fabs(dropped_loss(names[i], 3, 1, 2) - loss) > 1e-6);
    }
}

int main(void)
{
    RUN(gradients_are_slopes_with_dropout);
    RUN(gradients_are_slopes_when_recomputed_with_dropout);
    RUN(gradients_of_experts_are_slopes_of_all_losses);
    RUN(gradients_of_adapters_are_slopes_with_dropout);
    RUN(dropout_depends_on_step_and_seed_but_not_on_microbatches);
    return tap_done();
}
