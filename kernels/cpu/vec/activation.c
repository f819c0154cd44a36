/* activation.c - pointwise activations and SwiGLU, forward and backward.
 *
 *   gelu_tanh(x) = x s(2u),  u = sqrt(2/pi) (x + 0.044715 x^3),  since (1 + tanh u) / 2 = s(2u)
 *   gelu_erf(x)  = x (1 + erf(x / sqrt 2)) / 2
 *   silu(x)      = x s(x)                                       s(x) = 1 / (1 + exp(-x))
 */
#include "kernels/cpu/vec/ops.h"
#include "kernels/cpu/vec/wide.h"

#define TWICE_SQRT_2_OVER_PI REAL(1.5957691216057308)
#define SQRT_HALF            REAL(0.70710678118654752)
#define SQRT_1_OVER_2PI      REAL(0.39894228040143268)
#define CUBE                 REAL(0.044715)

static ALWAYS_INLINE real gelu_tanh(real x)
{
    return x * wide_sigmoid(TWICE_SQRT_2_OVER_PI * (x + CUBE * x * x * x));
}

static ALWAYS_INLINE real gelu_tanh_slope(real x)
{
    const real s = wide_sigmoid(TWICE_SQRT_2_OVER_PI * (x + CUBE * x * x * x));

    return s +
           x * s * (REAL(1.0) - s) * TWICE_SQRT_2_OVER_PI * (REAL(1.0) + REAL(3.0) * CUBE * x * x);
}

static ALWAYS_INLINE real gelu_erf(real x)
{
    return REAL(0.5) * x * (REAL(1.0) + wide_erf(x * SQRT_HALF));
}

static ALWAYS_INLINE real gelu_erf_slope(real x)
{
    return REAL(0.5) * (REAL(1.0) + wide_erf(x * SQRT_HALF)) +
           x * SQRT_1_OVER_2PI * wide_exp(REAL(-0.5) * x * x);
}

/* A NaN stays one: it is not below 0. */
static ALWAYS_INLINE real relu(real x)
{
    return x < REAL(0.0) ? REAL(0.0) : x;
}

static ALWAYS_INLINE real relu_slope(real x)
{
    return x > REAL(0.0) ? REAL(1.0) : REAL(0.0);
}

static ALWAYS_INLINE real silu(real x)
{
    return x * wide_sigmoid(x);
}

static ALWAYS_INLINE real silu_slope(real x)
{
    const real s = wide_sigmoid(x);

    return s * (REAL(1.0) + x * (REAL(1.0) - s));
}

#define FORWARD_LOOP(act)                     \
    WIDE_SIMD for (int64_t i = 0; i < n; i++) \
    {                                         \
        y[i] = act(x[i]);                     \
    }                                         \
    break

static void forward_tile(real *y, const real *x, int64_t n, enum activation act)
{
    switch (act) {
    case ACT_GELU_TANH: FORWARD_LOOP(gelu_tanh);
    case ACT_GELU_ERF: FORWARD_LOOP(gelu_erf);
    case ACT_RELU: FORWARD_LOOP(relu);
    case ACT_SILU: FORWARD_LOOP(silu);
    case ACT_COUNT: CHECK(false, "activation %d", (int)act);
    }
}

#define BACKWARD_LOOP(slope)                  \
    WIDE_SIMD for (int64_t i = 0; i < n; i++) \
    {                                         \
        dx[i] = dy[i] * slope(x[i]);          \
    }                                         \
    break

static void backward_tile(real *dx, const real *dy, const real *x, int64_t n, enum activation act)
{
    switch (act) {
    case ACT_GELU_TANH: BACKWARD_LOOP(gelu_tanh_slope);
    case ACT_GELU_ERF: BACKWARD_LOOP(gelu_erf_slope);
    case ACT_RELU: BACKWARD_LOOP(relu_slope);
    case ACT_SILU: BACKWARD_LOOP(silu_slope);
    case ACT_COUNT: CHECK(false, "activation %d", (int)act);
    }
}

void VEC(activation_forward)(struct queue *q, struct tensor y, struct tensor x, enum activation act)
{
    const int64_t count = tensor_count(x), tiles = blocks_of(count, TILE);

    (void)q;
    check_any(y, count);
    check_any(x, count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        real xt[TILE], yt[TILE];
        real *yv = tile_open(y, at, yt);
        forward_tile(yv, tile_read(x, at, n, xt), n, act);
        tile_close(y, at, n, yv);
    }
}

void VEC(activation_backward)(struct queue *q, struct tensor dx, struct tensor dy, struct tensor x,
                              enum activation act)
{
    const int64_t count = tensor_count(x), tiles = blocks_of(count, TILE);

    (void)q;
    check_any(dx, count);
    check_any(dy, count);
    check_any(x, count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        real dxt[TILE], dyt[TILE], xt[TILE];
        real *dxv = tile_open(dx, at, dxt);
        backward_tile(dxv, tile_read(dy, at, n, dyt), tile_read(x, at, n, xt), n, act);
        tile_close(dx, at, n, dxv);
    }
}

void VEC(swiglu_forward)(struct queue *q, struct tensor y, struct tensor gu)
{
    const int64_t R = tensor_rows(y), F = tensor_cols(y);

    (void)q;
    check_any(y, R * F);
    check_any(gu, R * 2 * F);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real yt[TILE], gt[TILE], ut[TILE];
        for (int64_t f = 0; f < F; f += TILE) {
            const int64_t n = smaller(TILE, F - f);
            const real *g = tile_read(gu, r * 2 * F + f, n, gt);
            const real *u = tile_read(gu, r * 2 * F + F + f, n, ut);
            real *yv = tile_open(y, r * F + f, yt);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                yv[i] = silu(g[i]) * u[i];
            }
            tile_close(y, r * F + f, n, yv);
        }
    }
}

/* dg = dy u silu'(g),  du = dy silu(g). */
static void swiglu_backward_tile(real *dg, real *du, const real *dy, const real *g, const real *u,
                                 int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const real s = wide_sigmoid(g[i]);
        dg[i] = dy[i] * u[i] * s * (REAL(1.0) + g[i] * (REAL(1.0) - s));
        du[i] = dy[i] * g[i] * s;
    }
}

void VEC(swiglu_backward)(struct queue *q, struct tensor dgu, struct tensor dy, struct tensor gu)
{
    const int64_t R = tensor_rows(dy), F = tensor_cols(dy);

    (void)q;
    check_any(dgu, R * 2 * F);
    check_any(dy, R * F);
    check_any(gu, R * 2 * F);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real dgt[TILE], dut[TILE], dyt[TILE], gt[TILE], ut[TILE];
        for (int64_t f = 0; f < F; f += TILE) {
            const int64_t n = smaller(TILE, F - f), at = r * 2 * F + f;
            real *dg = tile_open(dgu, at, dgt), *du = tile_open(dgu, at + F, dut);
            swiglu_backward_tile(dg, du, tile_read(dy, r * F + f, n, dyt), tile_read(gu, at, n, gt),
                                 tile_read(gu, at + F, n, ut), n);
            tile_close(dgu, at, n, dg);
            tile_close(dgu, at + F, n, du);
        }
    }
}
