/* names.h - names in the folder of checkpoints, for checkpoint.c and commit.c alone. */
#ifndef TRAINER_CKPT_NAMES_H
#define TRAINER_CKPT_NAMES_H

#include <stdint.h>

#include "trainer/ckpt/checkpoint.h"

#define CHECKPOINTS "checkpoints"

/* What a name in the folder stands for; the pictures are those of checkpoint.h. */
enum name_kind {
    NAME_OTHER,
    NAME_COMPLETE, /* step-00001000       */
    NAME_PARTIAL,  /* .step-00001000-tmp  */
    NAME_REPLACED, /* .step-00001000-old  */
    NAME_GONE      /* .step-00001000-gone */
};

/* The kind of a name and, unless it is OTHER, its step. */
enum name_kind checkpoint_name_kind(const char *name, int64_t *step);

/* out, of IO_PATH_MAX bytes = the path of a step's folder of that kind. Errors: IO (too long). */
int checkpoint_path(char *out, const char *jobdir, enum name_kind kind, int64_t step,
                    struct err *err);

/* Describe a complete checkpoint by its manifest. */
void checkpoint_describe(struct checkpoint *out, const struct manifest *m);

/* Make `latest` a link to the step's folder: a link aside, which is what may fail for want of
 * space, then its rename. Errors: DISK_FULL, IO. */
int checkpoint_prepare_latest(const char *jobdir, int64_t step, struct err *err);
int checkpoint_replace_latest(const char *jobdir, struct err *err);

#endif
