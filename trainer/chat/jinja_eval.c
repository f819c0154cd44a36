/* jinja_eval.c - expressions of a template, evaluated on its tree. */
#include "trainer/chat/jinja_eval.h"

#include <math.h>
#include <string.h>

#include "kernels/check.h"

int jinja_push_scope(struct jinja *j)
{
    struct jinja_scope *s;

    JINJA_TAKE(j, s, sizeof *s);
    *s = (struct jinja_scope){.parent = j->scope};
    j->scope = s;
    return 0;
}

int jinja_assign(struct jinja *j, const char *name, struct jinja_value v)
{
    struct jinja_binding *b;
    int64_t looks = 0;

    for (b = j->scope->first; b != NULL; b = b->next, looks++) {
        if (b->name == name) {
            b->value = v;
            return 0;
        }
    }
    TRY(jinja_step(j, looks / 16));
    JINJA_TAKE(j, b, sizeof *b);
    *b = (struct jinja_binding){j->scope->first, name, v};
    j->scope->first = b;
    return 0;
}

static int look_up(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    int64_t looks = 0;

    for (const struct jinja_scope *s = j->scope; s != NULL; s = s->parent) {
        for (const struct jinja_binding *b = s->first; b != NULL; b = b->next, looks++) {
            if (b->name == n->name) {
                *out = b->value;
                return jinja_step(j, looks / 16);
            }
        }
    }
    if (n->builtin == NULL) {
        return jinja_undefined(j, out, NULL, n->name);
    }
    struct jinja_bound *bound;
    JINJA_TAKE(j, bound, sizeof *bound);
    *bound = (struct jinja_bound){jinja_none(), n->builtin};
    *out = (struct jinja_value){.kind = JINJA_FUNCTION, .tag = jinja_untagged, .as.bound = bound};
    return 0;
}

int jinja_fail_undefined(struct jinja *j, struct jinja_value v)
{
    const struct jinja_missing *m = v.as.missing;

    if (m == NULL) {
        return JINJA_FAIL(j, "a value that is undefined is used");
    }
    if (m->owner == NULL) {
        return JINJA_FAIL(j, "'%.60s' is undefined", m->name);
    }
    return JINJA_FAIL(j, "a %s has no '%.60s'", m->owner, m->name);
}

bool jinja_is_given(struct jinja_value parameter)
{
    return parameter.kind != JINJA_UNDEFINED;
}

static int elements_of(struct jinja *j, const struct jinja_node *first, enum jinja_kind kind,
                       struct jinja_value *out)
{
    struct jinja_value v = {0};

    TRY(jinja_new_list(j, out, kind, 0));
    for (const struct jinja_node *n = first; n != NULL; n = n->next) {
        TRY(jinja_evaluate(j, n, &v));
        TRY(jinja_append(j, out->as.list, v));
    }
    return 0;
}

static int dict_of(struct jinja *j, const struct jinja_node *first, struct jinja_value *out)
{
    struct jinja_value key = {0}, v = {0};

    TRY(jinja_new_dict(j, out, JINJA_DICT, 0));
    for (const struct jinja_node *n = first; n != NULL; n = n->next->next) {
        TRY(jinja_evaluate(j, n, &key));
        TRY(jinja_evaluate(j, n->next, &v));
        TRY(jinja_put(j, out->as.dict, key, v));
    }
    return 0;
}

int jinja_arguments(struct jinja *j, const struct jinja_node *first, struct jinja_args *args)
{
    size_t n = 0, named = 0;

    for (const struct jinja_node *a = first; a != NULL; a = a->next) {
        named += a->op == OP_ARGUMENT;
        n += a->op != OP_ARGUMENT;
    }
    *args = (struct jinja_args){0};
    if (n > 0) {
        JINJA_TAKE(j, args->at, n * sizeof *args->at);
    }
    if (named > 0) {
        JINJA_TAKE(j, args->named, named * sizeof *args->named);
    }
    for (const struct jinja_node *a = first; a != NULL; a = a->next) {
        if (a->op == OP_ARGUMENT) {
            struct jinja_named *to = &args->named[args->named_count++];
            to->name = a->name;
            TRY(jinja_evaluate(j, a->a, &to->value));
        } else {
            TRY(jinja_evaluate(j, a, &args->at[args->n++]));
        }
    }
    return 0;
}

/* The place of parameter NAME in "a b c", or -1. */
static int parameter_index(const char *params, const char *name)
{
    const size_t n = strlen(name);

    for (int i = 0; *params != '\0'; i++) {
        const size_t length = strcspn(params, " ");
        if (length == n && memcmp(params, name, n) == 0) {
            return i;
        }
        params += length + strspn(params + length, " ");
    }
    return -1;
}

