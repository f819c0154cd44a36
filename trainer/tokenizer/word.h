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

/* The ids of short words seen before; one for each thread. */
struct word_cache;
int word_cache_new(struct word_cache **out, struct err *err); /* NO_MEMORY */
void word_cache_free(struct word_cache *c);

/* An id and where in its word it ends. */
struct symbol {
    int32_t id;
    uint32_t end;
};

struct symbol_list {
    struct symbol *at; /* owned */
    size_t count, room;
};

int symbol_list_put(struct symbol_list *l, int32_t id, size_t end, struct err *err); /* NO_MEMORY */
void symbol_list_free(struct symbol_list *l); /* leaves {0} */

/* The place of a word; NULL when it is too long to be kept. */
struct cached *word_cache_at(struct word_cache *c, const char *word, size_t n);
/* Does the place hold this word? */
bool cached_is(const struct cached *c, const char *word, size_t n);
/* Give its ids to OUT; `start`: where in the whole word it starts. */
int cached_give(const struct cached *c, const struct word_ids *out, size_t start, struct err *err);
/* Keep a word's symbols, unless they are too many. */
void cached_keep(struct cached *c, const char *word, size_t n, const struct symbol_list *l);

#endif
