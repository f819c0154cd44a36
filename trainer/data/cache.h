/* cache.h - token files in a folder, named after what they were made of. For trainer/data only. */
#ifndef TRAINER_DATA_CACHE_H
#define TRAINER_DATA_CACHE_H

#include "trainer/data/token_writer.h"

/* Write the tokens of a source; *report (may stay NULL) is freed by the caller. */
typedef int cache_write(void *context, struct token_writer *w, char **report, struct err *err);

/* Open the token file of source, tokenizer and options, made with `write` when it is not there or damaged. `known`: kind,
 * vocab_size, tokenizer_hash and options_hash are set; the rest is filled in. Two who make the same file at once do
 * not disturb each other. Errors: blame of the source (it changes, it is no file), NOT_FOUND, IO, DISK_FULL, NO_MEMORY, those
 * of write. */
int cache_prepare(struct token_file **out, const struct data_source *s,
                  struct token_file_header *known, cache_write *write, void *context,
                  struct err *err);

/* Is the file there already? It is opened if so. Errors: NOT_FOUND and those of cache_prepare. */
int cache_find(struct token_file **out, const struct data_source *s,
               struct token_file_header *known, struct err *err);

#endif
