/* lexer.c - the words of JSON, strictly (RFC 8259). */
#include "trainer/ckpt/lexer.h"

#include <string.h>

int lexer_fail(struct lexer *p, const char *want)
{
    return FAIL(p->err, ERR_BAD_FILE, "%s: the header is damaged at its byte %zu: %s", p->file,
                (size_t)(p->at - p->begin), want);
}

static void pass_space(struct lexer *p)
{
    while (p->at < p->end &&
           (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) {
        p->at++;
    }
}

bool lexer_pass(struct lexer *p, char c)
{
    pass_space(p);
    if (p->at == p->end || *p->at != c) {
        return false;
    }
    p->at++;
    pass_space(p);
    return true;
}

/* Length of the UTF-8 character at s (RFC 3629), 0 when it is none. */
static size_t utf8_length(const unsigned char *s, const unsigned char *end)
{
    const unsigned c = s[0];
    const size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;

    if (n == 0 || (size_t)(end - s) < n) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0U) != 0x80U) {
            return 0;
        }
    }
    const bool too_long = (c == 0xE0 && s[1] < 0xA0) || (c == 0xF0 && s[1] < 0x90);
    const bool surrogate = c == 0xED && s[1] >= 0xA0;
    const bool too_high = c == 0xF4 && s[1] >= 0x90;
    return too_long || surrogate || too_high ? 0 : n;
}

int lexer_check_utf8(struct lexer *p)
{
    while (p->at < p->end) {
        const size_t n = utf8_length((const unsigned char *)p->at, (const unsigned char *)p->end);
        if (n == 0) {
            return lexer_fail(p, "it is not UTF-8");
        }
        p->at += n;
    }
    p->at = p->begin;
    return 0;
}

/* The four digits behind \u; -1 when they are not there. */
static int32_t hex4(const struct lexer *p)
{
    int32_t code = 0;

    if (p->end - p->at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        const char c = p->at[i];
        const bool is_digit = c >= '0' && c <= '9';
        const char low = (char)(c | 0x20);
        if (!is_digit && (low < 'a' || low > 'f')) {
            return -1;
        }
        code = code * 16 + (is_digit ? c - '0' : low - 'a' + 10);
    }
    return code;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xC0U | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xE0U | code >> 12);
        } else {
            *to++ = (char)(0xF0U | code >> 18);
            *to++ = (char)(0x80U | (code >> 12 & 0x3FU));
        }
        *to++ = (char)(0x80U | (code >> 6 & 0x3FU));
    }
    *to++ = (char)(0x80U | (code & 0x3FU));
    return to;
}

/* \uXXXX, a pair of them for a surrogate pair; p->at is behind the u. */
static int parse_unicode(struct lexer *p, char **to)
{
    int32_t code = hex4(p);

    if (code <= 0) {
        return lexer_fail(p, code == 0 ? "a string contains \\u0000" : "four digits expected");
    }
    p->at += 4;
    if (code >= 0xD800 && code < 0xE000) {
        const bool pair = code < 0xDC00 && p->end - p->at >= 6 && memcmp(p->at, "\\u", 2) == 0;
        p->at += pair ? 2 : 0;
        const int32_t low = pair ? hex4(p) : -1;
        if (low < 0xDC00 || low >= 0xE000) {
            return lexer_fail(p, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        p->at += 4;
    }
    *to = put_utf8(*to, (uint32_t)code);
    return 0;
}

/* What stands behind a backslash, decoded to *to. */
static int parse_escape(struct lexer *p, char **to)
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char kind = *p->at; /* at the end of the text a NUL, which is no escape */
    const char *known = kind == '\0' ? NULL : strchr(escapes, kind);

    if (kind != 'u' && known == NULL) {
        return lexer_fail(p, "an unknown escape in a string");
    }
    p->at++;
    if (known == NULL) {
        return parse_unicode(p, to);
    }
    *(*to)++ = meanings[known - escapes];
    return 0;
}

/* Decoding in place works because escapes are never shorter than what they stand for. */
int lexer_string(struct lexer *p, const char **out)
{
    pass_space(p);
    if (p->at == p->end || *p->at++ != '"') {
        return lexer_fail(p, "a string expected");
    }
    char *to = p->at;
    *out = to;
    while (p->at < p->end && *p->at != '"') {
        const char c = *p->at++;
        if ((unsigned char)c < ' ') {
            return lexer_fail(p, "a control character in a string");
        }
        if (c == '\\') {
            TRY(parse_escape(p, &to));
        } else {
            *to++ = c;
        }
    }
    if (p->at == p->end) {
        return lexer_fail(p, "a string does not end");
    }
    p->at++;
    *to = '\0'; /* at the closing quote or before it */
    return 0;
}

int lexer_size(struct lexer *p, int64_t *out)
{
    int64_t n = 0;

    pass_space(p);
    if (p->at == p->end || *p->at < '0' || *p->at > '9') {
        return lexer_fail(p, "an integer of at least 0 expected");
    }
    const bool leading_zero = *p->at == '0';
    const char *first = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        const int digit = *p->at - '0';
        if (n > (INT64_MAX - digit) / 10) {
            return lexer_fail(p, "the number is too large");
        }
        n = n * 10 + digit;
    }
    if (leading_zero && p->at - first > 1) {
        return lexer_fail(p, "a number begins with 0");
    }
    if (p->at < p->end && (*p->at == '.' || *p->at == 'e' || *p->at == 'E')) {
        return lexer_fail(p, "an integer expected");
    }
    *out = n;
    return 0;
}
