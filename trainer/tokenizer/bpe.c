/* bpe.c - the tables of a BPE model. */
#include "trainer/tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe_tables.h"

enum { SPLIT_BYTES_MAX = 1024 }; /* of a token that is split in all ways */

/* Bytes that are printable in Latin-1 stand for themselves, the others for 0x100, 0x101 ... in order. */
static bool stands_for_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

uint32_t byte_to_char(unsigned char b)
{
    if (stands_for_itself(b)) {
        return b;
    }
    return 0x100U + (b <= 0x20 ? b : b <= 0xA0 ? b - 0x7FU + 0x21U : 0x43U);
}

int char_to_byte(uint32_t c)
{
    if (c < 0x100) {
        return stands_for_itself(c) ? (int)c : -1;
    }
    if (c > 0x143) {
        return -1;
    }
    c -= 0x100;
    return c <= 0x20 ? (int)c : c <= 0x42 ? (int)(c - 0x21 + 0x7F) : 0xAD;
}

static int add_merge(struct bpe *m, struct bpe_merge merge, struct err *err)
{
    if (m->merge_count == m->merge_room) {
        const size_t room = m->merge_room == 0 ? 1024 : m->merge_room * 2;
        struct bpe_merge *merges = realloc(m->merges, room * sizeof *merges);
        if (merges == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu merges", room);
        }
        m->merges = merges;
        m->merge_room = room;
    }
    m->merges[m->merge_count++] = merge;
    return 0;
}

int bpe_put_merge(struct bpe *m, const char *a, size_t an, const char *b, size_t bn,
                  struct err *err)
{
    const size_t skip = m->prefix.n < bn ? m->prefix.n : bn;
    struct text made = {0};

    const int32_t left = vocab_find(m->vocab, a, an);
    const int32_t right = vocab_find(m->vocab, b, bn);
    if (left < 0 || right < 0) {
        return FAIL(err, ERR_BAD_FILE, "merge %zu uses '%s', which is not in the vocabulary",
                    m->merge_count + 1, left < 0 ? text_excerpt(a, an).at : text_excerpt(b, bn).at);
    }
    int rc = text_put(&made, a, an, err);
    if (rc == 0) {
        rc = text_put(&made, b + skip, bn - skip, err);
    }
    const int32_t id = rc == 0 ? vocab_find(m->vocab, made.at, made.n) : -1;
    if (rc == 0 && id < 0) {
        rc = FAIL(err, ERR_BAD_FILE, "merge %zu makes '%s', which is not in the vocabulary",
                  m->merge_count + 1, text_excerpt(made.at, made.n).at);
    }
    text_free(&made);
    TRY(rc);
    return add_merge(m, (struct bpe_merge){.left = left, .right = right, .made = id}, err);
}

int bpe_put_splits(struct bpe *m, int32_t made, struct err *err)
{
    size_t n;
    const char *s = vocab_token(m->vocab, made, &n);
    uint32_t c;

    if (s != NULL && n > SPLIT_BYTES_MAX) {
        return FAIL(err, ERR_BAD_FILE, "the token '%s' is longer than %d bytes",
                    text_excerpt(s, n).at, SPLIT_BYTES_MAX);
    }
    for (size_t i = s == NULL || n == 0 ? n : utf8_get(s, &c); i < n; i += utf8_get(s + i, &c)) {
        const int32_t left = vocab_find(m->vocab, s, i);
        const int32_t right = left < 0 ? -1 : vocab_find(m->vocab, s + i, n - i);
        if (right >= 0) {
            TRY(add_merge(m, (struct bpe_merge){.left = left, .right = right, .made = made}, err));
        }
    }
    return 0;
}

/* A power of two, at least twice `count`: tables stay half empty. */
static size_t slots_for(size_t count)
{
    size_t slots = 16;
    while (slots < count * 2) {
        slots *= 2;
    }
    return slots;
}

static int find_pairs(struct bpe *m, struct err *err)
{
    m->pair_slots = slots_for(m->merge_count);
    m->pair_keys = malloc(m->pair_slots * sizeof *m->pair_keys);
    m->pair_ranks = malloc(m->pair_slots * sizeof *m->pair_ranks);
    if (m->pair_keys == NULL || m->pair_ranks == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %zu merges", m->merge_count);
    }
    memset(m->pair_keys, 0xFF, m->pair_slots * sizeof *m->pair_keys);
    for (size_t rank = 0; rank < m->merge_count; rank++) {
        /* A pair that is listed twice has its last rank, as in Hugging Face's map. */
        const size_t i = pair_slot(m, pair_key(m->merges[rank].left, m->merges[rank].right));
        m->pair_keys[i] = pair_key(m->merges[rank].left, m->merges[rank].right);
        m->pair_ranks[i] = (uint32_t)rank;
    }
    return 0;
}

