/* encoder_pool.h - the ids of a long text by several threads; they are those of one encoder.
 *
 * Each thread starts at a guess, as if a text began there, and goes on a little beyond the next one's. Both note
 * where they can cut. At a place where both can, what follows is the same for both: there one's ids end and
 * the other's begin. Where there is none, the text is encoded again from a cut that is known.
 */
#ifndef TRAINER_TOKENIZER_ENCODER_POOL_H
#define TRAINER_TOKENIZER_ENCODER_POOL_H

#include "trainer/tokenizer/tokenizer.h"

struct encoder_pool;

/* The processors that this process may run on, at most 16. */
int encoder_pool_processors(void);

/* It borrows T. Errors: NO_MEMORY. */
int encoder_pool_open(struct encoder_pool **out, const struct tokenizer *t, int threads,
                      struct err *err);
void encoder_pool_close(struct encoder_pool *p);

/* As encoder_encode_part. Worth it from some hundred kilobytes on; less is left to one thread. One call at a time. */
int encoder_pool_encode_part(struct encoder_pool *p, struct token_list *out, const char *text,
                             size_t bytes, bool first, bool last, size_t *used, struct err *err);

#endif
