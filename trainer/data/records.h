/* records.h - the rows of a JSONL file or the elements of a JSON array as pieces of text, one at a time.
 *
 * The text is not parsed here, only cut: at line ends, or where the brackets of an element or an object close. A record of more than
 * RECORD_BYTES_MAX is passed over. What is wrong between records, and what is odd about the lines, goes into the report.
 */
#ifndef TRAINER_DATA_RECORDS_H
#define TRAINER_DATA_RECORDS_H

#include "trainer/data/report.h"
#include "trainer/data/sniff.h"

enum { RECORD_BYTES_MAX = 64 << 20 };

struct record {
    char *text; /* may be changed; valid until the next call */
    size_t bytes;
    int64_t line, column; /* of its first character, from 1      */
    int64_t byte;         /* of its line, from 1                 */
    int64_t element;      /* of the file, from 1; 0 in a JSONL  */
};

struct records;

/* Format is not TEXT; the report and the name are borrowed until close. Errors: as source_open. */
int records_open(struct records **out, const char *path, const char *name, enum err_code blame,
                 enum format format, struct report *report, struct err *err);

/* The next record; out->text is NULL at the end. Errors: IO, NO_MEMORY; damage of a packed file is in the report, and ends it. */
int records_next(struct records *r, struct record *out, struct err *err);

/* Bytes of the file that were read, and in all. */
void records_progress(const struct records *r, uint64_t *done, uint64_t *total);
void records_close(struct records *r); /* NULL is allowed */

#endif
