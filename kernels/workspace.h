/* workspace.h - how much workspace a kernel call may need: pure arithmetic, linked by the planner.
 *
 * Each is an upper bound over all instruction sets and thread counts up to `threads`, so that the
 * server and the rank agree without the server linking a kernel library. Tests hold the real needs
 * (oneDNN's scratchpad query) below these bounds; a product for which it asks for more all the same
 * takes another way, which does not.
 */
#ifndef KERNELS_WORKSPACE_H
#define KERNELS_WORKSPACE_H

#include "kernels/kernels.h"

/* Bytes for gemm, or for an 8-bit `type` gemm_scaled, with op(a) [M,K], op(b) [K,N] of element type `type`
 * and c of type `out`. */
size_t workspace_gemm(int64_t M, int64_t N, int64_t K, enum dtype type, enum dtype out,
                      int threads);

/* Bytes for gemm_rows with a [M,K] of element type `type`. */
size_t workspace_rows(int64_t M, int64_t K, enum dtype type);

/* Bytes for attention_forward, attention_backward and attention_decode. */
size_t workspace_attention(const struct attention_shape *s, enum dtype type, int threads);

/* Bytes for the kernels that sum over rows into a width D (norm and bias gradients). */
size_t workspace_columns(int64_t R, int64_t D, int threads);

#endif
