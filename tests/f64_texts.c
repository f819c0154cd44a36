/* f64_texts.c - probabilities of texts in the double build. */
#include "tests/texts.h"

static void probabilities_are_those_of_a_whole_forward_pass(void)
{
    texts_logprobs("llama_gqa_tied_4L", 1e-12);
    texts_logprobs("qwen2_bias", 1e-12);
    texts_logprobs("mistral_window", 1e-12);
}

int main(void)
{
    scratch_make();
    RUN(probabilities_are_those_of_a_whole_forward_pass);
    scratch_remove();
    return tap_done();
}
