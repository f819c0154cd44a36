/* jinja_expression.c - expressions of a template, parsed by descent.
 *
 * Source: the parser of Jinja 3.1 (jinja2/parser.py), of which this has the order of binding:
 *     if else < or < and < not < comparison, in < + - < ~ < * / // % < ** < unary - + < . [] () < | is
 * A filter binds less than a sign when it stands behind a plain value: -1|abs is (-1)|abs. */
#include <string.h>

#include "trainer/chat/jinja_node.h"

static int parse_unary(struct jinja_parser *p, struct jinja_node **out, bool filters);

static int text_constant(struct jinja_parser *p, struct jinja_node *n, const char *at, size_t bytes)
{
    struct jinja_text *t = jinja_arena_take(&p->template->arena, sizeof *t);

    if (t == NULL) {
        return jinja_parse_out_of_memory(p);
    }
    *t = (struct jinja_text){.at = at, .n = bytes};
    n->value = (struct jinja_value){.kind = JINJA_STRING, .tag = jinja_untagged, .as.text = t};
    return 0;
}

/* 'a' 'b' is 'ab'. */
static int parse_string(struct jinja_parser *p, struct jinja_node *n)
{
    const struct jinja_token *first = p->at;
    size_t bytes = 0, done = 0;

    while (p->at->kind == TOKEN_STRING) {
        bytes += p->at++->n;
    }
    if (p->at == first + 1) {
        return text_constant(p, n, first->at, first->n);
    }
    char *text = jinja_arena_take(&p->template->arena, bytes + 1);
    if (text == NULL) {
        return jinja_parse_out_of_memory(p);
    }
    for (const struct jinja_token *t = first; t < p->at; t++) {
        memcpy(text + done, t->at, t->n);
        done += t->n;
    }
    return text_constant(p, n, text, bytes);
}

static bool skip_constant(struct jinja_parser *p, struct jinja_value *v)
{
    if (jinja_skip_name(p, "true") || jinja_skip_name(p, "True")) {
        *v = jinja_bool(true);
    } else if (jinja_skip_name(p, "false") || jinja_skip_name(p, "False")) {
        *v = jinja_bool(false);
    } else if (jinja_skip_name(p, "none") || jinja_skip_name(p, "None")) {
        *v = jinja_none();
    } else {
        return false;
    }
    return true;
}

static int parse_list(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **end = &n->first;

    while (!jinja_skip_operator(p, "]")) {
        TRY(jinja_parse_expression(p, end));
        end = &(*end)->next;
        if (!jinja_at_operator(p, "]")) {
            TRY(jinja_expect_operator(p, ","));
        }
    }
    return 0;
}

static int parse_dict(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **end = &n->first;

    while (!jinja_skip_operator(p, "}")) {
        TRY(jinja_parse_expression(p, end));
        end = &(*end)->next;
        TRY(jinja_expect_operator(p, ":"));
        TRY(jinja_parse_expression(p, end));
        end = &(*end)->next;
        if (!jinja_at_operator(p, "}")) {
            TRY(jinja_expect_operator(p, ","));
        }
    }
    return 0;
}

