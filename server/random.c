/* random.c - secrets and names from getrandom(2). */
#include "server/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "kernels/check.h"

static const char base62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

void random_bytes(void *out, size_t size)
{
    unsigned char *p = out;

    while (size > 0) {
        const ssize_t n = getrandom(p, size, 0);
        CHECK(n > 0 || errno == EINTR, "getrandom failed: errno %d", errno);
        if (n > 0) {
            p += n;
            size -= (size_t)n;
        }
    }
}

void random_word(char *out, size_t letters)
{
    for (size_t i = 0; i < letters;) {
        unsigned char pool[64];
        random_bytes(pool, sizeof pool);
        for (size_t k = 0; k < sizeof pool && i < letters; k++) {
            const unsigned value = pool[k] & 63U;
            if (value < 62) { /* each of the 62 equally likely */
                out[i++] = base62[value];
            }
        }
    }
    out[letters] = '\0';
}

void random_id(char out[RANDOM_ID], const char *prefix)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[14];
    const int used = snprintf(out, RANDOM_ID, "%.6s-", prefix);

    random_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        out[(size_t)used + i] = letters[bytes[i] & 31U];
    }
    out[(size_t)used + sizeof bytes] = '\0';
}

void random_secret(char out[44])
{
    random_word(out, 43); /* 256 bits: 43 letters of 5.954 bits */
}