static int parameter_count(const char *params)
{
    int n = *params != '\0';

    for (; *params != '\0'; params++) {
        n += *params == ' ';
    }
    return n;
}

int jinja_run(struct jinja *j, const struct jinja_builtin *b, struct jinja_value in,
              const struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_call c = {.in = in, .args = args};
    bool given[JINJA_PARAMS] = {false};

    for (int i = 0; i < JINJA_PARAMS; i++) {
        c.a[i] = (struct jinja_value){.kind = JINJA_UNDEFINED, .tag = jinja_untagged};
    }
    if (b->params[0] == '*') {
        return b->run(j, &c, out);
    }
    const int count = parameter_count(b->params);
    CHECK(count <= JINJA_PARAMS, "%s takes %d", b->name, count);
    if (args->n > (size_t)count) {
        return JINJA_FAIL(j, "%s takes at most %d arguments, not %zu", b->name, count, args->n);
    }
    for (size_t i = 0; i < args->n; i++) {
        c.a[i] = args->at[i];
        given[i] = true;
    }
    for (size_t i = 0; i < args->named_count; i++) {
        const int at = parameter_index(b->params, args->named[i].name);
        if (at < 0) {
            return JINJA_FAIL(j, "%s has no parameter '%.40s'", b->name, args->named[i].name);
        }
        c.a[at] = args->named[i].value;
        given[at] = true;
    }
    for (int i = 0; i < b->required; i++) {
        if (!given[i]) {
            return JINJA_FAIL(j, "%s needs %d arguments", b->name, b->required);
        }
    }
    return b->run(j, &c, out);
}

int jinja_call_value(struct jinja *j, struct jinja_value callee, const struct jinja_args *args,
                     struct jinja_value *out)
{
    if (callee.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, callee);
    }
    if (callee.kind == JINJA_MACRO) {
        return jinja_call_macro(j, callee.as.macro, args, NULL, out);
    }
    if (callee.kind == JINJA_FUNCTION) {
        return jinja_run(j, callee.as.bound->builtin, callee.as.bound->self, args, out);
    }
    return JINJA_FAIL(j, "a %s can't be called", jinja_type_name(callee));
}

static int call(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value callee;
    struct jinja_args args;

    TRY(jinja_evaluate(j, n->a, &callee));
    TRY(jinja_arguments(j, n->first, &args));
    j->line = n->line;
    return jinja_call_value(j, callee, &args, out);
}

static int filter_or_test(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value in;
    struct jinja_args args;

    TRY(jinja_evaluate(j, n->a, &in));
    TRY(jinja_arguments(j, n->first, &args));
    j->line = n->line;
    return jinja_run(j, n->builtin, in, &args, out);
}

static int compare(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                   bool *holds)
{
    const bool is_nan =
        (a.kind == JINJA_FLOAT && isnan(a.as.real)) || (b.kind == JINJA_FLOAT && isnan(b.as.real));
    const bool by_equality = op == OP_CMP_EQ || op == OP_CMP_NE;
    int order = 0;

    if (op == OP_CMP_IN || op == OP_CMP_NOT_IN) {
        TRY(jinja_contains(j, b, a, holds));
        *holds = *holds == (op == OP_CMP_IN);
        return 0;
    }
    if (by_equality) {
        TRY(jinja_equal(j, a, b, holds));
        *holds = *holds == (op == OP_CMP_EQ);
        return 0;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, a.kind == JINJA_UNDEFINED ? a : b);
    }
    TRY(jinja_order(j, a, b, &order));
    *holds = !is_nan && (op == OP_CMP_LT   ? order < 0
                         : op == OP_CMP_LE ? order <= 0
                         : op == OP_CMP_GT ? order > 0
                                           : order >= 0);
    return 0;
}

static int comparison(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value left, right;
    bool holds = true;

    TRY(jinja_evaluate(j, n->a, &left));
    for (const struct jinja_node *c = n->first; holds && c != NULL; c = c->next) {
        TRY(jinja_evaluate(j, c->a, &right));
        j->line = c->line;
        TRY(compare(j, c->op, left, right, &holds));
        left = right;
    }
    *out = jinja_bool(holds);
    return 0;
}

/* `and` and `or` yield the side that decides. */
static int logic(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    for (const struct jinja_node *side = n->first; side != NULL; side = side->next) {
        TRY(jinja_evaluate(j, side, out));
        if (jinja_truth(*out) == (n->op == OP_OR)) {
            break;
        }
    }
    return 0;
}

