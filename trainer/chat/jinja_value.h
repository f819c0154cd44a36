/* jinja_value.h - the values that a template computes with, and the state of one rendering.
 *
 * Everything a rendering makes lies in its arena and goes with it. Values are passed by value; what they point to
 * never changes, but for a list or dict under construction and for namespaces.
 */
#ifndef TRAINER_CHAT_JINJA_VALUE_H
#define TRAINER_CHAT_JINJA_VALUE_H

#include "trainer/chat/jinja.h"

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, /* of the language, or a method bound to its object */
    JINJA_LOOP,
};

/* UTF-8. Without runs the whole text has the tag of the value that points here. */
struct jinja_text {
    const char *at;
    size_t n;
    const struct jinja_run *runs;
    size_t run_count;
};

struct jinja_value {
    enum jinja_kind kind;
    struct jinja_tag tag;
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct jinja_text *text;
        struct jinja_list *list; /* LIST, TUPLE      */
        struct jinja_dict *dict; /* DICT, NAMESPACE  */
        const struct jinja_range *range;
        const struct jinja_missing *missing; /* UNDEFINED; NULL: nothing is known of it */
        const struct jinja_macro *macro;
        const struct jinja_bound *bound;
        const struct jinja_loop *loop;
    } as;
};

struct jinja_list {
    struct jinja_value *at;
    size_t n, room;
};

struct jinja_entry {
    struct jinja_value key, value;
};

struct jinja_dict {
    struct jinja_entry *at;
    size_t n, room;
    int32_t message; /* the message that this is, or -1 */
};

struct jinja_range {
    int64_t start, step, n;
};

/* What an undefined value would have been; owner NULL: a variable. */
struct jinja_missing {
    const char *owner, *name;
};

struct jinja_node;
struct jinja_scope;

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};

struct jinja_call;
struct jinja;

typedef int jinja_builtin_fn(struct jinja *j, const struct jinja_call *c, struct jinja_value *out);

/* A filter, test, method or function. `params` are the names of what it takes, apart by blanks, of which `required`
 * must be there; "*" takes anything. */
struct jinja_builtin {
    const char *name, *params;
    int required;
    jinja_builtin_fn *run;
};

struct jinja_bound {
    struct jinja_value self;
    const struct jinja_builtin *builtin;
};

struct jinja_loop {
    const struct jinja_list *items;
    size_t index;
    int depth;
};

struct jinja_named {
    const char *name;
    struct jinja_value value;
};

/* What a call passes. */
struct jinja_args {
    struct jinja_value *at;
    size_t n;
    struct jinja_named *named;
    size_t named_count;
};

enum { JINJA_PARAMS = 5 };

/* `in`: what is filtered, tested, or whose method it is. a[i]: parameter i, UNDEFINED when it was not given. */
struct jinja_call {
    struct jinja_value in;
    struct jinja_value a[JINJA_PARAMS];
    const struct jinja_args *args;
};

/* Memory in chunks, freed together. */
struct jinja_arena {
    struct jinja_chunk *chunks;
    size_t taken, limit;
};

/* Not zeroed; aligned for anything. NULL: the limit is reached or there is no memory. */
void *jinja_arena_take(struct jinja_arena *a, size_t bytes);
void jinja_arena_fini(struct jinja_arena *a);

struct jinja_out;

enum jinja_flow { JINJA_GOES_ON, JINJA_BREAKS, JINJA_CONTINUES };

/* One rendering. */
struct jinja {
    const struct jinja_template *template;
    struct jinja_arena arena;
    struct err *err;
    int line;      /* of what is evaluated now, for errors */
    int depth;     /* of calls of the evaluator in each other */
    int64_t steps; /* left */
    size_t output; /* the most bytes of the result */
    struct jinja_scope *scope;
    struct jinja_out *out; /* where text goes now */
    int loops;
    int32_t turn;
    bool generation;
    enum jinja_flow flow;
};

/* Write "line N: ..." and yield its code. */
#define JINJA_FAIL(j, ...) (jinja_complain((j), __VA_ARGS__), (int)ERR_BAD_FILE)
void jinja_complain(struct jinja *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* pointer = n bytes of the arena, or return from this function with the error. */
#define JINJA_TAKE(j, pointer, n)                     \
    do {                                              \
        (pointer) = jinja_arena_take(&(j)->arena, n); \
        if ((pointer) == NULL) {                      \
            return jinja_out_of_memory(j);            \
        }                                             \
    } while (0)
int jinja_out_of_memory(struct jinja *j);

/* Count n steps; an error when none are left. */
int jinja_step(struct jinja *j, int64_t n);
/* One level deeper; j->depth-- undoes it. */
int jinja_enter(struct jinja *j);

struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_int(int64_t i);
struct jinja_value jinja_float(double d);
extern const struct jinja_tag jinja_untagged; /* the template's own, in no turn */

/* `at` is borrowed for the whole rendering. */
int jinja_string(struct jinja *j, struct jinja_value *out, const char *at, size_t n,
                 struct jinja_tag tag);
int jinja_undefined(struct jinja *j, struct jinja_value *out, const char *owner, const char *name);
/* kind: LIST or TUPLE. */
int jinja_new_list(struct jinja *j, struct jinja_value *out, enum jinja_kind kind, size_t room);
int jinja_append(struct jinja *j, struct jinja_list *l, struct jinja_value v);
/* kind: DICT or NAMESPACE. */
int jinja_new_dict(struct jinja *j, struct jinja_value *out, enum jinja_kind kind, size_t room);
int jinja_put(struct jinja *j, struct jinja_dict *d, struct jinja_value key,
              struct jinja_value value);
/* The place of a key, NULL when it is not there. */
int jinja_find(struct jinja *j, const struct jinja_dict *d, struct jinja_value key,
               struct jinja_value **out);
struct jinja_value *jinja_find_name(const struct jinja_dict *d, const char *name, size_t n);

/* Values of JSON; strings are borrowed. */
int jinja_from_json(struct jinja *j, struct jinja_value *out, const json_t *json,
                    enum jinja_kind_of_data data);

bool jinja_truth(struct jinja_value v);
bool jinja_is_number(struct jinja_value v); /* INT, FLOAT, BOOL */
double jinja_real(struct jinja_value v);    /* of a number */
int jinja_equal(struct jinja *j, struct jinja_value a, struct jinja_value b, bool *equal);
/* < 0, 0, > 0 as a comes before b; an error for what has no order. */
int jinja_order(struct jinja *j, struct jinja_value a, struct jinja_value b, int *order);
int jinja_contains(struct jinja *j, struct jinja_value whole, struct jinja_value part,
                   bool *contains);
/* As Python calls the type: "str", "dict". */
const char *jinja_type_name(struct jinja_value v);
/* Element i of a range. */
int64_t jinja_range_at(const struct jinja_range *r, int64_t i);
/* The elements of what can be iterated: a new list, or the list itself. */
int jinja_elements(struct jinja *j, struct jinja_value v, struct jinja_list **out);
/* len(v); an error where Python has none. */
int jinja_length(struct jinja *j, struct jinja_value v, int64_t *n);
/* The integer that v is (a bool is one); an error that says `what` otherwise. */
int jinja_to_int(struct jinja *j, struct jinja_value v, const char *what, int64_t *out);
/* An error when v is no string. */
int jinja_want_text(struct jinja *j, struct jinja_value v, const char *what);

#endif
