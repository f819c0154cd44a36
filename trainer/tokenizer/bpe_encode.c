/* bpe_encode.c - words to ids with a BPE model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe_tables.h"

enum {
    CACHE_SLOTS = 1 << 14,
    CACHE_WORD = 30, /* bytes */
    CACHE_IDS = 8,
    SCAN_MAX = 48, /* symbols up to which the plain scan beats the heap */
    CUT_MIN = 128, /* bytes of a word from which cutting it pays */
    DEAD = -1,     /* id of a symbol that was merged into the one before */
};

struct cached {
    uint8_t n, count; /* n 0: free */
    char word[CACHE_WORD];
    int32_t ids[CACHE_IDS];
};

/* A symbol of a long word; a list through indices. */
struct symbol {
    int32_t id;
    uint32_t before, after; /* NONE at the ends */
};

static const uint32_t none = UINT32_MAX;

struct bpe_work {
    struct cached *cache;      /* owned, likewise the others */
    struct token_list symbols; /* of the word at hand */
    struct symbol *list;
    size_t list_room;
    uint64_t *heap; /* rank << 32 | position: the smallest is the next merge */
    size_t heap_count, heap_room;
    struct text word; /* printable form, or a character with prefix or suffix */
};

int bpe_work_new(struct bpe_work **out, struct err *err)
{
    struct bpe_work *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w != NULL) {
        w->cache = calloc(CACHE_SLOTS, sizeof *w->cache);
    }
    if (w == NULL || w->cache == NULL) {
        bpe_work_free(w);
        return FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    *out = w;
    return 0;
}

void bpe_work_free(struct bpe_work *w)
{
    if (w != NULL) {
        free(w->cache);
        free(w->list);
        free(w->heap);
        token_list_free(&w->symbols);
        text_free(&w->word);
        free(w);
    }
}

static int32_t char_token(const struct bpe *m, const char *s, size_t n)
{
    uint32_t c;

    (void)utf8_get(s, &c);
    return c < LOW_CHARS ? m->low_chars[c] : vocab_find(&m->vocab, s, n);
}

/* The symbols of bytes that stand for a character without a token; none when a byte has none. */
static int put_fallback(const struct bpe *m, struct bpe_work *w, const char *s, size_t n,
                        bool *done, struct err *err)
{
    *done = false;
    for (size_t i = 0; i < n; i++) {
        if (!m->byte_fallback || m->fallback[(unsigned char)s[i]] < 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        TRY(token_list_put(&w->symbols, m->fallback[(unsigned char)s[i]], err));
    }
    *done = true;
    return 0;
}

/* Append a character's symbol. *unk: an unknown one is waiting, to be fused with the next. The order in
 * which a waiting one and bytes of fallback come out is Hugging Face's. */
static int put_symbol(const struct bpe *m, struct bpe_work *w, int32_t id, const char *s, size_t n,
                      bool *unk, struct err *err)
{
    bool done = false;

    if (id >= 0) {
        if (*unk) {
            TRY(token_list_put(&w->symbols, m->unk_id, err));
            *unk = false;
        }
        return token_list_put(&w->symbols, id, err);
    }
    TRY(put_fallback(m, w, s, n, &done, err));
    if (done || !m->has_unk) {
        return 0;
    }
    if (m->unk_id < 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "'%s' is not in the vocabulary, and neither is the unk_token '%s'",
                    text_excerpt(s, n).at, text_excerpt(m->unk.at, m->unk.n).at);
    }
    if (*unk && !m->fuse_unk) {
        TRY(token_list_put(&w->symbols, m->unk_id, err));
    }
    *unk = true;
    return 0;
}

/* The token of a character in a model with a prefix or a suffix; the spelling is left in w->word. */
static int affixed_token(const struct bpe *m, struct bpe_work *w, const char *s, size_t n,
                         bool is_first, bool is_last, struct err *err)
{
    w->word.n = 0;
    if (!is_first) {
        TRY(text_put(&w->word, m->prefix.at, m->prefix.n, err));
    }
    TRY(text_put(&w->word, s, n, err));
    if (is_last) {
        TRY(text_put(&w->word, m->suffix.at, m->suffix.n, err));
    }
    return 0;
}

/* The symbols that a word starts as. */
static int split_word(const struct bpe *m, struct bpe_work *w, const char *word, size_t n,
                      struct err *err)
{
    const bool affixed = m->prefix.n > 0 || m->suffix.n > 0;
    bool unk = false;

