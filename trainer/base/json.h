/* json.h - JSON from files that anybody may have written, and fields of a known type out of it.
 *
 * Jansson parses; this file adds what a hostile or careless file needs: caps, refusal of keys
 * given twice, integers beyond 64 bits as reals (tokenizer_config.json has
 * 1000000000000000019884624838656), and errors that say file, line and column.
 */
#ifndef TRAINER_BASE_JSON_H
#define TRAINER_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum {
    JSON_DEPTH_MAX = 64,       /* arrays and objects inside each other                           */
    JSON_VALUES_MAX = 1000000, /* of an example of a training file, and of what its strings hold */
};

/* Parse a text; `name` is for errors. *out is a new reference, NULL on failure.
 * Errors: BAD_FILE ("config.json line 3 column 9: ..."), NO_MEMORY. */
int json_parse_text(json_t **out, const char *text, size_t bytes, const char *name,
                    struct err *err);

/* The same for a caller that speaks of errors itself: `text` may be changed (such integers are), flags are Jansson's.
 * NULL on failure: *why says it; json_error_stack_overflow, with the position only, for nesting beyond JSON_DEPTH_MAX. */
json_t *json_parse_in_place(char *text, size_t bytes, size_t flags, json_error_t *why);

/* Whether a text has no more than that many values and keys, by its commas and brackets outside of strings: a guard, because a value
 * of two bytes takes a hundred when it is parsed. */
bool json_has_at_most(const char *text, size_t bytes, size_t values);

/* Parse a file of at most max_bytes, by path (a byte order mark before the text is skipped) or beneath a folder (io_open_beneath).
 * Errors: as json_parse_text and io_read_file. */
int json_parse_file(json_t **out, const char *path, size_t max_bytes, struct err *err);
int json_parse_beneath(json_t **out, int root_fd, const char *relative, size_t max_bytes,
                       struct err *err);

/* Write `value` durably (io_write_file), indented by two spaces as Hugging Face does.
 * Errors: DISK_FULL, IO, NO_MEMORY. */
int json_write_file(const char *path, const json_t *value, struct err *err);

/* The same value, for calls of Jansson that only read it, or count who refers to it, and yet take no pointer to const. */
json_t *json_unconst(const json_t *value);

/* An object whose fields are read, and how to speak of it: "config.json: hidden_size must be an
 * integer of at least 1, not \"big\"". Errors carry `code` and err.param is the field's name. */
struct fields {
    const json_t *object;
    const char *where;  /* "config.json"; "" when the field's name says it all */
    enum err_code code; /* usually ERR_BAD_FILE or ERR_BAD_SPEC                  */
};

/* OPTIONAL: a field that is absent or null leaves *out as it is. */
enum field_need { FIELD_REQUIRED, FIELD_OPTIONAL };

/* 2.0 is the integer 2. A bound that is INT64_MIN or INT64_MAX is left out of the sentence. */
int fields_integer(const struct fields *f, const char *name, enum field_need need, int64_t low,
                   int64_t high, int64_t *out, struct err *err);
int fields_number(const struct fields *f, const char *name, enum field_need need, double low,
                  double high, double *out, struct err *err);
int fields_bool(const struct fields *f, const char *name, enum field_need need, bool *out,
                struct err *err);

/* Borrowed from the object. */
int fields_text(const struct fields *f, const char *name, enum field_need need, const char **out,
                struct err *err);
int fields_object(const struct fields *f, const char *name, enum field_need need,
                  const json_t **out, struct err *err);
int fields_array(const struct fields *f, const char *name, enum field_need need, const json_t **out,
                 struct err *err);

#endif
