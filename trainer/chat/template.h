/* template.h - an opened chat template, shared by the files that open it and that render with it. */
#ifndef TRAINER_CHAT_TEMPLATE_H
#define TRAINER_CHAT_TEMPLATE_H

#include "trainer/chat/spans.h"

enum { CHAT_NAMED_SPECIALS = 7, CHAT_SOURCE_MAX = 80 };

struct chat_named {
    const char *name; /* bos_token ... */
    json_t *value;    /* owned; NULL: the tokenizer has none */
};

struct chat_template {
    char *text; /* owned */
    char source[CHAT_SOURCE_MAX];
    struct jinja_template *jinja; /* owned */
    struct chat_named named[CHAT_NAMED_SPECIALS];
    struct chat_special *specials; /* owned: all special tokens of the tokenizer */
    size_t special_count;
    int32_t eos;
    struct chat_habits habits;
    int32_t end;
    char *end_text;    /* owned */
    char *lead, *tail; /* owned */
};

/* The template's output; arguments of calls in the form that it can use. Errors: as jinja_render. */
int chat_evaluate(const struct chat_template *c, const json_t *messages, const json_t *tools,
                  bool add_generation_prompt, struct jinja_output *out, struct err *err);
/* Output and spans; OUT gets no text. On failure O may hold text. */
int chat_render_marked(const struct chat_template *c, const json_t *messages, const json_t *tools,
                       bool add_generation_prompt, struct jinja_output *o, struct rendered *out,
                       struct err *err);

#endif
