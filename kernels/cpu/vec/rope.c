/* rope.c - rotary position embedding, halves layout, in place. Formula: kernels/kernels.h. */
#include "kernels/cpu/vec/ops.h"

enum { HALF = 256 }; /* pairs turned at a time */

/* (a, b) turned by the angles whose cosines and sines are given. */
static void turn(real *a, real *b, const real *c, const real *s, int64_t n, real sign)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const real x = a[j], y = b[j];
        a[j] = x * c[j] - y * (sign * s[j]);
        b[j] = y * c[j] + x * (sign * s[j]);
    }
}

static void turn_head(struct tensor x, int64_t at, int64_t half, const real *c, const real *s,
                      real sign)
{
    real at_tile[HALF], bt_tile[HALF];

    for (int64_t j = 0; j < half; j += HALF) {
        const int64_t n = smaller(HALF, half - j);
        real *a = tile_open(x, at + j, at_tile), *b = tile_open(x, at + half + j, bt_tile);
        if (x.type != DTYPE_REAL) {
            (void)tile_read(x, at + j, n, a);
            (void)tile_read(x, at + half + j, n, b);
        }
        turn(a, b, c + j, s + j, n, sign);
        tile_close(x, at + j, n, a);
        tile_close(x, at + half + j, n, b);
    }
}

void VEC(rope)(struct queue *q, struct tensor x, int64_t heads, struct tensor pos,
               struct tensor cos, struct tensor sin, bool inverse)
{
    const int64_t R = tensor_rows(x), N = tensor_cols(x), half = tensor_cols(cos);
    const int32_t *place = pos.data;
    const real sign = inverse ? REAL(-1.0) : REAL(1.0);

    (void)q;
    check_any(x, R * N);
    check_i32(pos, R);
    check_real(cos, tensor_rows(cos) * half);
    check_real(sin, tensor_rows(cos) * half);
    CHECK(heads * 2 * half <= N, "%lld heads of %lld in rows of %lld", (long long)heads,
          (long long)(2 * half), (long long)N);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        CHECK(place[r] >= 0 && place[r] < tensor_rows(cos), "position %d of %lld", place[r],
              (long long)tensor_rows(cos));
        const real *c = (const real *)cos.data + place[r] * half;
        const real *s = (const real *)sin.data + place[r] * half;
        for (int64_t h = 0; h < heads; h++) {
            turn_head(x, r * N + h * 2 * half, half, c, s, sign);
        }
    }
}
