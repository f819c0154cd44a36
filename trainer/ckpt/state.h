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

/* Read this rank's share of the weights of a Hugging Face folder into the masters (in a model that is not trained: into the
 * weights; where masters are divided, into both). Names with or without their "model." or "transformer." prefix are found. Errors: NO_MODEL (a tensor is missing, or of another shape than
 * config.json says), and those of safetensors_read. */
int state_load_weights(const struct model *m, const struct safetensors_folder *f, struct err *err);

/* Read the adapters of a PEFT folder, and what was trained whole beside them, into their masters. Errors: those of lora_open and safetensors_read. */
int state_load_adapter(const struct model *m, const char *dir, struct err *err);

/* Tensors of the folder that the whole model has no use for, other than buffers that files of these families carry
 * along; how many, and the name of the first (borrowed from f), NULL when there is none. Errors: NO_MEMORY. */
int state_unused(const struct model *m, const struct safetensors_folder *f, int64_t *unused,
                 const char **first, struct err *err);

/* Read this rank's share of optimizer.safetensors of a checkpoint folder. Errors: BAD_FILE, IO, NO_MEMORY. */
int state_load_optimizer(const struct model *m, const char *dir, struct err *err);

/* The ranks that save together, as one of them sees it. */
struct state_ranks {
    struct comm *world;
    struct queue *q;
    int copy,
        copies; /* of the ranks that hold the same share, slices aside, which it is: data-parallel ones */
    uint64_t *written; /* bytes of values that this rank wrote are added; NULL: not counted */
};

/* Write both into the folder `dir`, by all ranks at once; all return the same. Each byte is written by one rank, and
 * the files are those that one rank would write. Errors: DISK_FULL, IO, NO_MEMORY. */
int state_save(const struct model *m, const char *dir, const struct state_ranks *ranks,
               struct err *err);

/* The same in steps. open is for all ranks together; write is each rank's own, finish the first rank's alone when all have
 * written; neither exchanges anything, so that a thread may do it. `m` is copied, its tensors must last and keep their values
 * until it is written. free, unless finish succeeded, removes the files that this rank made. */
struct state_save;
int state_save_open(struct state_save **out, const struct model *m, const char *dir,
                    const struct state_ranks *ranks, struct err *err);
int state_save_write(struct state_save *s, struct err *err);
int state_save_finish(struct state_save *s, struct err *err);
uint64_t state_save_written(const struct state_save *s); /* bytes of values that this rank wrote */
void state_save_free(struct state_save *s);

/* Bytes that state_save writes, all ranks together, headers aside. Errors: NO_MEMORY. */
int state_bytes(const struct model *m, uint64_t *bytes, struct err *err);

#endif
