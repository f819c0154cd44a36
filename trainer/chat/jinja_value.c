/* jinja_value.c - values of a rendering: memory, construction, iteration. */
#include "trainer/chat/jinja_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/chat/jinja_text.h"
#include "trainer/tokenizer/utf8.h"

enum {
    CHUNK_BYTES = 1 << 16,
    ALIGNMENT = 16,
    DEPTH_MAX = 800, /* a level takes a few hundred bytes of stack */
};

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t used, room;
    _Alignas(ALIGNMENT) char bytes[];
};

const struct jinja_tag jinja_untagged = {JINJA_FROM_TEMPLATE, JINJA_NO_TURN, false};

void *jinja_arena_take(struct jinja_arena *a, size_t bytes)
{
    struct jinja_chunk *c = a->chunks;

    if (bytes > a->limit - a->taken) {
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (c == NULL || bytes > c->room - c->used) {
        const bool is_large = bytes > CHUNK_BYTES / 4;
        const size_t room = is_large ? bytes : CHUNK_BYTES;
        struct jinja_chunk *new = malloc(sizeof *new + room);
        if (new == NULL) {
            return NULL;
        }
        *new = (struct jinja_chunk){.next = c, .room = room};
        if (is_large && c != NULL) { /* the first one still has room for what is small */
            new->next = c->next;
            c->next = new;
        } else {
            a->chunks = new;
        }
        c = new;
    }
    void *p = c->bytes + c->used;
    c->used += bytes;
    a->taken += bytes < a->limit - a->taken ? bytes : a->limit - a->taken;
    return p;
}

void jinja_arena_fini(struct jinja_arena *a)
{
    while (a->chunks != NULL) {
        struct jinja_chunk *next = a->chunks->next;
        free(a->chunks);
        a->chunks = next;
    }
}

void jinja_complain(struct jinja *j, const char *fmt, ...)
{
    char text[sizeof j->err->text];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(j->err, ERR_BAD_FILE, "line %d: %s", j->line, text);
}

int jinja_out_of_memory(struct jinja *j)
{
    return JINJA_FAIL(j, "the template needs more than the %zu bytes of memory it may use",
                      j->arena.limit);
}

int jinja_step(struct jinja *j, int64_t n)
{
    j->steps -= n;
    if (j->steps < 0) {
        j->steps = 0;
        return JINJA_FAIL(j, "the template takes too many steps: does it loop for ever?");
    }
    return 0;
}

int jinja_enter(struct jinja *j)
{
    if (j->depth >= DEPTH_MAX) {
        return JINJA_FAIL(j, "calls or values are nested deeper than %d levels", DEPTH_MAX);
    }
    j->depth++;
    return 0;
}

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE, .tag = jinja_untagged};
}

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .tag = jinja_untagged, .as.truth = truth};
}

struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .tag = jinja_untagged, .as.integer = i};
}

struct jinja_value jinja_float(double d)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .tag = jinja_untagged, .as.real = d};
}

int jinja_string(struct jinja *j, struct jinja_value *out, const char *at, size_t n,
                 struct jinja_tag tag)
{
    struct jinja_text *t;

    JINJA_TAKE(j, t, sizeof *t);
    *t = (struct jinja_text){.at = at, .n = n};
    *out = (struct jinja_value){.kind = JINJA_STRING, .tag = tag, .as.text = t};
    return 0;
}

int jinja_undefined(struct jinja *j, struct jinja_value *out, const char *owner, const char *name)
{
    struct jinja_missing *m;

    JINJA_TAKE(j, m, sizeof *m);
    *m = (struct jinja_missing){.owner = owner, .name = name};
    *out = (struct jinja_value){.kind = JINJA_UNDEFINED, .tag = jinja_untagged, .as.missing = m};
    return 0;
}

int jinja_new_list(struct jinja *j, struct jinja_value *out, enum jinja_kind kind, size_t room)
{
    struct jinja_list *l;

    JINJA_TAKE(j, l, sizeof *l);
    *l = (struct jinja_list){.room = room};
    if (room > 0) {
        if (room > j->arena.limit / sizeof *l->at) {
            return jinja_out_of_memory(j);
        }
        JINJA_TAKE(j, l->at, room * sizeof *l->at);
    }
    *out = (struct jinja_value){.kind = kind, .tag = jinja_untagged, .as.list = l};
    return 0;
}

int jinja_append(struct jinja *j, struct jinja_list *l, struct jinja_value v)
{
    if (l->n == l->room) {
        const size_t room = l->room == 0 ? 4 : 2 * l->room;
        struct jinja_value *at;
        JINJA_TAKE(j, at, room * sizeof *at);
        if (l->n > 0) {
            memcpy(at, l->at, l->n * sizeof *at);
        }
        l->at = at;
        l->room = room;
    }
    l->at[l->n++] = v;
    return 0;
}

