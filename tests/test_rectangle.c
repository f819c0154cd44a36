/* test_rectangle.c - parts of tensors arrive where they belong, for odd sizes, wide rows and every
 * type. */
#include <stdint.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/writer.h"

/* Element (row, col): exactly representable in f32 and f64. */
static float element(int64_t row, int64_t col)
{
    return (float)((row * 7919 + col * 31) % 100003) - 50000.0F;
}

/* A file "STEM.safetensors" with one F32 tensor "w" of elements; the caller closes it. */
static struct safetensors *matrix_file(const char *stem, int64_t rows, int64_t cols)
{
    float *values = malloc((size_t)(rows * cols) * sizeof *values);
    const int64_t shape[2] = {rows, cols};
    struct safetensors *st = NULL;
    struct writer *w = NULL;
    struct err err = {0};
    char name[64];

    CHECK(values != NULL, "no memory");
    for (int64_t i = 0; i < rows * cols; i++) {
        values[i] = element(i / cols, i % cols);
    }
    CHECK(writer_new(&w, scratch, stem, WRITER_SHARD_BYTES, &err) == 0, "%s", err.text);
    CHECK(writer_declare(w, "w", ST_F32, 2, shape, &err) == 0 && writer_start(w, &err) == 0 &&
              writer_put(w, tensor_make(values, DTYPE_F32, rows, cols), ST_AS_IS, &err) == 0 &&
              writer_finish(w, &err) == 0,
          "%s", err.text);
    writer_free(w);
    free(values);
    (void)snprintf(name, sizeof name, "%s.safetensors", stem);
    CHECK(safetensors_open(&st, in_scratch(name), &err) == 0, "%s", err.text);
    return st;
}

/* Read a rectangle with rows `gap` elements longer than needed; count the elements that are wrong,
 * gaps included. */
static int64_t wrong_elements(struct safetensors *st, struct st_rect rect, enum st_turn turn,
                              int64_t gap)
{
    const bool turned = turn == ST_TRANSPOSED;
    const int64_t rows = turned ? rect.cols : rect.rows, cols = turned ? rect.rows : rect.cols;
    const int64_t stride = cols + gap;
    double *out = malloc((size_t)(rows * stride + 1) * sizeof *out);
    struct err err;
    int64_t wrong = 0;

    CHECK(out != NULL, "no memory");
    for (int64_t i = 0; i < rows * stride; i++) {
        out[i] = 0.5;
    }
    EXPECT(safetensors_read(safetensors_find(st, "w"), rect, turn, out, DTYPE_F64, stride, &err) ==
           0);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < stride; c++) {
            const double want = c >= cols ? 0.5
                                : turned  ? (double)element(rect.row0 + c, rect.col0 + r)
                                          : (double)element(rect.row0 + r, rect.col0 + c);
            wrong += out[r * stride + c] != want;
        }
    }
    free(out);
    return wrong;
}

static void every_rectangle_of_a_small_matrix(void)
{
    enum { ROWS = 5, COLS = 7 };
    struct safetensors *st = matrix_file("small", ROWS, COLS);
    int64_t wrong = 0;

    for (int i = 0; i < ROWS * ROWS * COLS * COLS; i++) {
        const int64_t row0 = i % ROWS, rows = i / ROWS % ROWS + 1;
        const int64_t col0 = i / (ROWS * ROWS) % COLS, cols = i / (ROWS * ROWS * COLS) + 1;
        if (row0 + rows > ROWS || col0 + cols > COLS) {
            continue;
        }
        const struct st_rect rect = {row0, rows, col0, cols};
        wrong += wrong_elements(st, rect, ST_AS_IS, i % 3);
        wrong += wrong_elements(st, rect, ST_TRANSPOSED, i % 3);
    }
    EXPECT(wrong == 0);
    EXPECT(wrong_elements(st, (struct st_rect){2, 0, 3, 0}, ST_AS_IS, 0) == 0);
    EXPECT(wrong_elements(st, st_rect_all(safetensors_find(st, "w")), ST_AS_IS, 0) == 0);
    safetensors_close(st);
}

