/* test_kernels_pointwise.c - activations, gating, sums, dropout and conversions against <math.h>. */
#include "kernels/dropout.h"
#include "tests/kernels.h"

static const struct kernels *k;

static const enum dtype types[] = {DTYPE_REAL, DTYPE_BF16, DTYPE_F16};

static double act(enum activation a, double x)
{
    switch (a) {
    case ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_COUNT: break;
    }
    return (double)NAN;
}

/* By a difference quotient of high order in double: independent of the formulas in the kernels. */
static double slope(enum activation a, double x)
{
    const double h = 1e-3;

    if (a == ACT_RELU) {
        return x > 0 ? 1 : 0;
    }
    return (act(a, x - 2 * h) - 8 * act(a, x - h) + 8 * act(a, x + h) - act(a, x + 2 * h)) /
           (12 * h);
}

enum { ACT_SIZE = 37 * 301 };

static void activations_follow_their_formulas(void)
{
    for (int i = 0; i < ACT_COUNT * 3; i++) {
        const enum activation a = (enum activation)(i / 3);
        const enum dtype type = types[i % 3];
        const struct tensor x = take_random(type, 37, 301, 6), y = take(type, 37, 301);
        const struct tensor dy = take_random(type, 37, 301, 1), dx = take(type, 37, 301);
        double *want = take_doubles(ACT_SIZE), *want_d = take_doubles(ACT_SIZE);
        for (int64_t j = 0; j < ACT_SIZE; j++) {
            want[j] = act(a, value_at(x, j));
            want_d[j] = value_at(dy, j) * slope(a, value_at(x, j));
        }
        kernels_cpu_threads(1 + i % 4);
        k->activation_forward(NULL, y, x, a);
        k->activation_backward(NULL, dx, dy, x, a);
        EXPECT_CLOSE(y, want, type != DTYPE_REAL ? ROUNDED : EXACT);
        EXPECT_CLOSE(dx, want_d, type != DTYPE_REAL ? ROUNDED : EXACT + 1e-10);
        free_all();
    }
    kernels_cpu_threads(1);
}

/* The absolute error near 0 and in the tails, where a relative one to the maximum sees nothing. */
static void activations_are_right_at_every_size(void)
{
    const struct tensor x = take(DTYPE_REAL, 1, 4001), y = take(DTYPE_REAL, 1, 4001);

    for (int64_t i = 0; i < 4001; i++) {
        set_at(x, i, ((double)i - 2000) / 100);
    }
    for (int a = 0; a < ACT_COUNT; a++) {
        k->activation_forward(NULL, y, x, (enum activation)a);
        for (int64_t i = 0; i < 4001; i++) {
            const double v = value_at(x, i), want = act((enum activation)a, v);
            EXPECT(fabs(value_at(y, i) - want) <= EXACT * fabs(want) + 0.1 * EXACT * fabs(v));
        }
    }
    free_all();
}

static void activations_saturate_and_pass_on_what_is_not_a_number(void)
{
    static const double big[] = {50, 1e4, 1e12};
    const struct tensor x = take(DTYPE_REAL, 1, 7), y = take(DTYPE_REAL, 1, 7);
    const struct tensor one = take(DTYPE_REAL, 1, 7), dx = take(DTYPE_REAL, 1, 7);

    for (int i = 0; i < 7; i++) {
        set_at(one, i, 1);
        set_at(x, i, i == 6 ? (double)NAN : i < 3 ? big[i] : -big[i - 3]);
    }
    for (int a = 0; a < ACT_COUNT; a++) {
        k->activation_forward(NULL, y, x, (enum activation)a);
        k->activation_backward(NULL, dx, one, x, (enum activation)a);
        for (int i = 0; i < 6; i++) {
            EXPECT_NEAR(value_at(y, i), i < 3 ? value_at(x, i) : 0, EXACT);
            EXPECT_NEAR(value_at(dx, i), i < 3 ? 1 : 0, EXACT);
        }
        EXPECT(value_at(y, 6) != value_at(y, 6));
        EXPECT(a == ACT_RELU || value_at(dx, 6) != value_at(dx, 6));
    }
    free_all();
}

