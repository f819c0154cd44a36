/* test_layout_rows.c - the table of layouts in the precisions of its rows: a layout changes no more than the order of sums. */
#include "tests/layout_rows.h"

int main(void)
{
    RUN(rows_are_one_rank);
    return tap_done();
}
