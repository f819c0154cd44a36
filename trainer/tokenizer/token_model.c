/* token_model.c - the model of a tokenizer, whichever kind it is. */
#include "trainer/tokenizer/token_model.h"

#include <stdlib.h>

void token_model_free(struct token_model *m)
{
    bpe_free(&m->bpe);
    unigram_free(&m->unigram);
    text_free(&m->unknown);
    vocab_free(&m->vocab);
    *m = (struct token_model){0};
}

bool token_model_cuts(const struct token_model *m)
{
    return m->kind == TOKENS_BPE && m->bpe.can_cut;
}

bool token_model_takes_bytes(const struct token_model *m)
{
    return m->kind == TOKENS_BPE && m->bpe.bytes;
}

struct token_model_work {
    struct bpe_work *bpe; /* owned, the one that the kind needs */
    struct unigram_work *unigram;
};

int token_model_work_new(struct token_model_work **out, const struct token_model *m,
                         struct err *err)
{
    struct token_model_work *w = calloc(1, sizeof *w);
    int rc = 0;

    *out = NULL;
    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    switch (m->kind) {
    case TOKENS_BPE: rc = bpe_work_new(&w->bpe, err); break;
    case TOKENS_UNIGRAM: rc = unigram_work_new(&w->unigram, err); break;
    case TOKENS_WORDS: break;
    }
    if (rc != 0) {
        token_model_work_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void token_model_work_free(struct token_model_work *w)
{
    if (w != NULL) {
        bpe_work_free(w->bpe);
        unigram_work_free(w->unigram);
        free(w);
    }
}

static int encode_whole(const struct token_model *m, const struct word_ids *out, const char *word,
                        size_t n, struct err *err)
{
    int32_t id = vocab_find(&m->vocab, word, n);

    if (id < 0) {
        id = vocab_find(&m->vocab, m->unknown.at, m->unknown.n);
    }
    if (id < 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "'%s' is not in the vocabulary, and neither is the unk_token '%s'",
                    text_excerpt(word, n).at, text_excerpt(m->unknown.at, m->unknown.n).at);
    }
    return word_put(out, id, n, err);
}

int token_model_encode(const struct token_model *m, struct token_model_work *w,
                       const struct word_ids *out, const char *word, size_t n, struct err *err)
{
    switch (m->kind) {
    case TOKENS_BPE: return bpe_encode(&m->bpe, w->bpe, out, word, n, err);
    case TOKENS_UNIGRAM: return unigram_encode(&m->unigram, w->unigram, out, word, n, err);
    case TOKENS_WORDS: return encode_whole(m, out, word, n, err);
    }
    return 0;
}
