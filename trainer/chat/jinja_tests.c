/* jinja_tests.c - what may stand behind `is`, the functions of the language, and the look-up of all tables.
 * Source: jinja2/tests.py of Jinja 3.1; raise_exception and strftime_now as transformers defines them. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/check.h"
#include "trainer/base/text.h"
#include "trainer/chat/jinja_eval.h"
#include "trainer/tokenizer/utf8.h"

enum { RANGE_MAX = 100000, TIME_FORMAT_MAX = 200, TIME_TEXT_MAX = 800 };

static int yields(struct jinja_value *out, bool truth)
{
    *out = jinja_bool(truth);
    return 0;
}

/* A test of the kind of a value alone. */
#define KIND_TEST(name, holds)                                                                   \
    static int test_##name(struct jinja *j, const struct jinja_call *c, struct jinja_value *out) \
    {                                                                                            \
        (void)j;                                                                                 \
        return yields(out, (holds));                                                             \
    }

static bool has_elements(enum jinja_kind kind)
{
    return kind == JINJA_STRING || kind == JINJA_LIST || kind == JINJA_TUPLE ||
           kind == JINJA_DICT || kind == JINJA_RANGE || kind == JINJA_UNDEFINED;
}

KIND_TEST(boolean, c->in.kind == JINJA_BOOL)
KIND_TEST(callable, c->in.kind == JINJA_MACRO || c->in.kind == JINJA_FUNCTION)
KIND_TEST(defined, c->in.kind != JINJA_UNDEFINED)
KIND_TEST(undefined, c->in.kind == JINJA_UNDEFINED)
KIND_TEST(false, c->in.kind == JINJA_BOOL && !c->in.as.truth)
KIND_TEST(true, c->in.kind == JINJA_BOOL && c->in.as.truth)
KIND_TEST(float, c->in.kind == JINJA_FLOAT)
KIND_TEST(integer, c->in.kind == JINJA_INT)
KIND_TEST(iterable, has_elements(c->in.kind) || c->in.kind == JINJA_LOOP)
KIND_TEST(mapping, c->in.kind == JINJA_DICT)
KIND_TEST(none, c->in.kind == JINJA_NONE)
KIND_TEST(number, jinja_is_number(c->in))
KIND_TEST(sequence, has_elements(c->in.kind))
KIND_TEST(string, c->in.kind == JINJA_STRING)

static int test_equal(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    bool equal = false;

    TRY(jinja_equal(j, c->in, c->a[0], &equal));
    return yields(out, equal);
}

static int test_not_equal(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    bool equal = false;

    TRY(jinja_equal(j, c->in, c->a[0], &equal));
    return yields(out, !equal);
}

static int order(struct jinja *j, const struct jinja_call *c, int *order)
{
    if (c->in.kind == JINJA_UNDEFINED || c->a[0].kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, c->in.kind == JINJA_UNDEFINED ? c->in : c->a[0]);
    }
    return jinja_order(j, c->in, c->a[0], order);
}

static int test_less(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int o = 0;

    TRY(order(j, c, &o));
    return yields(out, o < 0);
}

static int test_not_more(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int o = 0;

    TRY(order(j, c, &o));
    return yields(out, o <= 0);
}

static int test_more(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int o = 0;

    TRY(order(j, c, &o));
    return yields(out, o > 0);
}

static int test_not_less(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int o = 0;

    TRY(order(j, c, &o));
    return yields(out, o >= 0);
}

static int test_in(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    bool contains = false;

    TRY(jinja_contains(j, c->a[0], c->in, &contains));
    return yields(out, contains);
}

static int remainder_is(struct jinja *j, const struct jinja_call *c, int64_t divisor, int64_t rest,
                        struct jinja_value *out)
{
    int64_t n = 0;

    TRY(jinja_to_int(j, c->in, "what is tested", &n));
    if (divisor == 0) {
        return JINJA_FAIL(j, "division by zero");
    }
    return yields(out, (divisor == -1 ? 0 : n % divisor != 0) == rest);
}

static int test_even(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return remainder_is(j, c, 2, 0, out);
}

static int test_odd(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return remainder_is(j, c, 2, 1, out);
}

static int test_divisible(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t divisor = 1;

    TRY(jinja_to_int(j, c->a[0], "a divisor", &divisor));
    return remainder_is(j, c, divisor, 0, out);
}

