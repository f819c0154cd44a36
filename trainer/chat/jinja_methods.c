/* jinja_methods.c - methods of strings, dicts and lists that change nothing, as Python has them. */
#include <string.h>
#include <utf8proc.h>

#include "trainer/chat/jinja_eval.h"
#include "trainer/tokenizer/utf8.h"

enum { NAME_MAX_BYTES = 64 };

static int str_strip(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_strip(j, c->in, c->a[0], JINJA_LEFT | JINJA_RIGHT, out);
}

static int str_lstrip(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_strip(j, c->in, c->a[0], JINJA_LEFT, out);
}

static int str_rstrip(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_strip(j, c->in, c->a[0], JINJA_RIGHT, out);
}

static int str_upper(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_change_case(j, c->in, JINJA_UPPER, out);
}

static int str_lower(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_change_case(j, c->in, JINJA_LOWER, out);
}

static int str_title(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_change_case(j, c->in, JINJA_TITLE, out);
}

static int str_capitalize(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return jinja_change_case(j, c->in, JINJA_CAPITAL, out);
}

static bool begins(const struct jinja_text *t, const struct jinja_text *part)
{
    return part->n <= t->n && (part->n == 0 || memcmp(t->at, part->at, part->n) == 0);
}

static bool ends(const struct jinja_text *t, const struct jinja_text *part)
{
    return part->n <= t->n &&
           (part->n == 0 || memcmp(t->at + t->n - part->n, part->at, part->n) == 0);
}

/* With a text, or any of a tuple. */
static int begins_or_ends(struct jinja *j, const struct jinja_call *c,
                          bool (*holds)(const struct jinja_text *, const struct jinja_text *),
                          struct jinja_value *out)
{
    *out = jinja_bool(false);
    if (c->a[0].kind != JINJA_TUPLE) {
        TRY(jinja_want_text(j, c->a[0], "a beginning or end"));
        TRY(jinja_step(j, (int64_t)(c->a[0].as.text->n / 64)));
        *out = jinja_bool(holds(c->in.as.text, c->a[0].as.text));
        return 0;
    }
    for (size_t i = 0; i < c->a[0].as.list->n && !out->as.truth; i++) {
        const struct jinja_value part = c->a[0].as.list->at[i];
        TRY(jinja_want_text(j, part, "a beginning or end"));
        TRY(jinja_step(j, 1 + (int64_t)(part.as.text->n / 64)));
        *out = jinja_bool(holds(c->in.as.text, part.as.text));
    }
    return 0;
}

static int str_startswith(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return begins_or_ends(j, c, begins, out);
}

static int str_endswith(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return begins_or_ends(j, c, ends, out);
}

static int str_removeprefix(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    TRY(jinja_want_text(j, c->a[0], "a prefix"));
    TRY(jinja_step(j, (int64_t)(c->a[0].as.text->n / 64)));
    const struct jinja_text *t = c->in.as.text, *part = c->a[0].as.text;
    return jinja_cut(j, c->in, begins(t, part) ? part->n : 0, t->n, out);
}

static int str_removesuffix(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    TRY(jinja_want_text(j, c->a[0], "a suffix"));
    TRY(jinja_step(j, (int64_t)(c->a[0].as.text->n / 64)));
    const struct jinja_text *t = c->in.as.text, *part = c->a[0].as.text;
    return jinja_cut(j, c->in, 0, ends(t, part) ? t->n - part->n : t->n, out);
}

static int str_replace(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t count = -1;

    if (jinja_is_given(c->a[2])) {
        TRY(jinja_to_int(j, c->a[2], "the count of replace", &count));
    }
    return jinja_replace(j, c->in, c->a[0], c->a[1], count, out);
}

static int str_join(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;
    struct jinja_out o = {0};

    TRY(jinja_elements(j, c->a[0], &elements));
    for (size_t i = 0; i < elements->n; i++) {
        TRY(jinja_step(j, 1));
        TRY(jinja_want_text(j, elements->at[i], "what is joined"));
        TRY(i > 0 ? jinja_out_text(j, &o, c->in, false) : 0);
        TRY(jinja_out_text(j, &o, elements->at[i], false));
    }
    return jinja_out_value(j, &o, out);
}

/* Where a text stands, in characters; -1 for nowhere. */
static int find(struct jinja *j, const struct jinja_call *c, bool last, int64_t *at)
{
    const struct jinja_text *t = c->in.as.text;

    TRY(jinja_want_text(j, c->a[0], "what is looked for"));
    TRY(jinja_search_steps(j, t, c->a[0].as.text));
    const size_t byte =
        last ? jinja_search_back(t, c->a[0].as.text, t->n) : jinja_search(t, c->a[0].as.text, 0);
    const struct jinja_text before = {.at = t->at, .n = byte == SIZE_MAX ? 0 : byte};
    *at = byte == SIZE_MAX ? -1 : jinja_characters(&before);
    return 0;
}

