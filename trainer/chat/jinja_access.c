/* jinja_access.c - attributes, items and slices of values, and arithmetic, as Python has them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/jinja_eval.h"

static int bind(struct jinja *j, struct jinja_value self, const struct jinja_builtin *b,
                struct jinja_value *out)
{
    struct jinja_bound *bound;

    JINJA_TAKE(j, bound, sizeof *bound);
    *bound = (struct jinja_bound){self, b};
    *out = (struct jinja_value){.kind = JINJA_FUNCTION, .tag = jinja_untagged, .as.bound = bound};
    return 0;
}

static bool changes(const char *name)
{
    static const char *const names[] = {"clear",      "pop",    "popitem",
                                        "setdefault", "update", "fromkeys"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static struct jinja_value neighbour(const struct jinja_loop *l, bool next)
{
    const size_t n = l->items->n;
    const bool is_there = next ? l->index + 1 < n : l->index > 0;

    return is_there ? l->items->at[next ? l->index + 1 : l->index - 1]
                    : (struct jinja_value){.kind = JINJA_UNDEFINED, .tag = jinja_untagged};
}

static bool loop_attribute(const struct jinja_loop *l, const char *name, struct jinja_value *out)
{
    const int64_t index = (int64_t)l->index, n = (int64_t)l->items->n;

    if (strcmp(name, "index") == 0) {
        *out = jinja_int(index + 1);
    } else if (strcmp(name, "index0") == 0) {
        *out = jinja_int(index);
    } else if (strcmp(name, "revindex") == 0) {
        *out = jinja_int(n - index);
    } else if (strcmp(name, "revindex0") == 0) {
        *out = jinja_int(n - index - 1);
    } else if (strcmp(name, "first") == 0) {
        *out = jinja_bool(index == 0);
    } else if (strcmp(name, "last") == 0) {
        *out = jinja_bool(index == n - 1);
    } else if (strcmp(name, "length") == 0) {
        *out = jinja_int(n);
    } else if (strcmp(name, "depth") == 0 || strcmp(name, "depth0") == 0) {
        *out = jinja_int(name[5] == '0' ? 0 : 1); /* only recursive loops are deeper */
    } else if (strcmp(name, "previtem") == 0 || strcmp(name, "nextitem") == 0) {
        *out = neighbour(l, name[0] == 'n');
    } else {
        return false;
    }
    return true;
}

int jinja_attribute(struct jinja *j, struct jinja_value object, const char *name,
                    struct jinja_value *out)
{
    const struct jinja_builtin *method = jinja_method(object.kind, name);
    const struct jinja_value *found = NULL;

    if (object.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, object);
    }
    if (method != NULL) {
        return bind(j, object, method, out);
    }
    if (object.kind == JINJA_LOOP && loop_attribute(object.as.loop, name, out)) {
        return 0;
    }
    if (object.kind == JINJA_NAMESPACE || (object.kind == JINJA_DICT && !changes(name))) {
        TRY(jinja_step(j, (int64_t)(object.as.dict->n / 16)));
        found = jinja_find_name(object.as.dict, name, strlen(name));
    }
    if (object.kind == JINJA_MACRO && strcmp(name, "name") == 0) {
        const char *own = object.as.macro->node->name;
        return jinja_string(j, out, own == NULL ? "caller" : own,
                            strlen(own == NULL ? "caller" : own), jinja_untagged);
    }
    if (found != NULL) {
        *out = *found;
        return 0;
    }
    return jinja_undefined(j, out, jinja_type_name(object), name);
}

/* Index I of n from the front, or from the back when it is negative; -1 when it is outside. */
static int64_t place(int64_t i, int64_t n)
{
    const int64_t at = i < 0 && i >= -n ? i + n : i;
    return at >= 0 && at < n ? at : -1;
}

static int character(struct jinja *j, struct jinja_value v, int64_t index, struct jinja_value *out,
                     bool *found)
{
    const struct jinja_text *t = v.as.text;

    TRY(jinja_step(j, (int64_t)(t->n / 32)));
    const int64_t at = place(index, jinja_characters(t));
    *found = at >= 0;
    if (*found) {
        const size_t begin = jinja_character_at(t, at);
        TRY(jinja_cut(j, v, begin, jinja_character_at(t, at + 1), out));
    }
    return 0;
}

