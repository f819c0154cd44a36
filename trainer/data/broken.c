/* broken.c - from Jansson's errors, which quote the text, to places and sentences of our own. */
#include "trainer/data/broken.h"

#include <stdbool.h>
#include <string.h>

#include "trainer/tokenizer/utf8.h"

/* Where the token begins that ends before `end`: Jansson reports the place behind it. `near` is the message's quotation. */
static size_t token_start(const char *text, size_t end, const char *message)
{
    const char *near = strstr(message, " near '");

    if (near != NULL) {
        const size_t quoted = strlen(near + 7) - 1; /* without the last quote */
        if (quoted <= end && memcmp(text + end - quoted, near + 7, quoted) == 0) {
            return end - quoted;
        }
    }
    if (end > 1 &&
        text[end - 1] == '"') { /* a string too long to be quoted: back to its first quote */
        for (size_t i = end - 1; i-- > 0;) {
            size_t slashes = 0;
            while (text[i] == '"' && slashes < i && text[i - 1 - slashes] == '\\') {
                slashes++;
            }
            if (text[i] == '"' && slashes % 2 == 0) {
                return i;
            }
        }
    }
    return end > 0 ? end - 1 : 0;
}

static bool starts(const char *message, const char *with)
{
    return strncmp(message, with, strlen(with)) == 0;
}

/* Whether c is the last byte before text[at] that is no white space. */
static bool stands_before(const char *text, size_t at, char c)
{
    while (at > 0 && strchr(" \t\r\n", text[at - 1]) != NULL && text[at - 1] != '\0') {
        at--;
    }
    return at > 0 && text[at - 1] == c;
}

/* What a token that does not fit says about the mistake. */
static const char *guess(const char *text, size_t bytes, size_t at, const char *message)
{
    const char *s = text + at;
    const size_t n = bytes - at;

    if (n >= 3 && memcmp(s, "\xEF\xBB\xBF", 3) == 0) {
        return "a byte order mark in the middle of the file";
    }
    if (n > 0 && *s == '\'') {
        return "strings and keys take double quotes, not single ones";
    }
    if ((n >= 4 && (memcmp(s, "True", 4) == 0 || memcmp(s, "None", 4) == 0)) ||
        (n >= 5 && memcmp(s, "False", 5) == 0)) {
        return "Python's True, False and None are true, false and null in JSON";
    }
    if ((n >= 3 && memcmp(s, "NaN", 3) == 0) || (n >= 3 && memcmp(s, "Inf", 3) == 0) ||
        (n >= 4 && memcmp(s, "-Inf", 4) == 0)) {
        return "JSON has neither NaN nor Infinity";
    }
    if (n > 0 && (*s == '}' || *s == ']') && stands_before(text, at, ',')) {
        return "there is a comma before the closing bracket";
    }
    if (n > 1 && *s == '/' && (s[1] == '/' || s[1] == '*')) {
        return "JSON has no comments";
    }
    if (starts(message, "string or '}'")) {
        return "a key in double quotes must stand here";
    }
    if (starts(message, "':'")) {
        return "a colon must stand here, behind the key";
    }
    if (starts(message, "'}'") || starts(message, "']'")) {
        return stands_before(text, at, '"')
                   ? "a comma or a closing bracket must stand here; is a quote inside a "
                     "string not written as \\\"?"
                   : "a comma or a closing bracket must stand here";
    }
    return "a value must stand here";
}

/* Errors inside a string that begins a token; false for all others. */
static bool in_string(struct broken *b, const char *text, size_t bytes, const json_error_t *e)
{
    const size_t at = e->position > 0 ? (size_t)e->position : 0;

    b->at = at < bytes ? at : bytes;
    if (starts(e->text, "control character")) {
        b->why = "a tab or another control character stands in a string; it is written as \\t or "
                 "\\uXXXX";
    } else if (starts(e->text, "unexpected newline")) {
        b->why = "the line ends inside a string; a line break in it is written as \\n";
    } else if (starts(e->text, "invalid escape")) {
        b->why = "a backslash stands before a character that it does not escape; itself it is "
                 "written as \\\\";
        while (b->at > 0 && (b->at >= bytes || text[b->at] != '\\')) {
            b->at--;
        }
    } else if (starts(e->text, "invalid Unicode")) {
        *b = (struct broken){REASON_lone_surrogate, token_start(text, b->at, e->text), ""};
    } else {
        return false;
    }
    return true;
}

struct broken broken_find(const char *text, size_t bytes, const json_error_t *e)
{
    struct broken b = {REASON_broken_json, 0, ""};
    const size_t behind =
        e->position > 0 && (size_t)e->position < bytes ? (size_t)e->position : bytes;
    const enum json_error_code code = json_error_code(e);

    const char *nul = memchr(text, '\0', bytes);

    if (nul != NULL && code != json_error_stack_overflow && (size_t)(nul - text) <= behind) {
        b.at = (size_t)(nul - text);
        b.why = "a NUL byte; is the file damaged?";
    } else if (code == json_error_invalid_utf8) {
        b.reason = REASON_not_utf8;
        b.at = utf8_prefix(text, bytes, NULL);
    } else if (code == json_error_stack_overflow) {
        b.reason = REASON_nested_too_deep;
        b.at = behind;
    } else if (code == json_error_premature_end_of_input) {
        b.at = bytes;
        b.why = strstr(e->text, "near end of file") == NULL
                    ? "the text ends inside a string: a closing quote is missing"
                    : "the text ends too early: a closing bracket is missing, or the object goes "
                      "on in the next line";
    } else if (code == json_error_end_of_input_expected) {
        b.reason = REASON_several_objects;
        b.at = token_start(text, behind, e->text);
        b.why = memchr(text, '\r', b.at) != NULL ? "lines end in a CR alone; write LF" : "";
    } else if (code == json_error_null_character || code == json_error_null_byte_in_key) {
        b.reason = REASON_nul_character;
        b.at = token_start(text, behind, e->text);
    } else if (code == json_error_duplicate_key) {
        b.reason = REASON_duplicate_keys;
        b.at = token_start(text, behind, e->text);
    } else if (code == json_error_numeric_overflow) {
        b.at = token_start(text, behind, e->text);
        b.why = "a number is too large";
    } else if (!in_string(&b, text, bytes, e)) {
        b.at = strstr(e->text, "near end of file") != NULL ? bytes
                                                           : token_start(text, behind, e->text);
        b.why = guess(text, bytes, b.at, e->text);
    }
    return b;
}
