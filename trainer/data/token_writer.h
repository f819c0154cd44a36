/* token_writer.h - a token file while it is written: aside, then synced and renamed.
 *
 *     TRY(token_writer_open(&w, ...));
 *     token_writer_put(w, id, trained, err) ...      for every token
 *     token_writer_end(w, err)                       behind the last of a document
 *     token_writer_finish(w, report, err)            or, after a failure, token_writer_abandon(w)
 *
 * Memory is a few buffers, whatever the size of the file: bits and ends wait in files without a name.
 */
#ifndef TRAINER_DATA_TOKEN_WRITER_H
#define TRAINER_DATA_TOKEN_WRITER_H

#include "trainer/data/token_file.h"

struct token_writer;

/* `known`: what the header says of source, tokenizer and options; vocab_size and kind are set. The file will
 * be dir/file. Errors: IO, DISK_FULL, NO_MEMORY. */
int token_writer_open(struct token_writer **out, const char *dir, const char *file,
                      const struct token_file_header *known, struct err *err);

int token_writer_put(struct token_writer *w, int32_t id, bool trained, struct err *err);

/* End a document, unless it has no tokens. */
int token_writer_end(struct token_writer *w, struct err *err);

int64_t token_writer_tokens(const struct token_writer *w);
int64_t token_writer_documents(const struct token_writer *w); /* that were ended */
int64_t token_writer_trained(const struct token_writer *w);

/* Complete the file with at least one document, make it durable, give it its name; `report` may be NULL.
 * On success and on failure the writer is gone and nothing is left aside. */
int token_writer_finish(struct token_writer *w, const char *report, struct err *err);
void token_writer_abandon(struct token_writer *w); /* NULL is allowed */

#endif
