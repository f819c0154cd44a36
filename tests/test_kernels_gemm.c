/* test_kernels_gemm.c - matrix products against plain loops, odd sizes, both types, all transposes. */
#include "tests/kernels.h"

static const struct kernels *k;

struct form {
    int64_t M, N, K;
    enum trans ta, tb;
    enum dtype type, out;
    float beta;
};

static const struct form reals = {.type = DTYPE_REAL, .out = DTYPE_REAL};

static struct tensor operand(enum dtype type, enum trans t, int64_t rows, int64_t cols)
{
    return t == AS_IS ? take_random(type, rows, cols, 1) : take_random(type, cols, rows, 1);
}

static double *reference(struct form f, struct tensor c, struct tensor a, struct tensor b)
{
    double *want = doubles_of(c);
    const double *av = doubles_of(a), *bv = doubles_of(b);

    for (int64_t m = 0; m < f.M; m++) {
        for (int64_t n = 0; n < f.N; n++) {
            double sum = f.beta != 0.0F ? want[m * f.N + n] : 0;
            for (int64_t p = 0; p < f.K; p++) {
                sum += av[f.ta == AS_IS ? m * f.K + p : p * f.M + m] *
                       bv[f.tb == AS_IS ? p * f.N + n : n * f.K + p];
            }
            want[m * f.N + n] = sum;
        }
    }
    return want;
}

static void check_form(struct form f, double tolerance)
{
    const struct tensor a = operand(f.type, f.ta, f.M, f.K), b = operand(f.type, f.tb, f.K, f.N);
    const struct tensor c = take_random(f.out, f.M, f.N, 1);
    struct queue q = take_queue(workspace_gemm(f.M, f.N, f.K, f.type, f.out, 4));
    const double *want = reference(f, c, a, b);

    k->gemm(&q, c, a, f.ta, b, f.tb, f.beta);
    const double error = error_of(c, want);
    EXPECT(error <= tolerance);
    if (!(error <= tolerance)) {
        printf("# %lld x %lld x %lld, %d %d, %s to %s, beta %g: off by %g\n", (long long)f.M,
               (long long)f.N, (long long)f.K, (int)f.ta, (int)f.tb, dtype_name(f.type),
               dtype_name(f.out), (double)f.beta, error);
    }
    free_all();
}

static const int64_t sizes[][3] = {{1, 1, 1},     {1, 7, 3},      {5, 1, 9},    {7, 13, 17},
                                   {64, 48, 33},  {65, 129, 100}, {31, 200, 5}, {150, 70, 400},
                                   {13, 33, 777}, {3, 21, 2100},  {4, 50, 1025}};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void check_all_forms(struct form f, double tolerance)
{
    for (int i = 0; i < SIZES * 8; i++) {
        f.M = sizes[i / 8][0];
        f.N = sizes[i / 8][1];
        f.K = sizes[i / 8][2];
        f.ta = (i & 1) != 0 ? TRANSPOSED : AS_IS;
        f.tb = (i & 2) != 0 ? TRANSPOSED : AS_IS;
        f.beta = (i & 4) != 0 ? 1.0F : 0.0F;
        kernels_cpu_threads(1 + i % 4);
        check_form(f, tolerance);
    }
    kernels_cpu_threads(1);
}

static void multiplies_reals(void)
{
    check_all_forms(reals, EXACT);
}

static void multiplies_bf16_into_reals(void)
{
    struct form f = reals;

    f.type = DTYPE_BF16;
    check_all_forms(f, EXACT);
}

static void multiplies_bf16_into_bf16(void)
{
    struct form f = reals;

    f.type = f.out = DTYPE_BF16;
    check_all_forms(f, ROUNDED);
}

static void multiplies_f16(void)
{
    struct form f = reals;

    f.type = DTYPE_F16;
    check_all_forms(f, EXACT);
    f.out = DTYPE_F16;
    check_all_forms(f, ROUNDED / 8);
}

