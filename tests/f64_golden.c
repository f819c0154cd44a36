/* f64_golden.c - the double build against values from float64 PyTorch. */
#include "tests/golden.h"

static const struct tolerance exact = {1e-9, 1e-9, 1e-9, 1e-9};

static void every_architecture_trains_as_in_float64(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i], (struct way){0}, exact);
    }
}

static void microbatches_and_recomputation_change_nothing(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        golden_train(golden_cases[i],
                     (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL, .threads = 2},
                     exact);
    }
}

static void experts_train_as_in_float64(void)
{
    for (int i = 0; i < EXPERT_CASES; i++) {
        golden_train(expert_cases[i], (struct way){0}, exact);
        golden_train(expert_cases[i], (struct way){.recompute = RECOMPUTE_FULL, .threads = 2},
                     exact);
    }
}

static void adapters_and_parts_train_as_in_float64(void)
{
    for (int i = 0; i < PARTIAL_CASES; i++) {
        golden_train(partial_cases[i], (struct way){0}, exact);
        golden_train(partial_cases[i],
                     (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL, .threads = 2},
                     exact);
    }
}

static void microbatches_of_uneven_length_count_tokens(void)
{
    golden_batch_case("grad_accum_uneven", (struct way){0}, exact);
    golden_batch_case("grad_accum_uneven", (struct way){.micro_batch = 2}, exact);
    golden_batch_case("grad_accum_uneven",
                      (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL}, exact);
}

static void masked_and_padded_rows_count_tokens(void)
{
    golden_batch_case("sft_masked_padded", (struct way){0}, exact);
    golden_batch_case("sft_masked_padded", (struct way){.micro_batch = 1}, exact);
}

static void packed_documents_do_not_see_each_other(void)
{
    golden_batch_case("packing", (struct way){0}, exact);
    golden_batch_case("packing", (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL},
                      exact);
}

int main(void)
{
    RUN(every_architecture_trains_as_in_float64);
    RUN(microbatches_and_recomputation_change_nothing);
    RUN(experts_train_as_in_float64);
    RUN(adapters_and_parts_train_as_in_float64);
    RUN(microbatches_of_uneven_length_count_tokens);
    RUN(masked_and_padded_rows_count_tokens);
    RUN(packed_documents_do_not_see_each_other);
    return tap_done();
}
