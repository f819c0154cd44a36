/* source.h - the bytes of a file from its beginning to its end, unpacked when it is gzip or zstd.
 *
 * What a file is, its first bytes say, never its name. Memory is bounded whatever the file unpacks to; one that unpacks
 * to more than 1 GiB and 1000 times its size is refused.
 */
#ifndef TRAINER_BASE_SOURCE_H
#define TRAINER_BASE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD, PACKING_COUNT };

/* "none", "gzip", "zstd". */
const char *packing_name(enum packing p);

struct source;

/* Open the regular file `path`, which messages call `name`; what is wrong with its bytes is blamed on `blame`.
 * The name is borrowed. On failure *out is NULL. Errors: NOT_FOUND, blame (not a regular file), IO, NO_MEMORY. */
int source_open(struct source **out, const char *path, const char *name, enum err_code blame,
                struct err *err);

/* Up to `room` bytes into out; *got is 0 only at the end. Several gzip members or zstd frames behind each other are one text.
 * Errors: blame (cut off, damaged, a bomb; the sentence says which), IO. */
int source_read(struct source *s, char *out, size_t room, size_t *got, struct err *err);

enum packing source_packing(const struct source *s);
uint64_t source_done(const struct source *s);  /* bytes of the file that were read */
uint64_t source_total(const struct source *s); /* bytes of the file                */
void source_close(struct source *s);           /* NULL is allowed                  */

/* What the first bytes of an unpacked text say it is, when that is nothing we read: "a Parquet file; convert it first:
 * ...". NULL: nothing known. */
const char *source_foreign(const char *head, size_t n);

#endif
