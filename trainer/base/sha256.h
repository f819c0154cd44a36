/* sha256.h - SHA-256 (FIPS 180-4) of streams and files, as 64 lower-case hexadecimal digits. */
#ifndef TRAINER_BASE_SHA256_H
#define TRAINER_BASE_SHA256_H

#include <nettle/sha2.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { SHA256_TEXT = SHA256_DIGEST_SIZE * 2 + 1 }; /* the digits and a NUL */

struct sha256 {
    struct sha256_ctx state;
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t n);

/* The digest of all that was added; `s` then needs a new sha256_begin. */
void sha256_end(struct sha256 *s, char hex[SHA256_TEXT]);

/* begin, add, end. */
void sha256_of(const void *bytes, size_t n, char hex[SHA256_TEXT]);

/* The file's digest and, unless NULL, its size. sha256_fd reads from the start, whatever the
 * position, and leaves fd open. Errors: NOT_FOUND, IO. */
int sha256_file(const char *path, char hex[SHA256_TEXT], uint64_t *bytes, struct err *err);
int sha256_fd(int fd, const char *path, char hex[SHA256_TEXT], uint64_t *bytes, struct err *err);

/* Whether `text` is what sha256_end writes. */
bool sha256_is_text(const char *text);

#endif
