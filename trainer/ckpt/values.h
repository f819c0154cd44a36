/* values.h - numbers from one element type of files to another: exact, or correctly rounded. */
#ifndef TRAINER_CKPT_VALUES_H
#define TRAINER_CKPT_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "trainer/ckpt/safetensors.h"

/* The stored type that an element type of memory is. */
enum st_dtype values_stored(enum dtype type);

/* Whether values of `from` can become `to`: floats to F64, F32, BF16, F16; integers to integers. */
bool values_can_convert(enum st_dtype from, enum st_dtype to);

/* to[i to_stride] = from[i from_stride] for n elements; strides are in elements. Floats are
 * rounded to nearest, ties to even, too large ones to infinity; NaN stays NaN. False when an
  * integer does not fit: then `to` is partly
 * written. CHECKs values_can_convert. The regions do not overlap; `from` and `to` need no
  * alignment. */
bool values_convert(void *to, enum st_dtype to_type, int64_t to_stride, const void *from,
                    enum st_dtype from_type, int64_t from_stride, int64_t n);

/* A matrix in memory: rows lie `stride` elements apart. */
struct values_grid {
    void *at;
    enum st_dtype type;
    int64_t stride;
};

/* to[c][r] = from[r][c] for `rows` rows and `cols` columns of `from`, as values_convert. */
bool values_transpose(struct values_grid to, struct values_grid from, int64_t rows, int64_t cols);

#endif
