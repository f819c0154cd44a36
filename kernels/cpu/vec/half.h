/* half.h - bf16 to real and back.
 *
 * bf16 is the upper half of a float. Rounding is to nearest, ties to even; a NaN stays a NaN. A
 * double is first rounded to odd into a float, so that it is rounded once in effect (Boldo &
 * Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
 * odd").
 */
#ifndef KERNELS_CPU_VEC_HALF_H
#define KERNELS_CPU_VEC_HALF_H

#include <string.h>

#include "kernels/real.h"

static inline uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The float next to x that has an odd last bit, or x itself where that is exact. */
static inline float odd_float(double x)
{
    const float f = (float)x;
    const double back = (double)f;
    uint32_t bits = float_bits(f);

    if (back != x && x == x) {
        bits -= fabs(back) > fabs(x) ? 1U : 0U;
        bits |= 1U;
    }
    return bits_float(bits);
}

static inline float bf16_float(uint16_t x)
{
    return bits_float((uint32_t)x << 16);
}

static inline uint16_t float_bf16(float x)
{
    const uint32_t bits = float_bits(x);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;

    return (uint16_t)((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

static inline uint16_t real_bf16(real x)
{
#ifdef HONE_DOUBLE
    return float_bf16(odd_float(x));
#else
    return float_bf16(x);
#endif
}

static inline void half_widen(real *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = (real)bf16_float(x[i]);
    }
}

static inline void half_round(uint16_t *y, const real *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = real_bf16(x[i]);
    }
}

#endif
