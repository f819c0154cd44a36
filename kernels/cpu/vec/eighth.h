/* eighth.h - the 8-bit floats E4M3 and E5M2 to float and back.
 *
 * Rounding is to nearest, ties to even, and saturates: what is beyond the largest finite value, infinity
 * too, becomes that value. A NaN stays a NaN. Both directions are arithmetic without tables or branches, so
 * that loops over them vectorise.
 */
#ifndef KERNELS_CPU_VEC_EIGHTH_H
#define KERNELS_CPU_VEC_EIGHTH_H

#include "kernels/cpu/vec/half.h"

#define E4M3_MAX 448.0F
#define E5M2_MAX 57344.0F

/* The exponent is moved by a multiplication, which also makes subnormals right. */
static inline float e4m3_float(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80U) << 24, rest = (uint32_t)(x & 0x7fU);
    const uint32_t size = float_bits(bits_float(rest << 20) * 0x1p120F);

    return bits_float((rest == 0x7fU ? 0x7fc00000U : size) | sign);
}

/* E5M2 is the upper half of an f16. */
static inline float e5m2_float(uint8_t x)
{
    return f16_float((uint16_t)(x << 8));
}

/* A float of `bits`, not negative and at most `top`, to a code with `mantissa` bits whose exponent is `bias`
 * less than a float's. Normal results: the bits that go are rounded by an addition. Subnormal ones: adding
 * `shift`, whose last bit is the type's smallest value, lets the float unit round. */
static inline uint32_t eighth_round(uint32_t bits, int mantissa, uint32_t bias, float shift)
{
    const int gone = 23 - mantissa;
    const uint32_t odd = (bits >> gone) & 1U, half = (1U << (gone - 1)) - 1U;
    const uint32_t normal = ((bits + half + odd) >> gone) - (bias << mantissa);
    const uint32_t subnormal = float_bits(bits_float(bits) + shift) - float_bits(shift);

    return bits < (bias + 1U) << 23 ? subnormal : normal;
}

static inline uint8_t float_e4m3(float x)
{
    const uint32_t bits = float_bits(x), sign = bits & 0x80000000U, size = bits ^ sign;
    const uint32_t top = 0x43e00000U, least = size < top ? size : top;
    const uint32_t code = eighth_round(least, 3, 120, 16384.0F);

    return (uint8_t)((size > 0x7f800000U ? 0x7fU : code) | (sign >> 24));
}

static inline uint8_t float_e5m2(float x)
{
    const uint32_t bits = float_bits(x), sign = bits & 0x80000000U, size = bits ^ sign;
    const uint32_t top = 0x47600000U, least = size < top ? size : top;
    const uint32_t code = eighth_round(least, 2, 112, 128.0F);

    return (uint8_t)((size > 0x7f800000U ? 0x7fU : code) | (sign >> 24));
}

#endif
