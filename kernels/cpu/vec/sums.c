/* sums.c - sums over a whole array, in double, over a number of parts that is fixed. */
#include "kernels/cpu/vec/ops.h"

enum { PARTS = 64 };

static double part_squares(const real *x, int64_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

static double part_sum(const real *x, int64_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
    }
    return sum;
}

static void add_parts(struct tensor out, struct tensor x, double (*part)(const real *x, int64_t n))
{
    const int64_t count = tensor_count(x), length = blocks_of(blocks_of(count, PARTS), TILE) * TILE;
    double sums[PARTS];

    CHECK(out.type == DTYPE_F64 && tensor_count(out) == 1, "the sum is %s", dtype_name(out.type));
    check_real(x, count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t i = 0; i < PARTS; i++) {
        const int64_t at = smaller(count, i * length);
        sums[i] = part((const real *)x.data + at, smaller(length, count - at));
    }
    for (int64_t i = 0; i < PARTS; i++) {
        *(double *)out.data += sums[i];
    }
}

void VEC(sum_squares)(struct queue *q, struct tensor out, struct tensor x)
{
    (void)q;
    add_parts(out, x, part_squares);
}

void VEC(sum)(struct queue *q, struct tensor out, struct tensor x)
{
    (void)q;
    add_parts(out, x, part_sum);
}
