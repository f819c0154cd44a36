/* onednn.h - matrix products by oneDNN, versions 2 and 3, behind one small interface. */
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include "kernels/kernels.h"

/* op(a) [M,K] op(b) [K,N] (+ c) -> c; a and b of element type `type`, c of type `out`. */
struct onednn_product {
    int64_t M, N, K;
    enum trans ta, tb;
    enum dtype type, out; /* f32 or bf16 */
    bool add;
    int threads;
};

/* Holds oneDNN to the instruction set named "v2", "v3", "v4" or "v4bf16", before its first use. */
void onednn_hold(const char *isa);

/* Multiplies by a matmul primitive, made at the first call for a product and kept. False, with
 * nothing done, when oneDNN has no such primitive or it needs more than `q` has of workspace. */
bool onednn_matmul(const struct onednn_product *p, const struct queue *q, void *c, const void *a,
                   const void *b);

/* Multiplies f32 by the BLAS-like function, which needs no workspace of ours. */
void onednn_sgemm(const struct onednn_product *p, float *c, const float *a, const float *b);

/* Workspace in bytes that the primitive for p asks for; 0 when there is no such primitive. */
size_t onednn_scratch(const struct onednn_product *p);

#endif
