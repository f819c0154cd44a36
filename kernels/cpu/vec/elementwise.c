/* elementwise.c - add, dropout, conversions, zero. */
#include "kernels/cpu/vec/ops.h"
#include "kernels/dropout.h"

void VEC(add)(struct queue *q, struct tensor y, struct tensor a, struct tensor b)
{
    const int64_t count = tensor_count(y), tiles = blocks_of(count, TILE);

    (void)q;
    check_any(y, count);
    check_any(a, count);
    check_any(b, count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        real yt[TILE], xt[TILE], zt[TILE];
        const real *av = tile_read(a, at, n, xt), *bv = tile_read(b, at, n, zt);
        real *yv = tile_open(y, at, yt);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            yv[i] = av[i] + bv[i];
        }
        tile_close(y, at, n, yv);
    }
}

void VEC(scale)(struct queue *q, struct tensor y, double factor)
{
    const int64_t count = tensor_count(y), tiles = blocks_of(count, TILE);
    const real by = (real)factor;

    (void)q;
    check_any(y, count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        real yt[TILE], xt[TILE];
        const real *xv = tile_read(y, at, n, xt);
        real *yv = tile_open(y, at, yt);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            yv[i] = xv[i] * by;
        }
        tile_close(y, at, n, yv);
    }
}

static void check_columns(struct tensor whole, struct tensor part, int64_t first)
{
    CHECK(tensor_rows(whole) == tensor_rows(part) && first >= 0 &&
              first + tensor_cols(part) <= tensor_cols(whole),
          "columns %lld to %lld of %lld", (long long)first, (long long)(first + tensor_cols(part)),
          (long long)tensor_cols(whole));
}

void VEC(take_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first)
{
    const int64_t R = tensor_rows(y), N = tensor_cols(y), M = tensor_cols(x);
    const size_t size = dtype_size(y.type);

    (void)q;
    check_columns(x, y, first);
    CHECK(x.type == y.type, "columns of %s into %s", dtype_name(x.type), dtype_name(y.type));
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        memcpy((char *)y.data + (size_t)(r * N) * size,
               (const char *)x.data + (size_t)(r * M + first) * size, (size_t)N * size);
    }
}

void VEC(add_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first)
{
    const int64_t R = tensor_rows(x), N = tensor_cols(x), M = tensor_cols(y);

    (void)q;
    check_columns(y, x, first);
    check_any(y, R * M);
    check_any(x, R * N);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real yt[TILE], xt[TILE], zt[TILE];
        for (int64_t c = 0; c < N; c += TILE) {
            const int64_t n = smaller(TILE, N - c), to = r * M + first + c;
            const real *xv = tile_read(x, r * N + c, n, xt), *zv = tile_read(y, to, n, zt);
            real *yv = tile_open(y, to, yt);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                yv[i] = zv[i] + xv[i];
            }
            tile_close(y, to, n, yv);
        }
    }
}

/* y[i] = x[i] factor where its word is at or above the threshold, else 0. */
static void drop_tile(real *y, const real *x, int64_t n, struct dropout_key key, uint32_t feature,
                      uint32_t threshold, real factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = dropout_word(key, feature + (uint32_t)i);
        y[i] = word >= threshold ? x[i] * factor : REAL(0.0);
    }
}

void VEC(dropout)(struct queue *q, struct tensor y, struct tensor x, const struct dropout *d)
{
    const int64_t R = tensor_rows(x), N = tensor_cols(x);
    const uint32_t threshold = dropout_threshold(d);
    const real factor = (real)(1.0 / (1.0 - d->p));

    (void)q;
    CHECK(d->p >= 0.0 && d->p < 1.0 && d->S >= 1, "dropout %g over %lld", d->p, (long long)d->S);
    check_any(y, R * N);
    check_any(x, R * N);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const struct dropout_key key = dropout_row_key(d, r);
        real yt[TILE], xt[TILE];
        for (int64_t c = 0; c < N; c += TILE) {
            const int64_t n = smaller(TILE, N - c), at = r * N + c;
            real *yv = tile_open(y, at, yt);
            drop_tile(yv, tile_read(x, at, n, xt), n, key, (uint32_t)(d->feature0 + c), threshold,
                      factor);
            tile_close(y, at, n, yv);
        }
    }
}

#define WIDEN(type, value)                              \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
    {                                                   \
        const type v = ((const type *)x.data + at)[i];  \
        y[i] = value;                                   \
    }                                                   \
    break

static void widen_f32(float *y, struct tensor x, int64_t at, int64_t n)
{
    switch (x.type) {
    case DTYPE_F32: WIDEN(float, v);
    case DTYPE_BF16: WIDEN(uint16_t, bf16_float(v));
    case DTYPE_F16: WIDEN(uint16_t, f16_float(v));
    case DTYPE_E4M3: WIDEN(uint8_t, e4m3_float(v));
    case DTYPE_E5M2: WIDEN(uint8_t, e5m2_float(v));
    case DTYPE_F64: WIDEN(double, odd_float(v));
    case DTYPE_I32:
    case DTYPE_I64:
    case DTYPE_COUNT: CHECK(false, "cast from %s", dtype_name(x.type));
    }
}

#define NARROW(type, value)                             \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
    {                                                   \
        const float v = x[i];                           \
        ((type *)y.data + at)[i] = value;               \
    }                                                   \
    break

static void narrow_f32(struct tensor y, int64_t at, const float *x, int64_t n)
{
    switch (y.type) {
    case DTYPE_F32: NARROW(float, v);
    case DTYPE_BF16: NARROW(uint16_t, float_bf16(v));
    case DTYPE_F16: NARROW(uint16_t, float_f16(v));
    case DTYPE_E4M3: NARROW(uint8_t, float_e4m3(v));
    case DTYPE_E5M2: NARROW(uint8_t, float_e5m2(v));
    case DTYPE_F64: NARROW(double, (double)v);
    case DTYPE_I32:
    case DTYPE_I64:
    case DTYPE_COUNT: CHECK(false, "cast to %s", dtype_name(y.type));
    }
}

/* f64 to f32 rounds once, to nearest; to smaller types it goes through a float rounded to odd. */
static void cast_tile(struct tensor y, struct tensor x, int64_t at, int64_t n)
{
    float tile[TILE];

    if (x.type == y.type) {
        const size_t size = dtype_size(x.type), from = (size_t)at * size;
        memcpy((char *)y.data + from, (const char *)x.data + from, (size_t)n * size);
    } else if (x.type == DTYPE_F64 && y.type == DTYPE_F32) {
        const double *xv = (const double *)x.data + at;
        float *yv = (float *)y.data + at;
        for (int64_t i = 0; i < n; i++) {
            yv[i] = (float)xv[i];
        }
    } else {
        widen_f32(tile, x, at, n);
        narrow_f32(y, at, tile, n);
    }
}

void VEC(cast)(struct queue *q, struct tensor y, struct tensor x)
{
    const int64_t count = tensor_count(x), tiles = blocks_of(count, TILE);

    (void)q;
    CHECK(tensor_count(y) == count, "cast of %lld elements to %lld", (long long)count,
          (long long)tensor_count(y));
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        cast_tile(y, x, t * TILE, smaller(TILE, count - t * TILE));
    }
}

void VEC(zero)(struct queue *q, struct tensor y)
{
    const int64_t bytes = (int64_t)tensor_bytes(y), block = (int64_t)1 << 18;

    (void)q;
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t i = 0; i < blocks_of(bytes, block); i++) {
        memset((char *)y.data + i * block, 0, (size_t)smaller(block, bytes - i * block));
    }
}