static void rows_longer_than_the_buffer(void)
{
    const int64_t cols = 300007; /* 1.2 MB */
    struct safetensors *st = matrix_file("wide", 3, cols);

    EXPECT(wrong_elements(st, (struct st_rect){0, 3, 0, cols}, ST_AS_IS, 0) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){0, 3, 0, cols}, ST_TRANSPOSED, 1) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){1, 2, 299999, 8}, ST_AS_IS, 2) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){2, 1, 1, 262145}, ST_TRANSPOSED, 0) == 0);
    safetensors_close(st);
}

static void many_rows_and_parts_of_their_columns(void)
{
    struct safetensors *st = matrix_file("tall", 1201, 2503);

    EXPECT(wrong_elements(st, (struct st_rect){0, 1201, 0, 2503}, ST_AS_IS, 0) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){0, 1201, 0, 2503}, ST_TRANSPOSED, 0) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){600, 601, 1251, 1252}, ST_AS_IS, 0) ==
           0); /* read by columns */
    EXPECT(wrong_elements(st, (struct st_rect){600, 601, 1251, 1252}, ST_TRANSPOSED, 3) == 0);
    EXPECT(wrong_elements(st, (struct st_rect){7, 1190, 2400, 100}, ST_AS_IS, 0) ==
           0); /* read by rows */
    EXPECT(wrong_elements(st, (struct st_rect){7, 1190, 2400, 100}, ST_TRANSPOSED, 0) == 0);
    safetensors_close(st);
}

static void vectors_and_stacks_are_matrices(void)
{
    const int64_t shape[3] = {2, 3, 4}, length[1] = {5};
    float stack[24], vector[5], scalar = 42.0F, out[24];
    struct safetensors *st = NULL;
    struct writer *w = NULL;
    struct err err = {0};

    for (int i = 0; i < 24; i++) {
        stack[i] = (float)i;
        vector[i % 5] = (float)(10 + i % 5);
    }
    CHECK(writer_new(&w, scratch, "kinds", WRITER_SHARD_BYTES, &err) == 0, "%s", err.text);
    EXPECT(writer_declare(w, "a", ST_F32, 3, shape, &err) == 0);
    EXPECT(writer_declare(w, "b", ST_F32, 1, length, &err) == 0);
    EXPECT(writer_declare(w, "c", ST_F32, 0, NULL, &err) == 0);
    EXPECT(writer_start(w, &err) == 0);
    EXPECT(writer_put(w, tensor_make(stack, DTYPE_F32, 6, 4), ST_AS_IS, &err) == 0);
    EXPECT(writer_put(w, tensor_make(vector, DTYPE_F32, 5, 1), ST_AS_IS, &err) == 0);
    EXPECT(writer_put(w, tensor_make(&scalar, DTYPE_F32, 1, 1), ST_AS_IS, &err) == 0);
    EXPECT(writer_finish(w, &err) == 0);
    writer_free(w);
    CHECK(safetensors_open(&st, in_scratch("kinds.safetensors"), &err) == 0, "%s", err.text);
    const struct st_tensor *a = safetensors_find(st, "a");
    EXPECT(st_rows(a) == 6 && st_cols(a) == 4);
    EXPECT(safetensors_read(a, (struct st_rect){3, 2, 1, 2}, ST_AS_IS, out, DTYPE_F32, 2, &err) ==
           0);
    EXPECT(out[0] == 13.0F && out[1] == 14.0F && out[2] == 17.0F && out[3] == 18.0F);
    const struct st_tensor *b = safetensors_find(st, "b");
    EXPECT(st_rows(b) == 5 && st_cols(b) == 1);
    EXPECT(safetensors_read(b, (struct st_rect){1, 3, 0, 1}, ST_AS_IS, out, DTYPE_F32, 1, &err) ==
           0);
    EXPECT(out[0] == 11.0F && out[2] == 13.0F);
    const struct st_tensor *c = safetensors_find(st, "c");
    EXPECT(safetensors_read(c, st_rect_all(c), ST_AS_IS, out, DTYPE_F32, 1, &err) == 0);
    EXPECT(out[0] == 42.0F);
    safetensors_close(st);
}

