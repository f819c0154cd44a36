/* assign.c - from words of the command line to JSON and names: field=value, JOB:STEP, addresses. */
#include "server/cli/assign.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int assign_load_object(json_t **out, const char *path, struct err *err)
{
    const bool standard = strcmp(path, "-") == 0;
    FILE *const file = standard ? stdin : fopen(path, "rbe");
    json_error_t why;

    if (file == NULL) {
        return errno == ENOENT ? FAIL(err, ERR_NOT_FOUND, "there is no file %s", path)
                               : FAIL(err, ERR_IO, "%s can't be read: %s", path, strerror(errno));
    }
    json_t *const value = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!standard) {
        (void)fclose(file);
    }
    if (value == NULL) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is not JSON: line %d, column %d: %s", path, why.line,
                    why.column, why.text);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return FAIL(err, ERR_BAD_REQUEST, "%s holds JSON that is not an object {...}", path);
    }
    *out = value;
    return 0;
}

static const char *declared_type(const json_t *properties, const char *field)
{
    return json_string_value(json_object_get(json_object_get(properties, field), "type"));
}

/* 1e6 reads as a real; where an integer is wanted and nothing is lost, make it one. */
static json_t *as_integer(json_t *value)
{
    const double real = json_real_value(value);

    if (!json_is_real(value) || trunc(real) != real || fabs(real) > 9.0e15) {
        return value;
    }
    json_decref(value);
    return json_integer((json_int_t)real);
}

static int parse_value(json_t **out, const char *field, const char *text, const char *type,
                       struct err *err)
{
    json_error_t why;

    if (type != NULL && strcmp(type, "string") == 0) {
        *out = json_string(text);
    } else if (text[0] == '@') {
        return assign_load_object(out, text + 1, err);
    } else {
        *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
        if (*out == NULL && (text[0] == '{' || text[0] == '[')) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, field,
                              "the value of %s is not JSON: column %d: %s", field, why.column,
                              why.text);
        }
        if (*out == NULL) {
            *out = json_string(text);
        } else if (type != NULL && strcmp(type, "integer") == 0) {
            *out = as_integer(*out);
        }
    }
    if (*out == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, field, "the value of %s is not UTF-8 text", field);
    }
    return 0;
}

int assign_field(json_t *request, const char *word, const json_t *properties, struct err *err)
{
    const size_t length = strcspn(word, "=");
    char field[128];
    json_t *value = NULL;

    if (word[length] != '=' || length == 0 || length >= sizeof field) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s is not of the form FIELD=VALUE; `hone help fields` lists "
                    "the fields",
                    word);
    }
    (void)snprintf(field, sizeof field, "%.*s", (int)length, word);
    if (json_object_get(request, field) != NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, field, "%s is given twice", field);
    }
    TRY(parse_value(&value, field, word + length + 1, declared_type(properties, field), err));
    if (json_object_set_new(request, field, value) != 0) {
        return FAIL(err, ERR_BAD_REQUEST, "the field name %s is not UTF-8 text", field);
    }
    return 0;
}

/* The values that "[...]" lists, a new reference; NULL where it is one value. */
static json_t *listed_values(const char *text, const char *type)
{
    const bool is_list = type != NULL && strcmp(type, "array") == 0;
    json_t *const values = text[0] == '[' ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool is_one = values == NULL;

    for (size_t i = 0; is_list && !is_one && i < json_array_size(values); i++) {
        is_one = !json_is_array(json_array_get(values, i));
    }
    if (is_one) {
        json_decref(values);
        return NULL;
    }
    for (size_t i = 0; type != NULL && strcmp(type, "integer") == 0 && i < json_array_size(values);
         i++) {
        (void)json_array_set_new(values, i, as_integer(json_incref(json_array_get(values, i))));
    }
    return values;
}

int assign_swept(json_t *request, json_t *grid, const char *word, const json_t *properties,
                 struct err *err)
{
    const size_t length = strcspn(word, "=");
    char field[128] = "";