/* The first and the last character of a token: in byte-level models the first and last byte. */
static void outer_chars(const struct bpe *m, int32_t id, uint32_t *first, uint32_t *last)
{
    size_t n;
    const char *s = vocab_token(m->vocab, id, &n);

    *first = *last = 0;
    if (n > 0) {
        (void)utf8_get(s, first);
        (void)utf8_get(s + utf8_back(s, n), last);
    }
    if (m->bytes) {
        const int a = char_to_byte(*first), b = char_to_byte(*last);
        *first = a < 0 ? JOINT_NONE : (uint32_t)a;
        *last = b < 0 ? JOINT_NONE : (uint32_t)b;
    }
}

/* Is none of the ids, which are -1 for none, a part of a merge? */
static int merges_avoid(bool *avoid, const struct bpe *m, const int32_t *ids, int count,
                        struct err *err)
{
    bool *listed = calloc((size_t)m->vocab->size + 1, sizeof *listed);

    if (listed == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
    }
    for (int i = 0; i < count; i++) {
        if (ids[i] >= 0) {
            listed[ids[i]] = true;
        }
    }
    for (size_t r = 0; r < m->merge_count; r++) {
        *avoid = *avoid && !listed[m->merges[r].left] && !listed[m->merges[r].right];
    }
    free(listed);
    return 0;
}

/* A word may be cut between two characters that no merge puts side by side. That reasons about characters,
 * so symbols that stand for others (bytes of fallback, unk) must not take part in merges. */
static int find_joints(struct bpe *m, struct err *err)
{
    m->joint_slots = slots_for(m->merge_count);
    m->joints = malloc(m->joint_slots * sizeof *m->joints);
    if (m->joints == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %zu merges", m->merge_count);
    }
    memset(m->joints, 0xFF, m->joint_slots * sizeof *m->joints);
    m->can_cut = m->prefix.n == 0 && m->suffix.n == 0;
    TRY(merges_avoid(&m->can_cut, m, &m->unk_id, 1, err));
    TRY(merges_avoid(&m->can_cut, m, m->fallback, m->byte_fallback ? 256 : 0, err));
    for (size_t r = 0; r < m->merge_count; r++) {
        uint32_t ignored, left, right;
        outer_chars(m, m->merges[r].left, &ignored, &left);
        outer_chars(m, m->merges[r].right, &right, &ignored);
        const uint64_t key = (uint64_t)left << 32 | right;
        m->joints[joint_slot(m, key)] = key;
    }
    return 0;
}

static int find_characters(struct bpe *m, struct err *err)
{
    char s[8];

    m->low_chars = malloc(LOW_CHARS * sizeof *m->low_chars);
    if (m->low_chars == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
    }
    for (uint32_t c = 0; c < LOW_CHARS; c++) {
        m->low_chars[c] = vocab_find(m->vocab, s, utf8_write(s, c));
    }
    for (unsigned b = 0; b < 256; b++) {
        m->byte_tokens[b] = vocab_find(m->vocab, s, utf8_write(s, byte_to_char((unsigned char)b)));
        (void)snprintf(s, sizeof s, "<0x%02X>", b);
        m->fallback[b] = vocab_find(m->vocab, s, 6);
    }
    m->fallback_all = m->byte_fallback;
    for (int b = 0; b < 256; b++) {
        m->fallback_all = m->fallback_all && m->fallback[b] >= 0;
    }
    m->unk_id = m->has_unk ? vocab_find(m->vocab, m->unk.at, m->unk.n) : -1;
    return 0;
}

int bpe_finish(struct bpe *m, bool bytes, struct err *err)
{
    m->bytes = bytes && m->prefix.n == 0 && m->suffix.n == 0 && !m->byte_fallback;
    TRY(find_characters(m, err));
    TRY(find_pairs(m, err));
    return find_joints(m, err);
}

void bpe_free(struct bpe *m)
{
    text_free(&m->unk);
    text_free(&m->prefix);
    text_free(&m->suffix);
    free(m->merges);
    free(m->low_chars);
    free(m->pair_keys);
    free(m->pair_ranks);
    free(m->joints);
    *m = (struct bpe){0};
}
