/* jinja_compare.c - what is equal, what comes first and what holds what, as Python has it. */
#include <math.h>
#include <string.h>

#include "trainer/chat/jinja_text.h"

bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL;
}

double jinja_real(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT  ? v.as.real
           : v.kind == JINJA_BOOL ? (double)v.as.truth
                                  : (double)v.as.integer;
}

static int64_t integer_of(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? (int64_t)v.as.truth : v.as.integer;
}

static int order_numbers(struct jinja_value a, struct jinja_value b)
{
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) {
        return (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b));
    }
    return (jinja_real(a) > jinja_real(b)) - (jinja_real(a) < jinja_real(b));
}

static int order_texts(const struct jinja_text *a, const struct jinja_text *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    const int difference = n == 0 ? 0 : memcmp(a->at, b->at, n);

    return difference != 0 ? difference : (a->n > b->n) - (a->n < b->n);
}

/* Comparing a text costs as many steps as it is long. */
static int64_t text_steps(struct jinja_value v)
{
    return 1 + (v.kind == JINJA_STRING ? (int64_t)(v.as.text->n / 64) : 0);
}

static int equal_lists(struct jinja *j, const struct jinja_list *a, const struct jinja_list *b,
                       bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        TRY(jinja_equal(j, a->at[i], b->at[i], equal));
    }
    return 0;
}

static int equal_dicts(struct jinja *j, const struct jinja_dict *a, const struct jinja_dict *b,
                       bool *equal)
{
    struct jinja_value *other;

    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        TRY(jinja_find(j, b, a->at[i].key, &other));
        *equal = other != NULL;
        if (*equal) {
            TRY(jinja_equal(j, a->at[i].value, *other, equal));
        }
    }
    return 0;
}

int jinja_equal(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *equal)
{
    TRY(jinja_step(j, text_steps(a)));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        const bool is_nan = isnan(jinja_real(a)) || isnan(jinja_real(b));
        *equal = !is_nan && order_numbers(a, b) == 0;
        return 0;
    }
    *equal = false;
    if (a.kind != b.kind) {
        return 0;
    }
    TRY(jinja_enter(j));
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: *equal = true; break;
    case JINJA_STRING: *equal = order_texts(a.as.text, b.as.text) == 0; break;
    case JINJA_LIST:
    case JINJA_TUPLE: TRY(equal_lists(j, a.as.list, b.as.list, equal)); break;
    case JINJA_DICT: TRY(equal_dicts(j, a.as.dict, b.as.dict, equal)); break;
    case JINJA_RANGE:
        *equal =
            a.as.range->n == b.as.range->n &&
            (a.as.range->n == 0 || (a.as.range->start == b.as.range->start &&
                                    (a.as.range->n == 1 || a.as.range->step == b.as.range->step)));
        break;
    case JINJA_NAMESPACE: *equal = a.as.dict == b.as.dict; break;
    case JINJA_MACRO: *equal = a.as.macro == b.as.macro; break;
    case JINJA_FUNCTION: *equal = a.as.bound->builtin == b.as.bound->builtin; break;
    case JINJA_LOOP: *equal = a.as.loop == b.as.loop; break;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT: break; /* above */
    }
    j->depth--;
    return 0;
}

int jinja_order(struct jinja *j, struct jinja_value a, struct jinja_value b, int *order)
{
    bool equal = true;
    const bool are_lists = a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE);

    TRY(jinja_step(j, text_steps(a)));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *order = order_numbers(a, b);
        return 0;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *order = order_texts(a.as.text, b.as.text);
        return 0;
    }
    if (!are_lists) {
        return JINJA_FAIL(j, "a %s and a %s can't be ordered", jinja_type_name(a),
                          jinja_type_name(b));
    }
    TRY(jinja_enter(j));
    const struct jinja_list *x = a.as.list, *y = b.as.list;
    *order = (x->n > y->n) - (x->n < y->n);
    for (size_t i = 0; equal && i < x->n && i < y->n; i++) {
        TRY(jinja_equal(j, x->at[i], y->at[i], &equal));
        if (!equal) {
            TRY(jinja_order(j, x->at[i], y->at[i], order));
        }
    }
    j->depth--;
    return 0;
}

static int list_contains(struct jinja *j, const struct jinja_list *l, struct jinja_value part,
                         bool *contains)
{
    *contains = false;
    for (size_t i = 0; !*contains && i < l->n; i++) {
        TRY(jinja_equal(j, l->at[i], part, contains));
    }
    return 0;
}

int jinja_contains(struct jinja *j, struct jinja_value whole, struct jinja_value part,
                   bool *contains)
{
    struct jinja_value *found;
    struct jinja_list *elements;

    switch (whole.kind) {
    case JINJA_STRING:
        TRY(jinja_want_text(j, part, "what is looked for in a string"));
        TRY(jinja_step(j, (int64_t)(whole.as.text->n / 64)));
        *contains = jinja_search(whole.as.text, part.as.text, 0) != SIZE_MAX;
        return 0;
    case JINJA_DICT:
        TRY(jinja_find(j, whole.as.dict, part, &found));
        *contains = found != NULL;
        return 0;
    case JINJA_UNDEFINED: *contains = false; return 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
        TRY(jinja_elements(j, whole, &elements));
        return list_contains(j, elements, part, contains);
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: break;
    }
    return JINJA_FAIL(j, "nothing can be looked for in a %s", jinja_type_name(whole));
}
