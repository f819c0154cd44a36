/* folder.h - the weights of a Hugging Face model folder: one safetensors file or many shards.
 *
 * model.safetensors, else model.safetensors.index.json: {"weight_map": {tensor: shard}}. The
 * shards are opened beneath the folder. Every tensor of the map must be in its shard, and no name
 * in two shards.
 */
#ifndef TRAINER_CKPT_FOLDER_H
#define TRAINER_CKPT_FOLDER_H

#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/ckpt/safetensors.h"

struct safetensors_folder; /* never changes once open: any number of threads may share it */

/* Errors: NO_MODEL (no weights here, or not in safetensors), BAD_FILE (damaged, or a map that is
 * wrong or leads out of the folder), NOT_FOUND (no such folder), IO, NO_MEMORY. The second form
 * reads the folder open as dir_fd, which it borrows only for the call. */
int safetensors_folder_open(struct safetensors_folder **out, const char *dir, struct err *err);
int safetensors_folder_open_fd(struct safetensors_folder **out, int dir_fd, const char *dir,
                               struct err *err);
void safetensors_folder_close(struct safetensors_folder *f);

/* Tensors of all shards by number, in the order of their names; by name, NULL when
 * there is none. Borrowed until close. */
int64_t safetensors_folder_count(const struct safetensors_folder *f);
const struct st_tensor *safetensors_folder_at(const struct safetensors_folder *f, int64_t i);
const struct st_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                const char *name);

#endif