static int parse_brackets(struct jinja_parser *p, struct jinja_node **out, int line)
{
    if (jinja_skip_operator(p, "(")) {
        if (jinja_skip_operator(p, ")")) {
            return jinja_new_node(p, out, OP_TUPLE, line);
        }
        TRY(jinja_parse_tuple(p, out, true));
        return jinja_expect_operator(p, ")");
    }
    if (jinja_skip_operator(p, "[")) {
        TRY(jinja_new_node(p, out, OP_LIST, line));
        return parse_list(p, *out);
    }
    if (jinja_skip_operator(p, "{")) {
        TRY(jinja_new_node(p, out, OP_DICT, line));
        return parse_dict(p, *out);
    }
    return jinja_unexpected(p);
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **out)
{
    const struct jinja_token *t = p->at;
    struct jinja_value v;

    switch (t->kind) {
    case TOKEN_NAME:
        if (skip_constant(p, &v)) {
            TRY(jinja_new_node(p, out, OP_CONST, t->line));
            (*out)->value = v;
            return 0;
        }
        TRY(jinja_new_node(p, out, OP_NAME, t->line));
        TRY(jinja_parse_name(p, &(*out)->name));
        (*out)->builtin = jinja_function((*out)->name);
        return 0;
    case TOKEN_STRING: TRY(jinja_new_node(p, out, OP_CONST, t->line)); return parse_string(p, *out);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        TRY(jinja_new_node(p, out, OP_CONST, t->line));
        (*out)->value = t->kind == TOKEN_INT ? jinja_int(t->integer) : jinja_float(t->real);
        p->at++;
        return 0;
    case TOKEN_OPERATOR: return parse_brackets(p, out, t->line);
    case TOKEN_END:
    case TOKEN_TEXT:
    case TOKEN_PRINT_BEGIN:
    case TOKEN_PRINT_END:
    case TOKEN_BLOCK_BEGIN:
    case TOKEN_BLOCK_END: break;
    }
    return jinja_unexpected(p);
}

/* The present word is behind "(". */
static int parse_arguments(struct jinja_parser *p, struct jinja_node **first)
{
    struct jinja_node **end = first;
    bool named = false;

    while (!jinja_skip_operator(p, ")")) {
        const char *name = NULL;
        if (jinja_at_operator(p, "*") || jinja_at_operator(p, "**")) {
            return JINJA_REFUSE(p, p->at->line, "* and ** in a call are not known");
        }
        if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && p->at[1].n == 1 &&
            p->at[1].at[0] == '=') {
            TRY(jinja_parse_name(p, &name));
            p->at++;
            named = true;
        } else if (named) {
            return JINJA_REFUSE(p, p->at->line,
                                "an argument without a name follows one with a name");
        }
        TRY(jinja_parse_expression(p, end));
        if (name != NULL) {
            struct jinja_node *argument = *end;
            TRY(jinja_new_node(p, end, OP_ARGUMENT, argument->line));
            (*end)->a = argument;
            (*end)->name = name;
        }
        end = &(*end)->next;
        if (!jinja_at_operator(p, ")")) {
            TRY(jinja_expect_operator(p, ","));
        }
    }
    return 0;
}

static int parse_subscript(struct jinja_parser *p, struct jinja_node **out)
{
    const int line = p->at->line;
    struct jinja_node *of = *out, *part[3] = {0};
    bool is_slice = false;

    for (int i = 0; i < 3; i++) {
        if (!jinja_at_operator(p, ":") && !jinja_at_operator(p, "]")) {
            TRY(jinja_parse_expression(p, &part[i]));
        }
        if (!jinja_skip_operator(p, ":")) {
            break;
        }
        is_slice = true;
    }
    if (jinja_at_operator(p, ",")) {
        return JINJA_REFUSE(p, line, "several subscripts in one [] are not known");
    }
    TRY(jinja_expect_operator(p, "]"));
    if (!is_slice && part[0] == NULL) {
        return JINJA_REFUSE(p, line, "[] holds nothing");
    }
    TRY(jinja_new_node(p, out, is_slice ? OP_SLICE : OP_ITEM, line));
    (*out)->a = of;
    (*out)->b = part[0];
    (*out)->c = part[1];
    (*out)->d = part[2];
    return 0;
}

static int parse_dot(struct jinja_parser *p, struct jinja_node **out)
{
    const struct jinja_token *t = p->at;
    struct jinja_node *of = *out;

    if (t->kind == TOKEN_INT) {
        TRY(jinja_new_node(p, out, OP_ITEM, t->line));
        TRY(jinja_new_node(p, &(*out)->b, OP_CONST, t->line));
        (*out)->b->value = jinja_int(t->integer);
        p->at++;
    } else {
        TRY(jinja_new_node(p, out, OP_ATTR, t->line));
        TRY(jinja_parse_name(p, &(*out)->name));
    }
    (*out)->a = of;
    return 0;
}

