/* json.c - capped parsing with positions, and typed fields. */
#include "trainer/base/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/base/io.h"

enum { SHOWN = 48 }; /* bytes of a wrong value that an error shows */

/* Place of the i-th byte of a text, counted as an editor does. */
static int fail_at(const char *text, size_t i, const char *name, const char *why, struct err *err)
{
    int line = 1, column = 1;

    for (size_t k = 0; k < i; k++) {
        if (text[k] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[k] & 0xC0U) != 0x80U) {
            column++;
        }
    }
    return FAIL(err, ERR_BAD_FILE, "%s line %d column %d: %s", name, line, column, why);
}

/* Whether n digits are more than a signed 64-bit integer holds. */
static bool is_beyond_64_bits(const char *digits, size_t n, bool negative)
{
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";

    return n > 19 || (n == 19 && memcmp(digits, most, 19) > 0);
}

/* text[i] begins a number. Turn an integer that 64 bits can't hold into a real of as many bytes:
 * 16 digits, e, exponent padded with zeros. Returns the index behind the number. */
static size_t pass_number(char *text, size_t i, size_t bytes)
{
    const bool negative = text[i] == '-';
    const size_t first = i + (negative ? 1 : 0);
    size_t end = first;

    while (end < bytes && text[end] >= '0' && text[end] <= '9') {
        end++;
    }
    const size_t n = end - first;
    const bool is_real = end < bytes && (text[end] == '.' || text[end] == 'e' || text[end] == 'E');
    if (!is_real && is_beyond_64_bits(text + first, n, negative)) {
        size_t exponent = n - 16;
        text[first + 16] = 'e';
        for (size_t k = end - 1; k > first + 16; k--) {
            text[k] = (char)('0' + exponent % 10);
            exponent /= 10;
        }
    }
    while (end < bytes && strchr("0123456789+-.eE", text[end]) != NULL && text[end] != '\0') {
        end++;
    }
    return end;
}

/* Returns the index behind the string that begins at text[i]. */
static size_t pass_string(const char *text, size_t i, size_t bytes)
{
    for (i++; i < bytes && text[i] != '"'; i++) {
        if (text[i] == '\\') {
            i++;
        }
    }
    return i + 1;
}

/* Make integers fit. Returns where the nesting becomes too deep; `bytes` when it does not. */
static size_t prepare(char *text, size_t bytes)
{
    int depth = 0;

    for (size_t i = 0; i < bytes;) {
        const char c = text[i];
        if (c == '"') {
            i = pass_string(text, i, bytes);
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            i = pass_number(text, i, bytes);
        } else {
            depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
            if (depth > JSON_DEPTH_MAX) {
                return i;
            }
            i++;
        }
    }
    return bytes;
}

bool json_has_at_most(const char *text, size_t bytes, size_t values)
{
    size_t n = 1;

    for (size_t i = 0; i < bytes && n <= values;) {
        const char c = text[i];
        n += c == ',' || c == '[' || c == '{' ? 1 : 0;
        i = c == '"' ? pass_string(text, i, bytes) : i + 1;
    }
    return n <= values;
}

json_t *json_unconst(const json_t *value)
{
    const union {
        const json_t *given;
        json_t *same;
    } u = {.given = value};

    return u.same;
}

json_t *json_parse_in_place(char *text, size_t bytes, size_t flags, json_error_t *why)
{
    const size_t deep = prepare(text, bytes);

    if (deep < bytes) {
        *why = (json_error_t){.position = (int)(deep < INT_MAX ? deep : INT_MAX)};
        why->text[JSON_ERROR_TEXT_LENGTH - 1] = (char)json_error_stack_overflow;
        return NULL;
    }
    return json_loadb(text, bytes, flags, why);
}

/* Parse `text`, which may be changed. */
static int parse(json_t **out, char *text, size_t bytes, const char *name, struct err *err)
{
    json_error_t why;

    *out = NULL;
    if (bytes == 0) {
        return FAIL(err, ERR_BAD_FILE, "%s is empty", name);
    }
    *out = json_parse_in_place(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (*out != NULL) {
        return 0;
    }
    if (json_error_code(&why) == json_error_out_of_memory) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", name);
    }
    if (json_error_code(&why) == json_error_stack_overflow) {
        return fail_at(text, (size_t)why.position, name, "nested too deep", err);
    }
    for (char *c = why.text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' '; /* jansson quotes the text it stumbled over */
        }
    }
    return FAIL(err, ERR_BAD_FILE, "%s line %d column %d: %s", name, why.line, why.column,
                why.text);
}

int json_parse_text(json_t **out, const char *text, size_t bytes, const char *name, struct err *err)
{
    char *copy = malloc(bytes + 1);

    *out = NULL;
    if (copy == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", name);
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    const int rc = parse(out, copy, bytes, name, err);
    free(copy);
    return rc;
}

int json_parse_file(json_t **out, const char *path, size_t max_bytes, struct err *err)
{
    char *text = NULL;
    size_t bytes = 0;

    *out = NULL;
    TRY(io_read_file(&text, &bytes, path, max_bytes, err));
    const size_t mark = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of some editors */
    const int rc = parse(out, text + mark, bytes - mark, path, err);
    free(text);
    return rc;
}

int json_parse_beneath(json_t **out, int root_fd, const char *relative, size_t max_bytes,
                       struct err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int fd = -1;

    *out = NULL;
    TRY(io_open_beneath(&fd, root_fd, relative, err));
    int rc = io_read_fd(&text, &bytes, fd, relative, max_bytes, err);
    (void)close(fd);
    if (rc == 0) {
        rc = parse(out, text, bytes, relative, err);
    }
    free(text);
    return rc;
}

int json_write_file(const char *path, const json_t *value, struct err *err)
{
    char *text = json_dumps(value, JSON_INDENT(2));
    int rc = 0;

    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", path);
    }
    const size_t n = strlen(text);
    text[n] = '\n'; /* in the place of the NUL */
    rc = io_write_file(path, text, n + 1, err);
    free(text);
    return rc;
}