static int join(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_out o = {0};
    struct jinja_value v;

    for (const struct jinja_node *part = n->first; part != NULL; part = part->next) {
        TRY(jinja_evaluate(j, part, &v));
        TRY(jinja_out_str(j, &o, v, false));
    }
    return jinja_out_value(j, &o, out);
}

static int if_else(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value condition;

    TRY(jinja_evaluate(j, n->b, &condition));
    if (jinja_truth(condition)) {
        return jinja_evaluate(j, n->a, out);
    }
    return n->c != NULL ? jinja_evaluate(j, n->c, out)
                        : jinja_undefined(j, out, NULL, "an if without an else");
}

static int sign(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    TRY(jinja_evaluate(j, n->a, out));
    if (out->kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(j, *out);
    }
    if (!jinja_is_number(*out)) {
        return JINJA_FAIL(j, "a %s has no sign", jinja_type_name(*out));
    }
    if (n->op == OP_NEGATE && out->kind == JINJA_FLOAT) {
        out->as.real = -out->as.real;
        return 0;
    }
    return n->op == OP_NEGATE || out->kind == JINJA_BOOL
               ? jinja_arithmetic(j, n->op == OP_NEGATE ? OP_SUBTRACT : OP_ADD, jinja_int(0), *out,
                                  out)
               : 0;
}

static int arithmetic(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value a, b;

    TRY(jinja_evaluate(j, n->a, &a));
    TRY(jinja_evaluate(j, n->b, &b));
    j->line = n->line;
    return jinja_arithmetic(j, n->op, a, b, out);
}

static int access(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_value object, part[3];
    const struct jinja_node *const from[3] = {n->b, n->c, n->d};

    TRY(jinja_evaluate(j, n->a, &object));
    if (n->op == OP_ATTR) {
        j->line = n->line;
        return jinja_attribute(j, object, n->name, out);
    }
    for (int i = 0; i < 3; i++) {
        part[i] = jinja_none();
        if (from[i] != NULL) {
            TRY(jinja_evaluate(j, from[i], &part[i]));
        }
    }
    j->line = n->line;
    return n->op == OP_ITEM ? jinja_item(j, object, part[0], out)
                            : jinja_slice(j, object, part, out);
}

static int evaluate(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    switch (n->op) {
    case OP_CONST:
        *out = n->value;
        out->tag.turn = j->turn;
        return 0;
    case OP_NAME: return look_up(j, n, out);
    case OP_LIST: return elements_of(j, n->first, JINJA_LIST, out);
    case OP_TUPLE: return elements_of(j, n->first, JINJA_TUPLE, out);
    case OP_DICT: return dict_of(j, n->first, out);
    case OP_ATTR:
    case OP_ITEM:
    case OP_SLICE: return access(j, n, out);
    case OP_CALL: return call(j, n, out);
    case OP_FILTER:
    case OP_TEST: return filter_or_test(j, n, out);
    case OP_NOT:
        TRY(jinja_evaluate(j, n->a, out));
        *out = jinja_bool(!jinja_truth(*out));
        return 0;
    case OP_NEGATE:
    case OP_PLUS: return sign(j, n, out);
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_DIVIDE:
    case OP_FLOOR:
    case OP_MODULO:
    case OP_POWER: return arithmetic(j, n, out);
    case OP_JOIN: return join(j, n, out);
    case OP_AND:
    case OP_OR: return logic(j, n, out);
    case OP_COMPARE: return comparison(j, n, out);
    case OP_IF_ELSE: return if_else(j, n, out);
    case OP_ARGUMENT:
    case OP_CMP_EQ:
    case OP_CMP_NE:
    case OP_CMP_LT:
    case OP_CMP_LE:
    case OP_CMP_GT:
    case OP_CMP_GE:
    case OP_CMP_IN:
    case OP_CMP_NOT_IN:
    case DO_TEXT:
    case DO_PRINT:
    case DO_IF:
    case DO_FOR:
    case DO_SET:
    case DO_SET_BLOCK:
    case DO_MACRO:
    case DO_CALL_BLOCK:
    case DO_FILTER_BLOCK:
    case DO_WITH:
    case DO_GENERATION:
    case DO_BREAK:
    case DO_CONTINUE: break;
    }
    CHECK(false, "operation %d is no expression", n->op);
}

int jinja_evaluate(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    TRY(jinja_step(j, 1));
    TRY(jinja_enter(j));
    j->line = n->line;
    TRY(evaluate(j, n, out));
    j->depth--;
    return 0;
}
