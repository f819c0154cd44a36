/* jinja_lexer.c - a template as words, with white space taken off as trim_blocks and lstrip_blocks say.
 *
 * Source: the lexer of Jinja 3.1 (jinja2/lexer.py): a tag with `-` takes all white space beside it; a block or
 * comment that is the first thing on its line takes the blanks before it, and the line end after it, unless it
 * has `+` there. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/chat/jinja_node.h"
#include "trainer/chat/jinja_text.h"
#include "trainer/tokenizer/utf8.h"

enum { BRACKETS_MAX = 256, NUMBER_MAX = 64 };

struct lexer {
    struct jinja_arena *arena;
    const char *s;
    size_t at, n;
    int line;
    bool starts_line; /* the word before ended with a line end, or there is none */
    struct jinja_token *tokens;
    size_t count, room;
    struct err *err;
    char brackets[BRACKETS_MAX];
    int open;
};

void jinja_refuse(struct err *err, int line, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(err, ERR_BAD_FILE, "line %d: %s", line, text);
}

#define REFUSE(l, ...) (jinja_refuse((l)->err, (l)->line, __VA_ARGS__), (int)ERR_BAD_FILE)

static int no_memory(struct lexer *l)
{
    return FAIL(l->err, ERR_NO_MEMORY, "there is no memory for a chat template of %zu bytes", l->n);
}

static int put(struct lexer *l, struct jinja_token t)
{
    if (l->count == l->room) {
        const size_t room = l->room == 0 ? 64 : 2 * l->room;
        struct jinja_token *tokens = jinja_arena_take(l->arena, room * sizeof *tokens);
        if (tokens == NULL) {
            return no_memory(l);
        }
        if (l->count > 0) {
            memcpy(tokens, l->tokens, l->count * sizeof *tokens);
        }
        l->tokens = tokens;
        l->room = room;
    }
    l->tokens[l->count++] = t;
    return 0;
}

static int put_word(struct lexer *l, enum jinja_token_kind kind, size_t begin, size_t end)
{
    return put(l, (struct jinja_token){
                      .kind = kind, .line = l->line, .at = l->s + begin, .n = end - begin});
}

static bool stands(const struct lexer *l, size_t at, const char *what)
{
    const size_t n = strlen(what);
    return n <= l->n - at && memcmp(l->s + at, what, n) == 0;
}

/* Go to `to`, counting lines. */
static void move(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++) {
        l->line += l->s[l->at] == '\n';
    }
    l->starts_line = to > 0 && l->s[to - 1] == '\n';
}

static size_t after_space(const struct lexer *l, size_t at)
{
    uint32_t c;

    while (at < l->n) {
        const size_t n = utf8_get(l->s + at, &c);
        if (!jinja_is_space(c)) {
            break;
        }
        at += n;
    }
    return at;
}

static size_t before_space(const struct lexer *l, size_t begin, size_t end)
{
    uint32_t c;

    while (end > begin) {
        const size_t at = utf8_back(l->s, end);
        (void)utf8_get(l->s + at, &c);
        if (!jinja_is_space(c)) {
            break;
        }
        end = at;
    }
    return end;
}

/* The end of the text before a tag at `tag`, whose sign is `sign`. */
static size_t trimmed(const struct lexer *l, size_t tag, char sign, bool is_print)
{
    size_t line = tag;

    if (sign == '-') {
        return before_space(l, l->at, tag);
    }
    if (sign == '+' || is_print) {
        return tag;
    }
    while (line > l->at && l->s[line - 1] != '\n') {
        line--;
    }
    const bool is_whole = line > l->at || l->starts_line;
    return is_whole && before_space(l, line, tag) == line ? line : tag;
}

/* Where the text goes on after the end `closing` ("%}" or "#}") that stands at `at`, its sign before it. */
static size_t after_tag(const struct lexer *l, size_t at, char sign)
{
    if (sign == '-') {
        return after_space(l, at + 2);
    }
    return sign == '\0' && stands(l, at + 2, "\n") ? at + 3 : at + 2;
}

static char sign_at(const struct lexer *l, size_t at)
{
    if (at < l->n && (l->s[at] == '-' || l->s[at] == '+')) {
        return l->s[at];
    }
    return '\0';
}

static int skip_comment(struct lexer *l, size_t begin)
{
    for (size_t at = begin; at + 1 < l->n; at++) {
        const char sign = sign_at(l, at);
        const size_t end = at + (sign != '\0');
        if (stands(l, end, "#}")) {
            move(l, after_tag(l, end, sign));
            return 0;
        }
    }
    return REFUSE(l, "the comment has no end: #} is missing");
}

/* Is `{% WORD %}` at `at`, which is behind "{%" and its sign? The place behind it, or 0. */
static size_t word_tag(const struct lexer *l, size_t at, const char *word, bool trims)
{
    at = after_space(l, at);
    if (!stands(l, at, word)) {
        return 0;
    }
    at = after_space(l, at + strlen(word));
    const char sign = sign_at(l, at);
    const size_t end = at + (sign != '\0');
    if (!stands(l, end, "%}") || (!trims && sign == '+')) {
        return 0;
    }
    return trims || sign == '-' ? after_tag(l, end, sign) : end + 2;
}