    w->symbols.count = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        if (m->bytes) {
            char s[4];
            const unsigned char b = (unsigned char)word[i];
            const size_t wide = utf8_write(s, byte_to_char(b));
            TRY(put_symbol(m, w, m->byte_tokens[b], s, wide, &unk, err));
            i++;
            continue;
        }
        const size_t wide = utf8_get(word + i, &c);
        if (affixed) {
            TRY(affixed_token(m, w, word + i, wide, i == 0, i + wide == n, err));
            TRY(put_symbol(m, w, vocab_find(&m->vocab, w->word.at, w->word.n), w->word.at,
                           w->word.n, &unk, err));
        } else {
            TRY(put_symbol(m, w, char_token(m, word + i, wide), word + i, wide, &unk, err));
        }
        i += wide;
    }
    return unk ? token_list_put(&w->symbols, m->unk_id, err) : 0;
}

/* Merge in place by looking for the lowest rank again after each merge. */
static void merge_by_scan(const struct bpe *m, struct token_list *s)
{
    uint32_t ranks[SCAN_MAX];
    int32_t *ids = s->ids;
    size_t n = s->count;

    for (size_t i = 0; i + 1 < n; i++) {
        ranks[i] = pair_rank(m, ids[i], ids[i + 1]);
    }
    for (;;) {
        uint32_t lowest = NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            if (ranks[i] < lowest) {
                lowest = ranks[i];
                at = i;
            }
        }
        if (lowest == NO_RANK) {
            break;
        }
        ids[at] = m->merges[lowest].made;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
        if (at + 1 < n) {
            memmove(ranks + at + 1, ranks + at + 2, (n - at - 2) * sizeof *ranks);
            ranks[at] = pair_rank(m, ids[at], ids[at + 1]);
        }
        if (at > 0) {
            ranks[at - 1] = pair_rank(m, ids[at - 1], ids[at]);
        }
    }
    s->count = n;
}

static void heap_down(uint64_t *heap, size_t n, size_t i)
{
    const uint64_t x = heap[i];

    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child]) {
            child++;
        }
        if (heap[child] >= x) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

static int heap_push(struct bpe_work *w, uint64_t x, struct err *err)
{
    if (w->heap_count == w->heap_room) {
        const size_t room = w->heap_room < 64 ? 64 : w->heap_room + w->heap_room / 2;
        uint64_t *heap = realloc(w->heap, room * sizeof *heap);
        if (heap == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to merge a word of %zu pairs", room);
        }
        w->heap = heap;
        w->heap_room = room;
    }
    size_t i = w->heap_count++;
    while (i > 0 && w->heap[(i - 1) / 2] > x) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = x;
    return 0;
}

static int push_pair(const struct bpe *m, struct bpe_work *w, uint32_t at, struct err *err)
{
    if (at == none || w->list[at].after == none) {
        return 0;
    }
    const uint32_t rank = pair_rank(m, w->list[at].id, w->list[w->list[at].after].id);
    return rank == NO_RANK ? 0 : heap_push(w, (uint64_t)rank << 32 | at, err);
}

static int list_symbols(struct bpe_work *w, struct err *err)
{
    const size_t n = w->symbols.count;

    if (n >= none) {
        return FAIL(err, ERR_NO_MEMORY, "a word of %zu symbols is too long", n);
    }
    if (n > w->list_room) {
        struct symbol *list = realloc(w->list, n * sizeof *list);
        if (list == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to merge a word of %zu symbols", n);
        }
        w->list = list;
        w->list_room = n;
    }
    for (size_t i = 0; i < n; i++) {
        w->list[i] = (struct symbol){.id = w->symbols.ids[i],
                                     .before = i == 0 ? none : (uint32_t)(i - 1),
                                     .after = i + 1 == n ? none : (uint32_t)(i + 1)};
    }
    return 0;
}

/* Merge with a heap of candidates; one that has changed since it was put there is skipped. */
static int merge_by_heap(const struct bpe *m, struct bpe_work *w, struct err *err)
{
    TRY(list_symbols(w, err));
    w->heap_count = 0;
    for (uint32_t i = 0; i + 1 < w->symbols.count; i++) {
        TRY(push_pair(m, w, i, err));
    }
    while (w->heap_count > 0) {
        const uint64_t top = w->heap[0];
        const uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32);
        w->heap[0] = w->heap[--w->heap_count];
        if (w->heap_count > 0) {
            heap_down(w->heap, w->heap_count, 0);
        }
        struct symbol *s = &w->list[at];
        if (s->id == DEAD || s->after == none) {
            continue;
        }
        struct symbol *next = &w->list[s->after];
        const uint32_t now = pair_rank(m, s->id, next->id);
        if (now == NO_RANK || m->merges[now].made != m->merges[rank].made) {
            continue;
        }
        s->id = m->merges[rank].made;
        s->after = next->after;
        next->id = DEAD;
        if (s->after != none) {
            w->list[s->after].before = at;
        }
        TRY(push_pair(m, w, s->before, err));
        TRY(push_pair(m, w, at, err));
    }
    size_t kept = 0;
    for (size_t i = 0; i < w->symbols.count; i++) {
        if (w->list[i].id != DEAD) {
            w->symbols.ids[kept++] = w->list[i].id;
        }
    }
    w->symbols.count = kept;
    return 0;
}