/* c = factor a b (+ c), of all pairs of 8-bit types. */
static void check_scaled(struct form f, enum dtype other, double factor)
{
    const struct tensor a = operand(f.type, f.ta, f.M, f.K), b = operand(other, f.tb, f.K, f.N);
    const struct tensor c = take_random(f.out, f.M, f.N, 1);
    struct queue q = take_queue(workspace_gemm(f.M, f.N, f.K, f.type, f.out, 4));
    const double *old = doubles_of(c);
    struct form product = f;
    product.beta = 0.0F;
    const struct tensor zero = take(DTYPE_REAL, f.M, f.N);
    double *want = reference(product, zero, a, b);

    for (int64_t i = 0; i < f.M * f.N; i++) {
        want[i] = want[i] * factor + (f.beta != 0.0F ? old[i] : 0);
    }
    k->gemm_scaled(&q, c, a, f.ta, b, f.tb, f.beta, factor);
    EXPECT_CLOSE(c, want, f.out == DTYPE_REAL ? EXACT : ROUNDED);
    free_all();
}

static void multiplies_8_bit_floats_and_scales(void)
{
    static const enum dtype outs[] = {DTYPE_REAL, DTYPE_BF16, DTYPE_F16};

    for (int i = 0; i < SIZES * 12; i++) {
        const struct form f = {.M = sizes[i / 12][0],
                               .N = sizes[i / 12][1],
                               .K = sizes[i / 12][2],
                               .ta = (i & 1) != 0 ? TRANSPOSED : AS_IS,
                               .tb = (i & 2) != 0 ? TRANSPOSED : AS_IS,
                               .type = i % 5 < 2 ? DTYPE_E5M2 : DTYPE_E4M3,
                               .out = outs[i % 3],
                               .beta = (i & 4) != 0 ? 1.0F : 0.0F};
        kernels_cpu_threads(1 + i % 4);
        check_scaled(f, i % 7 < 3 ? DTYPE_E5M2 : DTYPE_E4M3, i % 2 == 0 ? 0.37 : 3.0);
    }
    kernels_cpu_threads(1);
}

static void overwrites_what_was_not_a_number(void)
{
    const struct tensor a = take_random(DTYPE_REAL, 5, 6, 1), b = take_random(DTYPE_REAL, 6, 7, 1);
    const struct tensor c = take(DTYPE_REAL, 5, 7);
    struct queue q = take_queue(workspace_gemm(5, 7, 6, DTYPE_REAL, DTYPE_REAL, 1));
    const struct form f = {5, 7, 6, AS_IS, AS_IS, DTYPE_REAL, DTYPE_REAL, 0.0F};

    const double *want = reference(f, c, a, b);
    for (int i = 0; i < 35; i++) {
        set_at(c, i, (double)NAN);
    }
    k->gemm(&q, c, a, AS_IS, b, AS_IS, 0.0F);
    EXPECT_CLOSE(c, want, EXACT);
    free_all();
}

static void carries_not_a_number_into_its_row_only(void)
{
    const struct tensor a = take_random(DTYPE_REAL, 3, 6, 1), b = take_random(DTYPE_REAL, 6, 7, 1);
    const struct tensor c = take(DTYPE_REAL, 3, 7);
    struct queue q = take_queue(workspace_gemm(3, 7, 6, DTYPE_REAL, DTYPE_REAL, 1));

    set_at(a, 6 + 2, (double)NAN);
    k->gemm(&q, c, a, AS_IS, b, AS_IS, 0.0F);
    for (int i = 0; i < 21; i++) {
        EXPECT((value_at(c, i) != value_at(c, i)) == (i >= 7 && i < 14));
    }
    free_all();
}

static void a_product_over_nothing_is_zero(void)
{
    const struct tensor a = take(DTYPE_REAL, 3, 0), b = take(DTYPE_REAL, 0, 7);
    const struct tensor c = take_random(DTYPE_REAL, 3, 7, 1), old = copy_of(c);
    struct queue q = take_queue(workspace_gemm(3, 7, 0, DTYPE_REAL, DTYPE_REAL, 1));

    k->gemm(&q, c, a, AS_IS, b, AS_IS, 1.0F);
    EXPECT(same_bytes(c, old));
    k->gemm(&q, c, a, AS_IS, b, AS_IS, 0.0F);
    for (int i = 0; i < 21; i++) {
        EXPECT(value_at(c, i) == 0);
    }
    free_all();
}

