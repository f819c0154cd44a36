/* snapshot.h - copies of what this rank writes of a checkpoint, so that training goes on while it is written.
 *
 * Of ranks that hold the same numbers each copies only what it is the one to write (parts.h), so together they hold one
 * copy of the model and of its optimizer state.
 */
#ifndef TRAINER_CKPT_SNAPSHOT_H
#define TRAINER_CKPT_SNAPSHOT_H

#include "trainer/model.h"

/* Take the copies from `lo`; none where checkpoints are not written behind training (d.behind). After all else is planned. */
void snapshot_plan(struct model *m, struct layout *lo);

/* Copy the numbers of this moment. */
void snapshot_take(const struct model *m);

/* The model whose numbers are the copies, for state_save_open: shallow, and good for what this rank writes alone. */
struct model snapshot_model(const struct model *m);

#endif
