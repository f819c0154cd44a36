/* jinja_execute.c - statements of a template, and a rendering as a whole. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/jinja_eval.h"

static int assign_tuple(struct jinja *j, const struct jinja_node *target, struct jinja_value v)
{
    struct jinja_list *elements;
    size_t n = 0;

    TRY(jinja_elements(j, v, &elements));
    for (const struct jinja_node *t = target->first; t != NULL; t = t->next) {
        n++;
    }
    if (n != elements->n) {
        return JINJA_FAIL(j, "%zu values can't be unpacked to %zu names", elements->n, n);
    }
    n = 0;
    for (const struct jinja_node *t = target->first; t != NULL; t = t->next) {
        TRY(jinja_assign_target(j, t, elements->at[n++]));
    }
    return 0;
}

static int assign_attribute(struct jinja *j, const struct jinja_node *target, struct jinja_value v)
{
    struct jinja_value space, key;

    TRY(jinja_evaluate(j, target->a, &space));
    if (space.kind != JINJA_NAMESPACE) {
        return JINJA_FAIL(j, "only attributes of a namespace can be set, not '%.40s' of a %s",
                          target->name, jinja_type_name(space));
    }
    TRY(jinja_string(j, &key, target->name, strlen(target->name), jinja_untagged));
    return jinja_put(j, space.as.dict, key, v);
}

int jinja_assign_target(struct jinja *j, const struct jinja_node *target, struct jinja_value v)
{
    TRY(jinja_enter(j));
    if (target->op == OP_TUPLE) {
        TRY(assign_tuple(j, target, v));
    } else if (target->op == OP_ATTR) {
        TRY(assign_attribute(j, target, v));
    } else {
        TRY(jinja_assign(j, target->name, v));
    }
    j->depth--;
    return 0;
}

/* What the statements write, as a string, in a scope of their own. */
static int capture(struct jinja *j, const struct jinja_node *first, struct jinja_value *out)
{
    struct jinja_scope *const scope = j->scope;
    struct jinja_out *const before = j->out, *o;

    JINJA_TAKE(j, o, sizeof *o);
    *o = (struct jinja_out){0};
    TRY(jinja_push_scope(j));
    j->out = o;
    TRY(jinja_execute(j, first));
    j->out = before;
    j->scope = scope;
    return jinja_out_value(j, o, out);
}

/* The chain of filters from the innermost outwards. */
static int apply_filters(struct jinja *j, const struct jinja_node *n, struct jinja_value *v)
{
    struct jinja_args args;

    TRY(jinja_enter(j));
    if (n->a != NULL) {
        TRY(apply_filters(j, n->a, v));
    }
    TRY(jinja_arguments(j, n->first, &args));
    TRY(jinja_run(j, n->builtin, *v, &args, v));
    j->depth--;
    return 0;
}

static int set_block(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_value v;

    TRY(capture(j, n->first, &v));
    if (n->b != NULL) {
        TRY(apply_filters(j, n->b, &v));
    }
    return jinja_assign_target(j, n->a, v);
}

static int filter_block(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_value v;

    TRY(capture(j, n->first, &v));
    TRY(apply_filters(j, n->b, &v));
    return jinja_out_str(j, j->out, v, true);
}

/* The value for each parameter of a macro, in its scope: given by place, by name, or the default. */
static int bind_parameters(struct jinja *j, const struct jinja_node *params,
                           const struct jinja_args *args)
{
    size_t at = 0, used = 0;

    for (const struct jinja_node *p = params; p != NULL; p = p->next, at++) {
        struct jinja_value v;
        bool given = at < args->n;
        TRY(jinja_step(j, 1 + (int64_t)(args->named_count / 16)));
        if (given) {
            v = args->at[at];
        }
        for (size_t i = 0; i < args->named_count; i++) {
            if (args->named[i].name == p->name) {
                if (given) {
                    return JINJA_FAIL(j, "the parameter '%.40s' is given twice", p->name);
                }
                v = args->named[i].value;
                given = true;
                used++;
            }
        }
        if (!given && p->a != NULL) {
            TRY(jinja_evaluate(j, p->a, &v));
        } else if (!given) {
            TRY(jinja_undefined(j, &v, NULL, p->name));
        }
        TRY(jinja_assign(j, p->name, v));
    }
    if (args->n > at || used < args->named_count) {
        return JINJA_FAIL(j, "the macro takes %zu arguments, but others are given", at);
    }
    return 0;
}

