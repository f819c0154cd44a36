/* state.h - the numbers of a model in files: Hugging Face weights, and the optimizer's state beside them.
 *
 *   model.safetensors       weights as kernels read them, under their Hugging Face names; instead of it, with adapters,
 *   adapter_model.safetensors   these and what is trained whole beside them, under PEFT names
 *   optimizer.safetensors   of what is trained: exp_avg.NAME, exp_avg_sq.NAME, and master.NAME where weights are rounded
 *
 * Both are independent of the layout of the run: any later run, on any layout, can read them.
 */
#ifndef TRAINER_CKPT_STATE_H
#define TRAINER_CKPT_STATE_H

#include "trainer/ckpt/checkpoint.h"
#include "trainer/ckpt/folder.h"
#include "trainer/model.h"

/* Read the weights of a Hugging Face folder into the masters (in a model that is not trained: into the
 * weights). Names with or without their "model." or "transformer." prefix are found. Errors: NO_MODEL (a tensor is missing, or of another shape than
 * config.json says), and those of safetensors_read. */
int state_load_weights(const struct model *m, const struct safetensors_folder *f, struct err *err);

/* Read the adapters of a PEFT folder, and what was trained whole beside them, into their masters. Errors: those of lora_open and safetensors_read. */
int state_load_adapter(const struct model *m, const char *dir, struct err *err);

/* Tensors of the folder that the model has no use for, other than buffers that files of these families carry
 * along; how many, and the name of the first (borrowed from f), NULL when there is none. */
int64_t state_unused(const struct model *m, const struct safetensors_folder *f, const char **first);

/* Read optimizer.safetensors of a checkpoint folder. Errors: BAD_FILE, IO, NO_MEMORY. */
int state_load_optimizer(const struct model *m, const char *dir, struct err *err);

/* Write both into a checkpoint being saved; their hashes are told to it. Errors: DISK_FULL, IO, NO_MEMORY. */
int state_save(const struct model *m, struct checkpoint_save *save, struct err *err);

/* Bytes that state_save writes, headers aside. */
uint64_t state_bytes(const struct model *m);

#endif
