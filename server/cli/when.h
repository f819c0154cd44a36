/* when.h - times of a queue for people: "2025-01-31 17:05 (in 12 min)", and the words that people write for them. */
#ifndef SERVER_CLI_WHEN_H
#define SERVER_CLI_WHEN_H

#include <stdint.h>

#include "trainer/base/err.h"

/* A length of time in one or two units: "40 s", "12 min", "3 h 20 min", "2 d 4 h"; "-" when negative. */
const char *when_span(char out[32], int64_t seconds);

/* Local time and how far it is from `now`: "2025-01-31 17:05 (in 12 min)", "... (12 min ago)", "... (now)"; "-" when
 * `at` is 0 or less. */
const char *when_show(char out[64], int64_t at, int64_t now);

/* Only how far: "in 12 min", "12 min ago", "now"; "-" when `at` is 0 or less. */
const char *when_relative(char out[48], int64_t at, int64_t now);

/* The time that `word` means, seconds since 1970: "now"; "+90s", "+30m", "+2h", "+3d" from now; "17:05", the next
 * one by local time; "2025-01-31T17:05" or "2025-01-31 17:05", by local time; "2025-01-31", its first minute; or
 * seconds since 1970. `what` names it in the error. Errors: BAD_REQUEST. */
int when_parse(int64_t *out, const char *what, const char *word, int64_t now, struct err *err);

#endif