static int parse_call(struct jinja_parser *p, struct jinja_node **out, int line)
{
    struct jinja_node *of = *out;

    if (of != NULL && of->op == OP_ATTR && jinja_is_unknown_method(of->name)) {
        return JINJA_REFUSE(p, line, "the method '%.40s' is not known", of->name);
    }
    TRY(jinja_new_node(p, out, OP_CALL, line));
    (*out)->a = of;
    return parse_arguments(p, &(*out)->first);
}

/* Parentheses and everything that follows an operand make the tree deeper by one: so all of it is counted. */
static int parse_postfix(struct jinja_parser *p, struct jinja_node **out)
{
    const int depth = p->depth;

    for (;;) {
        const int line = p->at->line;
        TRY(jinja_parse_deeper(p));
        if (jinja_skip_operator(p, ".")) {
            TRY(parse_dot(p, out));
        } else if (jinja_skip_operator(p, "[")) {
            TRY(parse_subscript(p, out));
        } else if (jinja_skip_operator(p, "(")) {
            TRY(parse_call(p, out, line));
        } else {
            p->depth = depth;
            return 0;
        }
    }
}

static int parse_filter(struct jinja_parser *p, struct jinja_node **out)
{
    const int line = p->at->line;
    struct jinja_node *of = *out;

    TRY(jinja_new_node(p, out, OP_FILTER, line));
    (*out)->a = of;
    TRY(jinja_parse_name(p, &(*out)->name));
    (*out)->builtin = jinja_filter((*out)->name);
    if ((*out)->builtin == NULL) {
        return JINJA_REFUSE(p, line, "the filter '%.40s' is not known", (*out)->name);
    }
    return jinja_skip_operator(p, "(") ? parse_arguments(p, &(*out)->first) : 0;
}

/* X is NAME ARGUMENT without parentheses: one operand may follow. */
static bool at_argument(const struct jinja_parser *p)
{
    switch (p->at->kind) {
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT: return true;
    case TOKEN_OPERATOR: return jinja_at_operator(p, "[") || jinja_at_operator(p, "{");
    case TOKEN_NAME:
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
               !jinja_at_name(p, "if") && !jinja_at_name(p, "in") && !jinja_at_name(p, "not");
    case TOKEN_END:
    case TOKEN_TEXT:
    case TOKEN_PRINT_BEGIN:
    case TOKEN_PRINT_END:
    case TOKEN_BLOCK_BEGIN:
    case TOKEN_BLOCK_END: break;
    }
    return false;
}

static int parse_test(struct jinja_parser *p, struct jinja_node **out)
{
    const int line = p->at->line;
    struct jinja_node *of = *out, *test;
    const bool negated = jinja_skip_name(p, "not");

    TRY(jinja_new_node(p, &test, OP_TEST, line));
    test->a = of;
    TRY(jinja_parse_name(p, &test->name));
    test->builtin = jinja_test(test->name);
    if (test->builtin == NULL) {
        return JINJA_REFUSE(p, line, "the test '%.40s' is not known", test->name);
    }
    if (jinja_skip_operator(p, "(")) {
        TRY(parse_arguments(p, &test->first));
    } else if (jinja_at_name(p, "is")) {
        return JINJA_REFUSE(p, line, "tests can't be chained with is");
    } else if (at_argument(p)) {
        TRY(parse_primary(p, &test->first));
        TRY(parse_postfix(p, &test->first));
    }
    *out = test;
    if (negated) {
        TRY(jinja_new_node(p, out, OP_NOT, line));
        (*out)->a = test;
    }
    return 0;
}

