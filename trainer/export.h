/* export.h - a Hugging Face folder made of a checkpoint: an adapter merged into its base model, or a model in another
 * precision.
 *
 *   W' = W + scale B A    in double, rounded once to the precision that is asked for
 *
 * Tensors go through memory by pieces, so that the largest model needs little of it.
 */
#ifndef TRAINER_EXPORT_H
#define TRAINER_EXPORT_H

#include "trainer/base/err.h"

enum export_precision { EXPORT_AS_IT_IS, EXPORT_F32, EXPORT_BF16, EXPORT_F16, EXPORT_F64 };

struct export_options {
    const char *dir;  /* a checkpoint, a model folder or an adapter's folder       */
    const char *base; /* of an adapter; NULL: what its adapter_config.json names   */
    const char *out;  /* folder to make; it may be there when it is empty          */
    enum export_precision precision;
};

/* On failure there is no folder `out` that was not there before. Errors: NO_MODEL, BAD_FILE, BAD_STATE (`out` is not empty),
 * DISK_FULL, IO, NO_MEMORY. */
int export_model(const struct export_options *o, struct err *err);

#endif
