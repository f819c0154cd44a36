/* random.h - secrets and names from the kernel's generator. */
#ifndef SERVER_RANDOM_H
#define SERVER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

enum { RANDOM_ID = 24 }; /* room for what random_id writes, prefixes up to 6 letters */

/* Fill with secret bytes; aborts when the kernel has none, which Linux never says after boot. */
void random_bytes(void *out, size_t size);

/* `letters` random characters 0-9 A-Z a-z and a NUL: 5.95 bits each. */
void random_word(char *out, size_t letters);

/* "job-" and 14 of the letters a-z and 2-7: 70 bits, readable aloud, the same in every case. */
void random_id(char out[RANDOM_ID], const char *prefix);

/* 32 secret bytes written in 43 characters and a NUL. */
void random_secret(char out[44]);

#endif
