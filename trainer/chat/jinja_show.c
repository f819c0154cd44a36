/* jinja_show.c - values as text: str(), repr() and json.dumps of Python, and % of its strings. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "kernels/check.h"
#include "trainer/chat/jinja_eval.h"
#include "trainer/tokenizer/utf8.h"

/* Digits of the shortest decimal that reads back as d, and where its point is: 0.DIGITS * 10^point. */
static int shortest(double d, char digits[20], int *point)
{
    char text[40];
    int n = 0;

    for (int precision = 0; precision < 17; precision++) {
        (void)snprintf(text, sizeof text, "%.*e", precision, d);
        if (strtod(text, NULL) == d) {
            break;
        }
    }
    const char *e = strchr(text, 'e');
    CHECK(e != NULL, "'%s'", text);
    for (const char *s = text; s < e; s++) {
        if (*s >= '0' && *s <= '9') {
            digits[n++] = *s;
        }
    }
    *point = (int)strtol(e + 1, NULL, 10) + 1; /* at most 309 */
    return n;
}

size_t jinja_write_float(char out[JINJA_FLOAT_ROOM], double d)
{
    char digits[20] = "";
    int point, n = 0;

    if (isnan(d) || isinf(d)) {
        return (size_t)snprintf(out, JINJA_FLOAT_ROOM, "%s",
                                isnan(d) ? "nan"
                                : d < 0  ? "-inf"
                                         : "inf");
    }
    const int count = shortest(fabs(d), digits, &point);
    if (signbit(d)) {
        out[n++] = '-';
    }
    if (point > 16 || point < -3) {
        n += snprintf(out + n, (size_t)(JINJA_FLOAT_ROOM - n), "%c%s%.*se%c%02d", digits[0],
                      count > 1 ? "." : "", count - 1, digits + 1, point > 0 ? '+' : '-',
                      abs(point - 1));
        return (size_t)n;
    }
    if (point <= 0) {
        n += snprintf(out + n, (size_t)(JINJA_FLOAT_ROOM - n), "0.%.*s%s", -point, "000", digits);
        return (size_t)n;
    }
    for (int i = 0; i < point; i++) {
        out[n] = '0';
        if (i < count) {
            out[n] = digits[i];
        }
        n++;
    }
    n += snprintf(out + n, (size_t)(JINJA_FLOAT_ROOM - n), ".%s",
                  count > point ? digits + point : "0");
    return (size_t)n;
}

/* Append words of ours with the origin of what they stand for. */
static int put(struct jinja *j, struct jinja_out *o, const char *s, struct jinja_tag tag)
{
    return jinja_out_put(j, o, s, strlen(s), tag);
}

static int put_number(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    char text[JINJA_FLOAT_ROOM];
    size_t n;

    if (v.kind == JINJA_INT) {
        n = (size_t)snprintf(text, sizeof text, "%" PRId64, v.as.integer);
    } else {
        n = jinja_write_float(text, v.as.real);
    }
    return jinja_out_put(j, o, text, n, v.tag);
}

