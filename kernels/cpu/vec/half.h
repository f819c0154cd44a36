/* half.h - bf16 and f16 to real and back.
 *
 * bf16 is the upper half of a float, f16 has 5 bits of exponent and 10 of mantissa. Rounding is to nearest, ties to even; a NaN stays a NaN. A
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

/* f16 to float: the exponent is moved by a multiplication, which also makes subnormals right. */
static inline float f16_float(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000U) << 16, rest = (uint32_t)(x & 0x7fffU);
    const float small = bits_float(rest << 13) * 0x1p112F;
    const float large = bits_float((rest << 13) | 0x7f800000U);

    return bits_float(float_bits(rest >= 0x7c00U ? large : small) | sign);
}

/* float to f16, to nearest even. Normal results: the bits that go are rounded by an addition.
 * Subnormal ones: adding 0.5 lets the float unit round at 2^-24. NaNs become quiet. */
static inline uint16_t float_f16(float x)
{
    const uint32_t bits = float_bits(x), sign = bits & 0x80000000U, size = bits ^ sign;
    const uint32_t normal = (size + 0xc8000fffU + ((size >> 13) & 1U)) >> 13;
    const uint32_t subnormal = float_bits(bits_float(size) + 0.5F) - 0x3f000000U;
    const uint32_t special = size > 0x7f800000U ? 0x7e00U : 0x7c00U;
    const uint32_t finite = size < 0x38800000U ? subnormal : normal;

    return (uint16_t)((size >= 0x47800000U ? special : finite) | (sign >> 16));
}

static inline uint16_t real_f16(real x)
{
#ifdef HONE_DOUBLE
    return float_f16(odd_float(x));
#else
    return float_f16(x);
#endif
}

#endif
