/* token_model.h - the model of a tokenizer: a vocabulary, and how a word is made of its tokens. */
#ifndef TRAINER_TOKENIZER_TOKEN_MODEL_H
#define TRAINER_TOKENIZER_TOKEN_MODEL_H

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/unigram.h"

enum token_model_kind {
    TOKENS_BPE,
    TOKENS_UNIGRAM,
    TOKENS_WORDS, /* a word is a token, or unknown */
};

struct token_model {
    enum token_model_kind kind;
    struct vocab vocab;
    struct bpe bpe; /* these two borrow the vocabulary: a model stays where it is */
    struct unigram unigram;
    struct text unknown; /* WORDS: the unk_token */
};

void token_model_free(struct token_model *m); /* leaves {0} */

/* Do the ids of a word tell where the word may be cut? (struct word_ids, cut) */
bool token_model_cuts(const struct token_model *m);
/* Does it take the bytes of a word as they are, where the others take their printable form? */
bool token_model_takes_bytes(const struct token_model *m);

/* Scratch memory and the cache of one encoder. */
struct token_model_work;
int token_model_work_new(struct token_model_work **out, const struct token_model *m,
                         struct err *err);
void token_model_work_free(struct token_model_work *w);

/* The ids of a word, n > 0. Errors: BAD_FILE when it cannot be encoded with the vocabulary; NO_MEMORY. */
int token_model_encode(const struct token_model *m, struct token_model_work *w,
                       const struct word_ids *out, const char *word, size_t n, struct err *err);

#endif
