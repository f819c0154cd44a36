/* jinja_list_filters.c - the filters that go through elements. Source: jinja2/filters.py of Jinja 3.1. */
#include <string.h>

#include "trainer/chat/jinja_eval.h"

static int filter_length(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    int64_t n;

    TRY(jinja_length(j, c->in, &n));
    *out = jinja_int(n);
    return 0;
}

static int filter_list(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;

    TRY(jinja_elements(j, c->in, &elements));
    *out = (struct jinja_value){.kind = JINJA_LIST, .tag = c->in.tag, .as.list = elements};
    return 0;
}

static int filter_join(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;
    struct jinja_value between, v;
    struct jinja_out o = {0};

    TRY(jinja_elements(j, c->in, &elements));
    TRY(jinja_str(j, c->a[0], &between));
    for (size_t i = 0; i < elements->n; i++) {
        TRY(jinja_step(j, 1));
        v = elements->at[i];
        if (jinja_is_given(c->a[1])) {
            TRY(jinja_path(j, v, c->a[1], &v));
        }
        TRY(i > 0 ? jinja_out_text(j, &o, between, false) : 0);
        TRY(jinja_out_str(j, &o, v, false));
    }
    return jinja_out_value(j, &o, out);
}

static int end_of(struct jinja *j, const struct jinja_call *c, bool last, struct jinja_value *out)
{
    struct jinja_list *elements;

    TRY(jinja_elements(j, c->in, &elements));
    if (elements->n == 0) {
        return jinja_undefined(j, out, "list without elements", last ? "last" : "first");
    }
    *out = elements->at[last ? elements->n - 1 : 0];
    return 0;
}

static int filter_first(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return end_of(j, c, false, out);
}

static int filter_last(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return end_of(j, c, true, out);
}

static int filter_reverse(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_value back[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    struct jinja_list *elements;

    if (c->in.kind == JINJA_STRING) {
        return jinja_slice(j, c->in, back, out);
    }
    TRY(jinja_elements(j, c->in, &elements));
    const struct jinja_value list = {JINJA_LIST, jinja_untagged, {.list = elements}};
    return jinja_slice(j, list, back, out);
}

static const struct jinja_value *named(const struct jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->named_count; i++) {
        if (strcmp(args->named[i].name, name) == 0) {
            return &args->named[i].value;
        }
    }
    return NULL;
}

/* The row of TABLE that a text names, with the line of the call in the error. */
static int row_of(struct jinja *j, struct jinja_value name, bool is_test,
                  const struct jinja_builtin **out)
{
    char text[32] = "";

    TRY(jinja_want_text(j, name, "the name of a filter or test"));
    if (name.as.text->n < sizeof text) {
        memcpy(text, name.as.text->at, name.as.text->n);
        *out = is_test ? jinja_test(text) : jinja_filter(text);
    }
    return *out != NULL ? 0
                        : JINJA_FAIL(j, "there is no %s of that name", is_test ? "test" : "filter");
}

/* map('filter', ...), map(attribute='a.b', default=x) */
static int filter_map(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_value *path = named(c->args, "attribute");
    const struct jinja_value *fallback = named(c->args, "default");
    const struct jinja_builtin *filter = NULL;
    struct jinja_args rest = *c->args;
    struct jinja_list *elements;
    struct jinja_value v, list;

    if (path == NULL && rest.n == 0) {
        return JINJA_FAIL(j, "map needs a filter or an attribute");
    }
    if (path == NULL) {
        TRY(row_of(j, rest.at[0], false, &filter));
        rest.at++;
        rest.n--;
    }
    TRY(jinja_elements(j, c->in, &elements));
    TRY(jinja_new_list(j, &list, JINJA_LIST, elements->n));
    for (size_t i = 0; i < elements->n; i++) {
        TRY(jinja_step(j, 1));
        TRY(path != NULL ? jinja_path(j, elements->at[i], *path, &v)
                         : jinja_run(j, filter, elements->at[i], &rest, &v));
        TRY(jinja_append(j, list.as.list,
                         v.kind == JINJA_UNDEFINED && path != NULL && fallback != NULL ? *fallback
                                                                                       : v));
    }
    *out = list;
    return 0;
}

/* select(test, ...), selectattr(attribute, test, ...) and their opposites. */
static int choose(struct jinja *j, const struct jinja_call *c, bool by_attribute, bool keeps,
                  struct jinja_value *out)
{
    const struct jinja_builtin *test = NULL;
    struct jinja_args rest = *c->args;
    struct jinja_value path = jinja_none(), v, holds, list;
    struct jinja_list *elements;

