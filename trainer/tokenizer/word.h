/* word.h - where a model puts the ids of a word. */
#ifndef TRAINER_TOKENIZER_WORD_H
#define TRAINER_TOKENIZER_WORD_H

#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

/* Told where, in a word, the ids so far are final whatever follows. */
typedef void word_cut(void *context, size_t at);

struct word_ids {
    struct token_list *ids;  /* appended to */
    struct place_list *ends; /* appended to: where in the word each id ends; NULL: not wanted */
    word_cut *cut;           /* may be NULL */
    void *context;
};

/* One id that ends at `end`. */
static inline int word_put(const struct word_ids *out, int32_t id, size_t end, struct err *err)
{
    if (out->ends != NULL) {
        TRY(place_list_put(out->ends, end, err));
    }
    return token_list_put(out->ids, id, err);
}

#endif
