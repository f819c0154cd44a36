/* tensor.h - a pointer that knows its shape.
 *
 * A tensor is contiguous, row-major and borrowed: it never owns its memory (trainer/layout.h does).
 * It is 48 bytes and passed by value. `data` is NULL while a layout is only being measured, and
 * where a contract says "may be absent" (tensor_none()).
 */
#ifndef KERNELS_TENSOR_H
#define KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* E4M3 and E5M2 are the 8-bit floats of the OCP ("OCP 8-bit Floating Point Specification", 2023): the first
 * has no infinities and ends at 448, the second ends at 57344. */
enum dtype {
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_E4M3,
    DTYPE_E5M2,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_COUNT
};

struct tensor {
    void *data;      /* device or host address; NULL in a dry run           */
    int64_t dim[4];  /* outermost first; unused trailing dimensions are 1   */
    enum dtype type; /* element type                                        */
};

/* A tensor that is not there: no memory, no elements. */
struct tensor tensor_none(void);

/* Size of one element in bytes, and its name in logs: "f32", "bf16". */
size_t dtype_size(enum dtype type);
const char *dtype_name(enum dtype type);

/* A view of memory as a matrix; `data` may be NULL. */
struct tensor tensor_make(void *data, enum dtype type, int64_t rows, int64_t cols);

/* Elements and bytes of t; 0 for tensor_none(). */
int64_t tensor_count(struct tensor t);
size_t tensor_bytes(struct tensor t);

/* t seen as a matrix. A [N] vector, dim {N,1,1,1}, has N rows and 1 column; [1,N] has 1 row. */
int64_t tensor_rows(struct tensor t);
int64_t tensor_cols(struct tensor t);

/* Rows [row, row + rows) of a matrix: a view, same columns. CHECKs the bounds. */
struct tensor tensor_slice(struct tensor t, int64_t row, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
