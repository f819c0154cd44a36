/* unigram.c - words to ids with a unigram model. */
#include "trainer/tokenizer/unigram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 1 << 25, /* of the trie: bounds its memory */
    UNREACHED = -1,      /* id of a place that no piece ends at */
    UNKNOWN = -2,        /* id of a place that an unknown character ends at */
};

static const double unknown_penalty = 10.0; /* below the lowest score; as in sentencepiece */

static size_t edge_slot(const struct piece_trie *t, uint64_t key)
{
    size_t i = hash_mix(key) & (t->slots - 1);

    while (t->keys[i] != UINT64_MAX && t->keys[i] != key) {
        i = (i + 1) & (t->slots - 1);
    }
    return i;
}

static int grow_edges(struct piece_trie *t, struct err *err)
{
    struct piece_trie grown = *t;

    grown.slots = t->slots == 0 ? 1024 : t->slots * 2;
    grown.keys = malloc(grown.slots * sizeof *grown.keys);
    grown.to = malloc(grown.slots * sizeof *grown.to);
    if (grown.keys == NULL || grown.to == NULL) {
        free(grown.keys);
        free(grown.to);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
    }
    memset(grown.keys, 0xFF, grown.slots * sizeof *grown.keys);
    for (size_t i = 0; i < t->slots; i++) {
        if (t->keys[i] != UINT64_MAX) {
            const size_t slot = edge_slot(&grown, t->keys[i]);
            grown.keys[slot] = t->keys[i];
            grown.to[slot] = t->to[i];
        }
    }
    free(t->keys);
    free(t->to);
    *t = grown;
    return 0;
}

static int add_node(struct piece_trie *t, struct err *err)
{
    if (t->count == t->room) {
        const uint32_t room = t->room == 0 ? 1024 : t->room * 2;
        if (room > NODES_MAX) {
            return FAIL(err, ERR_BAD_FILE, "the pieces of the vocabulary are too long together");
        }
        int32_t *pieces = realloc(t->pieces, room * sizeof *pieces);
        if (pieces == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
        }
        t->pieces = pieces;
        t->room = room;
    }
    t->pieces[t->count++] = -1;
    return 0;
}

static int trie_add(struct piece_trie *t, const char *s, size_t n, int32_t id, struct err *err)
{
    uint32_t node = 0;

    if (t->count == 0) {
        TRY(add_node(t, err));
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t key = (uint64_t)node << 8 | (unsigned char)s[i];
        if ((size_t)t->count * 2 >= t->slots) {
            TRY(grow_edges(t, err));
        }
        const size_t slot = edge_slot(t, key);
        if (t->keys[slot] != key) {
            TRY(add_node(t, err));
            t->keys[slot] = key;
            t->to[slot] = t->count - 1;
        }
        node = t->to[slot];
    }
    t->pieces[node] = id;
    t->longest = n > t->longest ? n : t->longest;
    return 0;
}

int unigram_put(struct unigram *u, double score, bool hidden, struct err *err)
{
    size_t n;
    const char *s = vocab_token(u->vocab, (int64_t)u->count, &n);

    if (u->count == u->room) {
        const size_t room = u->room == 0 ? 1024 : u->room * 2;
        double *scores = realloc(u->scores, room * sizeof *scores);
        if (scores == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
        }
        u->scores = scores;
        u->room = room;
    }
    u->scores[u->count++] = score;
    if (hidden) {
        return 0;
    }
    u->lowest = !u->any || score < u->lowest ? score : u->lowest;
    u->any = true;
    return n == 0 ? 0 : trie_add(&u->trie, s, n, (int32_t)(u->count - 1), err);
}

void unigram_finish(struct unigram *u)
{
    char s[8];

    for (unsigned b = 0; b < 256; b++) {
        (void)snprintf(s, sizeof s, "<0x%02X>", b);
        u->fallback[b] = vocab_find(u->vocab, s, 6);
    }
}

void unigram_free(struct unigram *u)
{
    free(u->scores);
    free(u->trie.keys);
    free(u->trie.to);
    free(u->trie.pieces);
    *u = (struct unigram){0};
}

/* The best way to a place. */
struct best {
    double score;
    uint32_t from;
    int32_t id; /* or UNREACHED, UNKNOWN */
};

/* The symbols of a stretch of the word, last first. */
struct unigram_work {
    struct word_cache *cache; /* owned, likewise the others */
    struct best *best;        /* of the places from `base` on */
    size_t room;
    struct symbol_list backward, symbols;
};

