/* data.h - a file as training samples: tokenised once into a mapped file, cut into sets and samples,
 * ordered by a function of (seed, consumed samples) alone.
 *
 *   text file --data_prepare--> token file --data_split--> training set, validation set --data_batch--> rows
 *   examples  ------------------> token file --pack_split, pack_make--> the same (data/pack.h)
 *
 * Sample i of a text covers tokens [i S, i S + S + 1): S inputs, labels shifted by one; neighbours share
 * one token. The last sample may be short: its tail has ids 0 and labels -100. A sample of examples is a row
 * of whole examples that do not see each other.
 */
#ifndef TRAINER_DATA_DATA_H
#define TRAINER_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/tokenizer/tokenizer.h"

struct token_file;
struct pack;

/* Bytes of text done and in all; called a few times a second at most. */
typedef void data_progress(void *context, uint64_t done, uint64_t total);

struct data_source {
    const char *path;        /* a UTF-8 text                                                   */
    const char *name;        /* what messages call it; path when NULL                          */
    const char *cache_dir;   /* where token files live; made when missing                      */
    enum err_code blame;     /* ERR_BAD_TRAINING_FILE or ERR_BAD_VALIDATION_FILE               */
    data_progress *progress; /* may be NULL                                                    */
    void *context;
};

/* Make, or find in the cache, the token file of a text. Its name is a function of the text's sha256 and
 * the tokenizer's hash, so a second job with both reuses it. It is written aside, synced and renamed: jobs
 * may run at once. Memory stays bounded whatever the size of the text, unless the tokenizer's patterns forbid to cut it (they
 * look behind, or there are none and no merge table to reason with). A byte order mark at the start is dropped;
 * all else, line ends included, is kept. Text that spells a special token is that token. The EOS
 * token, where the tokenizer has one, follows the text and each EOS ends a document.
 * Errors: blame, with line and byte of what is not UTF-8, or naming UTF-16, gzip, a NUL byte ...; NO_TOKENS for fewer than 2 tokens; NOT_FOUND,
 * IO, DISK_FULL, NO_MEMORY. */
int data_prepare(struct token_file **out, const struct data_source *s, const struct tokenizer *t,
                 struct err *err);

/* Open a token file by itself; its header and length are checked. Errors: NOT_FOUND, IO, BAD_FILE. */
int token_file_open(struct token_file **out, const char *path, struct err *err);
void token_file_close(struct token_file *f);

int64_t token_file_count(const struct token_file *f);     /* tokens                             */
int64_t token_file_documents(const struct token_file *f); /* at least 1                         */
uint64_t token_file_text_bytes(const struct token_file *f);
int32_t token_file_at(const struct token_file *f, int64_t i);
bool token_file_trained(const struct token_file *f, int64_t i); /* is it a target? */

int64_t token_file_targets(const struct token_file *f); /* how many are   */

enum token_file_kind { TOKEN_FILE_TEXT, TOKEN_FILE_EXAMPLES };
enum token_file_kind token_file_kind(const struct token_file *f);

/* What the maker of the file left: JSON that nobody has checked, not terminated; 0 bytes for none. */
const char *token_file_report(const struct token_file *f, size_t *bytes);

const char *token_file_path(const struct token_file *f);

/* A range of a text, or rows of examples, read as samples; a plain value that borrows the file. */
struct data_set {
    const struct token_file *file;
    int64_t begin, end;      /* tokens; of examples only their number counts                      */
    int64_t S;               /* tokens in a sample                                                */
    uint64_t seed;           /* of the order                                                      */
    bool apart;              /* a token sees its own document only (first); else all before it    */
    const struct pack *rows; /* borrowed; NULL for a text                                         */
};

/* Samples in the set: ceil((tokens - 1) / S) of a text, rows of examples; 0 for an empty set. */
int64_t data_samples(const struct data_set *s);

/* Hold out the last `fraction` of the tokens, rounded to whole samples, at least one when fraction > 0 and
 * the text has two; fraction 0 gives an empty validation set (begin = end). The sets share no
 * token. Errors: NO_TOKENS when training would be left without a sample. */
int data_split(struct data_set *training, struct data_set *validation, const struct token_file *f,
               double fraction, int64_t S, uint64_t seed, struct err *err);

/* Where a batch goes: arrays of count * S, all owned by the caller. */
struct data_rows {
    int32_t *ids;
    int32_t *labels;    /* -100: not trained                                                     */
    int32_t *positions; /* 0 .. S-1; of examples counted within each                             */
    int32_t *first;     /* position of the first token that this one may see                    */
};

/* Which sample training meets at place `consumed` (from 0): epoch consumed / n, shuffled anew in every
 * epoch, each sample once. Rows of one length each come in groups (data/pack.h): a group begins where
 * `consumed` is a multiple of its size; the shortest rows begin an epoch that does not begin with a group, the longest
 * end it. */
int64_t data_order(const struct data_set *s, int64_t consumed);

/* Rows consumed .. consumed + count - 1 in training order; rows at or beyond `total` (samples of the whole
 * training) are fully masked. Returns the number of trained labels. */
int64_t data_batch(const struct data_set *s, const struct data_rows *rows, int64_t consumed,
                   int64_t count, int64_t total);

/* Rows of samples index .. index + count - 1 in the order of the text, for evaluation; rows at or
 * beyond data_samples(s) are fully masked. Returns the number of trained labels. */
int64_t data_batch_in_order(const struct data_set *s, const struct data_rows *rows, int64_t index,
                            int64_t count);

/* data_batch ahead of time by `workers` threads; any number gives the same rows, 0 works in the calling
 * thread. All memory is taken at open. */
struct data_reader;

struct ramp;
struct data_reader_options {
    int64_t consumed;        /* of the first batch                            */
    int64_t count;           /* rows of a batch, of the largest with `ramp`   */
    const struct ramp *ramp; /* how many rows each has (trainer/ramp.h), copied; NULL: `count` */
    int64_t total;           /* samples of the whole training */
    int workers;
};

/* Bytes that data_reader_open allocates for rows: 4 arrays of count * S i32 for each of workers + 2 batches
 * (1 batch for 0 workers). */
size_t data_reader_bytes(const struct data_set *s, const struct data_reader_options *o);

int data_reader_open(struct data_reader **out, const struct data_set *s,
                     const struct data_reader_options *o, struct err *err);
/* The next batch, in order; *rows is valid until the next call. Returns the number of trained labels. */
int64_t data_reader_next(struct data_reader *r, const struct data_rows **rows);
void data_reader_close(struct data_reader *r);

#endif
