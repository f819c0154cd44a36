/* f64_kernels_pointwise.c - the tests of test_kernels_pointwise.c in the double build. */
#include "tests/test_kernels_pointwise.c"