static int str_find(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t at = 0;

    TRY(find(j, c, false, &at));
    *out = jinja_int(at);
    return 0;
}

static int str_rfind(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t at = 0;

    TRY(find(j, c, true, &at));
    *out = jinja_int(at);
    return 0;
}

static int str_index(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t at = 0;

    TRY(find(j, c, false, &at));
    if (at < 0) {
        return JINJA_FAIL(j, "index did not find the text");
    }
    *out = jinja_int(at);
    return 0;
}

static int str_count(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;
    int64_t n = 0;

    TRY(jinja_want_text(j, c->a[0], "what is counted"));
    const struct jinja_text *part = c->a[0].as.text;
    if (part->n == 0) {
        *out = jinja_int(jinja_characters(t) + 1);
        return 0;
    }
    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    for (size_t at = 0; (at = jinja_search(t, part, at)) != SIZE_MAX; at += part->n) {
        n++;
    }
    *out = jinja_int(n);
    return 0;
}

/* Is the text not empty, and every character of these categories of Unicode? */
static int every(struct jinja *j, const struct jinja_call *c, unsigned letters, unsigned digits,
                 struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;
    bool holds = t->n > 0;
    uint32_t ch;

    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    for (size_t at = 0; holds && at < t->n;) {
        at += utf8_get(t->at + at, &ch);
        const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)ch);
        const bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
        holds = (letters && is_letter) || (digits && category == UTF8PROC_CATEGORY_ND) ||
                (letters && digits &&
                 (category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO));
    }
    *out = jinja_bool(holds);
    return 0;
}

static int str_isalpha(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return every(j, c, 1, 0, out);
}

static int str_isdigit(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return every(j, c, 0, 1, out);
}

static int str_isalnum(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return every(j, c, 1, 1, out);
}

static int str_isspace(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;

    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    bool holds = t->n > 0;
    uint32_t ch;
    for (size_t at = 0; holds && at < t->n;) {
        at += utf8_get(t->at + at, &ch);
        holds = jinja_is_space(ch);
    }
    *out = jinja_bool(holds);
    return 0;
}

/* The argument that {FIELD} names: nothing: the next one; a number; a name. */
static int field(struct jinja *j, const struct jinja_args *args, const char *name, size_t n,
                 size_t *next, struct jinja_value *out)
{
    size_t index = 0;
    bool is_index = n > 0;

    for (size_t i = 0; i < n; i++) {
        is_index = is_index && name[i] >= '0' && name[i] <= '9';
        index = is_index && index < args->n ? index * 10 + (size_t)(name[i] - '0') : index;
    }
    for (size_t i = 0; i < args->named_count; i++) {
        if (strlen(args->named[i].name) == n && memcmp(args->named[i].name, name, n) == 0) {
            *out = args->named[i].value;
            return 0;
        }
    }
    if (n > 0 && !is_index) {
        return JINJA_FAIL(j, "format knows only {}, {0} and {name}, and names that are given");
    }
    index = n == 0 ? (*next)++ : index;
    if (index >= args->n) {
        return JINJA_FAIL(j, "format has more places than values");
    }
    *out = args->at[index];
    return 0;
}

static int str_format(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;
    struct jinja_out o = {0};
    struct jinja_value v;
    size_t next = 0, done = 0;

    for (size_t at = 0; at < t->n; at++) {
        const char ch = t->at[at];
        if (ch != '{' && ch != '}') {
            continue;
        }
        TRY(jinja_step(j, 1 + (int64_t)(c->args->named_count / 16)));
        TRY(jinja_out_cut(j, &o, c->in, done, at));
        if (at + 1 < t->n && t->at[at + 1] == ch) {
            TRY(jinja_out_cut(j, &o, c->in, at, at + 1));
            done = ++at + 1;
            continue;
        }
        const char *end = ch == '{' ? memchr(t->at + at, '}', t->n - at) : NULL;
        if (end == NULL) {
            return JINJA_FAIL(j, "a format has a brace without its other half");
        }
        const size_t close = (size_t)(end - t->at);
        TRY(field(j, c->args, t->at + at + 1, close - at - 1, &next, &v));
        TRY(jinja_out_str(j, &o, v, false));
        at = close;
        done = close + 1;
    }
    TRY(jinja_out_cut(j, &o, c->in, done, t->n));
    return jinja_out_value(j, &o, out);
}

static int dict_get(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value *found;

    TRY(jinja_find(j, c->in.as.dict, c->a[0], &found));
    *out = found != NULL ? *found : jinja_is_given(c->a[1]) ? c->a[1] : jinja_none();
    return 0;
}

static int dict_copy(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    (void)j;
    *out = c->in;
    return 0;
}