static int indexed(struct jinja *j, struct jinja_value object, struct jinja_value key,
                   struct jinja_value *out, bool *found)
{
    int64_t index, at;

    *found = false;
    if (key.kind != JINJA_INT && key.kind != JINJA_BOOL) {
        return 0;
    }
    TRY(jinja_to_int(j, key, "an index", &index));
    if (object.kind == JINJA_STRING) {
        return character(j, object, index, out, found);
    }
    if (object.kind == JINJA_RANGE) {
        const struct jinja_range *r = object.as.range;
        at = place(index, r->n);
        *out = jinja_int(jinja_range_at(r, at < 0 ? 0 : at));
    } else {
        at = place(index, (int64_t)object.as.list->n);
        *out = at < 0 ? jinja_none() : object.as.list->at[at];
    }
    *found = at >= 0;
    return 0;
}

int jinja_item(struct jinja *j, struct jinja_value object, struct jinja_value key,
               struct jinja_value *out)
{
    struct jinja_value *value = NULL;
    bool found = false;

    if (object.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, object);
    }
    if (object.kind == JINJA_STRING || object.kind == JINJA_LIST || object.kind == JINJA_TUPLE ||
        object.kind == JINJA_RANGE) {
        TRY(indexed(j, object, key, out, &found));
    } else if (object.kind == JINJA_DICT && key.kind != JINJA_LIST && key.kind != JINJA_DICT) {
        TRY(jinja_find(j, object.as.dict, key, &value));
        found = value != NULL;
        if (found) {
            *out = *value;
        }
    }
    if (found) {
        return 0;
    }
    if (key.kind != JINJA_STRING) {
        return jinja_undefined(j, out, jinja_type_name(object), "element there");
    }
    /* The name of data is not spelled out in an error: only what the template itself says. */
    const struct jinja_text *t = key.as.text;
    if (t->n > 60 || memchr(t->at, '\0', t->n) != NULL ||
        jinja_text_tag(key).from != JINJA_FROM_TEMPLATE) {
        return jinja_undefined(j, out, jinja_type_name(object), "element of that name");
    }
    char *name;
    JINJA_TAKE(j, name, t->n + 1);
    memcpy(name, t->at, t->n);
    name[t->n] = '\0';
    return jinja_attribute(j, object, name, out);
}

int jinja_path(struct jinja *j, struct jinja_value object, struct jinja_value path,
               struct jinja_value *out)
{
    struct jinja_value part;
    char *end;

    *out = object;
    if (path.kind == JINJA_INT) {
        return jinja_item(j, object, path, out);
    }
    TRY(jinja_want_text(j, path, "an attribute"));
    const struct jinja_text *t = path.as.text;
    for (size_t at = 0, next; at <= t->n; at = next + 1) {
        const struct jinja_text dot = {.at = ".", .n = 1};
        next = jinja_search(t, &dot, at);
        next = next == SIZE_MAX ? t->n : next;
        TRY(jinja_cut(j, path, at, next, &part));
        char digits[24] = "";
        memcpy(digits, t->at + at, next - at < sizeof digits ? next - at : sizeof digits - 1);
        const long long index = strtoll(digits, &end, 10);
        const bool is_index = digits[0] >= '0' && digits[0] <= '9' && *end == '\0';
        TRY(jinja_item(j, *out, is_index ? jinja_int(index) : part, out));
    }
    return 0;
}

/* Python's slice.indices: the first index, the step, and how many there are. */
struct cut {
    int64_t start, step, n;
};

static int64_t clamp(int64_t i, int64_t low, int64_t high)
{
    return i < low ? low : i > high ? high : i;
}

