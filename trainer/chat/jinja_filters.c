/* jinja_filters.c - the filters that make texts and numbers. Source: jinja2/filters.py of Jinja 3.1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/chat/jinja_eval.h"
#include "trainer/tokenizer/utf8.h"

enum { PRECISION_MAX = 20 };

static int filter_trim(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text;

    TRY(jinja_str(j, c->in, &text));
    return jinja_strip(j, text, c->a[0], JINJA_LEFT | JINJA_RIGHT, out);
}

static int change_case(struct jinja *j, const struct jinja_call *c, enum jinja_case to,
                       struct jinja_value *out)
{
    struct jinja_value text;

    TRY(jinja_str(j, c->in, &text));
    return jinja_change_case(j, text, to, out);
}

static int filter_upper(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return change_case(j, c, JINJA_UPPER, out);
}

static int filter_lower(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return change_case(j, c, JINJA_LOWER, out);
}

static int filter_capitalize(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return change_case(j, c, JINJA_CAPITAL, out);
}

static int put_in_case(struct jinja *j, struct jinja_out *o, struct jinja_value text, size_t begin,
                       size_t end, enum jinja_case to)
{
    struct jinja_value part;

    TRY(jinja_cut(j, text, begin, end, &part));
    TRY(jinja_change_case(j, part, to, &part));
    return jinja_out_text(j, o, part, false);
}

/* Unlike str.title, words begin only after blanks, - ( { [ <. */
static int filter_title(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text;
    struct jinja_out o = {0};
    size_t begin = 0, at = 0;
    uint32_t ch = 0;

    TRY(jinja_str(j, c->in, &text));
    const struct jinja_text *t = text.as.text;
    while (at < t->n) {
        const size_t n = utf8_get(t->at + at, &ch);
        const bool ends = ch < 0x80 ? ch == '-' || ch == '(' || ch == '{' || ch == '[' ||
                                          ch == '<' || jinja_is_space(ch)
                                    : jinja_is_space(ch);
        at += n;
        if (ends || at == t->n) {
            const size_t first = begin + utf8_get(t->at + begin, &ch);
            TRY(put_in_case(j, &o, text, begin, first, JINJA_UPPER));
            TRY(put_in_case(j, &o, text, first, at, JINJA_LOWER));
            begin = at;
        }
    }
    return jinja_out_value(j, &o, out);
}

static int filter_replace(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text, from, to;
    int64_t count = -1;

    TRY(jinja_str(j, c->in, &text));
    TRY(jinja_str(j, c->a[0], &from));
    TRY(jinja_str(j, c->a[1], &to));
    if (c->a[2].kind != JINJA_UNDEFINED && c->a[2].kind != JINJA_NONE) {
        TRY(jinja_to_int(j, c->a[2], "the count of replace", &count));
    }
    return jinja_replace(j, text, from, to, count, out);
}

static int filter_string(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_str(j, c->in, out);
}

