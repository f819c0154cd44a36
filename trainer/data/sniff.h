/* sniff.h - what a file holds, by its first 64 KiB: a plain text, objects one a line, or an array of them. */
#ifndef TRAINER_DATA_SNIFF_H
#define TRAINER_DATA_SNIFF_H

#include "trainer/base/source.h"

enum format {
    FORMAT_TEXT,
    FORMAT_JSONL,        /* an object on each line                          */
    FORMAT_JSON_ARRAY,   /* a list of objects                               */
    FORMAT_JSON_OBJECTS, /* objects behind each other, over many lines each */
    FORMAT_COUNT
};

const char *format_name(enum format f); /* "text", "jsonl", "json", "json" */

struct sniffed {
    enum format format;
    enum packing packing;
};

/* A file whose first character begins an object, or most of whose first lines do, is JSONL, broken or not; where { stands alone
 * on its line, objects over many lines; what
 * begins an array of objects is one (or, with an array on each line, JSONL); all else is a text. Errors: blame (Parquet, UTF-16 ... with the conversion
 * in words; empty; damaged), NOT_FOUND, IO, NO_MEMORY. */
int data_sniff(struct sniffed *out, const char *path, const char *name, enum err_code blame,
               struct err *err);

#endif
