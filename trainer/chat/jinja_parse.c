/* jinja_parse.c - statements of a template, and the template as a whole. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/jinja_node.h"
#include "trainer/tokenizer/utf8.h"

enum { BLOCKS_MAX = 100, TREE_BYTES_PER_BYTE = 400, TREE_BYTES_LEAST = 1 << 16 };

static int parse_body(struct jinja_parser *p, struct jinja_node **out, const char *const ends[]);

static int end_block(struct jinja_parser *p)
{
    if (p->at->kind != TOKEN_BLOCK_END) {
        return jinja_unexpected(p);
    }
    p->at++;
    return 0;
}

/* The body up to {% WORD %}, whose name is skipped; the word may be followed by more. */
static int parse_until(struct jinja_parser *p, struct jinja_node **out, const char *word)
{
    const char *const ends[] = {word, NULL};

    TRY(end_block(p));
    TRY(parse_body(p, out, ends));
    return jinja_expect_name(p, word);
}

static int parse_if(struct jinja_parser *p, struct jinja_node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};

    for (;;) {
        TRY(jinja_parse_tuple(p, &n->a, true));
        TRY(end_block(p));
        TRY(parse_body(p, &n->first, ends));
        const int line = p->at->line;
        if (!jinja_skip_name(p, "elif")) {
            break;
        }
        TRY(jinja_new_node(p, &n->other, DO_IF, line));
        n = n->other;
    }
    if (jinja_skip_name(p, "else")) {
        return parse_until(p, &n->other, "endif");
    }
    return jinja_expect_name(p, "endif");
}

static int parse_for(struct jinja_parser *p, struct jinja_node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};

    TRY(jinja_parse_target(p, &n->a, false));
    TRY(jinja_expect_name(p, "in"));
    TRY(jinja_parse_tuple(p, &n->b, false));
    if (jinja_skip_name(p, "if")) {
        TRY(jinja_parse_expression(p, &n->c));
    }
    if (jinja_at_name(p, "recursive")) {
        return JINJA_REFUSE(p, p->at->line, "recursive loops are not known");
    }
    TRY(end_block(p));
    p->loops++;
    TRY(parse_body(p, &n->first, ends));
    p->loops--;
    if (jinja_skip_name(p, "else")) {
        return parse_until(p, &n->other, "endfor");
    }
    return jinja_expect_name(p, "endfor");
}

static int parse_set(struct jinja_parser *p, struct jinja_node *n)
{
    TRY(jinja_parse_target(p, &n->a, true));
    if (jinja_skip_operator(p, "=")) {
        return jinja_parse_tuple(p, &n->b, true);
    }
    n->op = DO_SET_BLOCK;
    if (jinja_skip_operator(p, "|")) {
        TRY(jinja_parse_filters(p, &n->b));
    }
    return parse_until(p, &n->first, "endset");
}

/* Loops around a macro or call block are not those that a break in it could leave. */
static int parse_apart(struct jinja_parser *p, struct jinja_node **out, const char *word)
{
    const int loops = p->loops;

    p->loops = 0;
    TRY(parse_until(p, out, word));
    p->loops = loops;
    return 0;
}

static int parse_macro(struct jinja_parser *p, struct jinja_node *n)
{
    TRY(jinja_parse_name(p, &n->name));
    TRY(jinja_parse_parameters(p, &n->a));
    TRY(parse_apart(p, &n->first, "endmacro"));
    if (p->at->kind == TOKEN_NAME) { /* endmacro may say whose end it is */
        p->at++;
    }
    return 0;
}

static int parse_call_block(struct jinja_parser *p, struct jinja_node *n)
{
    if (jinja_at_operator(p, "(")) {
        TRY(jinja_parse_parameters(p, &n->b));
    }
    TRY(jinja_parse_expression(p, &n->a));
    if (n->a->op != OP_CALL) {
        return JINJA_REFUSE(p, n->line, "a call block needs a call");
    }
    return parse_apart(p, &n->first, "endcall");
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node *n)
{
    TRY(jinja_parse_filters(p, &n->b));
    return parse_until(p, &n->first, "endfilter");
}

static int parse_with(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **end = &n->a;

    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->a != NULL) {
            TRY(jinja_expect_operator(p, ","));
        }
        struct jinja_node *target;
        TRY(jinja_new_node(p, &target, OP_NAME, p->at->line));
        CHECK(target != NULL, "no node");
        TRY(jinja_parse_name(p, &target->name));
        TRY(jinja_expect_operator(p, "="));
        TRY(jinja_parse_expression(p, &target->a));
        *end = target;
        end = &target->next;
    }
    return parse_until(p, &n->first, "endwith");
}

static int parse_generation(struct jinja_parser *p, struct jinja_node *n)
{
    p->template->has_generation = true;
    return parse_until(p, &n->first, "endgeneration");
}

static int parse_loop_control(struct jinja_parser *p, struct jinja_node *n)
{
    if (p->loops == 0) {
        return JINJA_REFUSE(p, n->line, "%s outside of a loop",
                            n->op == DO_BREAK ? "break" : "continue");
    }
    return 0;
}

struct statement_row {
    const char *word;
    enum jinja_op op;
    int (*parse)(struct jinja_parser *p, struct jinja_node *n);
};

static const struct statement_row statements[] = {
    {"if", DO_IF, parse_if},
    {"for", DO_FOR, parse_for},
    {"set", DO_SET, parse_set},
    {"macro", DO_MACRO, parse_macro},
    {"call", DO_CALL_BLOCK, parse_call_block},
    {"filter", DO_FILTER_BLOCK, parse_filter_block},
    {"with", DO_WITH, parse_with},
    {"generation", DO_GENERATION, parse_generation},
    {"break", DO_BREAK, parse_loop_control},
    {"continue", DO_CONTINUE, parse_loop_control},
};

