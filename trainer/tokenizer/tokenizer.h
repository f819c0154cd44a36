/* tokenizer.h - text to token ids and back, as a Hugging Face tokenizer.json, a sentencepiece model or a tiktoken
 * file says.
 *
 * Known components (others are refused by name):
 *   normalizer      null, Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, StripAccents, Nmt,
 *                   Precompiled, BertNormalizer, ByteLevel
 *   pre_tokenizer   null, Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit,
 *                   BertPreTokenizer, CharDelimiterSplit
 *   model           BPE: byte-level (GPT-2, Llama 3, Qwen2) or with byte fallback (Llama 2, Mistral);
 *                   Unigram (T5, XLM-RoBERTa); WordLevel
 *   post_processor  null, Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing
 *   decoder         null, Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder
 * `truncation` and `padding` in the file are ignored: lengths are the trainer's business. Ids equal those of
 * the `tokenizers` library for every input.
 *
 * A struct tokenizer never changes after it was opened and may be shared by threads; each thread
 * that encodes has its own struct encoder.
 */
#ifndef TRAINER_TOKENIZER_TOKENIZER_H
#define TRAINER_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

struct tokenizer;
struct encoder;
struct decoder;

/* A growing list of token ids; {0} is the empty one. */
struct token_list {
    int32_t *ids; /* owned */
    size_t count, room;
};

int token_list_put(struct token_list *l, int32_t id, struct err *err); /* NO_MEMORY */
int token_list_append(struct token_list *l, const int32_t *ids, size_t n, struct err *err);
/* Room for n more. */
int token_list_reserve(struct token_list *l, size_t n, struct err *err);
void token_list_free(struct token_list *l); /* leaves {0} */

/* Open PATH: a tokenizer.json, a sentencepiece model, a tiktoken file, or a folder that holds one
 * (tokenizer.json wins; then tokenizer.model, spiece.model, sentencepiece.bpe.model, a name that ends with
 * .tiktoken); what they are is told by how they begin. The ids of BOS, EOS and PAD come from the
 * tokenizer_config.json, special_tokens_map.json, generation_config.json or config.json beside it.
 * The files are read once: what changes on disk later has no effect. Every file is taken as hostile.
 * Errors: NOT_FOUND, IO, NO_MEMORY; BAD_FILE with a sentence that names the fault. */
int tokenizer_open(struct tokenizer **out, const char *path, struct err *err);
/* The same from the content of such a file alone. Nothing is borrowed. */
int tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, struct err *err);
/* Does the folder hold a file that tokenizer_open would read? */
bool tokenizer_there(const char *dir);
void tokenizer_close(struct tokenizer *t);

/* Write the files it was opened from into the folder DIR, which exists; each is synced. A sentencepiece model or
 * tiktoken file is tokenizer.model there. With
 * tokenizer_parse or bpe_train that is tokenizer.json, tokenizer_config.json and
 * special_tokens_map.json. Errors: IO, DISK_FULL. */
int tokenizer_save(const struct tokenizer *t, const char *dir, struct err *err);

/* Ids lie in [0, size): a model's vocabulary must be at least this large. */
int64_t tokenizer_size(const struct tokenizer *t);

/* sha256, in hex, of all that decides which ids a text gets: two tokenizers with one hash agree. */
const char *tokenizer_hash(const struct tokenizer *t);

/* -1 where the files name none. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);
/* Does generation end with this token: EOS or one of generation_config.json's eos_token_id? */
bool tokenizer_stops(const struct tokenizer *t, int32_t id);

/* The token as the file spells it (byte-level tokens in their printable form); NULL for an id that
 * has none. Borrowed, NUL-terminated; *bytes (may be NULL) is its length. */
const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *bytes);
/* -1 for no such token. */
int32_t tokenizer_find(const struct tokenizer *t, const char *token, size_t bytes);
/* Is this one of the special tokens, which decoding can leave out? */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

enum {
    TOKENIZER_ADD_SPECIAL = 1, /* add what the post-processor adds: BOS, EOS                    */
    TOKENIZER_AS_TEXT = 2,     /* text that spells a special token is ordinary text, not parsed */
};

