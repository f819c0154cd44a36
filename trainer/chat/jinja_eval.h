/* jinja_eval.h - the evaluation of expressions and statements, and what the tables of the language share. */
#ifndef TRAINER_CHAT_JINJA_EVAL_H
#define TRAINER_CHAT_JINJA_EVAL_H

#include "trainer/chat/jinja_node.h"
#include "trainer/chat/jinja_text.h"

struct jinja_binding {
    struct jinja_binding *next;
    const char *name; /* interned */
    struct jinja_value value;
};

struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_binding *first;
};

int jinja_evaluate(struct jinja *j, const struct jinja_node *n, struct jinja_value *out);
/* Statements in a list; j->flow says whether the loop around them goes on. */
int jinja_execute(struct jinja *j, const struct jinja_node *first);

int jinja_push_scope(struct jinja *j); /* j->scope = j->scope->parent undoes it */
int jinja_assign(struct jinja *j, const char *name, struct jinja_value v);
/* Assign to a target of set or for: a name, a tuple of them, an attribute of a namespace. */
int jinja_assign_target(struct jinja *j, const struct jinja_node *target, struct jinja_value v);

/* object.name and object[key]; what is not there is undefined. */
int jinja_attribute(struct jinja *j, struct jinja_value object, const char *name,
                    struct jinja_value *out);
int jinja_item(struct jinja *j, struct jinja_value object, struct jinja_value key,
               struct jinja_value *out);
/* a.b.0 spelled in a string, as map(attribute="a.b.0") has it. */
int jinja_path(struct jinja *j, struct jinja_value object, struct jinja_value path,
               struct jinja_value *out);
int jinja_slice(struct jinja *j, struct jinja_value v, const struct jinja_value part[3],
                struct jinja_value *out);
/* a OP b for OP_ADD to OP_POWER. */
int jinja_arithmetic(struct jinja *j, enum jinja_op op, struct jinja_value a, struct jinja_value b,
                     struct jinja_value *out);
/* FORMAT % VALUES. */
int jinja_percent(struct jinja *j, struct jinja_value format, struct jinja_value values,
                  struct jinja_value *out);

/* Run a filter, test, method or function on `in` with what a call passes. */
int jinja_run(struct jinja *j, const struct jinja_builtin *b, struct jinja_value in,
              const struct jinja_args *args, struct jinja_value *out);
int jinja_call_value(struct jinja *j, struct jinja_value callee, const struct jinja_args *args,
                     struct jinja_value *out);
int jinja_call_macro(struct jinja *j, const struct jinja_macro *m, const struct jinja_args *args,
                     const struct jinja_value *caller, struct jinja_value *out);
/* The arguments of a call, in their order. */
int jinja_arguments(struct jinja *j, const struct jinja_node *first, struct jinja_args *args);

/* The error of using an undefined value. */
int jinja_fail_undefined(struct jinja *j, struct jinja_value v);

bool jinja_is_given(struct jinja_value parameter); /* not UNDEFINED */

/* A method of the value, bound to it; *found says whether there is one. */
int jinja_bind(struct jinja *j, struct jinja_value self, const char *name, bool *found,
               struct jinja_value *out);

/* Methods of strings that yield several. */
jinja_builtin_fn jinja_str_split, jinja_str_rsplit, jinja_str_splitlines, jinja_str_partition,
    jinja_str_rpartition;

/* A table ends with a row without a name. */
const struct jinja_builtin *jinja_look_up(const struct jinja_builtin *table, const char *name);
extern const struct jinja_builtin jinja_string_filters[];
extern const struct jinja_builtin jinja_list_filters[];

#endif
