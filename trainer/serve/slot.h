/* slot.h - one of the texts side by side: its tokens, and what of its text is certain. */
#ifndef TRAINER_SERVE_SLOT_H
#define TRAINER_SERVE_SLOT_H

#include "trainer/serve/texts.h"

enum { SLOT_TOKENS = 32 }; /* that are held back with their text at most */

struct slot {
    struct job *job; /* NULL: free */
    int number, index;
    int64_t order;              /* in which the choices began             */
    int32_t *ids;               /* owned [positions]                      */
    int64_t prompt, count, fed; /* tokens: of the prompt, known, in the cache */
    int64_t limit;              /* count at which the text is long enough */
    struct sampling sampling;   /* the request's, with the choice's seed  */
    struct decoder *decoder;    /* owned                                  */
    char *held;                 /* owned; text that was not given away    */
    size_t held_bytes, held_room;
    const char *lead;   /* what is left of the request's          */
    int64_t characters; /* of the text so far                     */
    struct made made[SLOT_TOKENS];
    size_t made_at[SLOT_TOKENS]; /* where in `held` it begins              */
    int made_count;
};

/* For up to `positions` tokens. Errors: NO_MEMORY. slot_fini is also for one that could not be made. */
int slot_init(struct slot *s, int number, int64_t positions, const struct tokenizer *t,
              struct err *err);
void slot_fini(struct slot *s);

/* Begin the next choice of a job; the slot is free. Errors: NO_MEMORY. */
int slot_begin(struct slot *s, struct job *j, int64_t positions, struct err *err);

/* Whether logits are wanted behind the token at `place`: the last one, or a prompt that is echoed with
 * probabilities. */
bool slot_wants(const struct slot *s, int64_t place);

/* A token of an echoed prompt: its text; p may be NULL. Errors: NO_MEMORY. */
int slot_echo(struct slot *s, int64_t place, const struct logprobs *p, struct err *err);

/* The next token of the text. *finish tells whether it was the last; then the slot is free. Errors:
 * NO_MEMORY. */
int slot_take(struct slot *s, int32_t id, bool ends, const struct logprobs *p, enum finish *finish,
              struct err *err);

/* End the text before any token of its own. */
int slot_end(struct slot *s, struct err *err);

#endif
