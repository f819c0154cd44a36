/* shapes.h - the sets of columns that rows come in, and what each is made into. */
#ifndef TRAINER_DATA_SHAPES_H
#define TRAINER_DATA_SHAPES_H

#include "trainer/data/example.h"
#include "trainer/data/messages.h"

/* A row of the table of shapes. */
struct shape;

const char *shape_name(const struct shape *s); /* "alpaca" */

/* What a row was made into; the texts are borrowed from the row. */
struct converted {
    const struct shape *shape;
    struct example example;
    json_t *messages, *tools, *chosen, *rejected; /* owned; example borrows them */
    struct turns turns;                           /* of CHAT, or of both answers */
    bool extra;                                   /* the row has columns that are not used */
};

/* Make an example of an object, or of a list of messages. False: *c says why; what teaches nothing is no matter of this
 * function but of shape_lesson. `likely` (or NULL) is the shape of the rows before, for a better sentence. */
bool shape_convert(struct converted *out, const json_t *row, const struct shape *likely,
                   struct complaint *c);
void converted_fini(struct converted *v); /* leaves {0} */

/* REASON_COUNT, or why there is nothing to learn from it. */
enum reason shape_lesson(const struct converted *v);

#endif
