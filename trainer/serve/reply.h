/* reply.h - the lines that `hone-train serve` answers with, in this order for each request:
 *
 *   {"id", "prompt_tokens"}                                           it was accepted
 *   {"id", "index", "text", "tokens": [..], "logprobs"?: [..]}        of a choice; the choices mix
 *   {"id", "index", .., "finish_reason": "stop" | "length", "stop"?}  the last of a choice
 *   {"id", "usage": {prompt_tokens, completion_tokens, total_tokens}} the last of all
 *   {"id", "error": {"message", "param", "code"}}                     instead of all that follows; id null: of a
 *                                                                     line that has none
 * logprobs has, for each token, {"token", "id", "start" (characters of text before it), "logprob" (absent
 * of a prompt's first token), "top": [{"token", "id", "logprob"}]}. The first line of a connection says
 * who speaks: {"hone_serve": 1, "positions", "slots", "memory_bytes", "vocabulary", "template"}.
 */
#ifndef TRAINER_SERVE_REPLY_H
#define TRAINER_SERVE_REPLY_H

#include "trainer/serve/prompt.h"
#include "trainer/serve/texts.h"

/* Each is one line with its '\n', for free(); NULL without memory. */
char *reply_hello(const struct texts *x, const struct prompter *p);
char *reply_accepted(const struct job *j);
char *reply_piece(struct prompter *p, const struct job *j, const struct piece *piece);
char *reply_usage(const struct job *j);
char *reply_error(const char *id, const struct err *err); /* id "": null */

#endif
