/* chat.h - conversations as the text that a model reads, with what is data and what is trained marked.
 *
 * A chat template is the Jinja program of a model folder, or one of the built-in ones (builtin.def). It is
 * evaluated as transformers' apply_chat_template does (trim_blocks, lstrip_blocks, loop controls, the sandbox),
 * and while it runs every byte carries where it came from: nothing is ever found by searching the text.
 *
 *     <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n
 *                       ~~                                  ~~~~~             plain
 *                                                           ~~~~~~~~~~        trained
 */
#ifndef TRAINER_CHAT_CHAT_H
#define TRAINER_CHAT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/tokenizer/tokenizer.h"

struct chat_span {
    size_t begin, end;
};

/* A conversation as text. Spans rise and do not touch. */
struct rendered {
    char *text; /* owned, NUL-terminated UTF-8; `bytes` does not count the NUL */
    size_t bytes;
    /* Owned: bytes that came from strings of the messages and tools (contents, arguments, descriptions; not
     * the role): special tokens spelled there are ordinary text. */
    struct chat_span *plain;
    size_t plain_count;
    /* Owned: what the assistant has to write, end-of-turn included; turns with weight 0 left out. None with
     * add_generation_prompt. */
    struct chat_span *trained;
    size_t trained_count;
};

void rendered_fini(struct rendered *r); /* leaves {0} */

struct chat_template;

/* `given` is Jinja text or the name of a built-in template; when it is NULL the template is that of the model
 * folder DIR: chat_template.jinja, else tokenizer_config.json's chat_template (a text, or a list of which
 * "default" and, for conversations with tools, "tool_use" are used); without one there, or with dir NULL, the
 * built-in `plain`. T says the special tokens; it is borrowed until close.
 * Errors: BAD_SPEC (`given` is neither a name nor a correct template), BAD_FILE (the folder's template is not
 * correct or holds a construct that is not known; the sentence has line and name), IO, NO_MEMORY. */
int chat_template_open(struct chat_template **out, const char *dir, const char *given,
                       const struct tokenizer *t, struct err *err);
void chat_template_close(struct chat_template *c);

/* Where it came from, for a person: "chat_template.jinja", "tokenizer_config.json", "built-in chatml", "given". */
const char *chat_template_source(const struct chat_template *c);
/* Its Jinja text. Saved as chat_template.jinja beside a model, it renders the same there. */
const char *chat_template_text(const struct chat_template *c);
/* The special token that ends an assistant's turn under this template, and that a trained model therefore
 * writes when it is done; -1 when the template ends turns without one. It is not always the tokenizer's EOS. */
int32_t chat_template_end(const struct chat_template *c);
/* The text that it writes after an assistant's message, up to the end of the turn: "<|im_end|>", or "\n" where
 * no special token ends it. Empty when unknown. */
const char *chat_template_end_text(const struct chat_template *c);
/* What it writes between the generation prompt and an assistant's message, and between the message and the special
 * token that ends it: " " and " " for Llama 2. A trained model writes them too, and they are no part of its answer.
 * Empty when there is nothing, or when it is not known. */
const char *chat_template_lead(const struct chat_template *c);
const char *chat_template_tail(const struct chat_template *c);

/* MESSAGES as in data/example.h: an array of {"role", "content", ...}; TOOLS an array or NULL. Arguments of tool
 * calls may be objects or JSON in a string; the template gets the form that it can use.
 * A template may be used by several threads at once. On failure *out is {0}.
 * Errors: BAD_REQUEST (the template itself refuses the conversation, with its words: an order of roles, say),
 * BAD_FILE (the template fails on it: line and reason, or a limit of time, memory or output), NO_MEMORY. */
int chat_template_render(const struct chat_template *c, const json_t *messages, const json_t *tools,
                         bool add_generation_prompt, struct rendered *out, struct err *err);

/* The name and the Jinja text of built-in template INDEX, from 0; NULL after the last. */
const char *chat_builtin_name(int index);
const char *chat_builtin_text(int index);

#endif