/* A value as an error shows it: on one line, short, and only the kind of what is large. */
static const char *show(char out[SHOWN + 8], const json_t *value)
{
    if (json_is_object(value) || json_is_array(value)) {
        return json_is_object(value) ? "an object" : "an array";
    }
    if (!json_is_string(value)) {
        const size_t n = json_dumpb(value, out, SHOWN, JSON_ENCODE_ANY);
        out[n < SHOWN ? n : SHOWN] = '\0';
        return out;
    }
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (n > SHOWN) {
        for (n = SHOWN; n > 0 && ((unsigned char)text[n] & 0xC0U) == 0x80U; n--) {
        }
    }
    (void)snprintf(out, SHOWN + 8, "\"%.*s%s\"", (int)n, text,
                   n < json_string_length(value) ? "..." : "");
    for (char *c = out; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' ';
        }
    }
    return out;
}

static int refuse(const struct fields *f, const char *name, const char *must, const json_t *value,
                  struct err *err)
{
    char shown[SHOWN + 8];
    const char *colon = f->where[0] == '\0' ? "" : ": ";

    if (value == NULL || json_is_null(value)) {
        err_set(err, f->code, "%s%s%s is missing; it must be %s", f->where, colon, name, must);
    } else {
        err_set(err, f->code, "%s%s%s must be %s, not %s", f->where, colon, name, must,
                show(shown, value));
    }
    err_about(err, name);
    return (int)f->code;
}

/* The field's value in *value, or NULL where an optional one is not given. */
static int find(const struct fields *f, const char *name, enum field_need need, const char *must,
                const json_t **value, struct err *err)
{
    const json_t *found = json_object_get(f->object, name);

    *value = json_is_null(found) ? NULL : found;
    if (*value == NULL && need == FIELD_REQUIRED) {
        return refuse(f, name, must, NULL, err);
    }
    return 0;
}

/* "an integer from 1 to 9"; bounds at the ends of the type are left out. */
static void integer_in_words(char *out, size_t size, int64_t low, int64_t high)
{
    if (low != INT64_MIN && high != INT64_MAX) {
        (void)snprintf(out, size, "an integer from %lld to %lld", (long long)low, (long long)high);
    } else if (low != INT64_MIN) {
        (void)snprintf(out, size, "an integer of at least %lld", (long long)low);
    } else if (high != INT64_MAX) {
        (void)snprintf(out, size, "an integer of at most %lld", (long long)high);
    } else {
        (void)snprintf(out, size, "an integer");
    }
}

int fields_integer(const struct fields *f, const char *name, enum field_need need, int64_t low,
                   int64_t high, int64_t *out, struct err *err)
{
    const double exact = 9007199254740992.0; /* 2^53: below, a double is the integer it shows */
    const json_t *value = NULL;
    char must[80];
    int64_t n = 0;

    integer_in_words(must, sizeof must, low, high);
    TRY(find(f, name, need, must, &value, err));
    if (value == NULL) {
        return 0;
    }
    const double real = json_real_value(value);
    if (json_is_integer(value)) {
        n = json_integer_value(value);
    } else if (json_is_real(value) && real > -exact && real < exact &&
               real == (double)(int64_t)real) {
        n = (int64_t)real;
    } else {
        return refuse(f, name, must, value, err);
    }
    if (n < low || n > high) {
        return refuse(f, name, must, value, err);
    }
    *out = n;
    return 0;
}

int fields_number(const struct fields *f, const char *name, enum field_need need, double low,
                  double high, double *out, struct err *err)
{
    const json_t *value = NULL;
    char must[80];

    (void)snprintf(must, sizeof must, "a number from %g to %g", low, high);
    TRY(find(f, name, need, must, &value, err));
    if (value == NULL) {
        return 0;
    }
    const double n = json_number_value(value);
    if (!json_is_number(value) || !(n >= low && n <= high)) {
        return refuse(f, name, must, value, err);
    }
    *out = n;
    return 0;
}

int fields_bool(const struct fields *f, const char *name, enum field_need need, bool *out,
                struct err *err)
{
    const json_t *value = NULL;

    TRY(find(f, name, need, "true or false", &value, err));
    if (value == NULL) {
        return 0;
    }
    if (!json_is_boolean(value)) {
        return refuse(f, name, "true or false", value, err);
    }
    *out = json_is_true(value);
    return 0;
}

int fields_text(const struct fields *f, const char *name, enum field_need need, const char **out,
                struct err *err)
{
    const json_t *value = NULL;

    TRY(find(f, name, need, "a string", &value, err));
    if (value == NULL) {
        return 0;
    }
    if (!json_is_string(value)) {
        return refuse(f, name, "a string", value, err);
    }
    *out = json_string_value(value);
    return 0;
}

int fields_object(const struct fields *f, const char *name, enum field_need need,
                  const json_t **out, struct err *err)
{
    const json_t *value = NULL;

    TRY(find(f, name, need, "an object", &value, err));
    if (value == NULL) {
        return 0;
    }
    if (!json_is_object(value)) {
        return refuse(f, name, "an object", value, err);
    }
    *out = value;
    return 0;
}

int fields_array(const struct fields *f, const char *name, enum field_need need, const json_t **out,
                 struct err *err)
{
    const json_t *value = NULL;

    TRY(find(f, name, need, "an array", &value, err));
    if (value == NULL) {
        return 0;
    }
    if (!json_is_array(value)) {
        return refuse(f, name, "an array", value, err);
    }
    *out = value;
    return 0;
}
