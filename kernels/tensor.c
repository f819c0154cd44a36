/* tensor.c - sizes and views of tensors. */
#include "kernels/tensor.h"

#include "kernels/check.h"

size_t dtype_size(enum dtype type)
{
    static const size_t size[DTYPE_COUNT] = {
        [DTYPE_F32] = 4,  [DTYPE_F64] = 8,  [DTYPE_BF16] = 2, [DTYPE_F16] = 2,
        [DTYPE_E4M3] = 1, [DTYPE_E5M2] = 1, [DTYPE_I32] = 4,  [DTYPE_I64] = 8};

    return size[type];
}

const char *dtype_name(enum dtype type)
{
    static const char *const name[DTYPE_COUNT] = {
        [DTYPE_F32] = "f32",   [DTYPE_F64] = "f64",   [DTYPE_BF16] = "bf16", [DTYPE_F16] = "f16",
        [DTYPE_E4M3] = "e4m3", [DTYPE_E5M2] = "e5m2", [DTYPE_I32] = "i32",   [DTYPE_I64] = "i64"};

    return name[type];
}

struct tensor tensor_none(void)
{
    return (struct tensor){.dim = {0, 1, 1, 1}};
}

struct tensor tensor_make(void *data, enum dtype type, int64_t rows, int64_t cols)
{
    return (struct tensor){.data = data, .dim = {rows, cols, 1, 1}, .type = type};
}

int64_t tensor_count(struct tensor t)
{
    return t.dim[0] * t.dim[1] * t.dim[2] * t.dim[3];
}

size_t tensor_bytes(struct tensor t)
{
    return (size_t)tensor_count(t) * dtype_size(t.type);
}

int64_t tensor_cols(struct tensor t)
{
    return t.dim[1] * t.dim[2] * t.dim[3];
}

int64_t tensor_rows(struct tensor t)
{
    return t.dim[0];
}

struct tensor tensor_slice(struct tensor t, int64_t row, int64_t rows)
{
    CHECK(row >= 0 && rows >= 0 && row + rows <= t.dim[0], "rows %lld + %lld of %lld",
          (long long)row, (long long)rows, (long long)t.dim[0]);
    if (t.data != NULL) {
        t.data = (char *)t.data + (size_t)(row * tensor_cols(t)) * dtype_size(t.type);
    }
    t.dim[0] = rows;
    return t;
}