static int dict_items(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_args none = {0};
    return jinja_run(j, jinja_filter("items"), c->in, &none, out);
}

static int dict_keys(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_args none = {0};
    return jinja_run(j, jinja_filter("list"), c->in, &none, out);
}

static int dict_values(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_dict *d = c->in.as.dict;

    TRY(jinja_new_list(j, out, JINJA_LIST, d->n));
    for (size_t i = 0; i < d->n; i++) {
        TRY(jinja_append(j, out->as.list, d->at[i].value));
    }
    return 0;
}

static int list_count(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_list *l = c->in.as.list;
    bool equal = false;
    int64_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        TRY(jinja_equal(j, l->at[i], c->a[0], &equal));
        n += equal;
    }
    *out = jinja_int(n);
    return 0;
}

static int list_index(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_list *l = c->in.as.list;
    bool equal = false;

    for (size_t i = 0; i < l->n; i++) {
        TRY(jinja_equal(j, l->at[i], c->a[0], &equal));
        if (equal) {
            *out = jinja_int((int64_t)i);
            return 0;
        }
    }
    return JINJA_FAIL(j, "index did not find the value");
}

static int loop_cycle(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    if (c->args->n == 0) {
        return JINJA_FAIL(j, "cycle needs values");
    }
    *out = c->args->at[c->in.as.loop->index % c->args->n];
    return 0;
}

/* clang-format off */
static const struct jinja_builtin string_methods[] = {
    {"capitalize",   "",               0, str_capitalize},
    {"count",        "sub",            1, str_count},
    {"endswith",     "suffix",         1, str_endswith},
    {"find",         "sub",            1, str_find},
    {"format",       "*",              0, str_format},
    {"index",        "sub",            1, str_index},
    {"isalnum",      "",               0, str_isalnum},
    {"isalpha",      "",               0, str_isalpha},
    {"isdigit",      "",               0, str_isdigit},
    {"isspace",      "",               0, str_isspace},
    {"join",         "iterable",       1, str_join},
    {"lower",        "",               0, str_lower},
    {"lstrip",       "chars",          0, str_lstrip},
    {"partition",    "sep",            1, jinja_str_partition},
    {"removeprefix", "prefix",         1, str_removeprefix},
    {"removesuffix", "suffix",         1, str_removesuffix},
    {"replace",      "old new count",  2, str_replace},
    {"rfind",        "sub",            1, str_rfind},
    {"rpartition",   "sep",            1, jinja_str_rpartition},
    {"rsplit",       "sep maxsplit",   0, jinja_str_rsplit},
    {"rstrip",       "chars",          0, str_rstrip},
    {"split",        "sep maxsplit",   0, jinja_str_split},
    {"splitlines",   "keepends",       0, jinja_str_splitlines},
    {"startswith",   "prefix",         1, str_startswith},
    {"strip",        "chars",          0, str_strip},
    {"title",        "",               0, str_title},
    {"upper",        "",               0, str_upper},
    {NULL, NULL, 0, NULL},
};

static const struct jinja_builtin dict_methods[] = {
    {"copy",   "",            0, dict_copy},
    {"get",    "key default", 1, dict_get},
    {"items",  "",            0, dict_items},
    {"keys",   "",            0, dict_keys},
    {"values", "",            0, dict_values},
    {NULL, NULL, 0, NULL},
};

static const struct jinja_builtin list_methods[] = {
    {"count", "value", 1, list_count},
    {"index", "value", 1, list_index},
    {NULL, NULL, 0, NULL},
};

static const struct jinja_builtin loop_methods[] = {
    {"cycle", "*", 0, loop_cycle},
    {NULL, NULL, 0, NULL},
};

/* Methods of Python that are not above and change nothing. */
static const char *const unknown_methods[] = {
    "casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isdecimal", "isidentifier",
    "islower", "isnumeric", "isprintable", "istitle", "isupper", "ljust", "maketrans", "rindex", "rjust",
    "swapcase", "translate", "zfill",
};
/* clang-format on */

const struct jinja_builtin *jinja_method(enum jinja_kind kind, const char *name)
{
    const struct jinja_builtin *table = kind == JINJA_STRING                        ? string_methods
                                        : kind == JINJA_DICT                        ? dict_methods
                                        : kind == JINJA_LIST || kind == JINJA_TUPLE ? list_methods
                                        : kind == JINJA_LOOP                        ? loop_methods
                                                                                    : NULL;
    return table == NULL ? NULL : jinja_look_up(table, name);
}

bool jinja_is_unknown_method(const char *name)
{
    for (size_t i = 0; i < sizeof unknown_methods / sizeof *unknown_methods; i++) {
        if (strcmp(unknown_methods[i], name) == 0) {
            return true;
        }
    }
    return false;
}
