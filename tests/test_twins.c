/* test_twins.c - tokens that a model cannot tell apart when it writes. */
#include "tests/golden.h"
#include "trainer/twins.h"

/* The twins of token 7 after tokens 9 and 20 got its row, one of them almost; only when the rows are frozen. */
static int64_t twins(const char *name, enum precision precision)
{
    struct golden g;

    golden_open(&g, name, "batches.safetensors", (struct way){.precision = precision});
    const struct tensor w = g.engine.model->head.w;
    const size_t row = tensor_bytes(w) / (size_t)tensor_rows(w);
    char *bytes = w.data;
    memcpy(bytes + 9 * row, bytes + 7 * row, row);
    memcpy(bytes + 20 * row, bytes + 7 * row, row);
    if (precision == PRECISION_F32) {
        *(real *)(void *)(bytes + 20 * row) *= REAL(1.001);
    }
    const int64_t n = twins_count(g.engine.model, 7);
    EXPECT(twins_count(g.engine.model, 8) == 0);
    golden_close(&g);
    return n;
}

static void tokens_with_the_same_frozen_weights_are_counted(void)
{
    EXPECT(twins("lora_qv_r4", PRECISION_F32) == 2);
    EXPECT(twins("lora_qv_r4", PRECISION_BF16) == 2);
    EXPECT(twins("llama_gqa_tied_4L", PRECISION_F32) == 0);
}

int main(void)
{
    RUN(tokens_with_the_same_frozen_weights_are_counted);
    return tap_done();
}