static int escape_text(struct jinja *j, struct jinja_value text, struct jinja_value *out)
{
    static const char *const means[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char special[] = "&<>'\"";
    const struct jinja_text *t = text.as.text;
    struct jinja_out o = {0};
    size_t done = 0;

    for (size_t at = 0; at < t->n; at++) {
        const char *known = t->at[at] != '\0' ? strchr(special, t->at[at]) : NULL;
        if (known != NULL) {
            const char *word = means[known - special];
            TRY(jinja_step(j, 1));
            TRY(jinja_out_cut(j, &o, text, done, at));
            TRY(jinja_out_put(j, &o, word, strlen(word), jinja_text_tag(text)));
            done = at + 1;
        }
    }
    TRY(jinja_out_cut(j, &o, text, done, t->n));
    return jinja_out_value(j, &o, out);
}

static int filter_escape(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text;

    TRY(jinja_str(j, c->in, &text));
    return escape_text(j, text, out);
}

/* Blanks of a width, or the text given. */
static int indentation(struct jinja *j, struct jinja_value width, struct jinja_value *out)
{
    struct jinja_out o = {0};
    int64_t n = 4;

    if (width.kind == JINJA_STRING) {
        *out = width;
        return 0;
    }
    if (jinja_is_given(width)) {
        TRY(jinja_to_int(j, width, "an indentation", &n));
    }
    for (int64_t i = 0; i < n; i++) {
        TRY(jinja_step(j, 1));
        TRY(jinja_out_put(j, &o, " ", 1, jinja_untagged));
    }
    return jinja_out_value(j, &o, out);
}

/* Every line but the first is indented, empty ones only with `blank`; `first` indents the first too. */
static int filter_indent(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text, blanks;
    struct jinja_out o = {0};
    const bool blank = jinja_truth(c->a[2]);

    TRY(jinja_str(j, c->in, &text));
    TRY(indentation(j, c->a[0], &blanks));
    const struct jinja_text *t = text.as.text;
    if (jinja_truth(c->a[1])) {
        TRY(jinja_out_text(j, &o, blanks, false));
    }
    for (size_t at = 0, next; at < t->n; at = next) {
        const char *end = memchr(t->at + at, '\n', t->n - at);
        next = end == NULL ? t->n : (size_t)(end - t->at) + 1;
        const bool is_empty = t->at[at] == '\n';
        if (at > 0 && (blank || !is_empty)) {
            TRY(jinja_out_text(j, &o, blanks, false));
        }
        TRY(jinja_step(j, 1));
        TRY(jinja_out_cut(j, &o, text, at, next));
    }
    if (blank && t->n > 0 && t->at[t->n - 1] == '\n') {
        TRY(jinja_out_text(j, &o, blanks,
                           false)); /* the line after the last line end is blank too */
    }
    return jinja_out_value(j, &o, out);
}

static int filter_tojson(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_json_style style = {.ascii = jinja_truth(c->a[0]), .sort = jinja_truth(c->a[3])};
    struct jinja_value blanks;

    if (c->a[1].kind != JINJA_UNDEFINED && c->a[1].kind != JINJA_NONE) {
        TRY(indentation(j, c->a[1], &blanks));
        style.indent = blanks.as.text->at;
        style.indent_bytes = blanks.as.text->n;
    }
    const struct jinja_value separators = c->a[2];
    if (separators.kind == JINJA_LIST || separators.kind == JINJA_TUPLE) {
        if (separators.as.list->n != 2) {
            return JINJA_FAIL(j, "tojson needs two separators");
        }
        style.item = separators.as.list->at[0];
        style.key = separators.as.list->at[1];
        TRY(jinja_want_text(j, style.item, "a separator"));
        TRY(jinja_want_text(j, style.key, "a separator"));
    }
    return jinja_to_json(j, c->in, &style, out);
}

static int filter_default(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const bool replaces =
        c->in.kind == JINJA_UNDEFINED || (jinja_truth(c->a[1]) && !jinja_truth(c->in));

    if (replaces && c->args->n == 0 && !jinja_is_given(c->a[0])) {
        return jinja_string(j, out, "", 0, jinja_untagged);
    }
    *out = replaces ? c->a[0] : c->in;
    return 0;
}

static int filter_safe(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_str(j, c->in, out);
}

/* A number written in a text, blanks around it; false when it is none. */
static bool read_number(struct jinja_value v, int base, bool real, struct jinja_value *out)
{
    char text[64];
    char *end;
    size_t n = v.as.text->n;
    const char *at = v.as.text->at;

    while (n > 0 && jinja_is_space((unsigned char)at[0]) && (unsigned char)at[0] < 0x80) {
        at++;
        n--;
    }
    while (n > 0 && jinja_is_space((unsigned char)at[n - 1]) && (unsigned char)at[n - 1] < 0x80) {
        n--;
    }
    if (n == 0 || n >= sizeof text || memchr(at, '\0', n) != NULL) {
        return false;
    }
    memcpy(text, at, n);
    text[n] = '\0';
    if (real) {
        *out = jinja_float(strtod(text, &end));
        return *end == '\0' && strpbrk(text, "xXpP") == NULL;
    }
    const long long integer = strtoll(text, &end, base);
    if (*end != '\0' || integer == INT64_MAX || integer == INT64_MIN) {
        return false;
    }
    *out = jinja_int(integer);
    return true;
}

static int truncate_real(struct jinja *j, double d, struct jinja_value fallback,
                         struct jinja_value *out)
{
    if (isnan(d) || isinf(d)) {
        *out = fallback;
        return 0;
    }
    if (fabs(d) > 9.2e18) {
        return JINJA_FAIL(j, "a number does not fit 64 bits");
    }
    *out = jinja_int((int64_t)d); /* checked above */
    return 0;
}

static int filter_int(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_value fallback = jinja_is_given(c->a[0]) ? c->a[0] : jinja_int(0);
    struct jinja_value real;
    int64_t base = 10;

    if (jinja_is_given(c->a[1])) {
        TRY(jinja_to_int(j, c->a[1], "the base of int", &base));
    }
    if (base < 2 || base > 36) {
        return JINJA_FAIL(j, "the base of int is not from 2 to 36");
    }
    *out = fallback;
    if (c->in.kind == JINJA_FLOAT) {
        return truncate_real(j, c->in.as.real, fallback, out);
    }
    if (jinja_is_number(c->in)) {
        int64_t i;
        TRY(jinja_to_int(j, c->in, "int", &i));
        *out = jinja_int(i);
    } else if (c->in.kind == JINJA_STRING && !read_number(c->in, (int)base, false, out)) {
        *out = fallback;
        if (read_number(c->in, 10, true, &real)) {
            return truncate_real(j, real.as.real, fallback, out);
        }
    }
    return 0;
}

static int filter_float(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_value fallback = jinja_is_given(c->a[0]) ? c->a[0] : jinja_float(0.0);

    (void)j;
    if (jinja_is_number(c->in)) {
        *out = jinja_float(jinja_real(c->in));
    } else if (c->in.kind != JINJA_STRING || !read_number(c->in, 10, true, out)) {
        *out = fallback;
    }
    return 0;
}

static int filter_abs(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    if (!jinja_is_number(c->in)) {
        return JINJA_FAIL(j, "abs needs a number, not a %s", jinja_type_name(c->in));
    }
    if (c->in.kind == JINJA_FLOAT) {
        *out = jinja_float(fabs(c->in.as.real));
        return 0;
    }
    return jinja_real(c->in) < 0 ? jinja_arithmetic(j, OP_SUBTRACT, jinja_int(0), c->in, out)
                                 : jinja_arithmetic(j, OP_ADD, jinja_int(0), c->in, out);
}

static int filter_round(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    char text[400]; /* a double has 309 digits before its point */
    int64_t precision = 0;

    if (!jinja_is_number(c->in)) {
        return JINJA_FAIL(j, "round needs a number, not a %s", jinja_type_name(c->in));
    }
    if (jinja_is_given(c->a[0])) {
        TRY(jinja_to_int(j, c->a[0], "the precision of round", &precision));
    }
    if (precision < 0 || precision > PRECISION_MAX || jinja_is_given(c->a[1])) {
        return JINJA_FAIL(j, "round is known only as round(0) to round(%d)", PRECISION_MAX);
    }
    if (c->in.kind != JINJA_FLOAT) {
        *out = c->in;
        return 0;
    }
    (void)snprintf(text, sizeof text, "%.*f", (int)precision,
                   c->in.as.real); /* at most PRECISION_MAX */
    *out = jinja_float(strtod(text, NULL));
    return 0;
}

static int filter_format(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value text, values;

    TRY(jinja_str(j, c->in, &text));
    TRY(jinja_new_list(j, &values, JINJA_TUPLE, c->args->n));
    for (size_t i = 0; i < c->args->n; i++) {
        TRY(jinja_append(j, values.as.list, c->args->at[i]));
    }
    return jinja_percent(j, text, values, out);
}

/* clang-format off */
const struct jinja_builtin jinja_string_filters[] = {
    {"abs",        "",                       0, filter_abs},
    {"capitalize", "",                       0, filter_capitalize},
    {"d",          "default_value boolean",  0, filter_default},
    {"default",    "default_value boolean",  0, filter_default},
    {"e",          "",                       0, filter_escape},
    {"escape",     "",                       0, filter_escape},
    {"float",      "default",                0, filter_float},
    {"format",     "*",                      0, filter_format},
    {"indent",     "width first blank",      0, filter_indent},
    {"int",        "default base",           0, filter_int},
    {"lower",      "",                       0, filter_lower},
    {"replace",    "old new count",          2, filter_replace},
    {"round",      "precision method",       0, filter_round},
    {"safe",       "",                       0, filter_safe},
    {"string",     "",                       0, filter_string},
    {"title",      "",                       0, filter_title},
    {"tojson",     "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim",       "chars",                  0, filter_trim},
    {"upper",      "",                       0, filter_upper},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */
