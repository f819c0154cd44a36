/* f64_decode.c - cached generation in the double build. */
#include "tests/decode.h"

static void cached_logits_are_those_of_a_whole_forward_pass(void)
{
    decode_all(1e-12);
}

int main(void)
{
    RUN(cached_logits_are_those_of_a_whole_forward_pass);
    return tap_done();
}
