/* gemm.c - matrix product of the float build: oneDNN where it is good, else the plain GEMM. */
#include "kernels/check.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#ifndef HONE_DOUBLE

static struct onednn_product product_of(struct tensor c, struct tensor a, enum trans ta,
                                        struct tensor b, enum trans tb, float beta)
{
    const struct onednn_product p = {.M = tensor_rows(c),
                                     .N = tensor_cols(c),
                                     .K = ta == AS_IS ? tensor_cols(a) : tensor_rows(a),
                                     .ta = ta,
                                     .tb = tb,
                                     .type = a.type,
                                     .out = c.type,
                                     .add = beta != 0.0F,
                                     .threads = cpu_threads()};

    CHECK((ta == AS_IS ? tensor_rows(a) : tensor_cols(a)) == p.M, "a has not the %lld rows of c",
          (long long)p.M);
    CHECK((tb == AS_IS ? tensor_cols(b) : tensor_rows(b)) == p.N, "b has not the %lld columns of c",
          (long long)p.N);
    CHECK((tb == AS_IS ? tensor_rows(b) : tensor_cols(b)) == p.K, "a and b do not meet at %lld",
          (long long)p.K);
    CHECK(a.type == b.type &&
              (a.type == DTYPE_F32 || a.type == DTYPE_BF16 || a.type == DTYPE_F16) &&
              (c.type == DTYPE_F32 || c.type == a.type),
          "%s times %s into %s", dtype_name(a.type), dtype_name(b.type), dtype_name(c.type));
    CHECK(beta == 0.0F || beta == 1.0F, "beta %g", (double)beta);
    return p;
}

/* Measured on x86-64-v3, -v4 and Zen 5. The BLAS-like function is mostly the faster of the two for f32:
 * 0.7 to 0.9 of the multiply-add rate on one thread, a tenth more than matmul, and three times faster
 * for one row. But with several threads it falls to a third of that where b is transposed
 * (1024 x 3072 x 768), and to 0.5 where a is, for a tall and narrow c (32000 x 384). */
static bool prefers_matmul(const struct onednn_product *p)
{
    const bool few = p->M <= 16, tall = p->M >= 2048 && p->N <= 512;

    return p->type == DTYPE_BF16 || (p->ta == AS_IS && p->tb == TRANSPOSED && !few) ||
           (p->ta == TRANSPOSED && p->tb == AS_IS && tall);
}

/* Small f32 products are the plain GEMM's, which sums them in short steps: half the rounding noise in the
 * gradients of models of this size, for 2 microseconds more than the library takes. */
static bool is_small(const struct onednn_product *p)
{
    return p->type == DTYPE_F32 && p->M * p->N * p->K <= GEMM_SMALL;
}

void cpu_gemm(struct queue *q, struct tensor c, struct tensor a, enum trans ta, struct tensor b,
              enum trans tb, float beta)
{
    const struct onednn_product p = product_of(c, a, ta, b, tb, beta);
    const struct cpu_isa *isa = cpu_chosen();
    const bool half = a.type != DTYPE_F32;

    const bool plain = p.M == 0 || p.N == 0 || p.K == 0 || is_small(&p) || a.type == DTYPE_F16 ||
                       (half && isa != &cpu_isa_v4bf16);
    if (!plain && prefers_matmul(&p) && onednn_matmul(&p, q, c.data, a.data, b.data)) {
        return;
    }
    if (plain || half) {
        isa->gemm_plain(q, c, a, ta, b, tb, beta);
    } else {
        onednn_sgemm(&p, c.data, a.data, b.data);
    }
}

#endif
