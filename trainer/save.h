/* save.h - a whole checkpoint: a Hugging Face model folder with all that resuming needs beside it.
 *
 *   config.json, generation_config.json, tokenizer files, model.safetensors    what other tools load
 *   adapter_config.json, tokenizer files, adapter_model.safetensors            instead, with adapters: a PEFT folder
 *   optimizer.safetensors, trainer.json                                        what resuming reads
 *   manifest.json                                                              names, sizes, sha256
 */
#ifndef TRAINER_SAVE_H
#define TRAINER_SAVE_H

#include "trainer/ckpt/checkpoint.h"
#include "trainer/ckpt/state.h"
#include "trainer/inputs.h"
#include "trainer/judge.h"
#include "trainer/step.h"

/* Where a run stands between two steps. */
struct progress {
    int64_t step;     /* finished optimizer steps     */
    int64_t consumed; /* samples                      */
    int64_t tokens;   /* trained                      */
    struct judge judge;
};

/* Write checkpoints/step-N of a job, verified, and make it `latest`: by all ranks at once, each its own part, and all
 * return the same; *out is filled in by the first (the others know the step). Older ones are as before on failure. Errors:
 * DISK_FULL, IO, NO_MEMORY, BAD_FILE. */
int save_checkpoint(struct engine *e, const struct job_folder *job, const struct inputs *in,
                    const struct progress *at, struct checkpoint *out, struct err *err);

/* The parts of it, for save_behind.c. Open, by all ranks at once, makes the folder with all that is not numbers and the
 * files of m, a shallow copy of the engine's model; *save is only the first rank's, both are owned by the caller, also after a
 * failure. Complete, by the first rank when all have written: *save is freed. */
int save_open(struct checkpoint_save **save, struct state_save **state, struct engine *e,
              const struct model *m, const struct job_folder *job, const struct inputs *in,
              const struct progress *at, struct err *err);
int save_complete(struct checkpoint_save **save, struct state_save *state, struct checkpoint *out,
                  struct err *err);

/* Whether a checkpoint could be written now: room on the disk, and a folder that takes files. Asked before
 * the first step, so that a run does not fail at its end. Errors: DISK_FULL, IO, NO_MEMORY. */
int save_try(struct engine *e, const struct job_folder *job, struct err *err);

/* Load weights, optimizer state, loss scale and progress from a checkpoint of this job. Errors: BAD_FILE (also when the
 * data or the order of samples is not what the checkpoint was made with), NO_MODEL, IO, NO_MEMORY. */
int save_resume(struct engine *e, const struct job_folder *job, const struct inputs *in,
                const struct checkpoint *from, struct progress *at, struct err *err);

#endif
