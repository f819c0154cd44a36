/* f64_kernels_loss.c - the tests of test_kernels_loss.c in the double build. */
#include "tests/test_kernels_loss.c"
