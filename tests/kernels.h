/* kernels.h - what the kernel tests share: tensors with known values, comparison, instruction sets.
 *
 * The same tests run in the float and in the double build (programs test_kernels_* and f64_kernels_*);
 * references are computed in double by plain loops in the test. They run once for each instruction
 * set of this machine, each in a process of its own, because the choice is made once per process.
 */
#ifndef TESTS_KERNELS_H
#define TESTS_KERNELS_H

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/check.h"
#include "kernels/kernels.h"
#include "kernels/real.h"
#include "kernels/workspace.h"
#include "tests/tap.h"

#ifdef HONE_DOUBLE
    #define EXACT 1e-12
#else
    #define EXACT 2e-6
#endif

/* Errors of results that were rounded to bf16 once. */
#define ROUNDED 0x1p-8

enum { TENSORS_MAX = 128 };

static void *taken[TENSORS_MAX];
static int taken_count;
static uint64_t random_state = 1;

__attribute__((unused)) static void *take_bytes(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);

    if (p == NULL) {
        abort();
    }
    CHECK(taken_count < TENSORS_MAX, "%d tensors in one test", taken_count);
    taken[taken_count++] = p;
    memset(p, 0, bytes);
    return p;
}

__attribute__((unused)) static void free_all(void)
{
    while (taken_count > 0) {
        free(taken[--taken_count]);
    }
}

__attribute__((unused)) static struct tensor take(enum dtype type, int64_t rows, int64_t cols)
{
    const struct tensor t = tensor_make(NULL, type, rows, cols);

    return tensor_make(take_bytes(tensor_bytes(t)), type, rows, cols);
}

__attribute__((unused)) static struct queue take_queue(size_t bytes)
{
    return (struct queue){.workspace = take_bytes(bytes), .workspace_bytes = bytes};
}

/* Uniform in [0, 1): xorshift64*. */
static double next_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * UINT64_C(0x2545f4914f6cdd1d)) >> 11) * 0x1p-53;
}

__attribute__((unused)) static double bf16_value(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return (double)f;
}

/* The nearest bf16, ties to even, found by search among neighbours: no bit tricks. */
__attribute__((unused)) static uint16_t nearest_bf16(double x)
{
    const float f = (float)x;
    uint32_t bits;
    uint16_t best;

    memcpy(&bits, &f, sizeof(bits));
    best = (uint16_t)(bits >> 16);
    for (int step = -1; step <= 1; step++) {
        const uint16_t c = (uint16_t)((int)(bits >> 16) + step);
        const double now = fabs(bf16_value(best) - x), then = fabs(bf16_value(c) - x);
        if (then < now || (then <= now && (c & 1U) == 0)) {
            best = c;
        }
    }
    return best;
}

/* What a code of f16, E4M3 or E5M2 stands for: sign, exponent, mantissa, as the formats are defined. */
__attribute__((unused)) static double small_value(enum dtype type, unsigned code)
{
    const int mantissa = type == DTYPE_F16 ? 10 : type == DTYPE_E4M3 ? 3 : 2;
    const int bias = type == DTYPE_E4M3 ? 7 : 15, width = type == DTYPE_F16 ? 16 : 8;
    const unsigned sign = code >> (width - 1), rest = code & ((1U << (width - 1)) - 1);
    const int exponent = (int)(rest >> mantissa);
    const double part = ldexp((double)(rest & ((1U << mantissa) - 1)), -mantissa);
    double v = exponent == 0 ? ldexp(part, 1 - bias) : ldexp(1 + part, exponent - bias);

    if (type == DTYPE_E4M3 && rest == 0x7f) {
        v = (double)NAN;
    } else if (type != DTYPE_E4M3 && exponent == 31) {
        v = part > 0 ? (double)NAN : (double)INFINITY;
    }
    return sign != 0 ? -v : v;
}

/* The code whose value is nearest to x, of two the even one: codes without a sign grow with their values.
 * The 8-bit types end at their largest finite value, f16 at the value from which it rounds to infinity. */
__attribute__((unused)) static uint16_t nearest_small(enum dtype type, double x)
{
    const unsigned sign = type == DTYPE_F16 ? 0x8000U : 0x80U;
    const unsigned top = type == DTYPE_F16 ? 0x7bffU : type == DTYPE_E4M3 ? 0x7eU : 0x7bU;
    unsigned low = 0, high = top;

    if (x != x) {
        return (uint16_t)(type == DTYPE_F16 ? 0x7e00U : 0x7fU);
    }
    if (type == DTYPE_F16 && fabs(x) >= 65520.0) {
        return (uint16_t)(0x7c00U | (x < 0 ? sign : 0));
    }
    while (high - low > 1) {
        const unsigned mid = (low + high) / 2;
        if (small_value(type, mid) <= fabs(x)) {
            low = mid;
        } else {
            high = mid;
        }
    }
    const double below = fabs(x) - small_value(type, low),
                 above = small_value(type, high) - fabs(x);
    const bool up = above < below || (above <= below && (high & 1U) == 0);
    return (uint16_t)((up ? high : low) | (signbit(x) != 0 ? sign : 0));
}

