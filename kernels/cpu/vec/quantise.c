/* quantise.c - scaled numbers to 8-bit floats, and how large they were. */
#include "kernels/cpu/vec/ops.h"

/* The largest |x|, NaNs passed over. The compiler does not reorder a maximum of floats, so those of a few
 * lanes are written out; of numbers without a sign the order does not matter. */
enum { AMAX_LANES = 64 };

static real tile_amax(const real *x, int64_t n)
{
    const int64_t whole = n / AMAX_LANES * AMAX_LANES;
    real lane[AMAX_LANES] = {0}, most = 0;

    for (int64_t i = 0; i < whole; i += AMAX_LANES) {
#pragma omp simd
        for (int l = 0; l < AMAX_LANES; l++) {
            const real size = r_fabs(x[i + l]);
            lane[l] = size > lane[l] ? size : lane[l];
        }
    }
    for (int64_t i = whole; i < n; i++) {
        const real size = r_fabs(x[i]);
        most = size > most ? size : most;
    }
    for (int l = 0; l < AMAX_LANES; l++) {
        most = lane[l] > most ? lane[l] : most;
    }
    return most;
}

/* A product is rounded once: a double to odd on its way to float. */
static ALWAYS_INLINE float scaled(real x, real scale)
{
#ifdef HONE_DOUBLE
    return odd_float(x * scale);
#else
    return x * scale;
#endif
}

static void quantise_tile(struct tensor y, int64_t at, const real *x, int64_t n, real scale)
{
    uint8_t *to = (uint8_t *)y.data + at;

    if (y.type == DTYPE_E4M3) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = float_e4m3(scaled(x[i], scale));
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            to[i] = float_e5m2(scaled(x[i], scale));
        }
    }
}

void VEC(quantise)(struct queue *q, struct tensor y, struct tensor amax, struct tensor x,
                   double scale)
{
    const int64_t count = tensor_count(x), tiles = blocks_of(count, TILE);
    real most = 0;

    (void)q;
    check_any(x, count);
    CHECK((y.type == DTYPE_E4M3 || y.type == DTYPE_E5M2) && tensor_count(y) == count,
          "%lld numbers to %lld of type %s", (long long)count, (long long)tensor_count(y),
          dtype_name(y.type));
    CHECK(amax.data == NULL || (amax.type == DTYPE_F32 && tensor_count(amax) == 1),
          "the largest number as %s", dtype_name(amax.type));
#pragma omp parallel for num_threads(cpu_threads()) schedule(static) reduction(max : most)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, count - at);
        real tile[TILE];
        const real *v = tile_read(x, at, n, tile), here = tile_amax(v, n);
        quantise_tile(y, at, v, n, (real)scale);
        most = here > most ? here : most;
    }
    if (amax.data != NULL) {
        float *out = amax.data;
        out[0] = (float)most > out[0] ? (float)most : out[0];
    }
}