/* An encoder keeps a cache of words: making one costs a few hundred kilobytes. It borrows T. */
int encoder_open(struct encoder **out, const struct tokenizer *t, struct err *err);
void encoder_close(struct encoder *e);

/* Append the ids of TEXT to OUT. Errors: BAD_FILE when the text is not UTF-8 or when it cannot be
 * encoded with this vocabulary or when a pattern of the file exceeds its matching limit; NO_MEMORY.
 * On failure OUT is as before. */
int encoder_encode(struct encoder *e, struct token_list *out, const char *text, size_t bytes,
                   int flags, struct err *err);

struct text_span {
    size_t begin, end; /* bytes */
};

/* {0} is the empty one. */
struct encoded {
    struct token_list ids;
    size_t *ends; /* owned [ids.count]: where in the text the bytes of each id end, rising */
    size_t room;
    int64_t spelled; /* special tokens met inside `plain`, encoded as text */
};

/* The ids of TEXT, as encoder_encode without flags, and where each ends; OUT's old contents are lost, its
 * memory is used again. What spells a special token is ordinary text where it touches a span of
 * `plain` (rising, disjoint). Bytes that a normalizer made end with the character they were made from,
 * a space that it put in front with the first byte behind it; what was taken away (white space beside
 * an added token, say) ends no token but the next. Errors: as encoder_encode; OUT then is empty. */
int encoder_encode_spans(struct encoder *e, struct encoded *out, const char *text, size_t bytes,
                         const struct text_span *plain, size_t plain_count, struct err *err);
void encoded_free(struct encoded *x); /* leaves {0} */

/* Encode a long text piece by piece, with the ids of the whole: appends the ids of a beginning of TEXT
 * that no later text can change and says in *used how long it is; 0 when there is no safe place to
 * cut, then call again with more text. The next call starts at TEXT + *used. `first`: TEXT starts the
 * document; `last`: it ends it, everything is used. */
int encoder_encode_part(struct encoder *e, struct token_list *out, const char *text, size_t bytes,
                        bool first, bool last, size_t *used, struct err *err);

/* The text of ids[0..count); without special tokens if asked. *text is malloc'ed, NUL-terminated, always
 * valid UTF-8 (what is not becomes U+FFFD). Ids without a token are skipped, as Hugging Face does. Errors:
 * NO_MEMORY. */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *bytes, const int32_t *ids,
                     size_t count, bool skip_special, struct err *err);

/* Decode token by token: the pieces put one after the other are tokenizer_decode of all ids, and no
 * piece ends within a character. (One exception: where a run of byte tokens as a whole is not UTF-8,
 * its valid characters stay.) */
int decoder_open(struct decoder **out, const struct tokenizer *t, bool skip_special,
                 struct err *err);
void decoder_close(struct decoder *d);
/* The text that is certain now; borrowed until the next call; NUL-terminated. Errors: NO_MEMORY. */
int decoder_put(struct decoder *d, int32_t id, const char **text, size_t *bytes, struct err *err);
/* What was held back; the decoder then is as new. */
int decoder_end(struct decoder *d, const char **text, size_t *bytes, struct err *err);

enum bpe_pattern {
    BPE_PATTERN_GPT4, /* words, numbers of up to 3 digits, punctuation with line ends; also for Chinese */
    BPE_PATTERN_GPT2,
};

struct bpe_options {
    int64_t vocab_size; /* with the 256 bytes and <|endoftext|>: 257 at least */
    enum bpe_pattern pattern;
    const char *name; /* what messages call the text; its path when NULL */
    /* Called now and then with bytes read and bytes in all; may be NULL. */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* Learn a byte-level BPE from the UTF-8 text file PATH: a function of text and options only. The
 * vocabulary is smaller than asked when the text runs out of pairs that occur twice. The last id is
 * <|endoftext|>, which is BOS, EOS and PAD. Errors: as for data_prepare (data/data.h), NO_MEMORY. */
int bpe_train(struct tokenizer **out, const char *path, const struct bpe_options *o,
              struct err *err);

#endif
