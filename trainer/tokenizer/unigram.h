/* unigram.h - the model of a tokenizer: a word becomes the pieces with the highest sum of scores (Kudo 2018,
 * arXiv:1804.10959), found by dynamic programming from left to right.
 *
 * A character that no piece of its own length spells may also be unknown, at a score below all pieces.
 * Unknown characters in a row are one.
 */
#ifndef TRAINER_TOKENIZER_UNIGRAM_H
#define TRAINER_TOKENIZER_UNIGRAM_H

#include "trainer/tokenizer/vocab.h"
#include "trainer/tokenizer/word.h"

/* The pieces as a trie whose edges are in a hash table. */
struct piece_trie {
    uint64_t *keys; /* owned; node << 8 | byte, UINT64_MAX is free */
    uint32_t *to;   /* owned */
    size_t slots;
    int32_t *pieces; /* owned, by node: the piece that ends there, else -1 */
    uint32_t count, room;
    size_t longest; /* bytes */
};

/* What the file says; {0} and the vocabulary, then filled by unigram_put, completed by unigram_finish. */
struct unigram {
    const struct vocab *vocab; /* borrowed */
    double *scores;            /* owned, by id */
    size_t count, room;
    bool has_unk, byte_fallback;
    int32_t unk_id;
    bool any;
    double lowest;         /* of all scores that are not hidden */
    int32_t fallback[256]; /* <0x00> .. <0xFF>, else -1 */
    struct piece_trie trie;
};

/* The next id of the vocabulary has this score; `hidden`: it is never found in a text. Errors: BAD_FILE (too many
 * pieces), NO_MEMORY. */
int unigram_put(struct unigram *u, double score, bool hidden, struct err *err);
void unigram_finish(struct unigram *u);
void unigram_free(struct unigram *u); /* leaves {0} */

/* Scratch memory and the cache of one encoder. */
struct unigram_work;
int unigram_work_new(struct unigram_work **out, struct err *err);
void unigram_work_free(struct unigram_work *w);

/* The ids of a word, n > 0. Errors: BAD_FILE for an unknown character in a model without unk_id; NO_MEMORY. */
int unigram_encode(const struct unigram *u, struct unigram_work *w, const struct word_ids *out,
                   const char *word, size_t n, struct err *err);

#endif
