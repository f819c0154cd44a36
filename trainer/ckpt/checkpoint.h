/* checkpoint.h - checkpoints of a job: written aside, renamed when complete, never half there.
 *
 *   JOBDIR/checkpoints/step-00001000/        complete: has a manifest.json
 *                      .step-00002000-tmp/   being written, or left by a crash
 *                      .step-00001000-old/   replaced or being deleted
 *                      latest -> step-00001000
 *
 *   begin: make .step-N-tmp      caller writes files into it      commit: hash and fsync every
 *   file, write
 *   manifest.json, fsync the folder, rename it to step-N, fsync checkpoints/, replace `latest`
 *
 * A crash at any moment leaves the older checkpoints and perhaps the new one. Where step-N exists
 * already (a save on demand, then the interval's), the new folder takes its place in one exchange.
 * One process writes checkpoints of a job at a time (the job's lock); any number may read.
 */
#ifndef TRAINER_CKPT_CHECKPOINT_H
#define TRAINER_CKPT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/base/io.h"
#include "trainer/base/sha256.h"
#include "trainer/ckpt/manifest.h"

/* A complete checkpoint. */
struct checkpoint {
    int64_t step;
    int64_t created_at;       /* seconds since 1970                       */
    uint64_t bytes;           /* of its files, manifest.json not counted  */
    char sha256[SHA256_TEXT]; /* of manifest.json                         */
    char dir[64];             /* in the job folder: "checkpoints/step-00001000" */
};

struct checkpoint_list {
    struct checkpoint *at; /* owned; steps ascend */
    int count;
};

struct checkpoint_save; /* a checkpoint being written */

/* Start to write a checkpoint; a partial one of the same step is removed first. Errors: DISK_FULL,
 * IO, NO_MEMORY. */
int checkpoint_begin(struct checkpoint_save **out, const char *jobdir, int64_t step,
                     struct err *err);

/* The folder to write files into; borrowed until commit or abort. */
const char *checkpoint_save_dir(const struct checkpoint_save *s);

/* The same folder, of IO_PATH_MAX bytes, for processes that help to fill it. Errors: IO (too long). */
int checkpoint_partial_dir(char *out, const char *jobdir, int64_t step, struct err *err);

/* Tell the hashes of files that are written and synced already (writer_files), so that commit need
 * not read them. Errors: NO_MEMORY. */
int checkpoint_files_hashed(struct checkpoint_save *s, const struct manifest_file *files, int count,
                            struct err *err);

/* Complete the checkpoint and free s, also on failure; a failed one is removed and older ones are
 * as before. With `verify`, every file is read again and compared with its hash before the rename.
 * Errors: DISK_FULL, IO, NO_MEMORY, BAD_FILE (a file is not what was hashed). */
int checkpoint_commit(struct checkpoint_save *s, bool verify, struct checkpoint *out,
                      struct err *err);

/* Remove the partial checkpoint and free s; NULL is allowed. */
void checkpoint_abort(struct checkpoint_save *s);

/* At start, with the job's lock held: remove partial and replaced checkpoints that a crash left,
 * and point `latest` to the newest complete one. Errors: IO, DISK_FULL, NO_MEMORY. */
int checkpoint_sweep(const char *jobdir, struct err *err);

/* The complete checkpoints: with a valid manifest and all files at their sizes. No folder is an
 * empty list. Errors: IO, NO_MEMORY. */
int checkpoint_list_read(struct checkpoint_list *out, const char *jobdir, struct err *err);
void checkpoint_list_fini(struct checkpoint_list *l);

/* The checkpoint of one step, sizes checked. Errors: NOT_FOUND, BAD_FILE, IO, NO_MEMORY. */
int checkpoint_read(struct checkpoint *out, const char *jobdir, int64_t step, struct err *err);

/* Read every byte and compare with the hashes. Errors: NOT_FOUND, BAD_FILE, IO, NO_MEMORY. */
int checkpoint_verify(const char *jobdir, int64_t step, struct err *err);

/* The newest checkpoint whose hashes are right, to resume from. Newer ones that are damaged are
 * passed over, and skipped->text says so for a warning (skipped->code is 0 when there were none).
 * Errors: NOT_FOUND (none is good), IO, NO_MEMORY. */
int checkpoint_newest_good(struct checkpoint *out, const char *jobdir, struct err *skipped,
                           struct err *err);

/* Make `best` a link to the step's folder, which checkpoint_keep then leaves. Errors: DISK_FULL, IO. */
int checkpoint_mark_best(const char *jobdir, int64_t step, struct err *err);

/* The step that `best` names; -1 when there is none. */
int64_t checkpoint_best(const char *jobdir);

typedef void (*checkpoint_gone_fn)(void *context, int64_t step);

/* Delete all but the best and the newest `keep` >= 1 checkpoints, oldest first, and call `gone` (may be NULL)
 * for each. Before, the newest is verified unless its step is `verified` (what commit verified;
 * -1: none); if it's damaged, nothing is deleted. Errors: BAD_FILE (the newest is damaged), IO,
 * NO_MEMORY. */
int checkpoint_keep(const char *jobdir, int keep, int64_t verified, checkpoint_gone_fn gone,
                    void *context, struct err *err);

#endif