static void check_swiglu(int64_t R, int64_t F, enum dtype type)
{
    const struct tensor gu = take_random(type, R, 2 * F, 4), y = take(type, R, F);
    const struct tensor dy = take_random(type, R, F, 1), dgu = take(type, R, 2 * F);
    double *want = take_doubles(R * F), *want_d = take_doubles(2 * R * F);

    for (int64_t i = 0; i < R * F; i++) {
        const int64_t at = i / F * 2 * F + i % F;
        const double g = value_at(gu, at), u = value_at(gu, at + F);
        want[i] = act(ACT_SILU, g) * u;
        want_d[at] = value_at(dy, i) * u * slope(ACT_SILU, g);
        want_d[at + F] = value_at(dy, i) * act(ACT_SILU, g);
    }
    k->swiglu_forward(NULL, y, gu);
    k->swiglu_backward(NULL, dgu, dy, gu);
    EXPECT_CLOSE(y, want, type != DTYPE_REAL ? ROUNDED : EXACT);
    EXPECT_CLOSE(dgu, want_d, type != DTYPE_REAL ? ROUNDED : EXACT + 1e-10);
    free_all();
}

static void swiglu_follows_its_formula(void)
{
    for (int i = 0; i < 2; i++) {
        kernels_cpu_threads(1 + i);
        check_swiglu(1, 1, types[i]);
        check_swiglu(17, 35, types[i]);
        check_swiglu(3, 2100, types[i]);
    }
    kernels_cpu_threads(1);
}

static void adds_tensors_of_any_types(void)
{
    for (int i = 0; i < 27; i++) {
        const struct tensor a = take_random(types[i % 3], 3, 701, 1);
        const struct tensor b = take_random(types[i / 3 % 3], 3, 701, 1);
        const struct tensor y = take(types[i / 9], 3, 701);
        double *want = doubles_of(a);
        for (int64_t j = 0; j < 2103; j++) {
            want[j] += value_at(b, j);
        }
        k->add(NULL, y, a, b);
        EXPECT_CLOSE(y, want, y.type != DTYPE_REAL ? ROUNDED : EXACT);
        k->add(NULL, a, a, b);
        EXPECT_CLOSE(a, want, a.type != DTYPE_REAL ? ROUNDED : EXACT);
        free_all();
    }
}

static void scales_in_place(void)
{
    for (int i = 0; i < 3; i++) {
        const struct tensor y = take_random(types[i], 3, 701, 1);
        double *want = doubles_of(y);
        for (int64_t j = 0; j < 2103; j++) {
            want[j] *= -1.75;
        }
        kernels_cpu_threads(1 + i);
        k->scale(NULL, y, -1.75);
        EXPECT_CLOSE(y, want, y.type != DTYPE_REAL ? ROUNDED : EXACT);
        free_all();
    }
    kernels_cpu_threads(1);
}

/* The first, the middle and the last columns; more than a tile of them. */
static void takes_and_adds_columns(void)
{
    enum { WIDTH = 2300, PART = 1100, ROWS = 5 };
    static const int64_t firsts[] = {0, 17, WIDTH - PART};

    for (int i = 0; i < 6; i++) {
        const int64_t first = firsts[i / 2];
        const struct tensor y = take_random(types[i % 3], ROWS, WIDTH, 1);
        const struct tensor part = take(types[i % 3], ROWS, PART);
        const struct tensor more = take_random(types[i % 3], ROWS, PART, 1);
        double *want_part = take_doubles(ROWS * PART), *want = doubles_of(y);
        for (int64_t j = 0; j < ROWS * PART; j++) {
            const int64_t at = j / PART * WIDTH + first + j % PART;
            want_part[j] = want[at];
            want[at] += value_at(more, j);
        }
        kernels_cpu_threads(1 + i % 3);
        k->take_columns(NULL, part, y, first);
        EXPECT_CLOSE(part, want_part, 0.0);
        k->add_columns(NULL, y, more, first);
        EXPECT_CLOSE(y, want, y.type != DTYPE_REAL ? ROUNDED : EXACT);
        free_all();
    }
    kernels_cpu_threads(1);
}

static const struct dropout place = {.p = 0.1,
                                     .seed = 3,
                                     .step = 4,
                                     .sample0 = 5,
                                     .pos0 = 6,
                                     .S = 50,
                                     .layer = 7,
                                     .site = 8,
                                     .feature0 = 9};

static void dropout_keeps_the_given_part_and_scales_it(void)
{
    const struct tensor x = take_random(DTYPE_REAL, 100, 1300, 1), y = take(DTYPE_REAL, 100, 1300);
    int64_t dropped = 0;

    k->dropout(NULL, y, x, &place);
    for (int64_t i = 0; i < 130000; i++) {
        const bool kept = dropout_word(dropout_row_key(&place, i / 1300),
                                       (uint32_t)(9 + i % 1300)) >= dropout_threshold(&place);
        dropped += !kept;
        EXPECT_NEAR(value_at(y, i), kept ? value_at(x, i) / 0.9 : 0, EXACT);
    }
    EXPECT(fabs((double)dropped / 130000 - 0.1) < 0.004);
    k->dropout(NULL, x, x, &place);
    EXPECT(same_bytes(x, y));
    free_all();
}

