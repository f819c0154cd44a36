/* wide.h - exp, sigmoid and erf that vectorise: no calls, no branches, selects only.
 *
 * The double build uses <math.h>: there accuracy counts, and it is compared with the float build.
 * A NaN goes through each of them.
 */
#ifndef KERNELS_CPU_VEC_WIDE_H
#define KERNELS_CPU_VEC_WIDE_H

#include "kernels/cpu/vec/half.h"
#include "kernels/real.h"

#define WIDE_INLINE inline __attribute__((always_inline))

#ifdef HONE_DOUBLE
    #define WIDE_SIMD /* erf of <math.h> cannot be vectorised: nothing to ask for */

static WIDE_INLINE real wide_exp(real x)
{
    return exp(x);
}

static WIDE_INLINE real wide_erf(real x)
{
    return erf(x);
}

#else
    #define WIDE_SIMD _Pragma("omp simd")

/* exp to about 2 ulp: x = n log 2 + r, |r| <= log(2) / 2, exp(x) = 2^n p(r) with Cephes' polynomial.
 * Below -87.7 the factor 2^n has exponent bits 0, which makes the result exactly 0. Above 88.37 it has
 * exponent bits 255, which makes the result infinite.
 * Adding 1.5 2^23 rounds to an integer, whose value then sits in the low bits of the sum. */
static WIDE_INLINE float wide_exp(float x)
{
    const float low = -88.03F, high = 88.8F, shift = 12582912.0F;
    float p = 1.9875691e-4F;

    x = x < low ? low : x;
    x = x > high ? high : x;
    const float z = x * 1.44269504F + shift;
    const float n = z - shift;
    const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
    p = p * r + 1.3981999e-3F;
    p = p * r + 8.3334519e-3F;
    p = p * r + 4.1665796e-2F;
    p = p * r + 1.6666665e-1F;
    p = p * r + 5.0000001e-1F;
    p = p * r * r + r + 1.0F;
    return p * bits_float((float_bits(z) + 127U) << 23);
}

/* erf to about 1 ulp, two polynomials: in x for small |x|, in the exponent for large. */
static WIDE_INLINE float wide_erf(float x)
{
    const float t = fabsf(x), s = x * x;
    float e = -1.72853470e-5F * t + 3.83197126e-4F;
    float p = -5.96761703e-4F;

    e = e * s + (-3.88396438e-3F * t + 2.42546219e-2F);
    e = e * t - 1.06777877e-1F;
    e = e * t - 6.34846687e-1F;
    e = e * t - 1.28717512e-1F;
    e = e * t - t;
    e = copysignf(1.0F - wide_exp(e), x);

    p = p * s + 4.99119423e-3F;
    p = p * s - 2.67681349e-2F;
    p = p * s + 1.12819925e-1F;
    p = p * s - 3.76125336e-1F;
    p = p * s + 1.28379166e-1F;
    p = p * x + x;
    return t > 0.927734375F ? e : p;
}

#endif

static WIDE_INLINE real wide_sigmoid(real x)
{
    return REAL(1.0) / (REAL(1.0) + wide_exp(-x));
}

#endif
