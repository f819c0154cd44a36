/* openai.h - OpenAI's completions and chat completions, in terms of what `hone-train serve` is asked and
 * answers (trainer/serve/request.h; its lines are told in trainer/serve/reply.h).
 *
 * Their shapes: POST /v1/completions and /v1/chat/completions of OpenAI's API as its own client sends and
 * reads them. What is theirs and not known here is refused by name; null is as if absent. Ours besides:
 * top_k, min_p, repetition_penalty, ignore_eos.
 */
#ifndef SERVER_OPENAI_H
#define SERVER_OPENAI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { OPENAI_PROMPTS = 16, OPENAI_MODEL = 512 };

/* What is asked for, checked. */
struct openai_ask {
    bool chat, stream, include_usage;
    char model[OPENAI_MODEL];
    int prompts, n;  /* choices: n of each prompt */
    int64_t user_id; /* who asks: the handler fills it in */
    char *lines;     /* owned; a line for each prompt, its id is "0", "1", .. */
};

/* Read the body of a request. `out` is for openai_ask_fini in any case. Errors: BAD_REQUEST (param), NO_MEMORY. */
int openai_ask_read(struct openai_ask *out, const json_t *body, bool chat, struct err *err);
void openai_ask_fini(struct openai_ask *a);

/* The answer to it as it comes. */
struct openai_answer {
    const struct openai_ask *ask; /* borrowed */
    char id[48];
    int64_t created;
    json_t *choices; /* owned; not streamed: what came of each     */
    bool greeted[OPENAI_PROMPTS * 16];
    int accepted, ended; /* prompts */
    int64_t prompt_tokens, tokens;
};

int openai_answer_init(struct openai_answer *a, const struct openai_ask *ask, struct err *err);
void openai_answer_fini(struct openai_answer *a);

/* Take a line of the model. When streaming, *text is what it adds to the stream, for free(), or NULL for nothing;
 * behind the last line it has the end. Errors: what the line says, NO_MEMORY, INTERNAL (no line of ours). */
int openai_answer_take(struct openai_answer *a, const json_t *line, char **text, struct err *err);

bool openai_answer_is_complete(const struct openai_answer *a);

/* The whole answer, when it is complete; a new reference, NULL without memory. */
json_t *openai_answer_body(const struct openai_answer *a);

#endif