static bool is_printable(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    /* Separators, controls, formats, surrogates and private use are the last of the library's list. */
    return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

/* As Python's repr of a string: single quotes, unless it holds only those. */
static int repr_text(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    const struct jinja_text *t = v.as.text;
    const struct jinja_tag tag = jinja_text_tag(v);
    const bool doubles =
        t->n > 0 && memchr(t->at, '\'', t->n) != NULL && memchr(t->at, '"', t->n) == NULL;
    const char quote = doubles ? '"' : '\'';
    uint32_t c;

    TRY(jinja_out_put(j, o, &quote, 1, tag));
    for (size_t at = 0, n; at < t->n; at += n) {
        char text[16] = "";
        n = utf8_get(t->at + at, &c);
        if (c == '\\' || c == (uint32_t)quote) {
            (void)snprintf(text, sizeof text, "\\%c", (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            (void)snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        } else if (c >= 0x20 && c < 0x7F) {
            text[0] = (char)c;
        } else if (is_printable(c)) {
            memcpy(text, t->at + at, n);
        } else {
            (void)snprintf(text, sizeof text,
                           c < 0x100     ? "\\x%02" PRIx32
                           : c < 0x10000 ? "\\u%04" PRIx32
                                         : "\\U%08" PRIx32,
                           c);
        }
        TRY(put(j, o, text, tag));
    }
    return jinja_out_put(j, o, &quote, 1, tag);
}

static int repr(struct jinja *j, struct jinja_out *o, struct jinja_value v);

static int repr_list(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    const struct jinja_list *l = v.as.list;
    const bool is_list = v.kind == JINJA_LIST;

    TRY(put(j, o, is_list ? "[" : "(", v.tag));
    for (size_t i = 0; i < l->n; i++) {
        TRY(i > 0 ? put(j, o, ", ", v.tag) : 0);
        TRY(repr(j, o, l->at[i]));
    }
    return put(j, o, is_list ? "]" : l->n == 1 ? ",)" : ")", v.tag);
}

static int repr_dict(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    TRY(put(j, o, "{", v.tag));
    for (size_t i = 0; i < v.as.dict->n; i++) {
        TRY(i > 0 ? put(j, o, ", ", v.tag) : 0);
        TRY(repr(j, o, v.as.dict->at[i].key));
        TRY(put(j, o, ": ", v.tag));
        TRY(repr(j, o, v.as.dict->at[i].value));
    }
    return put(j, o, "}", v.tag);
}

static int repr_range(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    const struct jinja_range *r = v.as.range;
    char text[100];

    if (r->step == 1) {
        (void)snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", r->start,
                       jinja_range_at(r, r->n));
    } else {
        return JINJA_FAIL(j, "a range with a step can't be written");
    }
    return put(j, o, text, v.tag);
}

static int repr(struct jinja *j, struct jinja_out *o, struct jinja_value v)
{
    TRY(jinja_step(j, 1));
    TRY(jinja_enter(j));
    switch (v.kind) {
    case JINJA_UNDEFINED: TRY(put(j, o, "Undefined", v.tag)); break;
    case JINJA_NONE: TRY(put(j, o, "None", v.tag)); break;
    case JINJA_BOOL: TRY(put(j, o, v.as.truth ? "True" : "False", v.tag)); break;
    case JINJA_INT:
    case JINJA_FLOAT: TRY(put_number(j, o, v)); break;
    case JINJA_STRING: TRY(repr_text(j, o, v)); break;
    case JINJA_LIST:
    case JINJA_TUPLE: TRY(repr_list(j, o, v)); break;
    case JINJA_DICT: TRY(repr_dict(j, o, v)); break;
    case JINJA_RANGE: TRY(repr_range(j, o, v)); break;
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: return JINJA_FAIL(j, "a %s can't be written", jinja_type_name(v));
    }
    j->depth--;
    return 0;
}

/* One origin for a text that was put together of several: that of the first data in it. */
static int flatten(struct jinja *j, const struct jinja_out *o, struct jinja_value *out)
{
    TRY(jinja_out_value(j, o, out));
    const struct jinja_tag tag = jinja_text_tag(*out);
    return jinja_string(j, out, out->as.text->at, out->as.text->n, tag);
}

int jinja_str(struct jinja *j, struct jinja_value v, struct jinja_value *out)
{
    struct jinja_out o = {0};

    if (v.kind == JINJA_STRING) {
        *out = v;
        return 0;
    }
    if (v.kind != JINJA_UNDEFINED) {
        TRY(repr(j, &o, v));
    }
    return flatten(j, &o, out);
}

int jinja_out_str(struct jinja *j, struct jinja_out *o, struct jinja_value v, bool emit)
{
    struct jinja_value text;

    TRY(jinja_str(j, v, &text));
    return jinja_out_text(j, o, text, emit);
}

static int json_text(struct jinja *j, struct jinja_out *o, struct jinja_value v, bool ascii)
{
    const struct jinja_text *t = v.as.text;
    const struct jinja_tag tag = jinja_text_tag(v);
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    uint32_t c;

    TRY(put(j, o, "\"", tag));
    for (size_t at = 0, n; at < t->n; at += n) {
        char text[16] = "";
        n = utf8_get(t->at + at, &c);
        const char *known = c > 0 && c < 0x80 ? strchr(plain, (int)c) : NULL;
        if (known != NULL) {
            (void)snprintf(text, sizeof text, "\\%c", letters[known - plain]);
        } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
            (void)snprintf(text, sizeof text, "\\u%04" PRIx32, c);
        } else if (ascii && c >= 0x10000) {
            (void)snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32,
                           0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
            memcpy(text, t->at + at, n);
        }
        TRY(put(j, o, text, tag));
    }
    return put(j, o, "\"", tag);
}

static int json(struct jinja *j, struct jinja_out *o, struct jinja_value v,
                const struct jinja_json_style *style, int level);

static int json_line(struct jinja *j, struct jinja_out *o, const struct jinja_json_style *style,
                     int level)
{
    if (style->indent == NULL) {
        return 0;
    }
    TRY(put(j, o, "\n", jinja_untagged));
    for (int i = 0; i < level; i++) {
        TRY(jinja_out_put(j, o, style->indent, style->indent_bytes, jinja_untagged));
    }
    return 0;
}

static int json_between(struct jinja *j, struct jinja_out *o, const struct jinja_json_style *style,
                        bool is_key)
{
    const struct jinja_value given = is_key ? style->key : style->item;

    if (given.kind == JINJA_STRING) {
        return jinja_out_text(j, o, given, false);
    }
    return put(j, o, is_key ? ": " : style->indent != NULL ? "," : ", ", jinja_untagged);
}

static int json_list(struct jinja *j, struct jinja_out *o, const struct jinja_list *l,
                     const struct jinja_json_style *style, int level)
{
    TRY(put(j, o, "[", jinja_untagged));
    for (size_t i = 0; i < l->n; i++) {
        TRY(i > 0 ? json_between(j, o, style, false) : 0);
        TRY(json_line(j, o, style, level + 1));
        TRY(json(j, o, l->at[i], style, level + 1));
    }
    TRY(l->n > 0 ? json_line(j, o, style, level) : 0);
    return put(j, o, "]", jinja_untagged);
}

/* A key that is no string becomes one, as json.dumps has it. */
static int json_key(struct jinja *j, struct jinja_out *o, struct jinja_value key,
                    const struct jinja_json_style *style)
{
    if (key.kind == JINJA_STRING) {
        return json_text(j, o, key, style->ascii);
    }
    if (key.kind == JINJA_TUPLE) {
        return JINJA_FAIL(j, "a tuple can't be a key in JSON");
    }
    TRY(put(j, o, "\"", jinja_untagged));
    TRY(json(j, o, key, style, 0));
    return put(j, o, "\"", jinja_untagged);
}

/* Indices of the entries in the order of their keys. */
static int sorted_keys(struct jinja *j, const struct jinja_dict *d, size_t **order)
{
    size_t *at;
    int before;

    JINJA_TAKE(j, at, d->n * sizeof *at);
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        for (; k > 0; k--) {
            TRY(jinja_order(j, d->at[at[k - 1]].key, d->at[i].key, &before));
            if (before <= 0) {
                break;
            }
            at[k] = at[k - 1];
        }
        at[k] = i;
    }
    *order = at;
    return 0;
}