/* A slice of the batch, of the sequence or of the width drops what the whole drops there. */
static void dropout_depends_on_place_only(void)
{
    const struct tensor x = take_random(DTYPE_BF16, 100, 40, 1), y = take(DTYPE_BF16, 100, 40);
    const struct tensor half = take(DTYPE_BF16, 20, 13), part = take(DTYPE_BF16, 20, 13);
    struct dropout d = place;

    for (int64_t i = 0; i < 260; i++) {
        set_at(half, i, value_at(x, (50 + 30 + i / 13) * 40 + 10 + i % 13));
    }
    d.sample0 += 1;
    d.pos0 += 30;
    d.S = 20;
    d.feature0 += 10;
    k->dropout(NULL, y, x, &place);
    kernels_cpu_threads(3);
    k->dropout(NULL, part, half, &d);
    kernels_cpu_threads(1);
    for (int64_t i = 0; i < 260; i++) {
        EXPECT(value_at(part, i) == value_at(y, (80 + i / 13) * 40 + 10 + i % 13));
    }
    free_all();
}

/* Every argument of the place changes about 2 p (1 - p) of all decisions: it takes part, and the
 * decisions of two places are independent. */
static void dropout_differs_between_any_two_places(void)
{
    const struct tensor x = take(DTYPE_REAL, 50, 400), y = take(DTYPE_REAL, 50, 400);
    const struct tensor z = take(DTYPE_REAL, 50, 400);

    for (int64_t i = 0; i < 20000; i++) {
        set_at(x, i, 1);
    }
    k->dropout(NULL, y, x, &place);
    for (int change = 0; change < 7; change++) {
        struct dropout d = place;
        int64_t different = 0;
        d.seed += change == 0;
        d.step += change == 1;
        d.sample0 += change == 2;
        d.pos0 += change == 3;
        d.layer += change == 4;
        d.site += change == 5;
        d.feature0 += change == 6;
        k->dropout(NULL, z, x, &d);
        for (int64_t i = 0; i < 20000; i++) {
            different += value_at(z, i) != value_at(y, i);
        }
        EXPECT(fabs((double)different / 20000 - 0.18) < 0.02);
    }
    free_all();
}

static void dropout_of_nothing_changes_nothing(void)
{
    const struct tensor x = take_random(DTYPE_REAL, 5, 90, 1), y = take(DTYPE_REAL, 5, 90);
    const struct dropout d = {.S = 5};

    k->dropout(NULL, y, x, &d);
    EXPECT(same_bytes(x, y));
    free_all();
}

static void rounds_to_bf16_with_ties_to_even(void)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {{0x3f800000U, 0x3f80}, {0x3f807fffU, 0x3f80}, {0x3f808000U, 0x3f80},
                 {0x3f808001U, 0x3f81}, {0x3f818000U, 0x3f82}, {0xbf818000U, 0xbf82},
                 {0x7f7fffffU, 0x7f80}, {0x00018000U, 0x0002}, {0x00008000U, 0x0000},
                 {0x7f800000U, 0x7f80}, {0xff800000U, 0xff80}, {0x80000000U, 0x8000}};
    enum { N = sizeof(cases) / sizeof(cases[0]) };
    const struct tensor x = take(DTYPE_F32, N, 1), y = take(DTYPE_BF16, N, 1);
    const struct tensor back = take(DTYPE_F32, N, 1);

    for (int i = 0; i < N; i++) {
        memcpy((float *)x.data + i, &cases[i].from, 4);
    }
    k->cast(NULL, y, x);
    k->cast(NULL, back, y);
    for (int i = 0; i < N; i++) {
        EXPECT(((const uint16_t *)y.data)[i] == cases[i].to);
        EXPECT(((const uint32_t *)back.data)[i] == (uint32_t)cases[i].to << 16);
    }
    free_all();
}

/* The value of a half by its definition. */
static double f16_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double size = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(1024 + fraction, exponent - 25);

    return (h & 0x8000) != 0 ? -size : size;
}

static void converts_every_half_to_float_and_back(void)
{
    const struct tensor h = take(DTYPE_F16, 65536, 1), f = take(DTYPE_F32, 65536, 1);
    const struct tensor d = take(DTYPE_F64, 65536, 1), back = take(DTYPE_F16, 65536, 1);

    for (int64_t i = 0; i < 65536; i++) {
        ((uint16_t *)h.data)[i] = (uint16_t)i;
    }
    k->cast(NULL, f, h);
    k->cast(NULL, d, h);
    k->cast(NULL, back, f);
    for (int64_t i = 0; i < 65536; i++) {
        const double want = f16_value((uint16_t)i), got = value_at(f, i);
        const uint16_t again = ((const uint16_t *)back.data)[i];
        EXPECT(want != want ? got != got : got == want && signbit(got) == signbit(want));
        EXPECT(want != want ? value_at(d, i) != value_at(d, i) : value_at(d, i) == want);
        EXPECT(want != want ? (again & 0x7c00) == 0x7c00 && (again & 1023) != 0 : again == i);
    }
    free_all();
}

