/* lanes.h - the maximum of an array.
 *
 * The compiler does not reorder a maximum without -ffinite-math-only, so the lanes are written out.
 */
#ifndef KERNELS_CPU_VEC_LANES_H
#define KERNELS_CPU_VEC_LANES_H

#include "kernels/cpu/vec/vec.h"

enum { MAX_LANES = 64 };

/* -infinity for n = 0. NaNs are passed over. */
static inline real lanes_max(const real *x, int64_t n)
{
    const int64_t whole = n / MAX_LANES * MAX_LANES;
    real lane[MAX_LANES], max = -(real)INFINITY;

    for (int l = 0; l < MAX_LANES; l++) {
        lane[l] = -(real)INFINITY;
    }
    for (int64_t i = 0; i < whole; i += MAX_LANES) {
#pragma omp simd
        for (int l = 0; l < MAX_LANES; l++) {
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
        }
    }
    for (int64_t i = whole; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    for (int l = 0; l < MAX_LANES; l++) {
        max = lane[l] > max ? lane[l] : max;
    }
    return max;
}

#endif
