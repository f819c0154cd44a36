/* safetensors.h - what one Hugging Face safetensors file holds; every file is taken for hostile.
 *
 * Format (huggingface/safetensors, README "Format"): 8 bytes little-endian header size n <=
 * 100,000,000; n bytes of JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]},
 * "__metadata__": {"k": "v"}}, padded with spaces; then the data the offsets point into, without
 * holes, overlaps or trailing bytes.
 *
 * A file is read with pread, not mapped: a file that shrinks while it is read is an error and not a
 * SIGBUS, and its pages do not count as memory of the rank.
 */
#ifndef TRAINER_CKPT_SAFETENSORS_H
#define TRAINER_CKPT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { ST_DIMS_MAX = 8 };

enum st_dtype {
#define ST(name, bytes, kind) ST_##name,
#include "trainer/ckpt/safetensors.def"
    ST_COUNT
};

size_t st_dtype_size(enum st_dtype type);
const char *st_dtype_name(enum st_dtype type); /* "BF16" */
bool st_dtype_is_float(enum st_dtype type);
bool st_dtype_from_name(const char *name, enum st_dtype *out);

struct safetensors; /* an open file; never changes, so any number of threads may share it */

/* One tensor of a file; borrowed from it, valid until it is closed. */
struct st_tensor {
    const struct safetensors *file;
    const char *name;
    enum st_dtype dtype;
    int dims;                   /* 0 for a scalar */
    int64_t shape[ST_DIMS_MAX]; /* outermost first; a dimension may be 0; unused ones are 1 */
    uint64_t offset;            /* of its first byte in the file */
    uint64_t bytes;
};

/* Open and check the whole header, so that later reads can't fail on bad offsets. `name` is what
 * errors call the file. The second takes over fd on success and on failure; _open_beneath is
 * io_open_beneath. Errors: NOT_FOUND, IO, NO_MEMORY, BAD_FILE (not a safetensors file, or damaged:
 * the text says how). */
int safetensors_open(struct safetensors **out, const char *path, struct err *err);
int safetensors_open_fd(struct safetensors **out, int fd, const char *name, struct err *err);
int safetensors_open_beneath(struct safetensors **out, int root_fd, const char *relative,
                             struct err *err);
void safetensors_close(struct safetensors *st);

/* Tensors by number, in the order of their data; by name, NULL when there is none. */
int64_t safetensors_count(const struct safetensors *st);
const struct st_tensor *safetensors_at(const struct safetensors *st, int64_t i);
const struct st_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* The value of a key of __metadata__, NULL when there is none. */
const char *safetensors_metadata(const struct safetensors *st, const char *key);

/* What errors call the file. */
const char *safetensors_name(const struct safetensors *st);

/* Elements of t. As a matrix t has st_rows x st_cols elements: the last dimension is the columns,
 * all others together the rows; a vector [N] has N rows and 1 column, a scalar 1 and 1. */
int64_t st_count(const struct st_tensor *t);
int64_t st_rows(const struct st_tensor *t);
int64_t st_cols(const struct st_tensor *t);

/* Bytes [begin, begin + n) of t as they lie in the file. CHECKs the range. Errors: IO, BAD_FILE
 * (the file became shorter). */
int safetensors_read_bytes(const struct st_tensor *t, uint64_t begin, void *out, size_t n,
                           struct err *err);

#endif
