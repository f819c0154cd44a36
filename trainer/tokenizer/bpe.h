/* bpe.h - the model of a tokenizer: byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909).
 *
 * A word starts as its characters (byte-level models: its bytes) and the pair with the lowest rank is
 * merged, leftmost first, until no pair has a rank. Words up to a few dozen symbols take a plain scan for each
 * merge; longer ones a heap, O(n log n). A long word is first cut where no merge of the table
 * can ever join the two sides, which changes nothing and keeps memory bounded.
 */
#ifndef TRAINER_TOKENIZER_BPE_H
#define TRAINER_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/vocab.h"
#include "trainer/tokenizer/word.h"

struct bpe_merge {
    int32_t left, right, made;
};

/* What the file says; {0} and the vocabulary, then filled by bpe_put_merge, completed by bpe_finish. */
struct bpe {
    const struct vocab *vocab; /* borrowed */
    struct bpe_merge *merges;  /* owned, by rank */
    size_t merge_count, merge_room;
    struct text unk, prefix, suffix; /* unk_token, continuing_subword_prefix, end_of_word_suffix */
    bool has_unk, fuse_unk, byte_fallback, ignore_merges;

    /* Made by bpe_finish. */
    bool bytes;               /* words are raw bytes, not yet in printable form */
    int32_t byte_tokens[256]; /* of a byte of a raw word, else -1           */
    int32_t fallback[256];    /* <0x00> .. <0xFF>, else -1                  */
    int32_t unk_id;           /* -1: none */
    int32_t *low_chars;       /* owned: token of each character below 0x3000, else -1 */
    uint64_t *pair_keys;      /* owned; left << 32 | right, UINT64_MAX is free */
    uint32_t *pair_ranks;     /* owned */
    size_t pair_slots;
    uint64_t *joints; /* owned: pairs of characters that a merge puts side by side */
    size_t joint_slots;
    bool can_cut;      /* the joints tell where words may be cut */
    bool fallback_all; /* byte_fallback, and every byte has a token */
};

/* The printable form of bytes in byte-level vocabularies (GPT-2): byte to character, and back (-1). */
uint32_t byte_to_char(unsigned char b);
int char_to_byte(uint32_t c);

/* Append the merge of tokens a and b. Errors: BAD_FILE when a, b or what they make is no token. */
int bpe_put_merge(struct bpe *m, const char *a, size_t an, const char *b, size_t bn,
                  struct err *err);
/* Append the merges of all pairs of tokens that make this one. Errors: BAD_FILE for a token of more than
 * 1024 bytes, NO_MEMORY. */
int bpe_put_splits(struct bpe *m, int32_t made, struct err *err);
/* Build the tables. `bytes`: the pre-tokenizer ends with ByteLevel. */
int bpe_finish(struct bpe *m, bool bytes, struct err *err);
void bpe_free(struct bpe *m); /* leaves {0} */

/* Scratch memory and the cache of one encoder. */
struct bpe_work;
int bpe_work_new(struct bpe_work **out, struct err *err);
void bpe_work_free(struct bpe_work *w);

/* The ids of a word, n > 0. Errors: BAD_FILE when the vocabulary lacks unk_token; NO_MEMORY. */
int bpe_encode(const struct bpe *m, struct bpe_work *w, const struct word_ids *out,
               const char *word, size_t n, struct err *err);

#endif