__attribute__((unused)) static double value_at(struct tensor t, int64_t i)
{
    switch (t.type) {
    case DTYPE_F32: return (double)((const float *)t.data)[i];
    case DTYPE_F64: return ((const double *)t.data)[i];
    case DTYPE_BF16: return bf16_value(((const uint16_t *)t.data)[i]);
    case DTYPE_I32: return (double)((const int32_t *)t.data)[i];
    case DTYPE_F16: return small_value(t.type, ((const uint16_t *)t.data)[i]);
    case DTYPE_E4M3:
    case DTYPE_E5M2: return small_value(t.type, ((const uint8_t *)t.data)[i]);
    case DTYPE_I64:
    case DTYPE_COUNT: break;
    }
    CHECK(false, "no values of type %s", dtype_name(t.type));
    return 0;
}

__attribute__((unused)) static void set_at(struct tensor t, int64_t i, double v)
{
    switch (t.type) {
    case DTYPE_F32: ((float *)t.data)[i] = (float)v; return;
    case DTYPE_F64: ((double *)t.data)[i] = v; return;
    case DTYPE_BF16: ((uint16_t *)t.data)[i] = nearest_bf16(v); return;
    case DTYPE_I32: ((int32_t *)t.data)[i] = (int32_t)v; return;
    case DTYPE_F16: ((uint16_t *)t.data)[i] = nearest_small(t.type, v); return;
    case DTYPE_E4M3:
    case DTYPE_E5M2: ((uint8_t *)t.data)[i] = (uint8_t)nearest_small(t.type, v); return;
    case DTYPE_I64:
    case DTYPE_COUNT: break;
    }
    CHECK(false, "no values of type %s", dtype_name(t.type));
}

/* Values spread over [-size, size]. */
__attribute__((unused)) static struct tensor take_random(enum dtype type, int64_t rows,
                                                         int64_t cols, double size)
{
    const struct tensor t = take(type, rows, cols);

    for (int64_t i = 0; i < tensor_count(t); i++) {
        set_at(t, i, size * (2 * next_random() - 1));
    }
    return t;
}

__attribute__((unused)) static double *take_doubles(int64_t count)
{
    return take_bytes((size_t)count * sizeof(double));
}

/* The values of t as doubles, to compute a reference from. */
__attribute__((unused)) static double *doubles_of(struct tensor t)
{
    double *v = take_doubles(tensor_count(t));

    for (int64_t i = 0; i < tensor_count(t); i++) {
        v[i] = value_at(t, i);
    }
    return v;
}

__attribute__((unused)) static struct tensor copy_of(struct tensor t)
{
    const struct tensor c = take(t.type, tensor_rows(t), tensor_cols(t));

    memcpy(c.data, t.data, tensor_bytes(t));
    return c;
}

/* max |t - want| / max |want|; infinite when any is NaN. */
__attribute__((unused)) static double error_of(struct tensor t, const double *want)
{
    double error = 0, size = 1e-300;

    for (int64_t i = 0; i < tensor_count(t); i++) {
        const double e = fabs(value_at(t, i) - want[i]);
        error = e <= error ? error : e;
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
        if (e != e) {
            return (double)INFINITY;
        }
    }
    return error / size;
}

__attribute__((unused)) static bool same_bytes(struct tensor a, struct tensor b)
{
    return tensor_bytes(a) == tensor_bytes(b) && memcmp(a.data, b.data, tensor_bytes(a)) == 0;
}

#define EXPECT_CLOSE(t, want, tol)                                                  \
    do {                                                                            \
        const double error_ = error_of(t, want);                                    \
        if (!(error_ <= (tol))) {                                                   \
            tap_bad_here++;                                                         \
            printf("# %s:%d: %s is off by %.3g\n", __FILE__, __LINE__, #t, error_); \
        }                                                                           \
    } while (0)

/* Runs a list of tests with HONE_ISA set, in a child; takes over its counts. */
static void run_on_isa(const char *isa, void (*tests)(const struct kernels *k))
{
    int counts[2] = {tap_tests, tap_bad}, ends[2], status;

    fflush(stdout);
    CHECK(pipe(ends) == 0, "pipe for %s", isa);
    const pid_t child = fork();
    CHECK(child >= 0, "fork for %s", isa);
    if (child == 0) {
        (void)setenv("HONE_ISA", isa, 1);
        const struct kernels *k = kernels_cpu();
        printf("# %s%s\n", isa, k == NULL ? ": not on this machine" : "");
        if (k != NULL) {
            tests(k);
        }
        free_all();
        counts[0] = tap_tests;
        counts[1] = tap_bad;
        fflush(stdout);
        CHECK(write(ends[1], counts, sizeof(counts)) == sizeof(counts), "counts of %s", isa);
        _exit(0);
    }
    (void)close(ends[1]);
    const bool counted = read(ends[0], counts, sizeof(counts)) == sizeof(counts);
    (void)close(ends[0]);
    (void)waitpid(child, &status, 0);
    tap_tests = counts[0];
    tap_bad = counts[1];
    if (!counted || status != 0) {
        tap_bad++;
        printf("not ok %d - %s ended with status %d\n", ++tap_tests, isa, status);
    }
}

__attribute__((unused)) static int run_on_every_isa(void (*tests)(const struct kernels *k))
{
    static const char *const names[] = {"v2", "v3", "v4", "v4bf16"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        run_on_isa(names[i], tests);
    }
    return tap_done();
}

#endif