    if (by_attribute) {
        if (rest.n == 0) {
            return JINJA_FAIL(j, "selectattr and rejectattr need an attribute");
        }
        path = *rest.at++;
        rest.n--;
    }
    if (rest.n > 0) {
        TRY(row_of(j, *rest.at++, true, &test));
        rest.n--;
    }
    TRY(jinja_elements(j, c->in, &elements));
    TRY(jinja_new_list(j, &list, JINJA_LIST, 0));
    for (size_t i = 0; i < elements->n; i++) {
        TRY(jinja_step(j, 1));
        v = elements->at[i];
        if (by_attribute) {
            TRY(jinja_path(j, v, path, &v));
        }
        holds = v;
        if (test != NULL) {
            TRY(jinja_run(j, test, v, &rest, &holds));
        }
        if (jinja_truth(holds) == keeps) {
            TRY(jinja_append(j, list.as.list, elements->at[i]));
        }
    }
    *out = list;
    return 0;
}

static int filter_select(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return choose(j, c, false, true, out);
}

static int filter_reject(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return choose(j, c, false, false, out);
}

static int filter_selectattr(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return choose(j, c, true, true, out);
}

static int filter_rejectattr(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return choose(j, c, true, false, out);
}

static int pairs(struct jinja *j, const struct jinja_dict *d, struct jinja_value *out)
{
    struct jinja_value pair;

    TRY(jinja_new_list(j, out, JINJA_LIST, d->n));
    for (size_t i = 0; i < d->n; i++) {
        TRY(jinja_step(j, 1));
        TRY(jinja_new_list(j, &pair, JINJA_TUPLE, 2));
        TRY(jinja_append(j, pair.as.list, d->at[i].key));
        TRY(jinja_append(j, pair.as.list, d->at[i].value));
        TRY(jinja_append(j, out->as.list, pair));
    }
    return 0;
}

static int filter_items(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    if (c->in.kind == JINJA_UNDEFINED) {
        return jinja_new_list(j, out, JINJA_LIST, 0);
    }
    if (c->in.kind != JINJA_DICT) {
        return JINJA_FAIL(j, "items needs a dict, not a %s", jinja_type_name(c->in));
    }
    return pairs(j, c->in.as.dict, out);
}

/* Texts are ordered without regard to case unless asked. */
static int sort_key(struct jinja *j, struct jinja_value v, bool exact, struct jinja_value *out)
{
    if (v.kind == JINJA_STRING && !exact) {
        return jinja_change_case(j, v, JINJA_LOWER, out);
    }
    *out = v;
    return 0;
}

struct sorting {
    struct jinja_value *keys, *values, *spare_keys, *spare_values;
    bool reverse;
};

/* Stable, from the bottom up: runs of `width` become runs of twice that. */
static int merge(struct jinja *j, struct sorting *s, size_t begin, size_t width, size_t n)
{
    size_t left = begin, right = begin + width < n ? begin + width : n;
    const size_t middle = right, end = middle + width < n ? middle + width : n;
    int order = 0;

    for (size_t i = begin; i < end; i++) {
        bool takes_left = left < middle;
        if (left < middle && right < end) {
            TRY(jinja_order(j, s->keys[right], s->keys[left], &order));
            takes_left = s->reverse ? order <= 0 : order >= 0;
        }
        const size_t from = takes_left ? left++ : right++;
        s->spare_keys[i] = s->keys[from];
        s->spare_values[i] = s->values[from];
    }
    return 0;
}

static int sort(struct jinja *j, struct sorting *s, size_t n)
{
    JINJA_TAKE(j, s->spare_keys, n * sizeof *s->keys);
    JINJA_TAKE(j, s->spare_values, n * sizeof *s->values);
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            TRY(merge(j, s, begin, width, n));
        }
        struct jinja_value *keys = s->keys, *values = s->values;
        s->keys = s->spare_keys;
        s->values = s->spare_values;
        s->spare_keys = keys;
        s->spare_values = values;
    }
    return 0;
}

/* ELEMENTS in the order of their keys, in a new list. */
static int sorted(struct jinja *j, const struct jinja_list *elements,
                  const struct jinja_value *path, bool exact, bool reverse, struct jinja_value *out)
{
    struct sorting s = {.reverse = reverse};
    struct jinja_value key;
    const size_t n = elements->n;

    TRY(jinja_new_list(j, out, JINJA_LIST, n));
    if (n == 0) {
        return 0;
    }
    JINJA_TAKE(j, s.keys, n * sizeof *s.keys);
    JINJA_TAKE(j, s.values, n * sizeof *s.values);
    for (size_t i = 0; i < n; i++) {
        key = elements->at[i];
        if (path != NULL) {
            TRY(jinja_path(j, key, *path, &key));
        }
        TRY(sort_key(j, key, exact, &s.keys[i]));
        s.values[i] = elements->at[i];
    }
    TRY(sort(j, &s, n));
    out->as.list->at = s.values;
    out->as.list->n = n;
    return 0;
}

