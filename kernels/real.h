/* real.h - the number type of the build.
 *
 * The float build computes in float. The double build compiles the same sources with -DHONE_DOUBLE
 * and computes in double: gradients are checked there against finite differences and float64 values.
 *
 *   real         the type                       REAL(0.5)     a constant of that type
 *   DTYPE_REAL   its element type               r_exp(x)      <math.h> functions for it
 *
 * Tensors that are "real" hold DTYPE_REAL: masters, gradients, moments, statistics, and activations
 * of an f32 run. In a bf16 run weights and activations are DTYPE_BF16 in both builds.
 */
#ifndef KERNELS_REAL_H
#define KERNELS_REAL_H

#include <math.h>

#include "kernels/tensor.h"

#ifdef HONE_DOUBLE
typedef double real;
    #define REAL(x)    (x)
    #define DTYPE_REAL DTYPE_F64
    #define r_exp      exp
    #define r_log      log
    #define r_sqrt     sqrt
    #define r_tanh     tanh
    #define r_erf      erf
    #define r_fabs     fabs
    #define r_fmax     fmax
    #define r_pow      pow
#else
typedef float real;
    #define REAL(x)    (x##F)
    #define DTYPE_REAL DTYPE_F32
    #define r_exp      expf
    #define r_log      logf
    #define r_sqrt     sqrtf
    #define r_tanh     tanhf
    #define r_erf      erff
    #define r_fabs     fabsf
    #define r_fmax     fmaxf
    #define r_pow      powf
#endif

#endif