    if (length < sizeof field && word[length] == '=') {
        (void)snprintf(field, sizeof field, "%.*s", (int)length, word);
    }
    json_t *const values = field[0] != '\0'
                               ? listed_values(word + length + 1, declared_type(properties, field))
                               : NULL;
    const bool is_twice =
        json_object_get(request, field) != NULL || json_object_get(grid, field) != NULL;
    if (is_twice || (values != NULL && json_array_size(values) == 0)) {
        json_decref(values);
        return FAIL_PARAM(err, ERR_BAD_REQUEST, field,
                          is_twice ? "%s is given twice" : "%s lists no value", field);
    }
    if (values == NULL) {
        return assign_field(request, word, properties, err);
    }
    return json_object_set_new(grid, field, values) == 0
               ? 0
               : FAIL(err, ERR_BAD_REQUEST, "the field name %s is not UTF-8 text", field);
}

/* Whether so many significant digits are enough for every real inside `value`. */
static bool is_exact(json_t *value, int digits)
{
    char text[40];
    const char *key = NULL;
    json_t *inner = NULL;
    size_t i = 0;

    if (json_is_real(value)) {
        (void)snprintf(text, sizeof text, "%.*g", digits, json_real_value(value));
        return strtod(text, NULL) == json_real_value(value);
    }
    json_array_foreach(value, i, inner)
    {
        if (!is_exact(inner, digits)) {
            return false;
        }
    }
    json_object_foreach(value, key, inner)
    {
        if (!is_exact(inner, digits)) {
            return false;
        }
    }
    return true;
}

char *assign_dump(json_t *value)
{
    int digits = 15;

    while (digits < 17 && !is_exact(value, digits)) {
        digits++;
    }
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION((size_t)digits));
}

int assign_job_word(struct job_word *out, const char *word, struct err *err)
{
    const size_t length = strcspn(word, ":");
    const char *const step = word[length] == ':' ? word + length + 1 : "latest";
    const bool is_number = step[0] != '\0' && step[strspn(step, "0123456789")] == '\0';

    if (length == 0 || length >= sizeof out->job) {
        return FAIL(err, ERR_BAD_REQUEST, "%s is not a job id", word);
    }
    if ((!is_number && strcmp(step, "latest") != 0) || strlen(step) >= sizeof out->step) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s does not name a checkpoint; write JOB:STEP with a number or "
                    "`latest`",
                    word);
    }
    (void)snprintf(out->job, sizeof out->job, "%.*s", (int)length, word);
    (void)snprintf(out->step, sizeof out->step, "%s", step);
    return 0;
}

/* Append `text`, percent-encoded; false when it does not fit. */
static bool append_encoded(char *out, size_t size, size_t *used, const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool plain = c < 0x80 && (isalnum(c) || strchr("-._~", c) != NULL);

        if (*used + (plain ? 2 : 4) > size) {
            return false;
        }
        *used += (size_t)snprintf(out + *used, size - *used, plain ? "%c" : "%%%02X", c);
    }
    return true;
}

int assign_path(char *out, size_t size, struct err *err, const char *pattern, ...)
{
    size_t used = 0;
    bool fits = true;
    const char *bad = NULL;
    va_list arguments;

    va_start(arguments, pattern);
    for (const char *p = pattern; *p != '\0' && fits; p++) {
        if (*p == '%') {
            const char *const word = va_arg(arguments, const char *);
            if (word[0] == '\0' || strcmp(word, ".") == 0 || strcmp(word, "..") == 0) {
                bad = word;
            }
            fits = append_encoded(out, size, &used, word);
        } else if (used + 2 > size) {
            fits = false;
        } else {
            out[used++] = *p;
        }
    }
    va_end(arguments);
    if (bad != NULL) {
        return FAIL(err, ERR_BAD_REQUEST, "'%s' is not an id", bad);
    }
    if (!fits) {
        return FAIL(err, ERR_BAD_REQUEST, "an id or a name is too long");
    }
    out[used] = '\0';
    return 0;
}
