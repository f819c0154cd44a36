/* f64_golden.c - the double build against values from float64 PyTorch. */
#include "tests/golden.h"

static const struct tolerance exact = {1e-9, 1e-9, 1e-9, 1e-9};

static void gpt2_trains_as_in_float64(void)
{
    golden_train("gpt2_tied", (struct way){0}, exact);
}

static void llama_trains_as_in_float64(void)
{
    golden_train("llama_mha_untied", (struct way){0}, exact);
}

static void llama_with_grouped_heads_trains_as_in_float64(void)
{
    golden_train("llama_gqa_tied_4L", (struct way){0}, exact);
}

static void microbatches_and_recomputation_change_nothing(void)
{
    golden_train("gpt2_tied", (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL}, exact);
    golden_train("llama_gqa_tied_4L", (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL},
                 exact);
}

static void masked_and_padded_rows_count_tokens(void)
{
    golden_masked((struct way){0}, exact);
    golden_masked((struct way){.micro_batch = 1}, exact);
}

int main(void)
{
    RUN(gpt2_trains_as_in_float64);
    RUN(llama_trains_as_in_float64);
    RUN(llama_with_grouped_heads_trains_as_in_float64);
    RUN(microbatches_and_recomputation_change_nothing);
    RUN(masked_and_padded_rows_count_tokens);
    return tap_done();
}