int unigram_work_new(struct unigram_work **out, struct err *err)
{
    struct unigram_work *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    const int rc = word_cache_new(&w->cache, err);
    if (rc != 0) {
        unigram_work_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void unigram_work_free(struct unigram_work *w)
{
    if (w != NULL) {
        word_cache_free(w->cache);
        free(w->best);
        symbol_list_free(&w->backward);
        symbol_list_free(&w->symbols);
        free(w);
    }
}

/* A word as it is walked over. Places up to `base` are done with: all ways lead through it. */
struct walk {
    const struct unigram *u;
    struct unigram_work *w;
    const char *word;
    size_t n;
    size_t base, reach; /* the furthest place that a piece leads to */
    size_t known;       /* places of best, from base on, that are set */
    bool unknown;       /* unknown characters from `unknown_from` to the base are waiting */
    size_t unknown_from;
    struct err *err;
};

/* Room for the places up to `to`. */
static int reserve(struct walk *k, size_t to)
{
    struct unigram_work *w = k->w;
    const size_t need = to - k->base + 1;

    if (need > w->room) {
        const size_t room = need + need / 2 + 64;
        struct best *best = realloc(w->best, room * sizeof *best);
        if (best == NULL) {
            return FAIL(k->err, ERR_NO_MEMORY, "no memory for a word of %zu bytes", k->n);
        }
        w->best = best;
        w->room = room;
    }
    for (; k->known < need; k->known++) {
        w->best[k->known] = (struct best){.id = UNREACHED};
    }
    return 0;
}

static int lead_to(struct walk *k, size_t from, size_t to, double score, int32_t id)
{
    TRY(reserve(k, to));
    struct best *b = &k->w->best[to - k->base];
    const double sum = k->w->best[from - k->base].score + score;
    if (b->id == UNREACHED || sum > b->score) {
        *b = (struct best){.score = sum, .from = (uint32_t)from, .id = id};
    }
    k->reach = to > k->reach ? to : k->reach;
    return 0;
}

/* All pieces that start at `at`, where a character of `wide` bytes is. */
static int leave(struct walk *k, size_t at, size_t wide)
{
    const struct piece_trie *t = &k->u->trie;
    bool single = false;
    uint32_t node = 0;

    for (size_t i = at; i < k->n && t->count > 0; i++) {
        const uint64_t key = (uint64_t)node << 8 | (unsigned char)k->word[i];
        const size_t slot = edge_slot(t, key);
        if (t->keys[slot] != key) {
            break;
        }
        node = t->to[slot];
        if (t->pieces[node] >= 0) {
            TRY(lead_to(k, at, i + 1, k->u->scores[t->pieces[node]], t->pieces[node]));
            single = single || i + 1 == at + wide;
        }
    }
    return single ? 0 : lead_to(k, at, at + wide, k->u->lowest - unknown_penalty, UNKNOWN);
}

static int put_unknown(struct walk *k, size_t end)
{
    const struct unigram *u = k->u;
    const char *s = k->word + k->unknown_from;
    const size_t n = end - k->unknown_from;
    const int32_t id = vocab_find(u->vocab, s, n);
    bool bytes = u->byte_fallback;

    if (id >= 0) {
        return symbol_list_put(&k->w->symbols, id, end, k->err);
    }
    for (size_t i = 0; bytes && i < n; i++) {
        bytes = u->fallback[(unsigned char)s[i]] >= 0;
    }
    for (size_t i = 0; bytes && i < n; i++) {
        TRY(symbol_list_put(&k->w->symbols, u->fallback[(unsigned char)s[i]],
                            k->unknown_from + i + 1, k->err));
    }
    if (bytes) {
        return 0;
    }
    if (!u->has_unk) {
        return FAIL(k->err, ERR_BAD_FILE,
                    "'%s' is not in the vocabulary, and the model has no unk_id",
                    text_excerpt(s, n).at);
    }
    return symbol_list_put(&k->w->symbols, u->unk_id, end, k->err);
}

/* All ways lead through `at`: give the symbols up to there and start anew from it. */
static int settle(struct walk *k, size_t at)
{
    struct symbol_list *back = &k->w->backward;
    const double score = k->w->best[at - k->base].score;

    back->count = 0;
    for (size_t end = at; end > k->base;) {
        const struct best b = k->w->best[end - k->base];
        TRY(symbol_list_put(back, b.id, end, k->err));
        end = b.from;
    }
    size_t from = k->base;
    for (size_t i = back->count; i-- > 0; from = back->at[i].end) {
        const bool unknown =
            back->at[i].id == UNKNOWN || (k->u->has_unk && back->at[i].id == k->u->unk_id);
        if (unknown && !k->unknown) {
            k->unknown_from = from;
        } else if (!unknown) {
            TRY(k->unknown ? put_unknown(k, from) : 0);
            TRY(symbol_list_put(&k->w->symbols, back->at[i].id, back->at[i].end, k->err));
        }
        k->unknown = unknown;
    }
    k->base = at;
    k->known = 1;
    k->w->best[0] = (struct best){.score = score, .id = UNKNOWN};
    return 0;
}

/* Every character is the end of something: a piece, or itself as an unknown one. */
static int walk_word(struct walk *k)
{
    k->w->symbols.count = 0;
    TRY(reserve(k, 0));
    k->w->best[0] = (struct best){.id = UNKNOWN};
    for (size_t at = 0; at < k->n;) {
        uint32_t c;
        const size_t wide = utf8_get(k->word + at, &c);
        TRY(leave(k, at, wide));
        at += wide;
        if (k->reach == at) {
            TRY(settle(k, at));
        }
    }
    return k->unknown ? put_unknown(k, k->n) : 0;
}

int unigram_encode(const struct unigram *u, struct unigram_work *w, const struct word_ids *out,
                   const char *word, size_t n, struct err *err)
{
    struct cached *c = word_cache_at(w->cache, word, n);
    struct walk k = {.u = u, .w = w, .word = word, .n = n, .err = err};

    if (c != NULL && cached_is(c, word, n)) {
        return cached_give(c, out, 0, err);
    }
    if (n > UINT32_MAX) {
        return FAIL(err, ERR_NO_MEMORY, "a word of %zu bytes is too long", n);
    }
    TRY(walk_word(&k));
    if (c != NULL) {
        cached_keep(c, word, n, &w->symbols);
    }
    for (size_t i = 0; i < w->symbols.count; i++) {
        TRY(word_put(out, w->symbols.at[i].id, w->symbols.at[i].end, err));
    }
    return 0;
}
