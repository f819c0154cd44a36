/* parts.h - what a tokenizer consists of, for the files of trainer/tokenizer only. */
#ifndef TRAINER_TOKENIZER_PARTS_H
#define TRAINER_TOKENIZER_PARTS_H

#include <jansson.h>

#include "trainer/tokenizer/added.h"
#include "trainer/tokenizer/foreign.h"
#include "trainer/tokenizer/steps.h"
#include "trainer/tokenizer/token_model.h"
#include "trainer/tokenizer/tokenizer.h"

enum unmake_kind {
    UNMAKE_BYTES,    /* ByteLevel: printable characters to bytes, all tokens as one text */
    UNMAKE_REPLACE,  /* the pattern by `with`                                          */
    UNMAKE_FALLBACK, /* runs of <0xNN> to the characters that the bytes spell           */
    UNMAKE_FUSE,     /* all tokens as one text                                         */
    UNMAKE_STRIP,    /* up to start, stop characters `with` off the ends               */
    UNMAKE_SUFFIX,   /* the text `literal` by a space, in the last token by nothing      */
    UNMAKE_METASPACE, /* the character `literal` by a space; in the first token by nothing if `first` */
};

/* A step of decoding. */
struct unmake {
    enum unmake_kind kind;
    struct step pattern; /* owned; regex or literal, and with */
    int64_t start, stop;
    bool first;
};

enum { UNMAKES_MAX = 16 };

/* A file beside tokenizer.json that is kept to be saved again. */
struct tokenizer_file {
    const char *name;
    struct text content; /* owned */
    bool present;
};

enum { TOKENIZER_FILES = 8 };

struct tokenizer {
    struct step_list normal, split; /* normalizer, pre-tokenizer */
    size_t first_split; /* index in split of the first that splits; count when none does */
    bool can_cut;       /* every step keeps seams */
    struct token_model model;

    struct vocab added;         /* content and id of added tokens */
    struct added_token *tokens; /* owned */
    size_t token_count, token_room;
    uint32_t *token_order; /* owned; indices of tokens by rising id */
    struct text shown;
    struct trie raw, normalized; /* into tokens */
    bool any_lstrip, any_single_word;

    struct token_list before, after; /* what the post-processor puts around a text */

    struct unmake unmakes[UNMAKES_MAX];
    size_t unmake_count;
    bool joined_by_space; /* no decoder: Hugging Face joins tokens with spaces */

    int32_t bos, eos, pad;
    struct token_list stops;
    int64_t size;
    char hash[65];
    struct tokenizer_file
        files[TOKENIZER_FILES]; /* [0] is tokenizer.json; without it the last is what the
                                                   * tokenizer is (foreign.h) */
};

/* Configurations beside tokenizer.json, in the order in which they are asked. */
struct configs {
    json_t *tokenizer, *specials, *generation, *model; /* owned; NULL: no such file */
};

/* Find the special ids and make the hash. f: what a foreign file says, {NULL, -1, -1, -1} without one. Errors:
 * NO_MEMORY. */
int tokenizer_identify(struct tokenizer *t, const struct configs *c, const struct foreign *f,
                       struct err *err);

/* A place where a text was cut: the ids before it are those of the text before it, whatever follows, and
 * those of what follows do not depend on what is before. */
struct cut {
    size_t at;  /* in the text */
    size_t ids; /* how many are out by then */
};

struct cut_list {
    struct cut *at; /* owned */
    size_t count, room;
};

struct text_part {
    const char *text;
    size_t n;
    bool first, last;
};

/* encoder_encode_part, which also appends the cuts that it came by to `cuts` unless that is NULL: near the end
 * of the part all there are, elsewhere some. */
int encoder_encode_cuts(struct encoder *e, struct token_list *out, const struct text_part *part,
                        size_t *used, struct cut_list *cuts, struct err *err);

/* The properties of an added token; NULL for an id that is none. */
const struct added_token *tokenizer_added(const struct tokenizer *t, int32_t id);

/* Fill t from the text of a tokenizer.json (load.c). */
int tokenizer_load(struct tokenizer *t, const char *json, size_t bytes, struct err *err);

/* The same from what such a text holds. */
int tokenizer_load_json(struct tokenizer *t, const json_t *root, struct err *err);

/* A tokenizer from the contents of its files; those that are empty are missing. */
int tokenizer_make(struct tokenizer **out, const struct text files[TOKENIZER_FILES],
                   struct err *err);

#endif