static int parse_filters_and_tests(struct jinja_parser *p, struct jinja_node **out)
{
    const int depth = p->depth;

    for (;;) {
        const int line = p->at->line;
        TRY(jinja_parse_deeper(p));
        if (jinja_skip_operator(p, "|")) {
            TRY(parse_filter(p, out));
        } else if (jinja_skip_name(p, "is")) {
            TRY(parse_test(p, out));
        } else if (jinja_skip_operator(p, "(")) {
            TRY(parse_call(p, out, line));
        } else {
            p->depth = depth;
            return 0;
        }
    }
}

static int parse_unary(struct jinja_parser *p, struct jinja_node **out, bool filters)
{
    const int line = p->at->line;
    const bool negates = jinja_at_operator(p, "-");

    TRY(jinja_parse_deeper(p));
    if (negates || jinja_at_operator(p, "+")) {
        p->at++;
        TRY(jinja_new_node(p, out, negates ? OP_NEGATE : OP_PLUS, line));
        TRY(parse_unary(p, &(*out)->a, false));
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    if (filters) {
        TRY(parse_filters_and_tests(p, out));
    }
    p->depth--;
    return 0;
}

/* The operators that take two sides, by how firmly they bind, loosest first. */
struct operator_row {
    const char *spelling;
    int level;
    enum jinja_op op;
};

enum { LEVEL_SUM, LEVEL_JOIN, LEVEL_PRODUCT, LEVEL_POWER, LEVEL_COUNT };

static const struct operator_row operators[] = {
    {"+", LEVEL_SUM, OP_ADD},          {"-", LEVEL_SUM, OP_SUBTRACT},
    {"*", LEVEL_PRODUCT, OP_MULTIPLY}, {"/", LEVEL_PRODUCT, OP_DIVIDE},
    {"//", LEVEL_PRODUCT, OP_FLOOR},   {"%", LEVEL_PRODUCT, OP_MODULO},
    {"**", LEVEL_POWER, OP_POWER},
};

static const struct operator_row *operator_at(const struct jinja_parser *p, int level)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (operators[i].level == level && jinja_at_operator(p, operators[i].spelling)) {
            return &operators[i];
        }
    }
    return NULL;
}

static int parse_joined(struct jinja_parser *p, struct jinja_node **out, int level);

static int parse_level(struct jinja_parser *p, struct jinja_node **out, int level)
{
    const int depth = p->depth;

    if (level == LEVEL_COUNT) {
        return parse_unary(p, out, true);
    }
    if (level == LEVEL_JOIN) {
        return parse_joined(p, out, level + 1);
    }
    TRY(parse_level(p, out, level + 1));
    for (const struct operator_row *row; (row = operator_at(p, level)) != NULL;) {
        struct jinja_node *left = *out;
        TRY(jinja_parse_deeper(p)); /* a chain is a tree as deep as it is long */
        TRY(jinja_new_node(p, out, row->op, p->at->line));
        p->at++;
        (*out)->a = left;
        TRY(parse_level(p, &(*out)->b, level + 1));
    }
    p->depth = depth;
    return 0;
}

static int parse_joined(struct jinja_parser *p, struct jinja_node **out, int level)
{
    const int line = p->at->line;

    TRY(parse_level(p, out, level));
    if (!jinja_at_operator(p, "~")) {
        return 0;
    }
    struct jinja_node *first = *out, **end = &first->next;
    while (jinja_skip_operator(p, "~")) {
        TRY(parse_level(p, end, level));
        end = &(*end)->next;
    }
    TRY(jinja_new_node(p, out, OP_JOIN, line));
    (*out)->first = first;
    return 0;
}

static bool skip_comparison(struct jinja_parser *p, enum jinja_op *op)
{
    static const struct operator_row comparisons[] = {
        {"==", 0, OP_CMP_EQ}, {"!=", 0, OP_CMP_NE}, {"<", 0, OP_CMP_LT},
        {"<=", 0, OP_CMP_LE}, {">", 0, OP_CMP_GT},  {">=", 0, OP_CMP_GE},
    };
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (jinja_skip_operator(p, comparisons[i].spelling)) {
            *op = comparisons[i].op;
            return true;
        }
    }
    if (jinja_skip_name(p, "in")) {
        *op = OP_CMP_IN;
        return true;
    }
    if (jinja_at_name(p, "not") && p->at[1].kind == TOKEN_NAME && p->at[1].n == 2 &&
        memcmp(p->at[1].at, "in", 2) == 0) {
        p->at += 2;
        *op = OP_CMP_NOT_IN;
        return true;
    }
    return false;
}

