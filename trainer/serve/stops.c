/* stops.c - strings at which a text ends. */
#include "trainer/serve/stops.h"

#include <string.h>

/* Whether `text` begins with the string, or is a beginning of it that more text may complete. */
static bool begins(const char *string, const char *text, size_t bytes, bool *whole)
{
    const size_t length = strlen(string), both = length < bytes ? length : bytes;

    *whole = length <= bytes;
    return memcmp(string, text, both) == 0;
}

size_t stops_certain(const char *const *strings, int count, const char *text, size_t bytes,
                     int *found)
{
    size_t held = bytes;

    *found = -1;
    for (size_t at = 0; at < bytes; at++) {
        for (int i = 0; i < count; i++) {
            bool whole = false;
            if (!begins(strings[i], text + at, bytes - at, &whole)) {
                continue;
            }
            if (whole) {
                *found = i;
                return at;
            }
            held = at < held ? at : held;
        }
    }
    return held;
}

size_t stops_overlap(const char *string, const char *text, size_t bytes)
{
    size_t n = strlen(string) < bytes ? strlen(string) : bytes;

    while (n > 0 && memcmp(text + bytes - n, string, n) != 0) {
        n--;
    }
    return n;
}