static int indices(struct jinja *j, const struct jinja_value part[3], int64_t n, struct cut *c)
{
    int64_t start, stop;

    c->step = 1;
    if (part[2].kind != JINJA_NONE) {
        TRY(jinja_to_int(j, part[2], "the step of a slice", &c->step));
    }
    if (c->step == 0) {
        return JINJA_FAIL(j, "the step of a slice is 0");
    }
    const bool back = c->step < 0;
    start = back ? n - 1 : 0;
    stop = back ? -1 : n;
    if (part[0].kind != JINJA_NONE) {
        TRY(jinja_to_int(j, part[0], "the start of a slice", &start));
        start = clamp(start < 0 ? start + n : start, back ? -1 : 0, back ? n - 1 : n);
    }
    if (part[1].kind != JINJA_NONE) {
        TRY(jinja_to_int(j, part[1], "the end of a slice", &stop));
        stop = clamp(stop < 0 ? stop + n : stop, back ? -1 : 0, back ? n - 1 : n);
    }
    const int64_t step = clamp(c->step, -(n + 1), n + 1); /* so that nothing overflows */
    const int64_t room = back ? start - stop : stop - start;
    c->step = step;
    c->start = start;
    c->n = room <= 0 ? 0 : (room - 1) / (back ? -step : step) + 1;
    return 0;
}

static int slice_text(struct jinja *j, struct jinja_value v, const struct jinja_value part[3],
                      struct jinja_value *out)
{
    const struct jinja_text *t = v.as.text;
    struct jinja_out o = {0};
    struct cut c;

    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    TRY(indices(j, part, jinja_characters(t), &c));
    if (c.step == 1) {
        const size_t begin = jinja_character_at(t, c.start);
        return jinja_cut(j, v, begin, jinja_character_at(t, c.start + c.n), out);
    }
    struct jinja_list *all;
    TRY(jinja_elements(j, v, &all));
    for (int64_t i = 0; i < c.n; i++) {
        TRY(jinja_out_text(j, &o, all->at[c.start + i * c.step], false));
    }
    return jinja_out_value(j, &o, out);
}

int jinja_slice(struct jinja *j, struct jinja_value v, const struct jinja_value part[3],
                struct jinja_value *out)
{
    struct jinja_list *all;
    struct cut c;

    if (v.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, v);
    }
    if (v.kind == JINJA_STRING) {
        return slice_text(j, v, part, out);
    }
    if (v.kind != JINJA_LIST && v.kind != JINJA_TUPLE && v.kind != JINJA_RANGE) {
        return JINJA_FAIL(j, "a %s can't be sliced", jinja_type_name(v));
    }
    TRY(jinja_elements(j, v, &all));
    TRY(indices(j, part, (int64_t)all->n, &c));
    TRY(jinja_step(j, c.n));
    struct jinja_value result;
    TRY(jinja_new_list(j, &result, v.kind == JINJA_TUPLE ? JINJA_TUPLE : JINJA_LIST, (size_t)c.n));
    for (int64_t i = 0; i < c.n; i++) {
        TRY(jinja_append(j, result.as.list, all->at[c.start + i * c.step]));
    }
    *out = result;
    return 0;
}

static int too_large(struct jinja *j)
{
    return JINJA_FAIL(j, "a number does not fit 64 bits");
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static int integer_power(struct jinja *j, int64_t base, int64_t exponent, struct jinja_value *out)
{
    int64_t result = 1;

    if (base >= -1 && base <= 1 && exponent > 64) {
        exponent = 64 + (exponent & 1);
    }
    for (int64_t i = 0; i < exponent; i++) {
        if (__builtin_mul_overflow(result, base, &result)) {
            return too_large(j);
        }
    }
    *out = jinja_int(result);
    return 0;
}

static int integers(struct jinja *j, enum jinja_op op, int64_t a, int64_t b,
                    struct jinja_value *out)
{
    int64_t result = 0;
    bool overflow = false;

    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && b == 0) {
        return JINJA_FAIL(j, "division by zero");
    }
    if (op == OP_DIVIDE || (op == OP_POWER && b < 0)) {
        *out = jinja_float(op == OP_DIVIDE ? (double)a / (double)b : pow((double)a, (double)b));
        return 0;
    }
    if (op == OP_POWER) {
        return integer_power(j, a, b, out);
    }
    if (op == OP_ADD) {
        overflow = __builtin_add_overflow(a, b, &result);
    } else if (op == OP_SUBTRACT) {
        overflow = __builtin_sub_overflow(a, b, &result);
    } else if (op == OP_MULTIPLY) {
        overflow = __builtin_mul_overflow(a, b, &result);
    } else if (b == -1) {
        overflow = op == OP_FLOOR && __builtin_sub_overflow((int64_t)0, a, &result);
    } else {
        const int64_t q = floor_divide(a, b);
        result = op == OP_FLOOR ? q : a - q * b;
    }
    if (overflow) {
        return too_large(j);
    }
    *out = jinja_int(result);
    return 0;
}

