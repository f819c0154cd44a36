/* regex_ruby.c - rewrite a pattern from Oniguruma's reading (Ruby syntax) to PCRE2's. */
#include "trainer/tokenizer/regex_ruby.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* The sets behind the escapes, as members of a class. Space is Unicode's White_Space; PCRE2's own \s
 * also has U+180E. Word is Alphabetic, Mark, Decimal_Number, Connector_Punctuation and the fractions and
 * superscripts of Latin-1; PCRE2's lacks the marks and has all numbers. */
#define SPACE                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define BORDER    "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_BORDER "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

/* clang-format off */
static const struct { char letter; const char *members, *alone; } escapes[] = {
    {'s', SPACE,       "[" SPACE "]"},
    {'S', NOT_SPACE,   "[^" SPACE "]"},
    {'w', WORD,        "[" WORD "]"},
    {'W', NULL,        "[^" WORD "]"},
    {'h', "0-9a-fA-F", "[0-9a-fA-F]"},
    {'H', NULL,        "[^0-9a-fA-F]"},
    {'b', "\\x{8}",    BORDER},
    {'B', NULL,        NO_BORDER},
};
static const struct { const char *name, *members; } posix_classes[] = {
    {"space", SPACE}, {"word", WORD}, {"punct", "\\p{P}\\p{S}"}, {"digit", "\\p{Nd}"},
    {"upper", "\\p{Lu}"}, {"lower", "\\p{Ll}"}, {"xdigit", "0-9a-fA-F"}, {"ascii", "\\x{0}-\\x{7f}"},
    {"alpha", "\\p{Alphabetic}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"},
};
static const struct { const char *name, *known; } properties[] = {
    {"Letter", "L"}, {"Mark", "M"}, {"Number", "N"}, {"Punctuation", "P"}, {"Punct", "P"},
    {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"}, {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"}, {"Titlecase_Letter", "Lt"}, {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"}, {"Decimal_Number", "Nd"}, {"Digit", "Nd"}, {"Letter_Number", "Nl"},
    {"Other_Number", "No"}, {"Alpha", "Alphabetic"}, {"Upper", "Uppercase"}, {"Lower", "Lowercase"},
    {"Space", "White_Space"}, {"Any", "Any"}, {"Alphabetic", "Alphabetic"},
    {"Uppercase", "Uppercase"}, {"Lowercase", "Lowercase"}, {"White_Space", "White_Space"},
    {"Emoji", "Emoji"}, {"Extended_Pictographic", "Extended_Pictographic"},
    {"Ideographic", "Ideographic"}, {"Math", "Math"}, {"ASCII", "ASCII"},
};
/* clang-format on */

/* From 10.40 on, \p{Han} is a script with its extensions unless it says otherwise. */
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
static const char script_prefix[] = "sc:";
#else
static const char script_prefix[] = "";
#endif

enum { GROUPS_MAX = 250 }; /* PCRE2's own limit of nesting */

struct rewriter {
    const char *s; /* the pattern */
    size_t n, i;
    struct text *out;
    size_t atom;               /* where in out the last atom starts, for quantifiers */
    size_t groups[GROUPS_MAX]; /* where the open groups start */
    int depth;
    bool starts; /* it asks where the text or a line starts */
    struct err *err;
};

#define LENGTH(table) (sizeof(table) / sizeof((table)[0]))

static int put(struct rewriter *w, const char *s)
{
    return text_put(w->out, s, strlen(s), w->err);
}

static int copy(struct rewriter *w, size_t n)
{
    TRY(text_put(w->out, w->s + w->i, n, w->err));
    w->i += n;
    return 0;
}

static bool at(const struct rewriter *w, const char *word)
{
    const size_t n = strlen(word);
    return w->n - w->i >= n && memcmp(w->s + w->i, word, n) == 0;
}

static int refuse(const struct rewriter *w, const char *what)
{
    return FAIL(w->err, ERR_BAD_FILE, "the pattern '%s' uses %s, which is not supported",
                text_excerpt(w->s, w->n).at, what);
}

static size_t character(const struct rewriter *w, size_t i)
{
    uint32_t c;
    return utf8_get(w->s + i, &c);
}

/* \p{Name}, \P{Name}; i is at the backslash. */
static int rewrite_property(struct rewriter *w)
{
    const char *close = memchr(w->s + w->i, '}', w->n - w->i);
    if (close == NULL) {
        return refuse(w, "a property without '}'");
    }
    const size_t name = w->i + 3, length = (size_t)(close - w->s) - name;
    TRY(copy(w, 3));
    if (length > 0 && w->s[w->i] == '^') {
        TRY(copy(w, 1));
    }
    const size_t left = (size_t)(close - w->s) - w->i;
    for (size_t k = 0; k < LENGTH(properties); k++) {
        if (strlen(properties[k].name) == left &&
            memcmp(properties[k].name, w->s + w->i, left) == 0) {
            w->i += left;
            TRY(put(w, properties[k].known));
            return copy(w, 1);
        }
    }
    if (left > 2 && script_prefix[0] != '\0') {
        TRY(put(w, script_prefix));
    }
    return copy(w, left + 1);
}

/* An escape, inside a class or outside; i is at the backslash. */
static int rewrite_escape(struct rewriter *w, bool in_class)
{
    if (w->n - w->i < 2) {
        return refuse(w, "a backslash at its end");
    }
    const char c = w->s[w->i + 1];
    for (size_t k = 0; k < LENGTH(escapes); k++) {
        if (escapes[k].letter == c) {
            const char *with = in_class ? escapes[k].members : escapes[k].alone;
            if (with == NULL) {
                return refuse(w, "a negated set inside a class");
            }
            w->i += 2;
            return put(w, with);
        }
    }
    if (c == 'p' || c == 'P') {
        if (w->n - w->i > 2 && w->s[w->i + 2] == '{') {
            return rewrite_property(w);
        }
        w->i++;
        return copy(w, 1);
    }
    if (c == 'u' && w->n - w->i >= 6) {
        TRY(put(w, "\\x{"));
        w->i += 2;
        TRY(copy(w, 4));
        return put(w, "}");
    }
    if (c == 'C' || c == 'K' || c == 'O' || c == 'y' || c == 'Y' || c == 'M' || c == 'Q' ||
        c == 'E') {
        return refuse(w, "an escape such as \\K");
    }
    return copy(w, 1 + character(w, w->i + 1));
}

/* [:name:]; i is at the bracket. */
static int rewrite_posix(struct rewriter *w)
{
    for (size_t k = 0; k < LENGTH(posix_classes); k++) {
        const size_t n = strlen(posix_classes[k].name);
        if (w->n - w->i >= n + 4 && memcmp(w->s + w->i + 2, posix_classes[k].name, n) == 0 &&
            memcmp(w->s + w->i + 2 + n, ":]", 2) == 0) {
            w->i += n + 4;
            return put(w, posix_classes[k].members);
        }
    }
    return refuse(w, "an unknown [:class:]");
}

/* A bracketed class; i is at its '['. A class within it is a union; intersections are refused. */
static int rewrite_class(struct rewriter *w)
{
    int depth = 1;

    TRY(copy(w, 1));
    if (at(w, "^")) {
        TRY(copy(w, 1));
    }
    if (at(w, "]")) {
        TRY(put(w, "\\"));
        TRY(copy(w, 1));
    }
    while (w->i < w->n) {
        const char c = w->s[w->i];
        if (c == '\\') {
            TRY(rewrite_escape(w, true));
        } else if (at(w, "[:")) {
            TRY(rewrite_posix(w));
        } else if (at(w, "[^") || at(w, "&&")) {
            return refuse(w, "an intersection or a negated class inside a class");
        } else if (c == '[') {
            depth++;
            w->i++;
        } else if (c == ']') {
            depth--;
            if (depth == 0) {
                return copy(w, 1);
            }
            w->i++;
        } else {
            TRY(copy(w, character(w, w->i)));
        }
    }
    return refuse(w, "a class without ']'");
}

/* The start of a group; i is at '('. Ruby's option m is PCRE2's s. */
static int rewrite_group(struct rewriter *w)
{
    if (at(w, "(*") || at(w, "(?C") || at(w, "(?{") || at(w, "(?~")) {
        return refuse(w, "a verb, a callout or an absence operator");
    }
    if (w->depth == GROUPS_MAX) {
        return refuse(w, "groups nested too deeply");
    }
    w->groups[w->depth++] = w->out->n;
    TRY(copy(w, 1));
    if (!at(w, "?")) {
        return 0;
    }
    TRY(copy(w, 1));
    while (w->i < w->n && strchr("imx-", w->s[w->i]) != NULL && w->s[w->i] != '\0') {
        if (w->s[w->i] == 'm') {
            w->i++;
            TRY(put(w, "s"));
        } else {
            TRY(copy(w, 1));
        }
    }
    return 0;
}

/* {n}, {n,}, {n,m}, {,m} at i? Its length, else 0. */
static size_t interval(const struct rewriter *w)
{
    size_t i = w->i + 1, digits = 0;

    while (i < w->n && w->s[i] >= '0' && w->s[i] <= '9') {
        i++;
        digits++;
    }
    if (i < w->n && w->s[i] == ',') {
        i++;
        while (i < w->n && w->s[i] >= '0' && w->s[i] <= '9') {
            i++;
            digits++;
        }
    }
    return digits > 0 && i < w->n && w->s[i] == '}' ? i + 1 - w->i : 0;
}

/* In Ruby {n,m}+ is a repetition of {n,m}, not a possessive one. */
static int rewrite_interval(struct rewriter *w)
{
    const size_t n = interval(w), atom = w->atom;
    const bool repeated = w->i + n < w->n && w->s[w->i + n] == '+';

    if (n == 0) {
        w->atom = w->out->n;
        TRY(put(w, "\\"));
        return copy(w, 1);
    }
    if (w->s[w->i + 1] == ',') {
        w->i++;
        TRY(put(w, "{0"));
        TRY(copy(w, n - 1));
    } else {
        TRY(copy(w, n));
    }
    if (!repeated) {
        return 0;
    }
    TRY(text_reserve(w->out, 4, w->err));
    memmove(w->out->at + atom + 3, w->out->at + atom, w->out->n - atom);
    memcpy(w->out->at + atom, "(?:", 3);
    w->out->n += 3;
    return put(w, ")");
}

int regex_from_ruby(struct text *out, bool *asks_start, const char *pattern, size_t bytes,
                    struct err *err)
{
    struct rewriter w = {.s = pattern, .n = bytes, .out = out, .err = err};

    while (w.i < w.n) {
        const char c = w.s[w.i];
        const size_t start = out->n;
        if (c == '{') {
            TRY(rewrite_interval(&w));
            continue;
        }
        if (c == '*' || c == '+' || c == '?') {
            TRY(copy(&w, 1));
            continue;
        }
        if (c == ')') {
            w.atom = w.depth > 0 ? w.groups[--w.depth] : start;
            TRY(copy(&w, 1));
            continue;
        }
        w.atom = start;
        w.starts = w.starts || c == '^' || at(&w, "\\A") || at(&w, "\\G");
        if (c == '\\') {
            TRY(rewrite_escape(&w, false));
        } else if (c == '[') {
            TRY(rewrite_class(&w));
        } else if (c == '(') {
            TRY(rewrite_group(&w));
        } else {
            TRY(copy(&w, character(&w, w.i)));
        }
    }
    *asks_start = w.starts;
    return 0;
}
