/* bpe_encode.c - words to ids with a BPE model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe_tables.h"

enum {
    SCAN_MAX = 48, /* symbols up to which the plain scan beats the heap */
    CUT_MIN = 128, /* bytes of a word from which cutting it pays */
    DEAD = -1,     /* id of a symbol that was merged into the one before */
};

/* A symbol of a long word; a list through indices. */
struct node {
    struct symbol s;
    uint32_t before, after; /* NONE at the ends */
};

static const uint32_t none = UINT32_MAX;

struct bpe_work {
    struct word_cache *cache;   /* owned, likewise the others */
    struct symbol_list symbols; /* of the word at hand */
    struct node *list;
    size_t list_room;
    uint64_t *heap; /* rank << 32 | position: the smallest is the next merge */
    size_t heap_count, heap_room;
    struct text word; /* printable form, or a character with prefix or suffix */
};

int bpe_work_new(struct bpe_work **out, struct err *err)
{
    struct bpe_work *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    const int rc = word_cache_new(&w->cache, err);
    if (rc != 0) {
        bpe_work_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void bpe_work_free(struct bpe_work *w)
{
    if (w != NULL) {
        word_cache_free(w->cache);
        free(w->list);
        free(w->heap);
        symbol_list_free(&w->symbols);
        text_free(&w->word);
        free(w);
    }
}

static int32_t char_token(const struct bpe *m, const char *s, size_t n)
{
    uint32_t c;

    (void)utf8_get(s, &c);
    return c < LOW_CHARS ? m->low_chars[c] : vocab_find(m->vocab, s, n);
}

/* A character of a word, or a byte, on its way to become symbols. */
struct spelled {
    const char *s;
    size_t n;   /* of the spelling, which may be longer than */
    size_t end; /* what it ends at in the word               */
};

/* Unknown characters wait to be fused with the next. */
struct waiting {
    bool unk;
    size_t end;
};

/* The symbols of bytes that stand for a character without a token; none when a byte has none. */
static int put_fallback(const struct bpe *m, struct bpe_work *w, struct spelled c, bool *done,
                        struct err *err)
{
    *done = false;
    for (size_t i = 0; i < c.n; i++) {
        if (!m->byte_fallback || m->fallback[(unsigned char)c.s[i]] < 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < c.n; i++) {
        const size_t left = c.n - i - 1, end = c.end > left ? c.end - left : 0;
        TRY(symbol_list_put(&w->symbols, m->fallback[(unsigned char)c.s[i]], end, err));
    }
    *done = true;
    return 0;
}

/* Append a character's symbol. The order in which a waiting unknown one and bytes of fallback come out
 * is Hugging Face's. */
static int put_symbol(const struct bpe *m, struct bpe_work *w, int32_t id, struct spelled c,
                      struct waiting *wait, struct err *err)
{
    bool done = false;

    if (id >= 0) {
        if (wait->unk) {
            TRY(symbol_list_put(&w->symbols, m->unk_id, wait->end, err));
            wait->unk = false;
        }
        return symbol_list_put(&w->symbols, id, c.end, err);
    }
    TRY(put_fallback(m, w, c, &done, err));
    if (done || !m->has_unk) {
        return 0;
    }
    if (m->unk_id < 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "'%s' is not in the vocabulary, and neither is the unk_token '%s'",
                    text_excerpt(c.s, c.n).at, text_excerpt(m->unk.at, m->unk.n).at);
    }
    if (wait->unk && !m->fuse_unk) {
        TRY(symbol_list_put(&w->symbols, m->unk_id, wait->end, err));
    }
    *wait = (struct waiting){.unk = true, .end = c.end};
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
    struct waiting wait = {0};

    if (n > UINT32_MAX) {
        return FAIL(err, ERR_NO_MEMORY, "a word of %zu bytes is too long", n);
    }
    w->symbols.count = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        if (m->bytes) {
            char s[4];
            const unsigned char b = (unsigned char)word[i];
            const struct spelled one = {.s = s, .n = utf8_write(s, byte_to_char(b)), .end = ++i};
            TRY(put_symbol(m, w, m->byte_tokens[b], one, &wait, err));
            continue;
        }
        const size_t wide = utf8_get(word + i, &c);
        struct spelled one = {.s = word + i, .n = wide, .end = i + wide};
        if (affixed) {
            TRY(affixed_token(m, w, word + i, wide, i == 0, i + wide == n, err));
            one.s = w->word.at;
            one.n = w->word.n;
        }
        const int32_t id =
            affixed ? vocab_find(m->vocab, one.s, one.n) : char_token(m, one.s, one.n);
        TRY(put_symbol(m, w, id, one, &wait, err));
        i += wide;
    }
    return wait.unk ? symbol_list_put(&w->symbols, m->unk_id, wait.end, err) : 0;
}

/* Merge in place by looking for the lowest rank again after each merge. */
static void merge_by_scan(const struct bpe *m, struct symbol_list *l)
{
    uint32_t ranks[SCAN_MAX];
    struct symbol *s = l->at;
    size_t n = l->count;

    for (size_t i = 0; i + 1 < n; i++) {
        ranks[i] = pair_rank(m, s[i].id, s[i + 1].id);
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
        s[at] = (struct symbol){.id = m->merges[lowest].made, .end = s[at + 1].end};
        n--;
        memmove(s + at + 1, s + at + 2, (n - at - 1) * sizeof *s);
        if (at + 1 < n) {
            memmove(ranks + at + 1, ranks + at + 2, (n - at - 2) * sizeof *ranks);
            ranks[at] = pair_rank(m, s[at].id, s[at + 1].id);
        }
        if (at > 0) {
            ranks[at - 1] = pair_rank(m, s[at - 1].id, s[at].id);
        }
    }
    l->count = n;
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
    const uint32_t rank = pair_rank(m, w->list[at].s.id, w->list[w->list[at].after].s.id);
    return rank == NO_RANK ? 0 : heap_push(w, (uint64_t)rank << 32 | at, err);
}

static int list_symbols(struct bpe_work *w, struct err *err)
{
    const size_t n = w->symbols.count;

    if (n >= none) {
        return FAIL(err, ERR_NO_MEMORY, "a word of %zu symbols is too long", n);
    }
    if (n > w->list_room) {
        struct node *list = realloc(w->list, n * sizeof *list);
        if (list == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to merge a word of %zu symbols", n);
        }
        w->list = list;
        w->list_room = n;
    }
    for (size_t i = 0; i < n; i++) {
        w->list[i] = (struct node){.s = w->symbols.at[i],
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
        struct node *left = &w->list[at];
        if (left->s.id == DEAD || left->after == none) {
            continue;
        }
        struct node *right = &w->list[left->after];
        const uint32_t now = pair_rank(m, left->s.id, right->s.id);
        if (now == NO_RANK || m->merges[now].made != m->merges[rank].made) {
            continue;
        }
        left->s = (struct symbol){.id = m->merges[rank].made, .end = right->s.end};
        left->after = right->after;
        right->s.id = DEAD;
        if (left->after != none) {
            w->list[left->after].before = at;
        }
        TRY(push_pair(m, w, left->before, err));
        TRY(push_pair(m, w, at, err));
    }
    size_t kept = 0;
    for (size_t i = 0; i < w->symbols.count; i++) {
        if (w->list[i].s.id != DEAD) {
            w->symbols.at[kept++] = w->list[i].s;
        }
    }
    w->symbols.count = kept;
    return 0;
}

/* The ids of a word, or of a part of one that starts at `start`, through the cache. */
static int encode_part(const struct bpe *m, struct bpe_work *w, const struct word_ids *out,
                       const char *word, size_t start, size_t n, struct err *err)
{
    struct cached *c = word_cache_at(w->cache, word, n);

    if (c != NULL && cached_is(c, word, n)) {
        return cached_give(c, out, start, err);
    }
    TRY(split_word(m, w, word, n, err));
    if (w->symbols.count <= SCAN_MAX) {
        merge_by_scan(m, &w->symbols);
    } else {
        TRY(merge_by_heap(m, w, err));
    }
    if (c != NULL) {
        cached_keep(c, word, n, &w->symbols);
    }
    for (size_t i = 0; i < w->symbols.count; i++) {
        TRY(word_put(out, w->symbols.at[i].id, start + w->symbols.at[i].end, err));
    }
    return 0;
}

/* The token of a whole word where merges do not matter (ignore_merges), else -1. */
static int whole_word(const struct bpe *m, struct bpe_work *w, const char *word, size_t n,
                      int32_t *id, struct err *err)
{
    if (!m->bytes) {
        *id = vocab_find(m->vocab, word, n);
        return 0;
    }
    TRY(text_reserve(&w->word, 2 * n, err));
    w->word.n = 0;
    for (size_t i = 0; i < n; i++) {
        w->word.n += utf8_write(w->word.at + w->word.n, byte_to_char((unsigned char)word[i]));
    }
    *id = vocab_find(m->vocab, w->word.at, w->word.n);
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
static int encode_cut(const struct bpe *m, struct bpe_work *w, const struct word_ids *out,
                      const char *word, size_t n, struct err *err)
{
    struct character left = character_at(m, word);
    size_t start = 0;

    for (size_t i = left.n; i < n;) {
        const struct character right = character_at(m, word + i);
        const uint64_t key = (uint64_t)left.c << 32 | right.c;
        if (left.known && right.known && m->joints[joint_slot(m, key)] != key) {
            TRY(encode_part(m, w, out, word + start, start, i - start, err));
            if (out->cut != NULL) {
                out->cut(out->context, i);
            }
            start = i;
        }
        left = right;
        i += right.n;
    }
    return encode_part(m, w, out, word + start, start, n - start, err);
}

int bpe_encode(const struct bpe *m, struct bpe_work *w, const struct word_ids *out,
               const char *word, size_t n, struct err *err)
{
    if (m->ignore_merges) {
        int32_t id;
        TRY(whole_word(m, w, word, n, &id, err));
        if (id >= 0) {
            return word_put(out, id, n, err);
        }
    }
    if (n >= CUT_MIN && m->can_cut) {
        return encode_cut(m, w, out, word, n, err);
    }
    return encode_part(m, w, out, word, 0, n, err);
}
