/* prompt.h - the tokens of a request. */
#ifndef TRAINER_SERVE_PROMPT_H
#define TRAINER_SERVE_PROMPT_H

#include "trainer/serve/request.h"
#include "trainer/tokenizer/tokenizer.h"

struct prompter;

/* What turns requests to the model in `dir` into tokens. Borrows T. Errors: those of encoder_open. */
int prompter_open(struct prompter **out, const char *dir, const struct tokenizer *t,
                  struct err *err);
void prompter_close(struct prompter *p);

/* Where the chat template came from, for a person. */
const char *prompter_template(const struct prompter *p);

/* The tokens of a request, appended to `out`: of a text as the tokenizer adds BOS, ids as they are. An empty text is BOS
 * alone. A chat is what its template writes, with BOS in front where the template leaves that to the tokenizer, and r->end,
 * end_text, lead and tail are its. Errors: BAD_REQUEST (param), NO_MEMORY; what is in `out` then is to be freed all the same. */
int prompter_make(struct prompter *p, struct token_list *out, struct serve_request *r,
                  struct err *err);

/* What a logprob is shown of: the token's own text, with U+FFFD for bytes that are no character; borrowed
 * until the next call. Errors: NO_MEMORY. */
int prompter_token(struct prompter *p, int32_t id, const char **text, size_t *bytes,
                   struct err *err);

#endif
