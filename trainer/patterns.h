/* patterns.h - lists of names with stars in them: "model.embed_tokens, model.layers.0, *norm*". */
#ifndef TRAINER_PATTERNS_H
#define TRAINER_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>

/* Pattern number `index` of a list with commas, without the spaces around it; NULL behind the last. */
const char *pattern_at(const char *list, int index, size_t *length);

/* Whether the pattern matches the name, or the name up to one of its dots; * stands for any characters. */
bool pattern_matches(const char *pattern, size_t length, const char *name);

#endif