static int put_all(struct token_list *out, const int32_t *ids, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        TRY(token_list_put(out, ids[i], err));
    }
    return 0;
}

/* Append the ids of a word or of a part of one, through the cache. */
static int encode_part(const struct bpe *m, struct bpe_work *w, struct token_list *out,
                       const char *word, size_t n, bool cached, struct err *err)
{
    struct cached *c = NULL;

    if (cached && n <= CACHE_WORD) {
        c = &w->cache[hash_bytes(word, n, 0) & (CACHE_SLOTS - 1)];
        if (c->n == n && memcmp(c->word, word, n) == 0) {
            return put_all(out, c->ids, c->count, err);
        }
    }
    TRY(split_word(m, w, word, n, err));
    if (w->symbols.count <= SCAN_MAX) {
        merge_by_scan(m, &w->symbols);
    } else {
        TRY(merge_by_heap(m, w, err));
    }
    if (c != NULL && w->symbols.count <= CACHE_IDS) {
        c->n = (uint8_t)n;
        c->count = (uint8_t)w->symbols.count;
        memcpy(c->word, word, n);
        if (w->symbols.count > 0) {
            memcpy(c->ids, w->symbols.ids, w->symbols.count * sizeof *c->ids);
        }
    }
    return put_all(out, w->symbols.ids, w->symbols.count, err);
}

/* The token of a whole word where merges do not matter (ignore_merges), else -1. */
static int whole_word(const struct bpe *m, struct bpe_work *w, const char *word, size_t n,
                      int32_t *id, struct err *err)
{
    if (!m->bytes) {
        *id = vocab_find(&m->vocab, word, n);
        return 0;
    }
    TRY(text_reserve(&w->word, 2 * n, err));
    w->word.n = 0;
    for (size_t i = 0; i < n; i++) {
        w->word.n += utf8_write(w->word.at + w->word.n, byte_to_char((unsigned char)word[i]));
    }
    *id = vocab_find(&m->vocab, w->word.at, w->word.n);
    return 0;
}

struct character {
    uint32_t c;
    size_t n;
    bool known; /* it has a token, or its bytes have */
};

static struct character character_at(const struct bpe *m, const char *s)
{
    struct character x = {.c = (unsigned char)s[0], .n = 1};

    if (m->bytes) {
        x.known = m->byte_tokens[x.c] >= 0;
    } else {
        x.n = utf8_get(s, &x.c);
        x.known = m->fallback_all || char_token(m, s, x.n) >= 0;
    }
    return x;
}

/* Encode a long word part by part, cut wherever no merge can reach across. */
static int encode_cut(const struct bpe *m, struct bpe_work *w, struct token_list *out,
                      const char *word, size_t n, bpe_cut *cut, void *context, struct err *err)
{
    struct character left = character_at(m, word);
    size_t start = 0;

    for (size_t i = left.n; i < n;) {
        const struct character right = character_at(m, word + i);
        const uint64_t key = (uint64_t)left.c << 32 | right.c;
        if (left.known && right.known && m->joints[joint_slot(m, key)] != key) {
            TRY(encode_part(m, w, out, word + start, i - start, !m->ignore_merges, err));
            if (cut != NULL) {
                cut(context, i);
            }
            start = i;
        }
        left = right;
        i += right.n;
    }
    return encode_part(m, w, out, word + start, n - start, !m->ignore_merges, err);
}

int bpe_encode(const struct bpe *m, struct bpe_work *w, struct token_list *out, const char *word,
               size_t n, bpe_cut *cut, void *context, struct err *err)
{
    if (m->ignore_merges) {
        int32_t id;
        TRY(whole_word(m, w, word, n, &id, err));
        if (id >= 0) {
            return token_list_put(out, id, err);
        }
    }
    if (n >= CUT_MIN && m->can_cut) {
        return encode_cut(m, w, out, word, n, cut, context, err);
    }
    return encode_part(m, w, out, word, n, true, err);
}
