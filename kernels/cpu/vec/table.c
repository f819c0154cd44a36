/* table.c - one instruction set's table. */
#include "kernels/cpu/vec/ops.h"

#if defined(__AVX512BF16__)
    #define ISA_NAME "x86-64-v4+bf16"
#elif defined(__AVX512F__)
    #define ISA_NAME "x86-64-v4"
#elif defined(__AVX2__)
    #define ISA_NAME "x86-64-v3"
#else
    #define ISA_NAME "x86-64-v2"
#endif

const struct cpu_isa VEC(cpu_isa) = {
    .kernels =
        {
            .name = "cpu",
            .isa = ISA_NAME,
#ifdef HONE_DOUBLE
            .gemm = VEC(gemm_plain),
#else
            .gemm = cpu_gemm,
#endif
            .gemm_scaled = VEC(gemm_scaled),
            .quantise = VEC(quantise),
            .gemm_rows = VEC(gemm_rows),
            .bias_forward = VEC(bias_forward),
            .bias_backward = VEC(bias_backward),
            .embedding_forward = VEC(embedding_forward),
            .embedding_backward = VEC(embedding_backward),
            .layernorm_forward = VEC(layernorm_forward),
            .layernorm_backward = VEC(layernorm_backward),
            .rmsnorm_forward = VEC(rmsnorm_forward),
            .rmsnorm_backward = VEC(rmsnorm_backward),
            .rope = VEC(rope),
            .attention_forward = VEC(attention_forward),
            .attention_backward = VEC(attention_backward),
            .attention_decode = VEC(attention_decode),
            .activation_forward = VEC(activation_forward),
            .activation_backward = VEC(activation_backward),
            .swiglu_forward = VEC(swiglu_forward),
            .swiglu_backward = VEC(swiglu_backward),
            .dropout = VEC(dropout),
            .add = VEC(add),
            .scale = VEC(scale),
            .take_columns = VEC(take_columns),
            .add_columns = VEC(add_columns),
            .route_forward = VEC(route_forward),
            .route_backward = VEC(route_backward),
            .route_stats = VEC(route_stats),
            .route_losses = VEC(route_losses),
            .route_drop = VEC(route_drop),
            .route_order = VEC(route_order),
            .combine_forward = VEC(combine_forward),
            .combine_backward = VEC(combine_backward),
            .gate_rows_forward = VEC(gate_rows_forward),
            .gate_rows_backward = VEC(gate_rows_backward),
            .cross_entropy_stats = VEC(cross_entropy_stats),
            .cross_entropy_merge = VEC(cross_entropy_merge),
            .cross_entropy_loss = VEC(cross_entropy_loss),
            .cross_entropy_hits = VEC(cross_entropy_hits),
            .cross_entropy_backward = VEC(cross_entropy_backward),
            .adamw = VEC(adamw),
            .sum_squares = VEC(sum_squares),
            .sum = VEC(sum),
            .cast = VEC(cast),
            .zero = VEC(zero),
        },
    .gemm_plain = VEC(gemm_plain),
    .probe = VEC(probe),
};
