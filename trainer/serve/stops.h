/* stops.h - strings at which a text ends, found across the pieces that the text comes in. */
#ifndef TRAINER_SERVE_STOPS_H
#define TRAINER_SERVE_STOPS_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes of `text`, what has come and was not given away, are certain: up to the first of the
 * strings, then *found is its number; else, with *found -1, all but an end that one of them may go on. */
size_t stops_certain(const char *const *strings, int count, const char *text, size_t bytes,
                     int *found);

/* The longest end of `text` that is a beginning of `string`, in bytes. */
size_t stops_overlap(const char *string, const char *text, size_t bytes);

#endif
