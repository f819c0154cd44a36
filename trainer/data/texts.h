/* texts.h - what a file of examples says, as one plain text: what a new tokenizer learns from. */
#ifndef TRAINER_DATA_TEXTS_H
#define TRAINER_DATA_TEXTS_H

#include "trainer/data/example.h"

/* Write the texts, prompts, completions and contents of all usable examples to `path`, each followed by a line end. Errors: those
 * of the example reader; IO, DISK_FULL, NO_MEMORY. */
int texts_write(const char *path, const struct example_options *o, struct err *err);

#endif