/* Between two neighbouring halves: just below the middle, the middle, just above. */
static void rounds_to_half_with_ties_to_even_also_when_subnormal(void)
{
    const int64_t N = 3 * (int64_t)0x7bff;
    const struct tensor x = take(DTYPE_F32, N, 1), wide = take(DTYPE_F64, N, 1);
    const struct tensor h = take(DTYPE_F16, N, 1), g = take(DTYPE_F16, N, 1);

    for (int64_t i = 0; i < 0x7bff; i++) {
        const double middle = (f16_value((uint16_t)i) + f16_value((uint16_t)(i + 1))) / 2;
        ((float *)x.data)[3 * i] = nextafterf((float)middle, 0.0F);
        ((float *)x.data)[3 * i + 1] = (float)middle;
        ((float *)x.data)[3 * i + 2] = nextafterf((float)middle, INFINITY);
        ((double *)wide.data)[3 * i] = nextafter(middle, 0.0);
        ((double *)wide.data)[3 * i + 1] = middle;
        ((double *)wide.data)[3 * i + 2] = nextafter(middle, (double)INFINITY);
    }
    k->cast(NULL, h, x);
    k->cast(NULL, g, wide);
    for (int64_t i = 0; i < 0x7bff; i++) {
        const uint16_t *got = (const uint16_t *)h.data + 3 * i;
        EXPECT(got[0] == i && got[1] == i + i % 2 && got[2] == i + 1);
    }
    EXPECT(same_bytes(h, g));
    free_all();
}

static void rounds_double_to_bf16_once(void)
{
    /* 1 + 2^-8 is a tie, which a first rounding to float would hide for values next to it. */
    static const double from[] = {
        1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 3 * 0x1p-8 - 0x1p-40, -1 - 0x1p-8 - 0x1p-40, 1e300,
        1e-300};
    static const uint16_t to[] = {0x3f80, 0x3f81, 0x3f81, 0xbf81, 0x7f80, 0x0000};
    const struct tensor x = take(DTYPE_F64, 6, 1), y = take(DTYPE_BF16, 6, 1);

    memcpy(x.data, from, sizeof(from));
    k->cast(NULL, y, x);
    EXPECT(memcmp(y.data, to, sizeof(to)) == 0);
    free_all();
}

static void keeps_values_between_float_and_double(void)
{
    const struct tensor d = take_random(DTYPE_F64, 1, 3000, 1), f = take(DTYPE_F32, 1, 3000);
    const struct tensor e = take(DTYPE_F64, 1, 3000);

    k->cast(NULL, e, d);
    EXPECT(same_bytes(d, e));
    k->cast(NULL, f, d);
    k->cast(NULL, e, f);
    for (int64_t i = 0; i < 3000; i++) {
        EXPECT(value_at(e, i) == (double)(float)value_at(d, i));
    }
    free_all();
}

static void zeroes_every_byte_and_no_more(void)
{
    const struct tensor x = take_random(DTYPE_BF16, 1, 300001, 1);
    struct tensor part = x;

    part.dim[1] = 300000;
    kernels_cpu_threads(3);
    k->zero(NULL, part);
    kernels_cpu_threads(1);
    for (int64_t i = 0; i < 300000; i++) {
        EXPECT(value_at(x, i) == 0);
    }
    EXPECT(value_at(x, 300000) != 0);
    free_all();
}

static void run_activations(void)
{
    RUN(activations_follow_their_formulas);
    RUN(activations_are_right_at_every_size);
    RUN(activations_saturate_and_pass_on_what_is_not_a_number);
    RUN(swiglu_follows_its_formula);
    RUN(adds_tensors_of_any_types);
    RUN(scales_in_place);
    RUN(takes_and_adds_columns);
}

static void run_tests(const struct kernels *table)
{
    k = table;
    run_activations();
    RUN(dropout_keeps_the_given_part_and_scales_it);
    RUN(dropout_depends_on_place_only);
    RUN(dropout_differs_between_any_two_places);
    RUN(dropout_of_nothing_changes_nothing);
    RUN(rounds_to_bf16_with_ties_to_even);
    RUN(converts_every_half_to_float_and_back);
    RUN(rounds_to_half_with_ties_to_even_also_when_subnormal);
    RUN(rounds_double_to_bf16_once);
    RUN(keeps_values_between_float_and_double);
    RUN(zeroes_every_byte_and_no_more);
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
