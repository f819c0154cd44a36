/* jinja_words.c - what both parsers of a template share: the present word, nodes, names, targets of assignment. */
#include <string.h>

#include "trainer/chat/jinja_node.h"

enum { NESTING_MAX = 200 };

bool jinja_at_operator(const struct jinja_parser *p, const char *operator)
{
    return p->at->kind == TOKEN_OPERATOR && p->at->n == strlen(operator) &&
           memcmp(p->at->at, operator, p->at->n) == 0;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && p->at->n == strlen(name) &&
           memcmp(p->at->at, name, p->at->n) == 0;
}

bool jinja_skip_operator(struct jinja_parser *p, const char *operator)
{
    const bool is_there = jinja_at_operator(p, operator);
    p->at += is_there;
    return is_there;
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
    const bool is_there = jinja_at_name(p, name);
    p->at += is_there;
    return is_there;
}

int jinja_unexpected(struct jinja_parser *p)
{
    const struct jinja_token *t = p->at;

    switch (t->kind) {
    case TOKEN_END: return JINJA_REFUSE(p, t->line, "the template ends too early");
    case TOKEN_PRINT_END: return JINJA_REFUSE(p, t->line, "unexpected end of {{ }}");
    case TOKEN_BLOCK_END: return JINJA_REFUSE(p, t->line, "unexpected end of {%% %%}");
    case TOKEN_STRING: return JINJA_REFUSE(p, t->line, "unexpected string");
    case TOKEN_NAME:
    case TOKEN_INT:
    case TOKEN_FLOAT:
    case TOKEN_OPERATOR:
        return JINJA_REFUSE(p, t->line, "unexpected '%.*s'", t->n < 40 ? (int)t->n : 40, t->at);
    case TOKEN_TEXT:
    case TOKEN_PRINT_BEGIN:
    case TOKEN_BLOCK_BEGIN: break;
    }
    return JINJA_REFUSE(p, t->line, "unexpected text");
}

int jinja_expect_operator(struct jinja_parser *p, const char *operator)
{
    return jinja_skip_operator(p, operator) ? 0 : jinja_unexpected(p);
}

int jinja_expect_name(struct jinja_parser *p, const char *name)
{
    return jinja_skip_name(p, name) ? 0 : jinja_unexpected(p);
}

int jinja_parse_out_of_memory(struct jinja_parser *p)
{
    return JINJA_REFUSE(p, p->at->line, "the template needs too much memory");
}

int jinja_new_node(struct jinja_parser *p, struct jinja_node **out, enum jinja_op op, int line)
{
    struct jinja_node *n = jinja_arena_take(&p->template->arena, sizeof *n);

    if (n == NULL) {
        return jinja_parse_out_of_memory(p);
    }
    *n = (struct jinja_node){.op = op, .line = line, .value = jinja_none()};
    *out = n;
    return 0;
}

/* FNV-1a. */
static size_t list_of(const char *name, size_t n)
{
    uint32_t hash = 2166136261U;

    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 16777619U;
    }
    return hash % JINJA_NAME_LISTS;
}

const char *jinja_interned(const struct jinja_template *t, const char *name, size_t n)
{
    for (const struct jinja_name *w = t->names[list_of(name, n)]; w != NULL; w = w->next) {
        if (strncmp(w->text, name, n) == 0 && w->text[n] == '\0') {
            return w->text;
        }
    }
    return NULL;
}

int jinja_parse_name(struct jinja_parser *p, const char **name)
{
    const struct jinja_token *t = p->at;

    if (t->kind != TOKEN_NAME) {
        return jinja_unexpected(p);
    }
    p->at++;
    *name = jinja_interned(p->template, t->at, t->n);
    if (*name != NULL) {
        return 0;
    }
    struct jinja_name **list = &p->template->names[list_of(t->at, t->n)];
    struct jinja_name *w = jinja_arena_take(&p->template->arena, sizeof *w + t->n + 1);
    if (w == NULL) {
        return jinja_parse_out_of_memory(p);
    }
    memcpy(w->text, t->at, t->n);
    w->text[t->n] = '\0';
    w->next = *list;
    *list = w;
    *name = w->text;
    return 0;
}

int jinja_parse_deeper(struct jinja_parser *p)
{
    if (p->depth >= NESTING_MAX) {
        return JINJA_REFUSE(p, p->at->line, "nested deeper than %d levels", NESTING_MAX);
    }
    p->depth++;
    return 0;
}

static int parse_one_target(struct jinja_parser *p, struct jinja_node **out, bool attributes)
{
    const int line = p->at->line;

    if (jinja_skip_operator(p, "(")) {
        TRY(jinja_parse_target(p, out, false));
        return jinja_expect_operator(p, ")");
    }
    TRY(jinja_new_node(p, out, OP_NAME, line));
    TRY(jinja_parse_name(p, &(*out)->name));
    if (attributes && jinja_skip_operator(p, ".")) {
        struct jinja_node *of = *out;
        TRY(jinja_new_node(p, out, OP_ATTR, line));
        TRY(jinja_parse_name(p, &(*out)->name));
        (*out)->a = of;
    }
    return 0;
}

int jinja_parse_target(struct jinja_parser *p, struct jinja_node **out, bool attributes)
{
    const int line = p->at->line;

    TRY(jinja_parse_deeper(p));
    TRY(parse_one_target(p, out, attributes));
    if (jinja_at_operator(p, ",")) {
        struct jinja_node *first = *out, **end = &first->next;
        while (jinja_skip_operator(p, ",") && p->at->kind != TOKEN_BLOCK_END &&
               !jinja_at_name(p, "in") && !jinja_at_operator(p, "=")) {
            TRY(parse_one_target(p, end, attributes));
            end = &(*end)->next;
        }
        TRY(jinja_new_node(p, out, OP_TUPLE, line));
        (*out)->first = first;
    }
    p->depth--;
    return 0;
}

int jinja_parse_parameters(struct jinja_parser *p, struct jinja_node **out)
{
    bool defaults = false;

    TRY(jinja_expect_operator(p, "("));
    while (!jinja_skip_operator(p, ")")) {
        TRY(jinja_new_node(p, out, OP_NAME, p->at->line));
        TRY(jinja_parse_name(p, &(*out)->name));
        if (jinja_skip_operator(p, "=")) {
            defaults = true;
            TRY(jinja_parse_expression(p, &(*out)->a));
        } else if (defaults) {
            return JINJA_REFUSE(p, p->at->line,
                                "a parameter without a default follows one with it");
        }
        out = &(*out)->next;
        if (!jinja_at_operator(p, ")")) {
            TRY(jinja_expect_operator(p, ","));
        }
    }
    return 0;
}
