/* test_kernels_quantise.c - numbers to 8-bit floats: every code, every halfway, saturation, the largest seen. */
#include "tests/kernels.h"

static const struct kernels *k;
static const enum dtype types[] = {DTYPE_E4M3, DTYPE_E5M2};

static unsigned top_of(enum dtype type)
{
    return type == DTYPE_E4M3 ? 0x7eU : 0x7bU;
}

static void every_code_has_its_value(void)
{
    for (int t = 0; t < 2; t++) {
        const struct tensor x = take(types[t], 256, 1), y = take(DTYPE_REAL, 256, 1);
        for (int i = 0; i < 256; i++) {
            ((uint8_t *)x.data)[i] = (uint8_t)i;
        }
        k->cast(NULL, y, x);
        for (int i = 0; i < 256; i++) {
            const double want = small_value(types[t], (unsigned)i), got = value_at(y, i);
            EXPECT(want != want ? got != got : got == want && signbit(got) == signbit(want));
        }
        free_all();
    }
}

/* A code, the halfway to the next one, and a little on both sides of that, with both signs. */
static void every_value_goes_to_the_nearest_code(void)
{
    for (int t = 0; t < 2; t++) {
        const unsigned top = top_of(types[t]);
        const int64_t n = 10 * (int64_t)top;
        const struct tensor x = take(DTYPE_REAL, n, 1), y = take(types[t], n, 1);
        for (unsigned c = 0; c < top; c++) {
            const double v = small_value(types[t], c),
                         half = (v + small_value(types[t], c + 1)) / 2;
            const double at[5] = {v, half, half * (1 - 1e-6), half * (1 + 1e-6), (v + half) / 2};
            for (int i = 0; i < 5; i++) {
                set_at(x, (int64_t)c * 10 + 2 * i, at[i]);
                set_at(x, (int64_t)c * 10 + 2 * i + 1, -at[i]);
            }
        }
        k->quantise(NULL, y, tensor_none(), x, 1.0);
        for (int64_t i = 0; i < n; i++) {
            EXPECT(((const uint8_t *)y.data)[i] == nearest_small(types[t], value_at(x, i)));
        }
        free_all();
    }
}

static void what_is_too_large_becomes_the_largest(void)
{
    const double large[] = {449, 464, 480, 57345, 61440, 65536, 1e30, (double)INFINITY};

    for (int t = 0; t < 2; t++) {
        const struct tensor x = take(DTYPE_REAL, 17, 1), y = take(types[t], 17, 1);
        for (int i = 0; i < 8; i++) {
            set_at(x, 2 * i, large[i]);
            set_at(x, 2 * i + 1, -large[i]);
        }
        set_at(x, 16, (double)NAN);
        k->quantise(NULL, y, tensor_none(), x, t == 0 ? 1.0 : 128.0);
        for (int i = 0; i < 16; i++) {
            EXPECT(((const uint8_t *)y.data)[i] == (top_of(types[t]) | (i % 2 != 0 ? 0x80U : 0)));
        }
        EXPECT((((const uint8_t *)y.data)[16] & 0x7fU) == 0x7fU);
        free_all();
    }
}

/* Of any type, scaled, in any number of threads; the largest seen stays when nothing larger comes. */
static void scales_and_keeps_the_largest(void)
{
    static const enum dtype from[] = {DTYPE_REAL, DTYPE_BF16, DTYPE_F16};

    for (int i = 0; i < 12; i++) {
        const enum dtype type = types[i % 2];
        const int64_t n = i < 6 ? 5003 : 37;
        const struct tensor x = take_random(from[i % 3], n, 1, 3), y = take(type, n, 1);
        const struct tensor amax = take(DTYPE_F32, 1, 1);
        const double *v = doubles_of(x), scale = i % 4 < 2 ? 16.0 : 0x1p-7;
        double most = 0;

        set_at(x, n / 2, i % 2 == 0 ? -3.5 : 3.5);
        set_at(x, n / 3, (double)NAN);
        kernels_cpu_threads(1 + i % 4);
        k->quantise(NULL, y, amax, x, scale);
        for (int64_t j = 0; j < n; j++) {
            if (j != n / 3 && j != n / 2) {
                EXPECT(((const uint8_t *)y.data)[j] == nearest_small(type, v[j] * scale));
                most = fabs(v[j]) > most ? fabs(v[j]) : most;
            }
        }
        EXPECT(most < 3.5 && value_at(amax, 0) == 3.5);
        set_at(amax, 0, 7);
        k->quantise(NULL, y, amax, x, scale);
        EXPECT(value_at(amax, 0) == 7);
        free_all();
    }
    kernels_cpu_threads(1);
}

static void run_tests(const struct kernels *table)
{
    k = table;
    RUN(every_code_has_its_value);
    RUN(every_value_goes_to_the_nearest_code);
    RUN(what_is_too_large_becomes_the_largest);
    RUN(scales_and_keeps_the_largest);
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
