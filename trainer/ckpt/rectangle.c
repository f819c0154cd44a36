/* rectangle.c - reading by pieces of at most 1 MiB. */
#include "trainer/ckpt/rectangle.h"

#include <stdlib.h>

#include "kernels/check.h"
#include "trainer/ckpt/values.h"

enum {
    CHUNK = 1 << 20,   /* bytes read at a time                                      */
    WORTH_SEEK = 4096, /* bytes of a row's part that are worth a read of their own    */
};

/* Where values go. */
struct target {
    void *out;
    enum dtype type;
    int64_t stride;
    enum st_turn turn;
};

/* Values in a buffer: rows [row, row + rows), columns [col, col + cols) of the rectangle. */
struct piece {
    char *values;
    enum st_dtype type;
    int64_t pitch; /* elements between rows of the buffer */
    int64_t row, rows, col, cols;
};

struct st_rect st_rect_all(const struct st_tensor *t)
{
    return (struct st_rect){.rows = st_rows(t), .cols = st_cols(t)};
}

static void *element(const struct target *to, int64_t row, int64_t col)
{
    const int64_t i = to->turn == ST_TRANSPOSED ? col * to->stride + row : row * to->stride + col;

    return (char *)to->out + i * (int64_t)dtype_size(to->type);
}

/* False when an integer does not fit. */
static bool place(const struct target *to, const struct piece *p)
{
    const enum st_dtype type = values_stored(to->type);
    const int64_t size = (int64_t)st_dtype_size(p->type);
    bool fits = true;

    if (to->turn == ST_TRANSPOSED) {
        const struct values_grid target = {element(to, p->row, p->col), type, to->stride};
        const struct values_grid source = {p->values, p->type, p->pitch};
        return values_transpose(target, source, p->rows, p->cols);
    }
    if (p->pitch == p->cols && (to->stride == p->cols || p->rows == 1)) {
        return values_convert(element(to, p->row, p->col), type, 1, p->values, p->type, 1,
                              p->rows * p->cols);
    }
    for (int64_t r = 0; r < p->rows; r++) {
        fits &= values_convert(element(to, p->row + r, p->col), type, 1,
                               p->values + r * p->pitch * size, p->type, 1, p->cols);
    }
    return fits;
}

static int does_not_fit(const struct st_tensor *t, const struct target *to, struct err *err)
{
    return FAIL(err, ERR_BAD_FILE, "%s: tensor %.120s holds an integer that does not fit %s",
                safetensors_name(t->file), t->name, dtype_name(to->type));
}

/* Whole rows of the tensor at a time, and of each the wanted columns. */
static int read_rows(const struct st_tensor *t, struct st_rect rect, const struct target *to,
                     char *chunk, struct err *err)
{
    const int64_t size = (int64_t)st_dtype_size(t->dtype), width = st_cols(t) * size;
    const int64_t most = CHUNK / width;

    for (int64_t row = 0; row < rect.rows; row += most) {
        const int64_t n = rect.rows - row < most ? rect.rows - row : most;
        TRY(safetensors_read_bytes(t, (uint64_t)((rect.row0 + row) * width), chunk,
                                   (size_t)(n * width), err));
        const struct piece p = {.values = chunk + rect.col0 * size,
                                .type = t->dtype,
                                .pitch = st_cols(t),
                                .row = row,
                                .rows = n,
                                .cols = rect.cols};
        if (!place(to, &p)) {
            return does_not_fit(t, to, err);
        }
    }
    return 0;
}

/* The row and the columns of the rectangle that `where` names; its values are the chunk. */
static int read_part(const struct st_tensor *t, struct st_rect rect, const struct target *to,
                     char *chunk, const struct piece *where, struct err *err)
{
    const int64_t size = (int64_t)st_dtype_size(t->dtype);
    const int64_t first = (rect.row0 + where->row) * st_cols(t) + rect.col0 + where->col;

    TRY(safetensors_read_bytes(t, (uint64_t)(first * size), chunk, (size_t)(where->cols * size),
                               err));
    return place(to, where) ? 0 : does_not_fit(t, to, err);
}

/* Only the wanted columns, row by row. */
static int read_columns(const struct st_tensor *t, struct st_rect rect, const struct target *to,
                        char *chunk, struct err *err)
{
    const int64_t most = CHUNK / (int64_t)st_dtype_size(t->dtype);
    struct piece p = {.values = chunk, .type = t->dtype, .rows = 1};

    for (p.row = 0; p.row < rect.rows; p.row++) {
        for (p.col = 0; p.col < rect.cols; p.col += most) {
            p.cols = rect.cols - p.col < most ? rect.cols - p.col : most;
            p.pitch = p.cols;
            TRY(read_part(t, rect, to, chunk, &p, err));
        }
    }
    return 0;
}

int safetensors_read(const struct st_tensor *t, struct st_rect rect, enum st_turn turn, void *out,
                     enum dtype type, int64_t stride, struct err *err)
{
    const struct target to = {.out = out, .type = type, .stride = stride, .turn = turn};
    const int64_t rows = st_rows(t), cols = st_cols(t);
    const int64_t size = (int64_t)st_dtype_size(t->dtype);

    CHECK(rect.row0 >= 0 && rect.rows >= 0 && rect.row0 <= rows - rect.rows && rect.col0 >= 0 &&
              rect.cols >= 0 && rect.col0 <= cols - rect.cols,
          "%s: rows %lld + %lld of %lld, columns %lld + %lld of %lld", t->name,
          (long long)rect.row0, (long long)rect.rows, (long long)rows, (long long)rect.col0,
          (long long)rect.cols, (long long)cols);
    CHECK(stride >= (turn == ST_TRANSPOSED ? rect.rows : rect.cols), "%s: stride %lld", t->name,
          (long long)stride);
    if (!values_can_convert(t->dtype, values_stored(type))) {
        return FAIL(err, ERR_BAD_FILE, "%s: tensor %.120s holds %s, which can't become %s",
                    safetensors_name(t->file), t->name, st_dtype_name(t->dtype), dtype_name(type));
    }
    if (rect.rows == 0 || rect.cols == 0) {
        return 0;
    }
    char *chunk = malloc(CHUNK);
    if (chunk == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read tensor %.120s", t->name);
    }
    const bool by_columns =
        cols > CHUNK / size || (rect.cols < cols && rect.cols * size >= WORTH_SEEK);
    const int rc =
        by_columns ? read_columns(t, rect, &to, chunk, err) : read_rows(t, rect, &to, chunk, err);
    free(chunk);
    return rc;
}
