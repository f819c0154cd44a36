/* word.c - the cache of words: a table in which a new word displaces the one that was there. */
#include "trainer/tokenizer/word.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/vocab.h"

enum {
    CACHE_SLOTS = 1 << 14,
    CACHE_WORD = 30, /* bytes */
    CACHE_IDS = 8,
};

struct cached {
    uint8_t n, count; /* n 0: free */
    char word[CACHE_WORD];
    uint32_t symbols[CACHE_IDS]; /* end << 24 | id: ids lie below TOKEN_ID_MAX */
};

struct word_cache {
    struct cached slots[CACHE_SLOTS];
};

int word_cache_new(struct word_cache **out, struct err *err)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
}

void word_cache_free(struct word_cache *c)
{
    free(c);
}

struct cached *word_cache_at(struct word_cache *c, const char *word, size_t n)
{
    return n > CACHE_WORD ? NULL : &c->slots[hash_bytes(word, n, 0) & (CACHE_SLOTS - 1)];
}

bool cached_is(const struct cached *c, const char *word, size_t n)
{
    return c->n == n && memcmp(c->word, word, n) == 0;
}

int cached_give(const struct cached *c, const struct word_ids *out, size_t start, struct err *err)
{
    if (out->ends == NULL) { /* most words of most texts come this way */
        struct token_list *l = out->ids;
        TRY(token_list_reserve(l, c->count, err));
        for (size_t i = 0; i < c->count; i++) {
            l->ids[l->count++] = (int32_t)(c->symbols[i] & (TOKEN_ID_MAX - 1));
        }
        return 0;
    }
    for (size_t i = 0; i < c->count; i++) {
        TRY(word_put(out, (int32_t)(c->symbols[i] & (TOKEN_ID_MAX - 1)),
                     start + (c->symbols[i] >> 24), err));
    }
    return 0;
}

void cached_keep(struct cached *c, const char *word, size_t n, const struct symbol_list *l)
{
    if (l->count > CACHE_IDS) {
        return;
    }
    c->n = (uint8_t)n;
    c->count = (uint8_t)l->count;
    memcpy(c->word, word, n);
    for (size_t i = 0; i < l->count; i++) {
        c->symbols[i] = l->at[i].end << 24 | (uint32_t)l->at[i].id;
    }
}

int symbol_list_put(struct symbol_list *l, int32_t id, size_t end, struct err *err)
{
    if (l->count == l->room) {
        const size_t room = l->room < 64 ? 64 : l->room + l->room / 2;
        struct symbol *at = realloc(l->at, room * sizeof *at);
        if (at == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a word of %zu symbols", room);
        }
        l->at = at;
        l->room = room;
    }
    l->at[l->count++] = (struct symbol){.id = id, .end = (uint32_t)end};
    return 0;
}

void symbol_list_free(struct symbol_list *l)
{
    free(l->at);
    *l = (struct symbol_list){0};
}