/* l->at is behind {% raw %}: the text up to {% endraw %} is as it is. */
static int take_raw(struct lexer *l)
{
    for (size_t tag = l->at; tag + 1 < l->n; tag++) {
        if (!stands(l, tag, "{%")) {
            continue;
        }
        const char sign = sign_at(l, tag + 2);
        const size_t after = word_tag(l, tag + 2 + (sign != '\0'), "endraw", true);
        if (after != 0) {
            const size_t end = trimmed(l, tag, sign, false);
            TRY(end > l->at ? put_word(l, TOKEN_TEXT, l->at, end) : 0);
            move(l, after);
            return 0;
        }
    }
    return REFUSE(l, "raw has no end: {%% endraw %%} is missing");
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The character that n hex digits at `at` mean. */
static int take_hex(struct lexer *l, size_t at, size_t n, size_t end, uint32_t *c)
{
    *c = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = at + i < end ? hex(l->s[at + i]) : -1;
        if (digit < 0) {
            return REFUSE(l, "a string has an escape with too few hexadecimal digits");
        }
        *c = *c << 4 | (uint32_t)digit;
    }
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF)) {
        return REFUSE(l, "a string has an escape that is no character");
    }
    return 0;
}

/* The escape at *at, a backslash; *at moves behind it. Writes at most as many bytes as it takes. */
static int resolve(struct lexer *l, size_t *at, size_t end, char *to, size_t *n)
{
    static const char letters[] = "ntrabfv", means[] = "\n\t\r\a\b\f\v";
    const char c = l->s[*at + 1];
    const char *letter = strchr(letters, c);
    uint32_t code;

    if (c == '\n') {
        *n = 0;
    } else if (c == '\\' || c == '\'' || c == '"') {
        to[0] = c;
        *n = 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        TRY(take_hex(l, *at + 2, digits, end, &code));
        *n = utf8_write(to, code);
        *at += digits;
    } else if (c >= '0' && c <= '7') {
        size_t digits = 0;
        for (code = 0; digits < 3 && *at + 1 + digits < end && l->s[*at + 1 + digits] >= '0' &&
                       l->s[*at + 1 + digits] <= '7';
             digits++) {
            code = code * 8 + (uint32_t)(l->s[*at + 1 + digits] - '0');
        }
        *n = utf8_write(to, code);
        *at += digits - 1;
    } else if (letter != NULL && c != '\0') {
        to[0] = means[letter - letters];
        *n = 1;
    } else {
        to[0] = '\\';
        *n = 1;
        *at -= 1; /* the character after it is written next */
    }
    *at += 2;
    return 0;
}

static int take_string(struct lexer *l)
{
    const char quote = l->s[l->at];
    size_t end = l->at + 1, n = 0, added;

    while (end < l->n && l->s[end] != quote) {
        end += l->s[end] == '\\' && end + 1 < l->n ? 2 : 1;
    }
    if (end >= l->n) {
        return REFUSE(l, "a string has no closing %c", quote);
    }
    char *text = jinja_arena_take(l->arena, end - l->at + 1);
    if (text == NULL) {
        return no_memory(l);
    }
    for (size_t at = l->at + 1; at < end;) {
        if (l->s[at] != '\\') {
            text[n++] = l->s[at++];
            continue;
        }
        TRY(resolve(l, &at, end, text + n, &added));
        n += added;
    }
    TRY(put(l, (struct jinja_token){.kind = TOKEN_STRING, .line = l->line, .at = text, .n = n}));
    move(l, end + 1);
    return 0;
}

static size_t digits(const struct lexer *l, size_t at)
{
    size_t end = at;

    while (end < l->n && ((l->s[end] >= '0' && l->s[end] <= '9') ||
                          (l->s[end] == '_' && end > at && l->s[end - 1] != '_'))) {
        end++;
    }
    return end > at && l->s[end - 1] == '_' ? end - 1 : end;
}

static int take_number(struct lexer *l)
{
    const bool after_dot = l->at > 0 && l->s[l->at - 1] == '.';
    char text[NUMBER_MAX];
    size_t end = digits(l, l->at), n = 0;
    bool is_real = false;

    if (!after_dot && end + 1 < l->n && l->s[end] == '.' && digits(l, end + 1) > end + 1) {
        end = digits(l, end + 1);
        is_real = true;
    }
    if (!after_dot && end + 1 < l->n && (l->s[end] == 'e' || l->s[end] == 'E')) {
        const size_t from = end + 1 + (l->s[end + 1] == '+' || l->s[end + 1] == '-');
        if (digits(l, from) > from) {
            end = digits(l, from);
            is_real = true;
        }
    }
    for (size_t i = l->at; i < end && n < sizeof text - 1; i++) {
        if (l->s[i] != '_') {
            text[n++] = l->s[i];
        }
    }
    text[n] = '\0';
    struct jinja_token t = {.kind = is_real ? TOKEN_FLOAT : TOKEN_INT,
                            .line = l->line,
                            .at = l->s + l->at,
                            .n = end - l->at};
    errno = 0;
    if (is_real) {
        t.real = strtod(text, NULL);
    } else {
        t.integer = strtoll(text, NULL, 10);
    }
    if (errno != 0 || n == sizeof text - 1 || (end < l->n && is_name_byte(l->s[end]))) {
        return REFUSE(l, "a number is too large or not one that is known");
    }
    TRY(put(l, t));
    move(l, end);
    return 0;
}

