/* save_behind.h - a checkpoint that is written while training goes on.
 *
 *   begin    all ranks at once: the folder is made, the files at their full size, and each rank copies what it writes
 *   poll     all ranks at once, between two steps: true when the checkpoint is there, or has failed
 *
 * Each rank has a thread that writes its part; when all have, a thread of the first rank hashes the files and makes the
 * checkpoint complete. Threads exchange nothing with other ranks: who is ready is told at polls. A rank has one at a time.
 */
#ifndef TRAINER_SAVE_BEHIND_H
#define TRAINER_SAVE_BEHIND_H

#include "trainer/save.h"

struct save_behind;

/* What is written is the run as it is now. The engine must last until it is gone. Returns the same in all ranks. Errors: those of
 * save_checkpoint. */
int save_behind_begin(struct save_behind **out, struct engine *e, const struct job_folder *job,
                      const struct inputs *in, const struct progress *at, struct err *err);

/* Whether it has come to its end, the same in all ranks; with `wait`, which all ranks must give alike, always. Then *s is NULL, and
 * *rc with *err and *out are as of save_checkpoint. */
bool save_behind_poll(struct save_behind **s, bool wait, struct checkpoint *out, int *rc,
                      struct err *err);

/* Leave it unfinished, without other ranks; NULL is allowed. What is on the disk is swept at the next start. */
void save_behind_drop(struct save_behind *s);

#endif