static int parse_comparison(struct jinja_parser *p, struct jinja_node **out)
{
    struct jinja_node *first = NULL, **end = &first;
    const int line = p->at->line;
    enum jinja_op op;

    TRY(parse_level(p, out, LEVEL_SUM));
    while (skip_comparison(p, &op)) {
        TRY(jinja_new_node(p, end, op, p->at->line));
        TRY(parse_level(p, &(*end)->a, LEVEL_SUM));
        end = &(*end)->next;
    }
    if (first != NULL) {
        struct jinja_node *left = *out;
        TRY(jinja_new_node(p, out, OP_COMPARE, line));
        (*out)->a = left;
        (*out)->first = first;
    }
    return 0;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **out)
{
    const int line = p->at->line;

    if (!jinja_skip_name(p, "not")) {
        return parse_comparison(p, out);
    }
    TRY(jinja_parse_deeper(p));
    TRY(jinja_new_node(p, out, OP_NOT, line));
    TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return 0;
}

/* and, or: all their sides in a list. */
static int parse_logic(struct jinja_parser *p, struct jinja_node **out, enum jinja_op op)
{
    const char *word = op == OP_OR ? "or" : "and";
    const int line = p->at->line;

    TRY(op == OP_OR ? parse_logic(p, out, OP_AND) : parse_not(p, out));
    if (!jinja_at_name(p, word)) {
        return 0;
    }
    struct jinja_node *first = *out, **end = &first->next;
    while (jinja_skip_name(p, word)) {
        TRY(op == OP_OR ? parse_logic(p, end, OP_AND) : parse_not(p, end));
        end = &(*end)->next;
    }
    TRY(jinja_new_node(p, out, op, line));
    (*out)->first = first;
    return 0;
}

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **out)
{
    const int depth = p->depth;

    TRY(jinja_parse_deeper(p));
    TRY(parse_logic(p, out, OP_OR));
    while (jinja_at_name(p, "if")) {
        struct jinja_node *yes = *out;
        TRY(jinja_parse_deeper(p));
        TRY(jinja_new_node(p, out, OP_IF_ELSE, p->at->line));
        p->at++;
        (*out)->a = yes;
        TRY(parse_logic(p, &(*out)->b, OP_OR));
        if (jinja_skip_name(p, "else")) {
            TRY(jinja_parse_expression(p, &(*out)->c));
        }
    }
    p->depth = depth;
    return 0;
}

static bool at_end_of_tuple(const struct jinja_parser *p)
{
    return p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_PRINT_END ||
           jinja_at_operator(p, ")");
}

int jinja_parse_tuple(struct jinja_parser *p, struct jinja_node **out, bool conditional)
{
    const int line = p->at->line;

    TRY(conditional ? jinja_parse_expression(p, out) : parse_logic(p, out, OP_OR));
    if (!jinja_at_operator(p, ",")) {
        return 0;
    }
    struct jinja_node *first = *out, **end = &first->next;
    while (jinja_skip_operator(p, ",") && !at_end_of_tuple(p)) {
        TRY(conditional ? jinja_parse_expression(p, end) : parse_logic(p, end, OP_OR));
        end = &(*end)->next;
    }
    TRY(jinja_new_node(p, out, OP_TUPLE, line));
    (*out)->first = first;
    return 0;
}

int jinja_parse_filters(struct jinja_parser *p, struct jinja_node **out)
{
    *out = NULL;
    do {
        TRY(parse_filter(p, out));
    } while (jinja_skip_operator(p, "|"));
    return 0;
}