static void repeats_bit_for_bit(void)
{
    static const enum dtype types[] = {DTYPE_REAL, DTYPE_BF16};

    for (int i = 0; i < 2; i++) {
        const struct tensor a = take_random(types[i], 700, 130, 1);
        const struct tensor b = take_random(types[i], 700, 90, 1);
        const struct tensor c = take(DTYPE_REAL, 130, 90), d = take(DTYPE_REAL, 130, 90);
        struct queue q = take_queue(workspace_gemm(130, 90, 700, types[i], DTYPE_REAL, 4));
        kernels_cpu_threads(2);
        k->gemm(&q, c, a, TRANSPOSED, b, AS_IS, 0.0F);
        k->gemm(&q, d, a, TRANSPOSED, b, AS_IS, 0.0F);
        EXPECT(same_bytes(c, d));
        kernels_cpu_threads(1);
        free_all();
    }
}

static void multiplies_rows(void)
{
    static const enum dtype types[3][2] = {
        {DTYPE_REAL, DTYPE_REAL}, {DTYPE_BF16, DTYPE_REAL}, {DTYPE_BF16, DTYPE_BF16}};

    for (int i = 0; i < SIZES * 3; i++) {
        const enum dtype type = types[i % 3][0], out = types[i % 3][1];
        struct form f = {.M = sizes[i / 3][0], .N = sizes[i / 3][1], .K = sizes[i / 3][2]};
        f.tb = TRANSPOSED;
        const struct tensor a = take_random(type, f.M, f.K, 1), b = take_random(type, f.N, f.K, 1);
        const struct tensor c = take_random(out, f.M, f.N, 1);
        struct queue q = take_queue(workspace_rows(f.M, f.K, type));
        const double *want = reference(f, c, a, b);
        kernels_cpu_threads(1 + i % 4);
        k->gemm_rows(&q, c, a, b);
        EXPECT_CLOSE(c, want, out != DTYPE_REAL ? ROUNDED : EXACT);
        free_all();
    }
    kernels_cpu_threads(1);
}

/* Row m of many is bit-equal to that row alone, in each place, for every number of threads. */
static void a_row_of_a_product_does_not_depend_on_the_others(void)
{
    static const enum dtype types[] = {DTYPE_REAL, DTYPE_BF16};

    for (int i = 0; i < 2; i++) {
        const struct tensor a = take_random(types[i], 29, 333, 1);
        const struct tensor b = take_random(types[i], 91, 333, 1);
        const struct tensor all = take(DTYPE_REAL, 29, 91), some = take(DTYPE_REAL, 29, 91);
        struct queue q = take_queue(workspace_rows(29, 333, types[i]));
        kernels_cpu_threads(3);
        k->gemm_rows(&q, all, a, b);
        kernels_cpu_threads(1);
        for (int64_t count = 1; count <= 7; count++) {
            for (int64_t m = 0; m + count <= 29; m++) {
                const struct tensor c = tensor_slice(some, 0, count);
                k->gemm_rows(&q, c, tensor_slice(a, m, count), b);
                EXPECT(memcmp(c.data, tensor_slice(all, m, count).data, tensor_bytes(c)) == 0);
            }
        }
        free_all();
    }
}

static void run_tests(const struct kernels *table)
{
    k = table;
    RUN(multiplies_reals);
    RUN(multiplies_bf16_into_reals);
    RUN(multiplies_bf16_into_bf16);
    RUN(multiplies_f16);
    RUN(multiplies_8_bit_floats_and_scales);
    RUN(overwrites_what_was_not_a_number);
    RUN(carries_not_a_number_into_its_row_only);
    RUN(a_product_over_nothing_is_zero);
    RUN(repeats_bit_for_bit);
    RUN(multiplies_rows);
    RUN(a_row_of_a_product_does_not_depend_on_the_others);
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