int jinja_new_dict(struct jinja *j, struct jinja_value *out, enum jinja_kind kind, size_t room)
{
    struct jinja_dict *d;

    JINJA_TAKE(j, d, sizeof *d);
    *d = (struct jinja_dict){.room = room, .message = -1};
    if (room > 0) {
        if (room > j->arena.limit / sizeof *d->at) {
            return jinja_out_of_memory(j);
        }
        JINJA_TAKE(j, d->at, room * sizeof *d->at);
    }
    *out = (struct jinja_value){.kind = kind, .tag = jinja_untagged, .as.dict = d};
    return 0;
}

struct jinja_value *jinja_find_name(const struct jinja_dict *d, const char *name, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct jinja_value *key = &d->at[i].key;
        if (key->kind == JINJA_STRING && key->as.text->n == n &&
            (n == 0 || memcmp(key->as.text->at, name, n) == 0)) {
            return &d->at[i].value;
        }
    }
    return NULL;
}

int jinja_find(struct jinja *j, const struct jinja_dict *d, struct jinja_value key,
               struct jinja_value **out)
{
    bool equal = false;

    *out = NULL;
    const size_t length = key.kind == JINJA_STRING ? key.as.text->n : 0;
    TRY(jinja_step(j, (int64_t)((d->n / 16 + 1) * (length / 64 + 1))));
    switch (key.kind) {
    case JINJA_STRING: *out = jinja_find_name(d, key.as.text->at, key.as.text->n); return 0;
    case JINJA_LIST:
    case JINJA_DICT: return JINJA_FAIL(j, "a %s can't be a key of a dict", jinja_type_name(key));
    case JINJA_UNDEFINED:
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: break;
    }
    for (size_t i = 0; i < d->n; i++) {
        TRY(jinja_equal(j, d->at[i].key, key, &equal));
        if (equal) {
            *out = &d->at[i].value;
            return 0;
        }
    }
    return 0;
}

/* Without looking whether the key is there. */
static int add_entry(struct jinja *j, struct jinja_dict *d, struct jinja_value key,
                     struct jinja_value value)
{
    if (d->n == d->room) {
        const size_t room = d->room == 0 ? 4 : 2 * d->room;
        struct jinja_entry *at;
        JINJA_TAKE(j, at, room * sizeof *at);
        if (d->n > 0) {
            memcpy(at, d->at, d->n * sizeof *at);
        }
        d->at = at;
        d->room = room;
    }
    d->at[d->n++] = (struct jinja_entry){key, value};
    return 0;
}

int jinja_put(struct jinja *j, struct jinja_dict *d, struct jinja_value key,
              struct jinja_value value)
{
    struct jinja_value *place;

    TRY(jinja_find(j, d, key, &place));
    if (place != NULL) {
        *place = value;
        return 0;
    }
    return add_entry(j, d, key, value);
}

/* A role is the template's word, not data: "<|" + role + "|>" has to stay a special token. Only roles that
 * there are, so that nobody's text becomes one. */
static bool is_role(const char *key, const json_t *value)
{
    static const char *const roles[] = {"system",    "developer", "user",         "assistant",
                                        "tool",      "function",  "observation",  "ipython",
                                        "documents", "context",   "tool_response"};
    if (strcmp(key, "role") != 0 || !json_is_string(value)) {
        return false;
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(json_string_value(value), roles[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int convert(struct jinja *j, struct jinja_value *out, const json_t *json, int32_t from);

/* jansson's iterators want an object that may be written; only reading is done. */
union readable {
    const json_t *given;
    json_t *borrowed;
};

static int convert_object(struct jinja *j, struct jinja_value *out, const json_t *json,
                          int32_t from)
{
    union readable object = {.given = json};
    const struct jinja_tag tag = {from, JINJA_NO_TURN, false};
    struct jinja_value key, v;

    TRY(jinja_new_dict(j, out, JINJA_DICT, json_object_size(json)));
    out->tag = tag;
    for (void *at = json_object_iter(object.borrowed); at != NULL;
         at = json_object_iter_next(object.borrowed, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        TRY(jinja_string(j, &key, name, strlen(name), tag));
        TRY(convert(j, &v, value, from >= 0 && is_role(name, value) ? JINJA_FROM_TEMPLATE : from));
        TRY(add_entry(j, out->as.dict, key, v));
    }
    return 0;
}

static int convert_array(struct jinja *j, struct jinja_value *out, const json_t *json, int32_t from)
{
    struct jinja_value v;

    TRY(jinja_new_list(j, out, JINJA_LIST, json_array_size(json)));
    for (size_t i = 0; i < json_array_size(json); i++) {
        TRY(convert(j, &v, json_array_get(json, i), from));
        TRY(jinja_append(j, out->as.list, v));
    }
    return 0;
}

static int convert(struct jinja *j, struct jinja_value *out, const json_t *json, int32_t from)
{
    const struct jinja_tag tag = {from, JINJA_NO_TURN, false};

    TRY(jinja_step(j, 1));
    TRY(jinja_enter(j));
    *out = jinja_none();
    switch (json_typeof(json)) {
    case JSON_OBJECT: TRY(convert_object(j, out, json, from)); break;
    case JSON_ARRAY: TRY(convert_array(j, out, json, from)); break;
    case JSON_STRING:
        TRY(jinja_string(j, out, json_string_value(json), json_string_length(json), tag));
        break;
    case JSON_INTEGER: *out = jinja_int(json_integer_value(json)); break;
    case JSON_REAL: *out = jinja_float(json_real_value(json)); break;
    case JSON_TRUE: *out = jinja_bool(true); break;
    case JSON_FALSE: *out = jinja_bool(false); break;
    case JSON_NULL: break;
    }
    out->tag = tag;
    j->depth--;
    return 0;
}

int jinja_from_json(struct jinja *j, struct jinja_value *out, const json_t *json,
                    enum jinja_kind_of_data data)
{
    struct jinja_value v;

    if (data != JINJA_MESSAGES || !json_is_array(json)) {
        return convert(j, out, json, data == JINJA_OWN ? JINJA_FROM_TEMPLATE : JINJA_FROM_TOOLS);
    }
    TRY(jinja_new_list(j, out, JINJA_LIST, json_array_size(json)));
    for (size_t i = 0; i < json_array_size(json); i++) {
        TRY(convert(j, &v, json_array_get(json, i), (int32_t)i)); /* arrays are far shorter */
        if (v.kind == JINJA_DICT) {
            v.as.dict->message = (int32_t)i; /* as above */
        }
        TRY(jinja_append(j, out->as.list, v));
    }
    return 0;
}

bool jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v.as.truth;
    case JINJA_INT: return v.as.integer != 0;
    case JINJA_FLOAT: return v.as.real != 0.0;
    case JINJA_STRING: return v.as.text->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v.as.list->n > 0;
    case JINJA_DICT: return v.as.dict->n > 0;
    case JINJA_RANGE: return v.as.range->n > 0;
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: break;
    }
    return true;
}

const char *jinja_type_name(struct jinja_value v)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined value",
        [JINJA_NONE] = "None",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_RANGE] = "range",
        [JINJA_NAMESPACE] = "namespace",
        [JINJA_MACRO] = "macro",
        [JINJA_FUNCTION] = "function",
        [JINJA_LOOP] = "loop",
    };
    return names[v.kind];
}

