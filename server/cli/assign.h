/* assign.h - from words of the command line to JSON and names: field=value, JOB:STEP, addresses. */
#ifndef SERVER_CLI_ASSIGN_H
#define SERVER_CLI_ASSIGN_H

#include <jansson.h>
#include <stddef.h>

#include "trainer/base/err.h"

/* Set in `request` the field of the word "field=value".
 *
 * `properties` is the schema's object {field: {type, ...}}, or NULL when it is not known. A field that it
 * calls a string takes the value as it stands; any other value that reads as JSON (number, true, false,
 * null, object, array) is that JSON, and text otherwise. "field=@FILE" reads JSON from FILE for a field
 * that is not a string. A whole number written like 1e6 becomes an integer where the schema asks for one.
 * Errors: BAD_REQUEST (no '=', no field name, field given twice, JSON that begins well and ends badly),
 * NOT_FOUND, IO. */
int assign_field(json_t *request, const char *word, const json_t *properties, struct err *err);

/* The word of a sweep "field=[value,value]": several values make the field one of `grid`, any other word is set in
 * `request` as by assign_field. Where the schema says that the field is an array itself, only a list of lists is
 * several values. Errors: as assign_field; BAD_REQUEST for an empty list. */
int assign_swept(json_t *request, json_t *grid, const char *word, const json_t *properties,
                 struct err *err);

/* The JSON object in the file `path` ("-" is standard input), a new reference. Errors: BAD_REQUEST with
 * line and column, NOT_FOUND, IO. */
int assign_load_object(json_t **out, const char *path, struct err *err);

/* JSON text of `value` whose numbers are as short as exactness allows; malloc'ed, NULL when out of memory. */
char *assign_dump(json_t *value);

struct job_word {
    char job[128];
    char step[32]; /* digits or "latest" */
};

/* Split "JOB", "JOB:STEP", "latest", "latest:STEP"; the step is "latest" when not given. Errors: BAD_REQUEST. */
int assign_job_word(struct job_word *out, const char *word, struct err *err);

/* Write an address: each '%' of `pattern` becomes the next of the `const char *` arguments,
 * percent-encoded. Errors: BAD_REQUEST when it does not fit into `size` bytes, or an argument is empty,
 * "." or "..". */
int assign_path(char *out, size_t size, struct err *err, const char *pattern, ...);

#endif
