/* rectangle.h - part of a stored tensor into memory: conversion, transposition, bounded buffers. */
#ifndef TRAINER_CKPT_RECTANGLE_H
#define TRAINER_CKPT_RECTANGLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "trainer/base/err.h"
#include "trainer/ckpt/safetensors.h"

/* Rows [row0, row0 + rows) and columns [col0, col0 + cols) of a tensor seen as a matrix (st_rows).
 * */
struct st_rect {
    int64_t row0, rows, col0, cols;
};

/* All of t. */
struct st_rect st_rect_all(const struct st_tensor *t);

enum st_turn { ST_AS_IS, ST_TRANSPOSED }; /* GPT-2's Conv1D weights are stored [in, out] */

/* Copy the rectangle to `out`, whose rows lie `stride` elements apart: as it is, `out` has
 * rect.rows rows of rect.cols elements; transposed, rect.cols rows of rect.rows. CHECKs the
 * rectangle and the stride. Float types of files become F32, F64, BF16 or F16, rounded to nearest,
 * ties to even; integer types become I32 or I64. Needs 1 MiB of heap during the call, whatever the
 * size. Errors: BAD_FILE (a float where integers are wanted or the reverse, an integer that does
 * not fit, a file that became shorter), IO, NO_MEMORY. */
int safetensors_read(const struct st_tensor *t, struct st_rect rect, enum st_turn turn, void *out,
                     enum dtype type, int64_t stride, struct err *err);

#endif