static int same_case(struct jinja *j, const struct jinja_call *c, enum jinja_case to,
                     struct jinja_value *out)
{
    struct jinja_value text, changed;
    bool equal = false, cased = false;

    TRY(jinja_str(j, c->in, &text));
    TRY(jinja_change_case(j, text, to, &changed));
    TRY(jinja_equal(j, text, changed, &equal));
    TRY(jinja_change_case(j, text, to == JINJA_UPPER ? JINJA_LOWER : JINJA_UPPER, &changed));
    TRY(jinja_equal(j, text, changed, &cased)); /* something in it has a case */
    return yields(out, equal && !cased);
}

static int test_lower(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return same_case(j, c, JINJA_LOWER, out);
}

static int test_upper(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return same_case(j, c, JINJA_UPPER, out);
}

/* The very object, not an equal one. */
static int test_same(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_value a = c->in, b = c->a[0];
    bool same = a.kind == b.kind;

    if (same && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        same = a.as.list == b.as.list;
    } else if (same && (a.kind == JINJA_DICT || a.kind == JINJA_NAMESPACE)) {
        same = a.as.dict == b.as.dict;
    } else if (same) {
        TRY(jinja_equal(j, a, b, &same));
    }
    return yields(out, same);
}

static int function_range(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t start = 0, stop = 0, step = 1;
    struct jinja_range *r;

    TRY(jinja_to_int(j, c->a[0], "a bound of range", &stop));
    if (jinja_is_given(c->a[1])) {
        start = stop;
        TRY(jinja_to_int(j, c->a[1], "a bound of range", &stop));
    }
    if (jinja_is_given(c->a[2])) {
        TRY(jinja_to_int(j, c->a[2], "the step of range", &step));
    }
    if (step == 0) {
        return JINJA_FAIL(j, "the step of range is 0");
    }
    const double wide = ((double)stop - (double)start) / (double)step;
    if (wide > RANGE_MAX) {
        return JINJA_FAIL(j, "range has more than %d elements", RANGE_MAX);
    }
    JINJA_TAKE(j, r, sizeof *r);
    *r = (struct jinja_range){start, step, 0};
    if (wide > 0.0) {
        const uint64_t a = (uint64_t)start, b = (uint64_t)stop, s = (uint64_t)step;
        const uint64_t way = step > 0 ? b - a : a - b, size = step > 0 ? s : 0 - s;
        /* cppcheck-suppress zerodivcond ; a step of 0 is refused above */
        r->n = (int64_t)((way - 1) / size) + 1; /* RANGE_MAX at most */
    }
    *out = (struct jinja_value){.kind = JINJA_RANGE, .tag = jinja_untagged, .as.range = r};
    return 0;
}

/* The named arguments, after the entries of a dict given first. */
static int entries(struct jinja *j, const struct jinja_call *c, enum jinja_kind kind,
                   struct jinja_value *out)
{
    struct jinja_value key;

    TRY(jinja_new_dict(j, out, kind, 0));
    for (size_t i = 0; i < c->args->n; i++) {
        const struct jinja_value given = c->args->at[i];
        if (given.kind != JINJA_DICT) {
            return JINJA_FAIL(j, "a %s can't be made of a %s", jinja_type_name(*out),
                              jinja_type_name(given));
        }
        for (size_t k = 0; k < given.as.dict->n; k++) {
            TRY(jinja_put(j, out->as.dict, given.as.dict->at[k].key, given.as.dict->at[k].value));
        }
    }
    for (size_t i = 0; i < c->args->named_count; i++) {
        const char *name = c->args->named[i].name;
        TRY(jinja_string(j, &key, name, strlen(name), jinja_untagged));
        TRY(jinja_put(j, out->as.dict, key, c->args->named[i].value));
    }
    return 0;
}

static int function_namespace(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return entries(j, c, JINJA_NAMESPACE, out);
}

static int function_dict(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return entries(j, c, JINJA_DICT, out);
}

