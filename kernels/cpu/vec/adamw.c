/* adamw.c - one AdamW step over a flat slice. Formula: struct adamw in kernels/kernels.h. */
#include "kernels/cpu/vec/ops.h"

/* The step's constants, computed once in double. */
struct step {
    real scale, keep, beta1, rest1, beta2, rest2;
    real correction1, correction2; /* 1 / (1 - beta^t) */
    real lr, eps;
};

static struct step step_of(const struct adamw *a)
{
    CHECK(a->t >= 1, "step %lld", (long long)a->t);
    return (struct step){.scale = (real)a->scale,
                         .keep = (real)(1.0 - a->lr * a->weight_decay),
                         .beta1 = (real)a->beta1,
                         .rest1 = (real)(1.0 - a->beta1),
                         .beta2 = (real)a->beta2,
                         .rest2 = (real)(1.0 - a->beta2),
                         .correction1 = (real)(1.0 / (1.0 - pow(a->beta1, (double)a->t))),
                         .correction2 = (real)(1.0 / (1.0 - pow(a->beta2, (double)a->t))),
                         .lr = (real)a->lr,
                         .eps = (real)a->eps};
}

static void update(real *p, real *m, real *v, const real *g, int64_t n, struct step s)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const real grad = g[i] * s.scale;
        const real mean = s.beta1 * m[i] + s.rest1 * grad;
        const real square = s.beta2 * v[i] + s.rest2 * grad * grad;
        const real root = r_sqrt(square * s.correction2) + s.eps;
        m[i] = mean;
        v[i] = square;
        p[i] = p[i] * s.keep - s.lr * (mean * s.correction1 / root);
    }
}

void VEC(adamw)(struct queue *q, struct tensor master, struct tensor m, struct tensor v,
                struct tensor low, struct tensor grad, const struct adamw *a)
{
    const int64_t count = tensor_count(master), tiles = blocks_of(count, TILE);
    const struct step s = step_of(a);
    real *p = master.data, *mv = m.data, *vv = v.data;
    const real *g = grad.data;

    (void)q;
    check_real(master, count);
    check_real(m, count);
    check_real(v, count);
    check_real(grad, count);
    CHECK(low.data == NULL ||
              ((low.type == DTYPE_BF16 || low.type == DTYPE_F16) && tensor_count(low) == count),
          "rounded weights: %lld of %lld", (long long)tensor_count(low), (long long)count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        update(p + at, mv + at, vv + at, g + at, n, s);
        if (low.data != NULL) {
            tile_round(low, at, n, p + at);
        }
    }
}
