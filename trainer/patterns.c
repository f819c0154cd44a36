/* patterns.c - finding and matching the patterns of a list. */
#include "trainer/patterns.h"

#include <string.h>

const char *pattern_at(const char *list, int index, size_t *length)
{
    const char *at = list;

    for (int i = 0; i < index; i++) {
        at = strchr(at, ',');
        if (at == NULL) {
            return NULL;
        }
        at++;
    }
    at += strspn(at, " ");
    *length = strcspn(at, ",");
    while (*length > 0 && at[*length - 1] == ' ') {
        --*length;
    }
    return at;
}

/* A star that fails is tried again one
 * character further on; only the last one needs to be. */
bool pattern_matches(const char *pattern, size_t length, const char *name)
{
    const char *end = pattern + length, *star = NULL, *from = name;

    while (true) {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (pattern == end && (*name == '\0' || *name == '.')) {
            return true;
        } else if (pattern < end && *name != '\0' && *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL && *from != '\0') {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
}