int64_t jinja_range_at(const struct jinja_range *r, int64_t i)
{
    /* Without signs nothing overflows on the way to a number that fits. */
    return (int64_t)((uint64_t)r->start + (uint64_t)i * (uint64_t)r->step);
}

static int characters(struct jinja *j, struct jinja_value v, struct jinja_list *l)
{
    struct jinja_value c;
    const struct jinja_text *t = v.as.text;

    for (size_t at = 0, next; at < t->n; at = next) {
        next = at + 1;
        while (next < t->n && ((unsigned char)t->at[next] & 0xC0U) == 0x80) {
            next++;
        }
        TRY(jinja_step(j, 1));
        TRY(jinja_cut(j, v, at, next, &c));
        TRY(jinja_append(j, l, c));
    }
    return 0;
}

int jinja_elements(struct jinja *j, struct jinja_value v, struct jinja_list **out)
{
    struct jinja_value list;

    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) {
        *out = v.as.list;
        return 0;
    }
    TRY(jinja_new_list(j, &list, JINJA_LIST, 0));
    *out = list.as.list;
    switch (v.kind) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_STRING: return characters(j, v, *out);
    case JINJA_DICT:
        for (size_t i = 0; i < v.as.dict->n; i++) {
            TRY(jinja_append(j, *out, v.as.dict->at[i].key));
        }
        return 0;
    case JINJA_RANGE:
        TRY(jinja_step(j, v.as.range->n));
        for (int64_t i = 0; i < v.as.range->n; i++) {
            TRY(jinja_append(j, *out, jinja_int(jinja_range_at(v.as.range, i))));
        }
        return 0;
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_LOOP: break;
    }
    return JINJA_FAIL(j, "a %s has no elements to go through", jinja_type_name(v));
}

int jinja_length(struct jinja *j, struct jinja_value v, int64_t *n)
{
    switch (v.kind) {
    case JINJA_UNDEFINED: *n = 0; return 0;
    case JINJA_STRING:
        TRY(jinja_step(j, (int64_t)(v.as.text->n / 64)));
        *n = jinja_characters(v.as.text);
        return 0;
    case JINJA_LIST:
    case JINJA_TUPLE: *n = (int64_t)v.as.list->n; return 0;
    case JINJA_DICT: *n = (int64_t)v.as.dict->n; return 0;
    case JINJA_RANGE: *n = v.as.range->n; return 0;
    case JINJA_LOOP: *n = (int64_t)v.as.loop->items->n; return 0;
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION: break;
    }
    return JINJA_FAIL(j, "a %s has no length", jinja_type_name(v));
}

int jinja_to_int(struct jinja *j, struct jinja_value v, const char *what, int64_t *out)
{
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL) {
        return JINJA_FAIL(j, "%s must be an integer, not a %s", what, jinja_type_name(v));
    }
    *out = v.kind == JINJA_BOOL ? (int64_t)v.as.truth : v.as.integer;
    return 0;
}

int jinja_want_text(struct jinja *j, struct jinja_value v, const char *what)
{
    if (v.kind != JINJA_STRING) {
        return JINJA_FAIL(j, "%s must be a string, not a %s", what, jinja_type_name(v));
    }
    return 0;
}
