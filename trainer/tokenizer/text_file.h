/* text_file.h - a UTF-8 text file, packed or not, read in pieces.
 *
 *     while (!f.last) {
 *         TRY(text_file_more(&f, err));      f.text[0..f.n): what is not used yet and new text
 *         ... encode a beginning of it ...
 *         text_file_use(&f, used);
 *     }
 */
#ifndef TRAINER_TOKENIZER_TEXT_FILE_H
#define TRAINER_TOKENIZER_TEXT_FILE_H

#include "trainer/base/source.h"
#include "trainer/tokenizer/utf8.h"

struct text_file {
    const char *text; /* whole characters; borrowed until the next call */
    size_t n;
    bool first, last;     /* text starts, ends the document */
    uint64_t done, total; /* bytes of the file that were read, and in all */

    /* For text_file.c only. */
    struct source *source; /* owned */
    const char *name;
    enum err_code blame;
    struct text buffer;
    size_t start;   /* of the text in the buffer */
    uint64_t lines; /* whole lines before `checked`, */
    size_t line_at; /* bytes since the last of them  */
    bool begun;     /* something was read   */
    bool ended;     /* nothing more to read */
};

/* Open a text that messages call `name`; gzip and zstd are unpacked. Errors: as source_open. */
int text_file_open(struct text_file *f, const char *path, const char *name, enum err_code blame,
                   struct err *err);
void text_file_close(struct text_file *f);

/* Read on. The first call drops a byte order mark. Errors: blame with a sentence that says "line 9, byte 3: not UTF-8", or
 * names UTF-16, Parquet, a NUL byte ...; those of source_read; NO_MEMORY. */
int text_file_more(struct text_file *f, struct err *err);
/* The first `used` bytes are done with. */
void text_file_use(struct text_file *f, size_t used);

#endif