static int json_dict(struct jinja *j, struct jinja_out *o, const struct jinja_dict *d,
                     const struct jinja_json_style *style, int level)
{
    size_t *order = NULL;

    if (style->sort && d->n > 0) {
        TRY(sorted_keys(j, d, &order));
    }
    TRY(put(j, o, "{", jinja_untagged));
    for (size_t i = 0; i < d->n; i++) {
        const struct jinja_entry *e = &d->at[order != NULL ? order[i] : i];
        TRY(i > 0 ? json_between(j, o, style, false) : 0);
        TRY(json_line(j, o, style, level + 1));
        TRY(json_key(j, o, e->key, style));
        TRY(json_between(j, o, style, true));
        TRY(json(j, o, e->value, style, level + 1));
    }
    TRY(d->n > 0 ? json_line(j, o, style, level) : 0);
    return put(j, o, "}", jinja_untagged);
}

static int json(struct jinja *j, struct jinja_out *o, struct jinja_value v,
                const struct jinja_json_style *style, int level)
{
    TRY(jinja_step(j, 1));
    TRY(jinja_enter(j));
    switch (v.kind) {
    case JINJA_NONE: TRY(put(j, o, "null", v.tag)); break;
    case JINJA_BOOL: TRY(put(j, o, v.as.truth ? "true" : "false", v.tag)); break;
    case JINJA_INT: TRY(put_number(j, o, v)); break;
    case JINJA_FLOAT:
        TRY(isnan(v.as.real)   ? put(j, o, "NaN", v.tag)
            : isinf(v.as.real) ? put(j, o, v.as.real < 0 ? "-Infinity" : "Infinity", v.tag)
                               : put_number(j, o, v));
        break;
    case JINJA_STRING: TRY(json_text(j, o, v, style->ascii)); break;
    case JINJA_LIST:
    case JINJA_TUPLE: TRY(json_list(j, o, v.as.list, style, level)); break;
    case JINJA_DICT: TRY(json_dict(j, o, v.as.dict, style, level)); break;
    case JINJA_UNDEFINED: return jinja_fail_undefined(j, v);
    case JINJA_RANGE:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: return JINJA_FAIL(j, "a %s can't be written as JSON", jinja_type_name(v));
    }
    j->depth--;
    return 0;
}