static int parse_statement(struct jinja_parser *p, struct jinja_node **out)
{
    const struct jinja_token *t = p->at;

    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (jinja_skip_name(p, statements[i].word)) {
            TRY(jinja_new_node(p, out, statements[i].op, t->line));
            TRY(statements[i].parse(p, *out));
            return end_block(p);
        }
    }
    if (t->kind == TOKEN_NAME) {
        return JINJA_REFUSE(p, t->line, "the statement '%.*s' is not known here",
                            t->n < 40 ? (int)t->n : 40, t->at);
    }
    return jinja_unexpected(p);
}

static int parse_print(struct jinja_parser *p, struct jinja_node **out)
{
    TRY(jinja_new_node(p, out, DO_PRINT, p->at->line));
    TRY(jinja_parse_tuple(p, &(*out)->a, true));
    if (p->at->kind != TOKEN_PRINT_END) {
        return jinja_unexpected(p);
    }
    p->at++;
    return 0;
}

static int parse_text(struct jinja_parser *p, struct jinja_node **out)
{
    struct jinja_text *t = jinja_arena_take(&p->template->arena, sizeof *t);

    if (t == NULL) {
        return JINJA_REFUSE(p, p->at->line, "the template needs too much memory");
    }
    *t = (struct jinja_text){.at = p->at->at, .n = p->at->n};
    TRY(jinja_new_node(p, out, DO_TEXT, p->at->line));
    (*out)->value = (struct jinja_value){.kind = JINJA_STRING, .tag = jinja_untagged, .as.text = t};
    p->at++;
    return 0;
}

static bool at_one_of(const struct jinja_parser *p, const char *const words[])
{
    for (; words != NULL && *words != NULL; words++) {
        if (jinja_at_name(p, *words)) {
            return true;
        }
    }
    return false;
}

/* Statements up to a block that begins with one of `ends`, at whose word it stops; NULL: to the end. */
static int parse_body(struct jinja_parser *p, struct jinja_node **out, const char *const ends[])
{
    if (p->depth >= BLOCKS_MAX) {
        return JINJA_REFUSE(p, p->at->line, "blocks are nested deeper than %d levels", BLOCKS_MAX);
    }
    p->depth++;
    for (;;) {
        switch (p->at->kind) {
        case TOKEN_TEXT: TRY(parse_text(p, out)); break;
        case TOKEN_PRINT_BEGIN:
            p->at++;
            TRY(parse_print(p, out));
            break;
        case TOKEN_BLOCK_BEGIN:
            p->at++;
            if (at_one_of(p, ends)) {
                p->depth--;
                return 0;
            }
            TRY(parse_statement(p, out));
            break;
        case TOKEN_END:
            p->depth--;
            return ends == NULL
                       ? 0
                       : JINJA_REFUSE(p, p->at->line, "the template ends before %s", ends[0]);
        case TOKEN_PRINT_END:
        case TOKEN_BLOCK_END:
        case TOKEN_NAME:
        case TOKEN_STRING:
        case TOKEN_INT:
        case TOKEN_FLOAT:
        case TOKEN_OPERATOR: return jinja_unexpected(p);
        }
        while (*out != NULL) {
            out = &(*out)->next;
        }
    }
}

/* Line ends as \n; the one at the very end is not part of the template. */
static size_t plain_lines(char *to, const char *text, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        to[n++] = text[i];
        if (text[i] == '\r') {
            to[n - 1] = '\n';
            i += i + 1 < bytes && text[i + 1] == '\n';
        }
    }
    return n > 0 && to[n - 1] == '\n' ? n - 1 : n;
}

int jinja_parse(struct jinja_template **out, const char *text, size_t bytes, struct err *err)
{
    struct jinja_token *tokens;

    *out = NULL;
    if (bytes > JINJA_TEMPLATE_MAX) {
        return FAIL(err, ERR_BAD_FILE, "line 1: the template has %zu bytes, more than %d", bytes,
                    JINJA_TEMPLATE_MAX);
    }
    if (utf8_prefix(text, bytes, NULL) != bytes) {
        return FAIL(err, ERR_BAD_FILE, "line 1: the template is not UTF-8");
    }
    struct jinja_template *t = calloc(1, sizeof *t);
    if (t == NULL || (t->source = malloc(bytes + 1)) == NULL) {
        free(t);
        return FAIL(err, ERR_NO_MEMORY, "there is no memory for a chat template of %zu bytes",
                    bytes);
    }
    const size_t n = plain_lines(t->source, text, bytes);
    t->arena.limit = TREE_BYTES_LEAST + TREE_BYTES_PER_BYTE * bytes;
    struct jinja_parser p = {.template = t, .err = err};
    int rc = jinja_lex(&tokens, &t->arena, t->source, n, err);
    if (rc == 0) {
        p.at = tokens;
        rc = parse_body(&p, &t->body, NULL);
        t->loop = jinja_interned(t, "loop", strlen("loop"));
        t->caller = jinja_interned(t, "caller", strlen("caller"));
    }
    if (rc != 0) {
        jinja_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja_template *t)
{
    if (t != NULL) {
        jinja_arena_fini(&t->arena);
        free(t->source);
        free(t);
    }
}

bool jinja_has_generation(const struct jinja_template *t)
{
    return t->has_generation;
}