int jinja_call_macro(struct jinja *j, const struct jinja_macro *m, const struct jinja_args *args,
                     const struct jinja_value *caller, struct jinja_value *out)
{
    const struct jinja_node *n = m->node;
    struct jinja_scope *const scope = j->scope;
    const int line = j->line;

    TRY(jinja_enter(j));
    j->scope = m->scope;
    TRY(jinja_push_scope(j));
    TRY(bind_parameters(j, n->op == DO_MACRO ? n->a : n->b, args));
    if (caller != NULL && j->template->caller != NULL) {
        TRY(jinja_assign(j, j->template->caller, *caller));
    }
    TRY(capture(j, n->first, out));
    j->scope = scope;
    j->line = line;
    j->depth--;
    return 0;
}

static int new_macro(struct jinja *j, const struct jinja_node *n, struct jinja_value *out)
{
    struct jinja_macro *m;

    JINJA_TAKE(j, m, sizeof *m);
    *m = (struct jinja_macro){n, j->scope};
    *out = (struct jinja_value){.kind = JINJA_MACRO, .tag = jinja_untagged, .as.macro = m};
    return 0;
}

static int call_block(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_value callee, caller, v;
    struct jinja_args args;

    TRY(jinja_evaluate(j, n->a->a, &callee));
    TRY(jinja_arguments(j, n->a->first, &args));
    if (callee.kind != JINJA_MACRO) {
        return JINJA_FAIL(j, "a call block needs a macro, not a %s", jinja_type_name(callee));
    }
    TRY(new_macro(j, n, &caller));
    TRY(jinja_call_macro(j, callee.as.macro, &args, &caller, &v));
    return jinja_out_text(j, j->out, v, true);
}

/* The elements for which the condition holds. */
static int select_elements(struct jinja *j, const struct jinja_node *n,
                           struct jinja_list **elements)
{
    struct jinja_scope *const scope = j->scope;
    struct jinja_value list, keeps;

    TRY(jinja_new_list(j, &list, JINJA_LIST, 0));
    for (size_t i = 0; i < (*elements)->n; i++) {
        TRY(jinja_push_scope(j));
        TRY(jinja_assign_target(j, n->a, (*elements)->at[i]));
        TRY(jinja_evaluate(j, n->c, &keeps));
        if (jinja_truth(keeps)) {
            TRY(jinja_append(j, list.as.list, (*elements)->at[i]));
        }
        j->scope = scope;
    }
    *elements = list.as.list;
    return 0;
}

static int run_loop(struct jinja *j, const struct jinja_node *n, const struct jinja_list *elements)
{
    struct jinja_scope *const scope = j->scope;
    const int32_t turn = j->turn;
    const char *name = j->template->loop;
    struct jinja_loop *loop;

    JINJA_TAKE(j, loop, sizeof *loop);
    *loop = (struct jinja_loop){.items = elements, .depth = j->loops};
    const struct jinja_value v = {.kind = JINJA_LOOP, .tag = jinja_untagged, .as.loop = loop};
    for (; loop->index < elements->n && j->flow != JINJA_BREAKS; loop->index++) {
        const struct jinja_value *element = &elements->at[loop->index];
        const bool is_message = element->kind == JINJA_DICT && element->as.dict->message >= 0;
        j->flow = JINJA_GOES_ON;
        TRY(jinja_step(j, 1));
        TRY(jinja_push_scope(j));
        if (name != NULL) {
            TRY(jinja_assign(j, name, v));
        }
        TRY(jinja_assign_target(j, n->a, *element));
        j->turn = is_message ? element->as.dict->message : turn;
        TRY(jinja_execute(j, n->first));
        j->turn = turn;
        j->scope = scope;
    }
    j->flow = JINJA_GOES_ON;
    return 0;
}

static int loop_over(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_scope *const scope = j->scope;
    struct jinja_list *elements;
    struct jinja_value v;

    TRY(jinja_evaluate(j, n->b, &v));
    TRY(jinja_elements(j, v, &elements));
    if (n->c != NULL) {
        TRY(select_elements(j, n, &elements));
    }
    if (elements->n > 0) {
        j->loops++;
        TRY(run_loop(j, n, elements));
        j->loops--;
        return 0;
    }
    TRY(jinja_push_scope(j));
    TRY(jinja_execute(j, n->other));
    j->scope = scope;
    return 0;
}

static int branch(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_value condition;

    TRY(jinja_evaluate(j, n->a, &condition));
    return jinja_execute(j, jinja_truth(condition) ? n->first : n->other);
}

static int with(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_scope *const outer = j->scope;
    struct jinja_value v;

    TRY(jinja_push_scope(j));
    struct jinja_scope *const inner = j->scope;
    for (const struct jinja_node *t = n->a; t != NULL; t = t->next) {
        j->scope = outer; /* values do not see each other */
        TRY(jinja_evaluate(j, t->a, &v));
        j->scope = inner;
        TRY(jinja_assign(j, t->name, v));
    }
    TRY(jinja_execute(j, n->first));
    j->scope = outer;
    return 0;
}

