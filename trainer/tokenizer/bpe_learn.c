/* bpe_learn.c - the merges that compress a set of words best, step by step.
 *
 * All words lie one behind the other as a list of symbols; each pair knows its count and the places where it
 * was seen. A merge visits the places of its pair only, and changes the counts of the neighbours.
 * Places and heap entries that have become wrong are noticed when they are met.
 */
#include "trainer/tokenizer/bpe_learn.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/vocab.h"

struct letter {
    int32_t id;             /* -1: merged into the one before, or the border of a word */
    uint32_t before, after; /* places; the borders of words are places with id -1      */
    uint32_t word;
};

struct pair {
    uint64_t key;     /* left << 32 | right */
    int64_t count;    /* occurrences, times those of their words */
    uint32_t *places; /* owned; of the left symbol */
    size_t n, room;
    bool touched; /* occurs more often since it was last put on the heap */
};

struct candidate {
    int64_t count; /* when it was put on the heap */
    uint64_t key;
};

struct learner {
    const struct bpe_words *words;
    struct letter *symbols; /* owned, likewise the others */
    size_t symbol_count;
    struct pair *pairs;
    size_t pair_count, pair_room;
    uint32_t *slots; /* of pairs: index + 1, 0 is free */
    size_t slot_count;
    struct candidate *heap;
    size_t heap_count, heap_room;
    struct touched { /* pairs to put on the heap */
        uint32_t *at;
        size_t n, room;
    } touched;
    struct bpe_learned *out; /* borrowed */
    struct err *err;
};

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint32_t *slot_of(const struct learner *l, uint64_t key)
{
    size_t i = hash_mix(key) & (l->slot_count - 1);

    while (l->slots[i] != 0 && l->pairs[l->slots[i] - 1].key != key) {
        i = (i + 1) & (l->slot_count - 1);
    }
    return &l->slots[i];
}

static int no_memory(struct err *err)
{
    return FAIL(err, ERR_NO_MEMORY, "no memory to learn a tokenizer from this text");
}

static int grow_pairs(struct learner *l)
{
    const size_t room = l->pair_room == 0 ? 1 << 14 : l->pair_room * 2;

    struct pair *pairs = room > UINT32_MAX / 2 ? NULL : realloc(l->pairs, room * sizeof *pairs);
    if (pairs == NULL) {
        return no_memory(l->err);
    }
    l->pairs = pairs;
    l->pair_room = room;
    uint32_t *slots = calloc(room * 2, sizeof *slots);
    if (slots == NULL) {
        return no_memory(l->err);
    }
    free(l->slots);
    l->slots = slots;
    l->slot_count = room * 2;
    for (size_t i = 0; i < l->pair_count; i++) {
        *slot_of(l, l->pairs[i].key) = (uint32_t)(i + 1);
    }
    return 0;
}

/* The record of a pair, a new one if need be. The pointer holds until the next call. */
static int pair_of(struct learner *l, int32_t left, int32_t right, struct pair **out)
{
    if (l->pair_count == l->pair_room) {
        TRY(grow_pairs(l));
    }
    uint32_t *slot = slot_of(l, key_of(left, right));
    if (*slot == 0) {
        l->pairs[l->pair_count++] = (struct pair){.key = key_of(left, right)};
        *slot = (uint32_t)l->pair_count;
    }
    *out = &l->pairs[*slot - 1];
    return 0;
}

static int touch(struct learner *l, struct pair *p)
{
    struct touched *t = &l->touched;

    if (p->touched) {
        return 0;
    }
    if (t->n == t->room) {
        const size_t room = t->room == 0 ? 1024 : t->room * 2;
        uint32_t *at = realloc(t->at, room * sizeof *at);
        if (at == NULL) {
            return no_memory(l->err);
        }
        t->at = at;
        t->room = room;
    }
    p->touched = true;
    t->at[t->n++] = (uint32_t)(p - l->pairs);
    return 0;
}

/* One more occurrence, at place `at`. */
static int see_pair(struct learner *l, int32_t left, int32_t right, uint32_t at)
{
    struct pair *p;

    TRY(pair_of(l, left, right, &p));
    if (p->n == p->room) {
        const size_t room = p->room == 0 ? 4 : p->room * 2;
        uint32_t *places = realloc(p->places, room * sizeof *places);
        if (places == NULL) {
            return no_memory(l->err);
        }
        p->places = places;
        p->room = room;
    }
    p->places[p->n++] = at;
    p->count += l->words->words[l->symbols[at].word].times;
    return touch(l, p);
}