static int reals(struct jinja *j, enum jinja_op op, double a, double b, struct jinja_value *out)
{
    double r;

    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && b == 0.0) {
        return JINJA_FAIL(j, "division by zero");
    }
    if (op == OP_ADD) {
        r = a + b;
    } else if (op == OP_SUBTRACT) {
        r = a - b;
    } else if (op == OP_MULTIPLY) {
        r = a * b;
    } else if (op == OP_DIVIDE) {
        r = a / b;
    } else if (op == OP_POWER) {
        r = pow(a, b);
    } else {
        const double rest = fmod(a, b);
        const double modulo = rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
        r = op == OP_MODULO ? modulo : floor((a - modulo) / b + 0.5);
    }
    *out = jinja_float(r);
    return 0;
}

static int concatenate(struct jinja *j, struct jinja_value a, struct jinja_value b,
                       struct jinja_value *out)
{
    struct jinja_out o = {0};

    if (a.kind == JINJA_STRING) {
        TRY(jinja_out_text(j, &o, a, false));
        TRY(jinja_out_text(j, &o, b, false));
        return jinja_out_value(j, &o, out);
    }
    struct jinja_value result;
    TRY(jinja_step(j, (int64_t)(a.as.list->n + b.as.list->n)));
    TRY(jinja_new_list(j, &result, a.kind, a.as.list->n + b.as.list->n));
    for (size_t i = 0; i < a.as.list->n; i++) {
        TRY(jinja_append(j, result.as.list, a.as.list->at[i]));
    }
    for (size_t i = 0; i < b.as.list->n; i++) {
        TRY(jinja_append(j, result.as.list, b.as.list->at[i]));
    }
    *out = result;
    return 0;
}

static int repeat(struct jinja *j, struct jinja_value v, int64_t times, struct jinja_value *out)
{
    struct jinja_value result = v;
    struct jinja_out o = {0};

    if (v.kind == JINJA_STRING) {
        for (int64_t i = 0; i < times && v.as.text->n > 0; i++) {
            TRY(jinja_step(j, 1));
            TRY(jinja_out_text(j, &o, v, false));
        }
        return jinja_out_value(j, &o, out);
    }
    TRY(jinja_new_list(j, &result, v.kind, 0));
    for (int64_t i = 0; i < times && v.as.list->n > 0; i++) {
        TRY(jinja_step(j, (int64_t)v.as.list->n));
        for (size_t k = 0; k < v.as.list->n; k++) {
            TRY(jinja_append(j, result.as.list, v.as.list->at[k]));
        }
    }
    *out = result;
    return 0;
}

static bool is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

static bool is_whole(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_BOOL;
}

int jinja_arithmetic(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                     struct jinja_value *out)
{
    int64_t x = 0, y = 0;

    if (op == OP_MODULO && a.kind == JINJA_STRING) {
        return jinja_percent(j, a, b, out);
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, a.kind == JINJA_UNDEFINED ? a : b);
    }
    if (is_whole(a)) {
        TRY(jinja_to_int(j, a, "a number", &x));
    }
    if (is_whole(b)) {
        TRY(jinja_to_int(j, b, "a number", &y));
    }
    if (is_whole(a) && is_whole(b)) {
        return integers(j, op, x, y, out);
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        return reals(j, op, jinja_real(a), jinja_real(b), out);
    }
    if (op == OP_ADD && a.kind == b.kind && is_sequence(a)) {
        return concatenate(j, a, b, out);
    }
    if (op == OP_MULTIPLY && is_sequence(a) && is_whole(b)) {
        return repeat(j, a, y, out);
    }
    if (op == OP_MULTIPLY && is_sequence(b) && is_whole(a)) {
        return repeat(j, b, x, out);
    }
    return JINJA_FAIL(j, "a %s and a %s can't be combined by arithmetic", jinja_type_name(a),
                      jinja_type_name(b));
}
