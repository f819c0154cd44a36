/* sha256.c - nettle's SHA-256 with a hexadecimal end. */
#include "trainer/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/io.h"

enum { CHUNK = 1 << 18 };

void sha256_begin(struct sha256 *s)
{
    sha256_init(&s->state);
}

void sha256_add(struct sha256 *s, const void *bytes, size_t n)
{
    sha256_update(&s->state, n, bytes);
}

void sha256_end(struct sha256 *s, char hex[SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(&s->state, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[SHA256_TEXT - 1] = '\0';
}

void sha256_of(const void *bytes, size_t n, char hex[SHA256_TEXT])
{
    struct sha256 s;

    sha256_begin(&s);
    sha256_add(&s, bytes, n);
    sha256_end(&s, hex);
}

int sha256_fd(int fd, const char *path, char hex[SHA256_TEXT], uint64_t *bytes, struct err *err)
{
    struct sha256 s;
    uint64_t total = 0;
    ssize_t got = 0;
    char *chunk = malloc(CHUNK);

    if (chunk == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", path);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    sha256_begin(&s);
    do {
        got = pread(fd, chunk, CHUNK, (off_t)total);
        if (got > 0) {
            sha256_add(&s, chunk, (size_t)got);
            total += (uint64_t)got;
        }
    } while (got > 0 || (got < 0 && errno == EINTR));
    const int number = errno;
    free(chunk);
    if (got < 0) {
        return FAIL(err, ERR_IO, "cannot read %s: %s", path, strerror(number));
    }
    sha256_end(&s, hex);
    if (bytes != NULL) {
        *bytes = total;
    }
    return 0;
}

int sha256_file(const char *path, char hex[SHA256_TEXT], uint64_t *bytes, struct err *err)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return FAIL(err, ERR_NOT_FOUND, "%s does not exist", path);
    }
    if (fd < 0) {
        return FAIL(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    int rc = 0;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        rc = FAIL(err, ERR_IO, "%s is not a file", path);
    } else {
        rc = sha256_fd(fd, path, hex, bytes, err);
    }
    (void)close(fd);
    return rc;
}

bool sha256_is_text(const char *text)
{
    return strspn(text, "0123456789abcdef") == SHA256_TEXT - 1 && text[SHA256_TEXT - 1] == '\0';
}