static void lose_pair(struct learner *l, int32_t left, int32_t right, uint32_t word)
{
    const uint32_t *slot = slot_of(l, key_of(left, right));
    if (*slot != 0) {
        l->pairs[*slot - 1].count -= l->words->words[word].times;
    }
}

/* Does a come off the heap before b? */
static bool is_better(struct candidate a, struct candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static int heap_put(struct learner *l, struct candidate c)
{
    if (l->heap_count == l->heap_room) {
        const size_t room = l->heap_room == 0 ? 1024 : l->heap_room * 2;
        struct candidate *heap = realloc(l->heap, room * sizeof *heap);
        if (heap == NULL) {
            return no_memory(l->err);
        }
        l->heap = heap;
        l->heap_room = room;
    }
    size_t i = l->heap_count++;
    while (i > 0 && is_better(c, l->heap[(i - 1) / 2])) {
        l->heap[i] = l->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    l->heap[i] = c;
    return 0;
}

static struct candidate heap_take(struct learner *l)
{
    const struct candidate top = l->heap[0], last = l->heap[--l->heap_count];
    size_t i = 0;

    for (size_t child = 1; child < l->heap_count; child = 2 * i + 1) {
        if (child + 1 < l->heap_count && is_better(l->heap[child + 1], l->heap[child])) {
            child++;
        }
        if (!is_better(l->heap[child], last)) {
            break;
        }
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
    return top;
}

/* Lay the words out as symbols, with a border before, between and after. */
static int lay_out(struct learner *l, const int32_t byte_ids[256])
{
    const struct bpe_words *w = l->words;
    size_t n = 1;

    for (size_t i = 0; i < w->count; i++) {
        n += w->words[i].n + 1;
    }
    if (n >= UINT32_MAX) {
        return FAIL(l->err, ERR_NO_MEMORY, "the text has too many different words to learn from");
    }
    l->symbols = malloc(n * sizeof *l->symbols);
    if (l->symbols == NULL) {
        return no_memory(l->err);
    }
    l->symbol_count = n;
    l->symbols[0] = (struct letter){.id = -1};
    uint32_t at = 1;
    for (size_t i = 0; i < w->count; i++) {
        for (size_t k = 0; k <= w->words[i].n; k++, at++) {
            const bool border = k == w->words[i].n;
            const unsigned char b = border ? 0 : (unsigned char)w->pool.at[w->words[i].at + k];
            l->symbols[at] = (struct letter){.id = border ? -1 : byte_ids[b],
                                             .before = at - 1,
                                             .after = at + 1,
                                             .word = (uint32_t)i};
        }
    }
    return 0;
}

/* Pairs that occur more often than before become candidates. */
static int put_touched(struct learner *l)
{
    for (size_t i = 0; i < l->touched.n; i++) {
        struct pair *p = &l->pairs[l->touched.at[i]];
        p->touched = false;
        TRY(heap_put(l, (struct candidate){.count = p->count, .key = p->key}));
    }
    l->touched.n = 0;
    return 0;
}

static int count_pairs(struct learner *l)
{
    for (size_t i = 1; i + 1 < l->symbol_count; i++) {
        const struct letter *s = &l->symbols[i];
        if (s->id >= 0 && l->symbols[i + 1].id >= 0) {
            TRY(see_pair(l, s->id, l->symbols[i + 1].id, (uint32_t)i));
        }
    }
    return put_touched(l);
}

static int by_place(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Merge the pair at one place, if it still is there. */
static int merge_at(struct learner *l, uint32_t at, int32_t left, int32_t right, int32_t made)
{
    struct letter *a = &l->symbols[at], *b = &l->symbols[a->after];

    if (a->id != left || b->id != right) {
        return 0;
    }
    const uint32_t before = a->before, after = b->after, word = a->word;
    const int32_t before_id = l->symbols[before].id, after_id = l->symbols[after].id;
    a->id = made;
    a->after = after;
    b->id = -1;
    l->symbols[after].before = at;
    if (before_id >= 0) {
        lose_pair(l, before_id, left, word);
        TRY(see_pair(l, before_id, made, before));
    }
    if (after_id >= 0) {
        lose_pair(l, right, after_id, word);
        TRY(see_pair(l, made, after_id, at));
    }
    return 0;
}

/* Merge a pair everywhere it was seen. */
static int merge_pair(struct learner *l, uint32_t index, int32_t made)
{
    const struct pair p = l->pairs[index];
    int rc = 0;

    l->pairs[index].places = NULL;
    l->pairs[index].n = l->pairs[index].room = 0;
    if (p.n > 0) {
        qsort(p.places, p.n, sizeof *p.places, by_place);
    }
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        rc = merge_at(l, p.places[i], (int32_t)(p.key >> 32), (int32_t)(uint32_t)p.key, made);
    }
    free(p.places);
    l->pairs[index].count = 0;
    return rc == 0 ? put_touched(l) : rc;
}

/* The token that a pair makes: a known one with the same spelling, or a new one. */
static int make_token(struct learner *l, uint64_t key, int32_t *made)
{
    struct bpe_learned *o = l->out;
    struct text spelling = {0};
    size_t n;
    const char *s = vocab_token(&o->vocab, (int32_t)(key >> 32), &n);

    int rc = text_put(&spelling, s, n, l->err);
    s = vocab_token(&o->vocab, (int32_t)(uint32_t)key, &n);
    if (rc == 0) {
        rc = text_put(&spelling, s, n, l->err);
    }
    *made = rc == 0 ? vocab_find(&o->vocab, spelling.at, spelling.n) : -1;
    if (rc == 0 && *made < 0) {
        *made = (int32_t)o->vocab.size;
        rc = vocab_put(&o->vocab, spelling.at, spelling.n, *made, l->err);
    }
    text_free(&spelling);
    return rc;
}

static int put_merge(struct learner *l, uint64_t key, int32_t made)
{
    struct bpe_learned *o = l->out;

    if (o->count == o->room) {
        const size_t room = o->room == 0 ? 1024 : o->room * 2;
        struct bpe_merge *merges = realloc(o->merges, room * sizeof *merges);
        if (merges == NULL) {
            return no_memory(l->err);
        }
        o->merges = merges;
        o->room = room;
    }
    o->merges[o->count++] = (struct bpe_merge){
        .left = (int32_t)(key >> 32), .right = (int32_t)(uint32_t)key, .made = made};
    return 0;
}

static int learn(struct learner *l, int64_t most)
{
    while (l->out->vocab.size < most && l->heap_count > 0) {
        const struct candidate c = heap_take(l);
        const uint32_t index = *slot_of(l, c.key) - 1;
        const int64_t count = l->pairs[index].count;
        int32_t made;
        if (count < 2) {
            continue;
        }
        if (count != c.count) {
            TRY(heap_put(l, (struct candidate){.count = count, .key = c.key}));
            continue;
        }
        TRY(make_token(l, c.key, &made));
        TRY(put_merge(l, c.key, made));
        TRY(merge_pair(l, index, made));
    }
    return 0;
}

/* Bytes in the order of their printable characters, as GPT-2 numbers them. */
static int put_bytes(struct learner *l, int32_t byte_ids[256])
{
    for (uint32_t c = 0; c < 0x144; c++) {
        char printable[4];
        const int b = char_to_byte(c);
        if (b >= 0) {
            byte_ids[b] = (int32_t)l->out->vocab.size;
            TRY(vocab_put(&l->out->vocab, printable, utf8_write(printable, c), byte_ids[b],
                          l->err));
        }
    }
    return 0;
}

int bpe_learn(struct bpe_learned *out, int64_t most, const struct bpe_words *w, struct err *err)
{
    struct learner l = {.words = w, .out = out, .err = err};
    int32_t byte_ids[256];

    int rc = put_bytes(&l, byte_ids);
    if (rc == 0) {
        rc = grow_pairs(&l);
    }
    if (rc == 0) {
        rc = lay_out(&l, byte_ids);
    }
    if (rc == 0) {
        rc = count_pairs(&l);
    }
    if (rc == 0) {
        rc = learn(&l, most);
    }
    for (size_t i = 0; i < l.pair_count; i++) {
        free(l.pairs[i].places);
    }
    free(l.symbols);
    free(l.pairs);
    free(l.slots);
    free(l.heap);
    free(l.touched.at);
    return rc;
}

void bpe_learned_free(struct bpe_learned *l)
{
    vocab_free(&l->vocab);
    free(l->merges);
    *l = (struct bpe_learned){0};
}
