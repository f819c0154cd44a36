/* broken.h - what is wrong with a text that the JSON parser refused: which reason, at which byte, in words. */
#ifndef TRAINER_DATA_BROKEN_H
#define TRAINER_DATA_BROKEN_H

#include <jansson.h>
#include <stddef.h>

#include "trainer/data/report.h"

struct broken {
    enum reason reason;
    size_t at;       /* byte of the text; its length for what is missing at the end */
    const char *why; /* a sentence that holds nothing of the text; "" when the reason says it all */
};

/* `e` is what json_parse_in_place left for text[0..bytes). */
struct broken broken_find(const char *text, size_t bytes, const json_error_t *e);

#endif