static const struct jinja_value *if_given(const struct jinja_value *v)
{
    return v->kind == JINJA_UNDEFINED || v->kind == JINJA_NONE ? NULL : v;
}

static int filter_sort(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;

    TRY(jinja_elements(j, c->in, &elements));
    return sorted(j, elements, if_given(&c->a[2]), jinja_truth(c->a[1]), jinja_truth(c->a[0]), out);
}

static int filter_dictsort(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_value entries, by = jinja_int(0);

    if (c->in.kind != JINJA_DICT) {
        return JINJA_FAIL(j, "dictsort needs a dict, not a %s", jinja_type_name(c->in));
    }
    if (c->a[1].kind == JINJA_STRING && c->a[1].as.text->n == 5) { /* "value" */
        by = jinja_int(1);
    }
    TRY(pairs(j, c->in.as.dict, &entries));
    return sorted(j, entries.as.list, &by, jinja_truth(c->a[0]), jinja_truth(c->a[2]), out);
}

static int filter_unique(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;
    struct jinja_value seen, key;
    bool is_there = false;

    TRY(jinja_elements(j, c->in, &elements));
    TRY(jinja_new_list(j, &seen, JINJA_LIST, 0));
    TRY(jinja_new_list(j, out, JINJA_LIST, 0));
    for (size_t i = 0; i < elements->n; i++) {
        key = elements->at[i];
        if (if_given(&c->a[1]) != NULL) {
            TRY(jinja_path(j, key, c->a[1], &key));
        }
        TRY(sort_key(j, key, jinja_truth(c->a[0]), &key));
        TRY(jinja_contains(j, seen, key, &is_there));
        if (!is_there) {
            TRY(jinja_append(j, seen.as.list, key));
            TRY(jinja_append(j, out->as.list, elements->at[i]));
        }
    }
    return 0;
}

static int extreme(struct jinja *j, const struct jinja_call *c, bool largest,
                   struct jinja_value *out)
{
    struct jinja_list *elements;
    struct jinja_value list;

    TRY(jinja_elements(j, c->in, &elements));
    TRY(sorted(j, elements, if_given(&c->a[1]), jinja_truth(c->a[0]), largest, &list));
    if (list.as.list->n == 0) {
        return jinja_undefined(j, out, "list without elements", largest ? "max" : "min");
    }
    *out = list.as.list->at[0];
    return 0;
}

static int filter_min(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return extreme(j, c, false, out);
}

static int filter_max(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return extreme(j, c, true, out);
}

static int filter_sum(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_list *elements;
    struct jinja_value v;

    TRY(jinja_elements(j, c->in, &elements));
    *out = jinja_is_given(c->a[1]) ? c->a[1] : jinja_int(0);
    for (size_t i = 0; i < elements->n; i++) {
        v = elements->at[i];
        if (if_given(&c->a[0]) != NULL) {
            TRY(jinja_path(j, v, c->a[0], &v));
        }
        TRY(jinja_arithmetic(j, OP_ADD, *out, v, out));
    }
    return 0;
}

static int filter_attr(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    char *name;

    TRY(jinja_want_text(j, c->a[0], "the name of an attribute"));
    const struct jinja_text *t = c->a[0].as.text;
    JINJA_TAKE(j, name, t->n + 1);
    memcpy(name, t->at, t->n);
    name[t->n] = '\0';
    if (c->in.kind == JINJA_DICT && jinja_method(c->in.kind, name) == NULL) {
        return jinja_undefined(j, out, "dict", "attribute of that name");
    }
    return jinja_attribute(j, c->in, name, out);
}

/* clang-format off */
const struct jinja_builtin jinja_list_filters[] = {
    {"attr",       "name",                       1, filter_attr},
    {"count",      "",                           0, filter_length},
    {"dictsort",   "case_sensitive by reverse",  0, filter_dictsort},
    {"first",      "",                           0, filter_first},
    {"items",      "",                           0, filter_items},
    {"join",       "d attribute",                0, filter_join},
    {"last",       "",                           0, filter_last},
    {"length",     "",                           0, filter_length},
    {"list",       "",                           0, filter_list},
    {"map",        "*",                          0, filter_map},
    {"max",        "case_sensitive attribute",   0, filter_max},
    {"min",        "case_sensitive attribute",   0, filter_min},
    {"reject",     "*",                          0, filter_reject},
    {"rejectattr", "*",                          0, filter_rejectattr},
    {"reverse",    "",                           0, filter_reverse},
    {"select",     "*",                          0, filter_select},
    {"selectattr", "*",                          0, filter_selectattr},
    {"sort",       "reverse case_sensitive attribute", 0, filter_sort},
    {"sum",        "attribute start",            0, filter_sum},
    {"unique",     "case_sensitive attribute",   0, filter_unique},
    {NULL, NULL, 0, NULL},
};
/* clang-format on */
