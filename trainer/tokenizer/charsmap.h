/* charsmap.h - the table of a sentencepiece normalizer: strings, and what they become.
 *
 * The file has it as the size of a double array in bytes, the double array (darts-clone: 32 bits a unit, little
 * endian), and the texts that its values point into, each with a NUL behind it.
 */
#ifndef TRAINER_TOKENIZER_CHARSMAP_H
#define TRAINER_TOKENIZER_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/err.h"

/* How a text is looked up. */
enum charsmap_reading {
    CHARSMAP_LONGEST,   /* sentencepiece: the longest string that starts here               */
    CHARSMAP_GRAPHEMES, /* Hugging Face: a short grapheme whole, else its characters, by the */
                        /* shortest string that starts it                                    */
};

struct charsmap;

/* Errors: BAD_FILE for a table that is cut short or whose texts are not UTF-8; NO_MEMORY. Nothing is borrowed. */
int charsmap_new(struct charsmap **out, const char *bytes, size_t n, enum charsmap_reading reading,
                 struct err *err);
void charsmap_free(struct charsmap *m);

#endif