static void refuses_types_that_do_not_convert(void)
{
    const int64_t length[1] = {2};
    const int64_t big[2] = {7, INT64_C(1) << 40};
    struct safetensors *st = NULL;
    struct writer *w = NULL;
    struct err err = {0};
    int32_t small[2] = {0};
    float real[2];

    CHECK(writer_new(&w, scratch, "types", WRITER_SHARD_BYTES, &err) == 0, "%s", err.text);
    EXPECT(writer_declare(w, "i", ST_I64, 1, length, &err) == 0 && writer_start(w, &err) == 0);
    EXPECT(writer_put_bytes(w, big, sizeof big, &err) == 0 && writer_finish(w, &err) == 0);
    writer_free(w);
    CHECK(safetensors_open(&st, in_scratch("types.safetensors"), &err) == 0, "%s", err.text);
    const struct st_tensor *t = safetensors_find(st, "i");
    EXPECT(safetensors_read(t, st_rect_all(t), ST_AS_IS, real, DTYPE_F32, 1, &err) == ERR_BAD_FILE);
    EXPECT(strstr(err.text, "holds I64, which can't become f32") != NULL);
    EXPECT(safetensors_read(t, st_rect_all(t), ST_AS_IS, small, DTYPE_I32, 1, &err) ==
           ERR_BAD_FILE);
    EXPECT(strstr(err.text, "does not fit i32") != NULL);
    EXPECT(safetensors_read(t, (struct st_rect){0, 1, 0, 1}, ST_AS_IS, small, DTYPE_I32, 1, &err) ==
           0);
    EXPECT(small[0] == 7);
    safetensors_close(st);
}

static void golden_values_agree(void)
{
    struct safetensors *st = NULL;
    struct err err = {0};
    double first[2];
    int32_t ids[4];

    if (safetensors_open(&st, "../shared/golden/gpt2_tied/step0_f64.safetensors", &err) != 0) {
        printf("# skip: ../shared is absent\n");
        return;
    }
    EXPECT(safetensors_count(st) > 0);
    safetensors_close(st);
    CHECK(safetensors_open(&st, "../shared/golden/gpt2_tied/batches.safetensors", &err) == 0, "%s",
          err.text);
    const struct st_tensor *t = safetensors_find(st, "input_ids");
    EXPECT(t != NULL && t->dtype == ST_I64 && t->dims == 3);
    EXPECT(safetensors_read(t, (struct st_rect){0, 1, 0, 4}, ST_AS_IS, ids, DTYPE_I32, 4, &err) ==
           0);
    EXPECT(ids[0] >= 0 && ids[0] < 97 && ids[3] >= 0 && ids[3] < 97);
    safetensors_close(st);
    CHECK(safetensors_open(&st, "../shared/data/models/stories260K-bf16/model.safetensors", &err) ==
              0,
          "%s", err.text);
    t = safetensors_find(st, "model.norm.weight");
    EXPECT(t != NULL && t->dtype == ST_BF16);
    EXPECT(safetensors_read(t, (struct st_rect){0, 2, 0, 1}, ST_AS_IS, first, DTYPE_F64, 1, &err) ==
           0);
    EXPECT(isfinite(first[0]) && fabs(first[0]) > 0.01 && fabs(first[0]) < 100);
    safetensors_close(st);
}

int main(void)
{
    scratch_make();
    RUN(every_rectangle_of_a_small_matrix);
    RUN(rows_longer_than_the_buffer);
    RUN(many_rows_and_parts_of_their_columns);
    RUN(vectors_and_stacks_are_matrices);
    RUN(refuses_types_that_do_not_convert);
    RUN(golden_values_agree);
    scratch_remove();
    return tap_done();
}
