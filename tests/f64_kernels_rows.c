/* f64_kernels_rows.c - the tests of test_kernels_rows.c in the double build. */
#include "tests/test_kernels_rows.c"
