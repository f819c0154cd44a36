/* spans.h - which bytes of a rendered conversation are data, and which are trained. */
#ifndef TRAINER_CHAT_SPANS_H
#define TRAINER_CHAT_SPANS_H

#include "trainer/chat/chat.h"
#include "trainer/chat/jinja.h"

struct chat_special {
    const char *text; /* borrowed from the tokenizer */
    size_t bytes;
    int32_t id;
};

/* What a template writes around an assistant's message, learnt from a trial. */
struct chat_habits {
    bool knows_prompt;
    char *prompt; /* owned: what add_generation_prompt adds */
    size_t prompt_bytes;
    char *
        after_tool; /* owned: what a conversation ends with that waits for an answer to a tool's; NULL: nothing known */
    size_t after_tool_bytes;
    char *
        head; /* owned: what a turn of the assistant begins with, before its content; NULL: not known */
    size_t head_bytes;
};

/* One message of a conversation. */
struct chat_turn {
    bool is_assistant, is_trained; /* trained: its weight is not 0 */
    bool is_tool;
};

struct chat_marking {
    const struct jinja_output *output;
    const struct chat_turn *turns; /* by message */
    size_t turn_count;
    const struct chat_habits *habits;
    const struct chat_special *specials;
    size_t special_count;
    int32_t eos;
    bool by_generation; /* the template marks what is trained itself */
};

/* Fill plain and, if asked, trained of OUT, whose spans are empty. Errors: NO_MEMORY. */
int chat_mark(struct rendered *out, const struct chat_marking *m, bool trained, struct err *err);

/* The special token that the template's own text within [begin, end) spells first: EOS if it is there. NULL when
 * there is none; *at is where it stands. */
const struct chat_special *chat_find_special(const struct chat_marking *m, size_t begin, size_t end,
                                             size_t *at);

#endif
