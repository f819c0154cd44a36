/* test_twins.c - tokens that a model cannot tell apart when it writes. */
#include "tests/golden.h"
#include "tests/scratch.h"
#include "trainer/ckpt/writer.h"
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
    const int64_t n = twins_count(g.engine.model, &g.engine.tp, &g.engine.q, 7);
    EXPECT(twins_count(g.engine.model, &g.engine.tp, &g.engine.q, 8) == 0);
    golden_close(&g);
    return n;
}

static void tokens_with_the_same_frozen_weights_are_counted(void)
{
    EXPECT(twins("lora_qv_r4", PRECISION_F32) == 2);
    EXPECT(twins("lora_qv_r4", PRECISION_BF16) == 2);
    EXPECT(twins("llama_gqa_tied_4L", PRECISION_F32) == 0);
}

static void tokens_with_the_same_weights_in_a_folder_are_counted(void)
{
    static const char dir[] = "tests/golden/lora_also_tied";
    struct golden g;
    char text[400];

    golden_open(&g, "lora_also_tied", "batches.safetensors", (struct way){0});
    EXPECT(twins_in_folder(&g.arch, dir, 7) == 0);
    EXPECT(twins_in_folder(&g.arch, dir, g.arch.V) == 0 && twins_in_folder(&g.arch, dir, -1) == 0);
    EXPECT(twins_in_folder(&g.arch, "tests/golden/nowhere", 7) == 0);

    /* Weights whose tokens 9 and 20 are those of 7, the last almost; token 30 differs only at its end. */
    struct writer *w = NULL;
    struct err err = {0};
    const int64_t D = g.arch.D, shape[2] = {g.arch.V, D};
    float *rows = calloc((size_t)(g.arch.V * D), sizeof *rows);
    CHECK(rows != NULL, "memory");
    for (int64_t i = 0; i < g.arch.V * D; i++) {
        rows[i] = (float)((i * i + 3) * 7919 % 10007 * (i + 7) % 1009) / 1009.0F - 0.5F;
    }
    for (int i = 0; i < 3; i++) {
        static const int64_t other[] = {9, 20, 30};
        memcpy(rows + other[i] * D, rows + 7 * D, (size_t)D * sizeof *rows);
    }
    rows[20 * D] *= 1.001F;
    rows[31 * D - 1] += 1.0F;
    (void)snprintf(text, sizeof text, "%s", in_scratch("twins"));
    CHECK(io_make_dir(text, &err) == 0, "%s", err.text);
    CHECK(writer_new(&w, text, "model", UINT64_MAX, &err) == 0, "%s", err.text);
    CHECK(writer_declare(w, "model.embed_tokens.weight", ST_F32, 2, shape, &err) == 0 &&
              writer_start(w, &err) == 0 && writer_next(w) >= 0,
          "%s", err.text);
    CHECK(writer_put_bytes(w, rows, (size_t)(g.arch.V * D) * sizeof *rows, &err) == 0, "%s",
          err.text);
    CHECK(writer_next(w) < 0 && writer_finish(w, &err) == 0, "%s", err.text);
    writer_free(w);
    EXPECT(twins_in_folder(&g.arch, text, 7) == 2);
    EXPECT(twins_in_folder(&g.arch, text, 30) == 0);
    g.arch.V++;
    EXPECT(twins_in_folder(&g.arch, text, 7) == 0);
    g.arch.V--;
    free(rows);
    golden_close(&g);
}

int main(void)
{
    scratch_make();
    RUN(tokens_with_the_same_frozen_weights_are_counted);
    RUN(tokens_with_the_same_weights_in_a_folder_are_counted);
    scratch_remove();
    return tap_done();
}
