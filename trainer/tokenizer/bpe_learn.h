/* bpe_learn.h - the merges that compress a set of words best, step by step. */
#ifndef TRAINER_TOKENIZER_BPE_LEARN_H
#define TRAINER_TOKENIZER_BPE_LEARN_H

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/bpe_words.h"

/* What is learned; {0} is nothing yet. */
struct bpe_learned {
    struct vocab vocab;       /* spelling of tokens, in printable form: first the 256 bytes */
    struct bpe_merge *merges; /* owned, by rank */
    size_t count, room;
};

/* Learn merges until the vocabulary has `most` tokens or no pair occurs twice. Each is the most frequent pair, ties
 * the smaller ids; a spelling that is known keeps its id. Time is linear in the text but for sorting.
 * Errors: NO_MEMORY. */
int bpe_learn(struct bpe_learned *out, int64_t most, const struct bpe_words *w, struct err *err);
void bpe_learned_free(struct bpe_learned *l); /* leaves {0} */

#endif
