/* added.c - added tokens: found in the text before the model sees it. */
#include "trainer/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct trie_node {
    unsigned char byte;
    int32_t token;           /* -1: no string ends here */
    uint32_t child, sibling; /* 0: none; node 0 is the root */
};

#define CATEGORY(name) (1U << UTF8PROC_CATEGORY_##name)

bool char_is_word(uint32_t c)
{
    const unsigned words = CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT) | CATEGORY(LM) |
                           CATEGORY(LO) | CATEGORY(MN) | CATEGORY(MC) | CATEGORY(ME) |
                           CATEGORY(ND) | CATEGORY(NL) | CATEGORY(PC);

    return (1U << utf8proc_category((utf8proc_int32_t)c) & words) != 0 || c == 0x200C ||
           c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

static int new_node(struct trie *t, unsigned char byte, uint32_t *out, struct err *err)
{
    if (t->count == t->room) {
        const size_t room = t->room == 0 ? 64 : t->room * 2;
        struct trie_node *nodes =
            room > UINT32_MAX ? NULL : realloc(t->nodes, room * sizeof *nodes);
        if (nodes == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for added tokens");
        }
        t->nodes = nodes;
        t->room = room;
    }
    t->nodes[t->count] = (struct trie_node){.byte = byte, .token = -1};
    *out = (uint32_t)t->count++;
    return 0;
}

static uint32_t child_of(const struct trie *t, uint32_t node, unsigned char byte)
{
    uint32_t c = t->nodes[node].child;
    while (c != 0 && t->nodes[c].byte != byte) {
        c = t->nodes[c].sibling;
    }
    return c;
}

int trie_put(struct trie *t, const char *s, size_t n, int32_t token, struct err *err)
{
    uint32_t at;

    if (n > ADDED_BYTES_MAX) {
        return FAIL(err, ERR_BAD_FILE, "the added token '%s' is longer than %d bytes",
                    text_excerpt(s, n).at, ADDED_BYTES_MAX);
    }
    if (t->count == 0) {
        TRY(new_node(t, 0, &at, err));
        t->only = -1;
    }
    at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = child_of(t, at, (unsigned char)s[i]);
        if (next == 0) {
            TRY(new_node(t, (unsigned char)s[i], &next, err));
            t->nodes[next].sibling = t->nodes[at].child;
            t->nodes[at].child = next;
        }
        at = next;
    }
    if (t->nodes[at].token < 0) {
        t->nodes[at].token = token;
    }
    t->longest = n > t->longest ? n : t->longest;
    t->starts[(unsigned char)s[0]] = true;
    t->only = t->nodes[t->nodes[0].child].sibling == 0 ? (unsigned char)s[0] : -1;
    return 0;
}

void trie_free(struct trie *t)
{
    free(t->nodes);
    *t = (struct trie){0};
}

/* The longest string that begins at s, -1 when none does. */
static int32_t longest_at(const struct trie *t, const char *s, size_t n, size_t *length)
{
    int32_t found = -1;
    uint32_t at = 0;

    for (size_t i = 0; i < n; i++) {
        at = child_of(t, at, (unsigned char)s[i]);
        if (at == 0) {
            break;
        }
        if (t->nodes[at].token >= 0) {
            found = t->nodes[at].token;
            *length = i + 1;
        }
    }
    return found;
}

static size_t skip_to_start(const struct trie *t, const char *s, size_t from, size_t n)
{
    if (t->only >= 0) {
        const char *at = from < n ? memchr(s + from, t->only, n - from) : NULL;
        return at == NULL ? n : (size_t)(at - s);
    }
    while (from < n && !t->starts[(unsigned char)s[from]]) {
        from++;
    }
    return from;
}

static bool in_a_word(const char *s, size_t n, size_t start, size_t end)
{
    uint32_t c;

    if (start > 0) {
        (void)utf8_get(s + utf8_back(s, start), &c);
        if (char_is_word(c)) {
            return true;
        }
    }
    if (end < n) {
        (void)utf8_get(s + end, &c);
        return char_is_word(c);
    }
    return false;
}

static size_t spaces_before(const char *s, size_t at, size_t low)
{
    while (at > low) {
        uint32_t c;
        const size_t before = utf8_back(s, at);
        (void)utf8_get(s + before, &c);
        if (before < low || !char_is_space(c)) {
            break;
        }
        at = before;
    }
    return at;
}

static size_t spaces_after(const char *s, size_t n, size_t at)
{
    while (at < n) {
        uint32_t c;
        const size_t wide = utf8_get(s + at, &c);
        if (!char_is_space(c)) {
            break;
        }
        at += wide;
    }
    return at;
}

bool added_next(struct added_search *a, const char *s, size_t n, struct added_match *m)
{
    if (a->trie->count == 0) {
        return false;
    }
    for (;;) {
        size_t length = 0;
        a->from = skip_to_start(a->trie, s, a->from, n);
        if (a->from >= n || a->from >= a->certain) {
            return false;
        }
        const int32_t found = longest_at(a->trie, s + a->from, n - a->from, &length);
        if (found < 0) {
            a->from++;
            continue;
        }
        const struct added_token *t = &a->tokens[found];
        size_t start = a->from, end = a->from + length;
        a->from = end;
        if ((t->special && a->is_text(a->context, start, end)) ||
            (t->single_word && in_a_word(s, n, start, end))) {
            continue;
        }
        if (t->lstrip) {
            start = start > a->covered ? spaces_before(s, start, a->covered) : a->covered;
        }
        if (t->rstrip) {
            end = spaces_after(s, n, end);
        }
        if (start >= end) {
            continue; /* the match before took all of it as white space */
        }
        *m = (struct added_match){.start = start, .end = end, .token = t};
        a->covered = end;
        return true;
    }
}