static int generation(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_scope *const scope = j->scope;
    const bool before = j->generation;

    TRY(jinja_push_scope(j));
    j->generation = true;
    TRY(jinja_execute(j, n->first));
    j->generation = before;
    j->scope = scope;
    return 0;
}

static int execute(struct jinja *j, const struct jinja_node *n)
{
    struct jinja_value v = {0};

    switch (n->op) {
    case DO_TEXT: return jinja_out_text(j, j->out, n->value, true);
    case DO_PRINT: TRY(jinja_evaluate(j, n->a, &v)); return jinja_out_str(j, j->out, v, true);
    case DO_IF: return branch(j, n);
    case DO_FOR: return loop_over(j, n);
    case DO_SET: TRY(jinja_evaluate(j, n->b, &v)); return jinja_assign_target(j, n->a, v);
    case DO_SET_BLOCK: return set_block(j, n);
    case DO_MACRO: TRY(new_macro(j, n, &v)); return jinja_assign(j, n->name, v);
    case DO_CALL_BLOCK: return call_block(j, n);
    case DO_FILTER_BLOCK: return filter_block(j, n);
    case DO_WITH: return with(j, n);
    case DO_GENERATION: return generation(j, n);
    case DO_BREAK: j->flow = JINJA_BREAKS; return 0;
    case DO_CONTINUE: j->flow = JINJA_CONTINUES; return 0;
    case OP_CONST:
    case OP_NAME:
    case OP_LIST:
    case OP_TUPLE:
    case OP_DICT:
    case OP_ATTR:
    case OP_ITEM:
    case OP_SLICE:
    case OP_CALL:
    case OP_ARGUMENT:
    case OP_FILTER:
    case OP_TEST:
    case OP_NOT:
    case OP_NEGATE:
    case OP_PLUS:
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_DIVIDE:
    case OP_FLOOR:
    case OP_MODULO:
    case OP_POWER:
    case OP_JOIN:
    case OP_AND:
    case OP_OR:
    case OP_COMPARE:
    case OP_CMP_EQ:
    case OP_CMP_NE:
    case OP_CMP_LT:
    case OP_CMP_LE:
    case OP_CMP_GT:
    case OP_CMP_GE:
    case OP_CMP_IN:
    case OP_CMP_NOT_IN:
    case OP_IF_ELSE: break;
    }
    CHECK(false, "operation %d is no statement", n->op);
}

int jinja_execute(struct jinja *j, const struct jinja_node *first)
{
    TRY(jinja_enter(j));
    for (const struct jinja_node *n = first; n != NULL && j->flow == JINJA_GOES_ON; n = n->next) {
        TRY(jinja_step(j, 1));
        j->line = n->line;
        TRY(execute(j, n));
    }
    j->depth--;
    return 0;
}

void jinja_output_fini(struct jinja_output *o)
{
    free(o->text);
    free(o->runs);
    *o = (struct jinja_output){0};
}

static int copy_output(struct jinja_output *out, const struct jinja_out *o, struct err *err)
{
    out->text = malloc(o->n + 1);
    out->runs = malloc((o->run_count + 1) * sizeof *out->runs);
    if (out->text == NULL || out->runs == NULL) {
        jinja_output_fini(out);
        return FAIL(err, ERR_NO_MEMORY, "there is no memory for a conversation of %zu bytes", o->n);
    }
    if (o->n > 0) {
        memcpy(out->text, o->at, o->n);
        memcpy(out->runs, o->runs, o->run_count * sizeof *out->runs);
    }
    out->text[o->n] = '\0';
    out->bytes = o->n;
    out->run_count = o->run_count;
    return 0;
}

static int render(struct jinja *j, const struct jinja_variable *variables, int count)
{
    struct jinja_value v;

    TRY(jinja_push_scope(j));
    for (int i = 0; i < count; i++) {
        const char *name =
            jinja_interned(j->template, variables[i].name, strlen(variables[i].name));
        if (name != NULL) {
            TRY(jinja_from_json(j, &v, variables[i].value, variables[i].data));
            TRY(jinja_assign(j, name, v));
        }
    }
    return jinja_execute(j, j->template->body);
}

int jinja_render(const struct jinja_template *t, const struct jinja_variable *variables, int count,
                 const struct jinja_limits *limits, struct jinja_output *out, struct err *err)
{
    struct jinja_out o = {0};
    struct jinja j = {
        .template = t,
        .arena.limit = limits->memory,
        .err = err,
        .line = 1,
        .steps = limits->steps,
        .output = limits->output,
        .out = &o,
        .turn = JINJA_NO_TURN,
    };

    *out = (struct jinja_output){0};
    int rc = render(&j, variables, count);
    if (rc == 0) {
        rc = copy_output(out, &o, err);
    }
    jinja_arena_fini(&j.arena);
    return rc;
}
