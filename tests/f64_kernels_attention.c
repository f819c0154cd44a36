/* f64_kernels_attention.c - the tests of test_kernels_attention.c in the double build. */
#include "tests/test_kernels_attention.c"
