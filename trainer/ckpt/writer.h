/* writer.h - write safetensors files as Hugging Face does: header first, one pass, hashed on the
 * way.
 *
 *   writer_new -> writer_declare for every tensor -> writer_start -> { writer_next, writer_put }
 *   -> writer_finish
 *
 * Tensors are dealt to shards in the order of declaration (huggingface_hub,
 * split_state_dict_into_shards); inside a shard they lie as the reference writer sorts them,
 * largest elements first, then by name. That is the order in which their values are wanted. With
 * one shard the file is STEM.safetensors; with more they are STEM-00001-of-0000N.safetensors and
 * STEM.safetensors.index.json names them.
 */
#ifndef TRAINER_CKPT_WRITER_H
#define TRAINER_CKPT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "trainer/base/err.h"
#include "trainer/ckpt/manifest.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/safetensors.h"

static const uint64_t WRITER_SHARD_BYTES = UINT64_C(5000000000); /* "5GB", the usual shard */

struct writer;

/* Files go to the folder `dir`, which exists. Errors: NO_MEMORY, IO (path too long). */
int writer_new(struct writer **out, const char *dir, const char *stem, uint64_t shard_bytes,
               struct err *err);

/* Frees; unless writer_finish succeeded, removes what was written. */
void writer_free(struct writer *w);

/* A further entry of __metadata__ of every shard; {"format": "pt"} is always there. Errors:
 * NO_MEMORY. */
int writer_metadata(struct writer *w, const char *key, const char *value, struct err *err);

/* A tensor of the given shape, numbered from 0 in the order of the calls. CHECKs that the name is
 * new and not __metadata__. Errors: NO_MEMORY. */
int writer_declare(struct writer *w, const char *name, enum st_dtype dtype, int dims,
                   const int64_t *shape, struct err *err);

/* No more declarations. Sorts, and opens the first shard. Errors: DISK_FULL, IO, NO_MEMORY. */
int writer_start(struct writer *w, struct err *err);

/* The number of the tensor whose values are wanted next, or whose values are still incomplete; -1
 * when all are written. Tensors without elements are never asked for. */
int64_t writer_next(const struct writer *w);

/* Append to the tensor writer_next names: `values` [rows, cols] row by row, or its transpose,
 * converted to the declared type as safetensors_read does (floats to floats, integers to integers,
 * which must fit); parts of a tensor may come in several calls. writer_put_bytes appends bytes as
 * they are. CHECKs that the tensor is not overfilled. Errors: DISK_FULL, IO, BAD_FILE (an integer
 * that does not fit). */
int writer_put(struct writer *w, struct tensor values, enum st_turn turn, struct err *err);
int writer_put_bytes(struct writer *w, const void *bytes, size_t n, struct err *err);

/* Sync everything and write the index. CHECKs that all is written. Errors: DISK_FULL, IO,
 * NO_MEMORY. */
int writer_finish(struct writer *w, struct err *err);

/* Files that several processes fill: each declares the same tensors and calls, instead of the above,
 *
 *   writer_share(creates) in the one that creates, and when it is through in the others
 *   -> { writer_put_at } -> writer_share_end in each -> writer_share_finish in the creator
 *
 * The files are those that one process would have written. */

/* Lay the files out; the creator makes them at their full size, with their headers, so that a full disk is met here. Errors:
 * DISK_FULL, IO, NO_MEMORY. */
int writer_share(struct writer *w, bool creates, struct err *err);

/* Bytes [at, at + n) of tensor `number`. Calls that go on where the one before ended become one write. CHECKs the bounds.
 * Errors: DISK_FULL, IO. */
int writer_put_at(struct writer *w, int64_t number, uint64_t at, const void *bytes, size_t n,
                  struct err *err);

/* Write what is gathered, sync and close what this process wrote to. Errors: DISK_FULL, IO. */
int writer_share_end(struct writer *w, struct err *err);

/* All have ended: the index. Hashes are not known; writer_files are not for the manifest. Errors: DISK_FULL, IO, NO_MEMORY. */
int writer_share_finish(struct writer *w, struct err *err);

/* Bytes of values that this process wrote, and those of all tensors. */
uint64_t writer_share_written(const struct writer *w);
uint64_t writer_share_bytes(const struct writer *w);

/* After writer_finish: the files, the index last; borrowed until writer_free. */
const struct manifest_file *writer_files(const struct writer *w, int *count);

#endif
