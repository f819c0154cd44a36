/* jinja_node.h - a parsed template: expressions and statements as a tree, and the words that make it up. */
#ifndef TRAINER_CHAT_JINJA_NODE_H
#define TRAINER_CHAT_JINJA_NODE_H

#include "trainer/chat/jinja_value.h"

enum jinja_token_kind {
    TOKEN_END, /* of the template */
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* `at` is its spelling */
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    const char *at; /* text, name, operator; a string with its escapes resolved */
    size_t n;
    int64_t integer;
    double real;
};

enum jinja_op {
    /* expressions */
    OP_CONST,    /* value                                                   */
    OP_NAME,     /* name; builtin: the function of the language             */
    OP_LIST,     /* first: elements                                         */
    OP_TUPLE,    /* first                                                   */
    OP_DICT,     /* first: key, value, key, value ...                       */
    OP_ATTR,     /* a . name                                                */
    OP_ITEM,     /* a [b]                                                   */
    OP_SLICE,    /* a [b : c : d], each of the three may be NULL            */
    OP_CALL,     /* a (first: arguments; those with a name are named)       */
    OP_ARGUMENT, /* name = a                                               */
    OP_FILTER,   /* a | builtin (first); a NULL: of a filter block          */
    OP_TEST,     /* a is builtin (first)                                    */
    OP_NOT,      /* not a                                                   */
    OP_NEGATE,   /* - a                                                     */
    OP_PLUS,     /* + a                                                     */
    OP_ADD,      /* a + b; the others alike                                 */
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR,
    OP_MODULO,
    OP_POWER,
    OP_JOIN, /* first ~ ...                                             */
    OP_AND,
    OP_OR,
    OP_COMPARE, /* a, then first: OP_CMP_* each with its right side in a   */
    OP_CMP_EQ,
    OP_CMP_NE,
    OP_CMP_LT,
    OP_CMP_LE,
    OP_CMP_GT,
    OP_CMP_GE,
    OP_CMP_IN,
    OP_CMP_NOT_IN,
    OP_IF_ELSE, /* a if b else c; c may be NULL                            */
    /* statements, in lists by `next` */
    DO_TEXT,         /* value                                              */
    DO_PRINT,        /* a                                                  */
    DO_IF,           /* a; first: body; other: else                        */
    DO_FOR,          /* a: target, b: what, c: condition or NULL; first, other */
    DO_SET,          /* a: target, b                                       */
    DO_SET_BLOCK,    /* a: target, b: filters or NULL; first               */
    DO_MACRO,        /* name; a: parameters by next (OP_NAME, a: default); first */
    DO_CALL_BLOCK,   /* a: the call, b: parameters; first                  */
    DO_FILTER_BLOCK, /* b: filters; first                                  */
    DO_WITH,         /* a: target, value, target, value ...; first         */
    DO_GENERATION,   /* first                                              */
    DO_BREAK,
    DO_CONTINUE,
};

struct jinja_node {
    enum jinja_op op;
    int line;
    struct jinja_value value;
    const char *name; /* interned: equal names are one pointer */
    const struct jinja_builtin *builtin;
    struct jinja_node *a, *b, *c, *d, *first, *other;
    struct jinja_node *next; /* in the list that this is in */
};

struct jinja_name {
    struct jinja_name *next;
    char text[];
};

enum { JINJA_NAME_LISTS = 1024 };

struct jinja_template {
    struct jinja_arena arena;
    char *source;                               /* owned: its line ends are \n */
    struct jinja_name *names[JINJA_NAME_LISTS]; /* all that occur, by a hash */
    const char *loop, *caller;                  /* these two, interned       */
    struct jinja_node *body;
    bool has_generation;
};

/* The words of a template, which are borrowed from SOURCE and ARENA; the last is TOKEN_END. */
int jinja_lex(struct jinja_token **out, struct jinja_arena *arena, const char *source, size_t n,
              struct err *err);

/* Where parsing stands. */
struct jinja_parser {
    struct jinja_template *template;
    const struct jinja_token *at;
    struct err *err;
    int depth;
    int loops; /* that break and continue would be in */
};

#define JINJA_REFUSE(p, line, ...) (jinja_refuse((p)->err, (line), __VA_ARGS__), (int)ERR_BAD_FILE)
void jinja_refuse(struct err *err, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool jinja_at_operator(const struct jinja_parser *p, const char *operator);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_skip_operator(struct jinja_parser *p, const char *operator); /* true: it was there */
bool jinja_skip_name(struct jinja_parser *p, const char *name);
int jinja_expect_operator(struct jinja_parser *p, const char *operator);
int jinja_expect_name(struct jinja_parser *p, const char *name);
/* "unexpected X" at the present word. */
int jinja_unexpected(struct jinja_parser *p);
int jinja_parse_out_of_memory(struct jinja_parser *p);
/* One level deeper, if that is allowed; p->depth-- undoes it. */
int jinja_parse_deeper(struct jinja_parser *p);
int jinja_new_node(struct jinja_parser *p, struct jinja_node **out, enum jinja_op op, int line);
/* The one copy of a name that the template holds; NULL for a name that does not occur. */
const char *jinja_interned(const struct jinja_template *t, const char *name, size_t n);
/* The present word, a name, interned; moves on. */
int jinja_parse_name(struct jinja_parser *p, const char **name);

int jinja_parse_expression(struct jinja_parser *p, struct jinja_node **out);
/* One or several apart by commas: a tuple. `conditional`: X if Y else Z may stand there. */
int jinja_parse_tuple(struct jinja_parser *p, struct jinja_node **out, bool conditional);
/* What is assigned to: a name, names apart by commas, and `ns.x` where attributes are allowed. */
int jinja_parse_target(struct jinja_parser *p, struct jinja_node **out, bool attributes);
/* (a, b=1): a list of OP_NAME whose a is the default. */
int jinja_parse_parameters(struct jinja_parser *p, struct jinja_node **out);
/* NAME ARGUMENTS | NAME ...: a chain whose innermost `a` is NULL. */
int jinja_parse_filters(struct jinja_parser *p, struct jinja_node **out);

/* The tables of the language; NULL when there is no such name. */
const struct jinja_builtin *jinja_filter(const char *name);
const struct jinja_builtin *jinja_test(const char *name);
const struct jinja_builtin *jinja_function(const char *name);
/* Of a value of this kind. */
const struct jinja_builtin *jinja_method(enum jinja_kind kind, const char *name);
/* Is this a method of Python's strings, dicts or lists that is not known here? */
bool jinja_is_unknown_method(const char *name);

#endif
