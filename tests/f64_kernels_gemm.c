/* f64_kernels_gemm.c - the tests of test_kernels_gemm.c in the double build. */
#include "tests/test_kernels_gemm.c"