int jinja_to_json(struct jinja *j, struct jinja_value v, const struct jinja_json_style *style,
                  struct jinja_value *out)
{
    struct jinja_out o = {0};

    TRY(json(j, &o, v, style, 0));
    return flatten(j, &o, out);
}

/* One %s, %d, %r ... at s[at], behind the percent sign. */
static int convert(struct jinja *j, struct jinja_out *o, char kind, struct jinja_value v)
{
    char text[400];

    if (kind == 's') {
        return jinja_out_str(j, o, v, false);
    }
    if (kind == 'r') {
        return repr(j, o, v);
    }
    if (!jinja_is_number(v)) {
        return JINJA_FAIL(j, "%%%c needs a number, not a %s", kind, jinja_type_name(v));
    }
    if (kind == 'd' || kind == 'i') {
        const double d = jinja_real(v);
        if (fabs(d) > 9e15 && v.kind == JINJA_FLOAT) {
            return JINJA_FAIL(j, "a number is too large for %%%c", kind);
        }
        return put_number(j, o, v.kind == JINJA_INT ? v : jinja_int((int64_t)d));
    }
    if (kind == 'f') {
        (void)snprintf(text, sizeof text, "%f", jinja_real(v));
        return put(j, o, text, v.tag);
    }
    return JINJA_FAIL(j, "%%%c in a format is not known", kind);
}

int jinja_percent(struct jinja *j, struct jinja_value format, struct jinja_value values,
                  struct jinja_value *out)
{
    const struct jinja_text *t = format.as.text;
    const bool are_many = values.kind == JINJA_TUPLE;
    const size_t count = are_many ? values.as.list->n : 1;
    const struct jinja_text percent = {.at = "%", .n = 1};
    struct jinja_out o = {0};
    size_t used = 0, done = 0;

    for (size_t at; (at = jinja_search(t, &percent, done)) != SIZE_MAX; done = at + 2) {
        TRY(jinja_out_cut(j, &o, format, done, at));
        if (at + 1 == t->n) {
            return JINJA_FAIL(j, "a format ends with %%");
        }
        if (t->at[at + 1] == '%') {
            TRY(jinja_out_cut(j, &o, format, at, at + 1));
            continue;
        }
        if (used == count) {
            return JINJA_FAIL(j, "a format has more places than values");
        }
        TRY(convert(j, &o, t->at[at + 1], are_many ? values.as.list->at[used] : values));
        used++;
    }
    if (used < count && (are_many || values.kind != JINJA_DICT)) {
        return JINJA_FAIL(j, "a format has fewer places than values");
    }
    TRY(jinja_out_cut(j, &o, format, done, t->n));
    return jinja_out_value(j, &o, out);
}