/* Brackets must match; within them, %} and }} end nothing. */
static int count_bracket(struct lexer *l, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *closes = strchr(closing, c);

    if (c == '(' || c == '[' || c == '{') {
        if (l->open == BRACKETS_MAX) {
            return REFUSE(l, "brackets are nested deeper than %d levels", BRACKETS_MAX);
        }
        l->brackets[l->open++] = c;
    } else if (closes != NULL &&
               (l->open == 0 || l->brackets[--l->open] != opening[closes - closing])) {
        return REFUSE(l, "unexpected '%c'", c);
    }
    return 0;
}

static int take_operator(struct lexer *l)
{
    static const char *const operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                            "]",  "{",  "}",  ",",  ".",  ":",  "|", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const size_t n = strlen(operators[i]);
        if (stands(l, l->at, operators[i])) {
            TRY(count_bracket(l, operators[i][0]));
            TRY(put(l, (struct jinja_token){
                           .kind = TOKEN_OPERATOR, .line = l->line, .at = operators[i], .n = n}));
            move(l, l->at + n);
            return 0;
        }
    }
    return REFUSE(l, "a character that means nothing here: '%s'", text_excerpt(l->s + l->at, 1).at);
}

static int take_word(struct lexer *l)
{
    const char c = l->s[l->at];
    size_t end = l->at;

    if (c == '"' || c == '\'') {
        return take_string(l);
    }
    if (c >= '0' && c <= '9') {
        return take_number(l);
    }
    while (end < l->n && is_name_byte(l->s[end])) {
        end++;
    }
    if (end == l->at) {
        return take_operator(l);
    }
    TRY(put_word(l, TOKEN_NAME, l->at, end));
    move(l, end);
    return 0;
}

/* The words of a tag up to and with its end. */
static int take_tag(struct lexer *l, bool is_print)
{
    const char *closing = is_print ? "}}" : "%}";
    const int line = l->line;

    TRY(put_word(l, is_print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, l->at, l->at));
    l->open = 0;
    for (;;) {
        move(l, after_space(l, l->at));
        if (l->at >= l->n) {
            l->line = line;
            return REFUSE(l, "the tag has no end: %s is missing", closing);
        }
        const char sign = sign_at(l, l->at);
        const size_t end = l->at + (sign != '\0');
        if (l->open == 0 && stands(l, end, closing) && !(is_print && sign == '+')) {
            TRY(put_word(l, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, l->at, end + 2));
            move(l, is_print && sign == '\0' ? end + 2 : after_tag(l, end, sign));
            return 0;
        }
        TRY(take_word(l));
    }
}

/* The text up to the next tag, and the tag. */
static int take_part(struct lexer *l)
{
    size_t tag = l->at;

    while (tag + 1 < l->n && !(l->s[tag] == '{' && (l->s[tag + 1] == '{' || l->s[tag + 1] == '%' ||
                                                    l->s[tag + 1] == '#'))) {
        tag++;
    }
    if (tag + 1 >= l->n) {
        TRY(put_word(l, TOKEN_TEXT, l->at, l->n));
        move(l, l->n);
        return 0;
    }
    const char kind = l->s[tag + 1];
    const char sign = sign_at(l, tag + 2);
    const size_t end = trimmed(l, tag, sign, kind == '{');
    const size_t inside = tag + 2 + (sign != '\0');
    if (end > l->at) {
        TRY(put_word(l, TOKEN_TEXT, l->at, end));
    }
    move(l, inside);
    if (kind == '#') {
        return skip_comment(l, inside);
    }
    const size_t raw = kind == '%' ? word_tag(l, inside, "raw", false) : 0;
    if (raw != 0) {
        move(l, raw);
        return take_raw(l);
    }
    return take_tag(l, kind == '{');
}

int jinja_lex(struct jinja_token **out, struct jinja_arena *arena, const char *source, size_t n,
              struct err *err)
{
    struct lexer l = {
        .arena = arena, .s = source, .n = n, .line = 1, .starts_line = true, .err = err};

    while (l.at < l.n) {
        TRY(take_part(&l));
    }
    TRY(put_word(&l, TOKEN_END, l.n, l.n));
    *out = l.tokens;
    return 0;
}
