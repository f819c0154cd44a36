/* manifest.h - manifest.json of a checkpoint: which files it has, how large, with which SHA-256.
 *
 *   {"format": "hone-checkpoint-1", "step": 1000, "created_at": 1700000000,
 *    "files": [{"name": "config.json", "bytes": 612, "sha256": "..."}, ...]}
 *
 * It is written last: a folder without it is not a checkpoint. It does not list itself. Names are
 * plain file names: no "/", no leading ".". A manifest is read as hostile input.
 */
#ifndef TRAINER_CKPT_MANIFEST_H
#define TRAINER_CKPT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/base/sha256.h"

enum { MANIFEST_FILES_MAX = 4096, MANIFEST_NAME_MAX = 255 };

struct manifest_file {
    char name[MANIFEST_NAME_MAX + 1];
    uint64_t bytes;
    char sha256[SHA256_TEXT];
};

struct manifest {
    int64_t step;
    int64_t created_at; /* seconds since 1970        */
    int count;
    struct manifest_file *files; /* owned; in order of names  */
    char sha256[SHA256_TEXT];    /* of manifest.json itself   */
};

/* Whether a file of a checkpoint may have this name. */
bool manifest_name_is_valid(const char *name);

/* Add a file, or replace the entry of that name. CHECKs the name and the hash. Errors: NO_MEMORY,
 * BAD_FILE (too many files). */
int manifest_add(struct manifest *m, const char *name, uint64_t bytes, const char *sha256,
                 struct err *err);
const struct manifest_file *manifest_find(const struct manifest *m, const char *name);

/* Bytes of all files. */
uint64_t manifest_bytes(const struct manifest *m);

/* Write dir/manifest.json durably and set m->sha256. Errors: DISK_FULL, IO, NO_MEMORY. */
int manifest_write(struct manifest *m, const char *dir, struct err *err);

/* Read dir/manifest.json; on failure *out needs no manifest_fini. Errors: NOT_FOUND (no such
 * folder or no manifest), BAD_FILE, IO, NO_MEMORY. */
int manifest_read(struct manifest *out, const char *dir, struct err *err);
void manifest_fini(struct manifest *m);

/* Compare with the files of `dir`: sizes only, or every byte's hash. Errors: BAD_FILE (the first
 * difference), IO. */
int manifest_check_sizes(const struct manifest *m, const char *dir, struct err *err);
int manifest_check_hashes(const struct manifest *m, const char *dir, struct err *err);

#endif
