/* test_golden.c - the float build, f32 and bf16, against values from float64 PyTorch. */
#include "tests/golden.h"

/* PyTorch's own float32 run is 7.3e-6 off in the norms of llama_gqa_tied_4L, where Adam amplifies gradients that
 * are almost 0. */
static const struct tolerance in_f32 = {1e-5, 1e-5, 1e-4, 1e-3};
/* bf16 has 8 bits: losses are held, the rest only roughly. */
static const struct tolerance in_bf16 = {2e-2, 0.15, 0.15, 0.6};
/* fp16 has 11 bits, and a loss scale that keeps small gradients. */
static const struct tolerance in_fp16 = {3e-3, 5e-2, 1.5e-2, 0.3};

static void f32_trains_as_in_float64(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i], (struct way){0}, in_f32);
    }
}

static void f32_with_threads_microbatches_and_recomputation(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i],
                     (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL, .threads = 2},
                     in_f32);
    }
}

static void bf16_losses_stay_close(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i], (struct way){.precision = PRECISION_BF16}, in_bf16);
    }
}

static void fp16_losses_stay_close(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i], (struct way){.precision = PRECISION_FP16}, in_fp16);
    }
}

static void experts_train_as_in_float64(void)
{
    for (int i = 0; i < EXPERT_CASES; i++) {
        golden_train(expert_cases[i], (struct way){0}, in_f32);
        golden_train(expert_cases[i], (struct way){.recompute = RECOMPUTE_FULL, .threads = 2},
                     in_f32);
    }
}

static void adapters_and_parts_train_as_in_float64(void)
{
    for (int i = 0; i < PARTIAL_CASES; i++) {
        golden_train(partial_cases[i], (struct way){0}, in_f32);
        golden_train(partial_cases[i],
                     (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL, .threads = 2},
                     in_f32);
        golden_train(partial_cases[i], (struct way){.precision = PRECISION_BF16}, in_bf16);
        golden_train(partial_cases[i], (struct way){.precision = PRECISION_FP16}, in_fp16);
    }
}

static void masked_padded_and_packed_rows(void)
{
    static const char *const names[] = {"sft_masked_padded", "packing", "grad_accum_uneven"};

    for (int i = 0; i < 3; i++) {
        golden_batch_case(names[i], (struct way){0}, in_f32);
        golden_batch_case(names[i], (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL},
                          in_f32);
        golden_batch_case(names[i], (struct way){.precision = PRECISION_BF16}, in_bf16);
        golden_batch_case(names[i], (struct way){.precision = PRECISION_FP16}, in_fp16);
    }
}

/* Weights after a step, hashed as they lie in memory. */
static uint64_t weights_after_a_step(const char *name, struct way way)
{
    struct golden g;
    struct step_result got;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    golden_open(&g, name, "batches.safetensors", way);
    struct safetensors *batches = golden_file(&g, "batches.safetensors");
    struct step_input in = {.rows = &g.rows,
                            .trained = golden_batch(&g, batches, 0),
                            .step = 1,
                            .clip = 1.0,
                            .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};
    step_run(&g.engine, &in, &got);
    for (int i = 0; i < g.engine.model->weight_count; i++) {
        const struct tensor t = g.engine.model->weights[i].master;
        for (size_t j = 0; j < tensor_bytes(t); j++) {
            hash = (hash ^ ((const unsigned char *)t.data)[j]) * UINT64_C(0x100000001b3);
        }
    }
    safetensors_close(batches);
    golden_close(&g);
    return hash;
}

static void recomputation_changes_no_bit(void)
{
    static const char *const names[] = {"llama_gqa_tied_4L", "lora_all_linear_r3", "freeze_below"};
    const struct way keep = {.threads = 2, .lora_dropout = 0.3};
    const struct way redo = {.threads = 2, .recompute = RECOMPUTE_FULL, .lora_dropout = 0.3};
    const struct way low = {.precision = PRECISION_BF16};
    const struct way low_redo = {.precision = PRECISION_BF16, .recompute = RECOMPUTE_FULL};

    for (int i = 0; i < 3; i++) {
        EXPECT(weights_after_a_step(names[i], keep) == weights_after_a_step(names[i], keep));
        EXPECT(weights_after_a_step(names[i], keep) == weights_after_a_step(names[i], redo));
        EXPECT(weights_after_a_step(names[i], low) == weights_after_a_step(names[i], low_redo));
        EXPECT(weights_after_a_step(names[i], low) != weights_after_a_step(names[i], keep));
    }
}

/* Bytes of a region of the case. */
static size_t region_of(const char *name, enum life life)
{
    struct golden g;

    golden_open(&g, name, "batches.safetensors", (struct way){0});
    const size_t bytes = g.engine.layout.region[life].peak;
    golden_close(&g);
    return bytes;
}

/* 896 numbers in 8 adapter matrices of two blocks, nothing for the 25,000 of the model; of four blocks the lower two keep
 * nothing but their inputs. */
static void what_is_not_trained_costs_no_memory(void)
{
    EXPECT(region_of("lora_qv_r4", LIFE_GRAD) == 896 * sizeof(real));
    EXPECT(region_of("lora_qv_r4", LIFE_OPTIMIZER) == 2 * 896 * sizeof(real));
    EXPECT(region_of("freeze_all_but_head", LIFE_OPTIMIZER) ==
           2 * region_of("freeze_all_but_head", LIFE_GRAD));
    EXPECT(region_of("freeze_all_but_head", LIFE_SAVED) * 3 < region_of("lora_qv_r4", LIFE_SAVED));
}

static void recomputation_saves_memory(void)
{
    struct golden keep, redo;

    golden_open(&keep, "llama_gqa_tied_4L", "batches.safetensors", (struct way){0});
    golden_open(&redo, "llama_gqa_tied_4L", "batches.safetensors",
                (struct way){.recompute = RECOMPUTE_FULL});
    EXPECT(redo.engine.layout.region[LIFE_SAVED].peak <
           keep.engine.layout.region[LIFE_SAVED].peak / 4);
    golden_close(&keep);
    golden_close(&redo);
}

int main(void)
{
    RUN(f32_trains_as_in_float64);
    RUN(f32_with_threads_microbatches_and_recomputation);
    RUN(bf16_losses_stay_close);
    RUN(fp16_losses_stay_close);
    RUN(experts_train_as_in_float64);
    RUN(adapters_and_parts_train_as_in_float64);
    RUN(masked_padded_and_packed_rows);
    RUN(recomputation_changes_no_bit);
    RUN(recomputation_saves_memory);
    RUN(what_is_not_trained_costs_no_memory);
    return tap_done();
}
