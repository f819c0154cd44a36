/* bpe_words.h - the words of a text and how often each occurs, for learning a BPE. */
#ifndef TRAINER_TOKENIZER_BPE_WORDS_H
#define TRAINER_TOKENIZER_BPE_WORDS_H

#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

struct word_place {
    size_t at, n; /* in the pool */
    int64_t times;
};

/* {0} is the empty set. Words are in the order in which they first occur. */
struct bpe_words {
    struct word_place *words; /* in places */
    size_t count, room;
    uint32_t *slots; /* open addressing, index + 1, 0 is free */
    size_t slot_count;
    struct text places, table; /* the memory of words and slots */
    uint64_t seed;
    struct text pool;
};

/* Split the text file with a pattern and count. Text that spells `special` separates and is no word. Errors: as
 * text_file_more, NO_MEMORY. */
int bpe_words_read(struct bpe_words *w, const char *path, const char *pattern, const char *special,
                   const struct bpe_options *o, struct err *err);
void bpe_words_free(struct bpe_words *w); /* leaves {0} */

#endif