/* The template's own words; data among them is left out. */
static int function_raise(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_tag tag = jinja_untagged;
    struct jinja_out o = {0};
    struct jinja_value text;
    char clean[sizeof j->err->text];

    (void)out;
    TRY(jinja_str(j, c->a[0], &text));
    const struct jinja_text *t = text.as.text;
    if (t->runs == NULL) {
        const bool is_own = text.tag.from == JINJA_FROM_TEMPLATE;
        TRY(jinja_out_put(j, &o, is_own ? t->at : "...", is_own ? t->n : 3, tag));
    }
    for (size_t i = 0, at = 0; t->runs != NULL && i < t->run_count; at = t->runs[i++].end) {
        const bool is_own = t->runs[i].tag.from == JINJA_FROM_TEMPLATE;
        TRY(jinja_out_put(j, &o, is_own ? t->at + at : "...", is_own ? t->runs[i].end - at : 3,
                          tag));
    }
    TRY(jinja_out_put(j, &o, "", 1, tag));
    text_clean(clean, sizeof clean, o.at != NULL ? o.at : "");
    return FAIL(j->err, ERR_BAD_REQUEST, "the chat template refuses the conversation: %s",
                clean[0] != '\0' ? clean : "it does not say why");
}

static int function_strftime(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    char format[TIME_FORMAT_MAX], *text;
    struct tm now;
    const time_t t = time(NULL);

    TRY(jinja_want_text(j, c->a[0], "the format of strftime_now"));
    const struct jinja_text *f = c->a[0].as.text;
    if (f->n >= sizeof format || localtime_r(&t, &now) == NULL) {
        return JINJA_FAIL(j, "the format of strftime_now is too long");
    }
    memcpy(format, f->at, f->n);
    format[f->n] = '\0';
    JINJA_TAKE(j, text, TIME_TEXT_MAX);
    /* The format is checked by what comes out: nothing is written when it is too long. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = f->n == 0 ? 0 : strftime(text, TIME_TEXT_MAX, format, &now);
#pragma GCC diagnostic pop
    if (utf8_prefix(text, n, NULL) != n) {
        return JINJA_FAIL(j, "the time is not UTF-8");
    }
    return jinja_string(j, out, text, n, jinja_untagged);
}

/* clang-format off */
static const struct jinja_builtin tests[] = {
    {"!=",          "other",   1, test_not_equal},
    {"boolean",     "",        0, test_boolean},
    {"callable",    "",        0, test_callable},
    {"defined",     "",        0, test_defined},
    {"divisibleby", "num",     1, test_divisible},
    {"eq",          "other",   1, test_equal},
    {"equalto",     "other",   1, test_equal},
    {"==",          "other",   1, test_equal},
    {"even",        "",        0, test_even},
    {"false",       "",        0, test_false},
    {"float",       "",        0, test_float},
    {"ge",          "other",   1, test_not_less},
    {">=",          "other",   1, test_not_less},
    {"greaterthan", "other",   1, test_more},
    {"gt",          "other",   1, test_more},
    {">",           "other",   1, test_more},
    {"in",          "seq",     1, test_in},
    {"integer",     "",        0, test_integer},
    {"iterable",    "",        0, test_iterable},
    {"le",          "other",   1, test_not_more},
    {"<=",          "other",   1, test_not_more},
    {"lessthan",    "other",   1, test_less},
    {"lower",       "",        0, test_lower},
    {"lt",          "other",   1, test_less},
    {"<",           "other",   1, test_less},
    {"mapping",     "",        0, test_mapping},
    {"ne",          "other",   1, test_not_equal},
    {"none",        "",        0, test_none},
    {"number",      "",        0, test_number},
    {"odd",         "",        0, test_odd},
    {"sameas",      "other",   1, test_same},
    {"sequence",    "",        0, test_sequence},
    {"string",      "",        0, test_string},
    {"true",        "",        0, test_true},
    {"undefined",   "",        0, test_undefined},
    {"upper",       "",        0, test_upper},
    {NULL, NULL, 0, NULL},
};

static const struct jinja_builtin functions[] = {
    {"dict",            "*",               0, function_dict},
    {"namespace",       "*",               0, function_namespace},
    {"raise_exception", "message",         1, function_raise},
    {"range",           "start stop step", 1, function_range},
    {"strftime_now",    "format",          1, function_strftime},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */

const struct jinja_builtin *jinja_look_up(const struct jinja_builtin *table, const char *name)
{
    for (; table->name != NULL; table++) {
        if (strcmp(table->name, name) == 0) {
            return table;
        }
    }
    return NULL;
}

const struct jinja_builtin *jinja_filter(const char *name)
{
    const struct jinja_builtin *b = jinja_look_up(jinja_string_filters, name);
    return b != NULL ? b : jinja_look_up(jinja_list_filters, name);
}

const struct jinja_builtin *jinja_test(const char *name)
{
    return jinja_look_up(tests, name);
}

const struct jinja_builtin *jinja_function(const char *name)
{
    return jinja_look_up(functions, name);
}
