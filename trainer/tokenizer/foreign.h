/* foreign.h - tokenizers that are no tokenizer.json, turned into the JSON of one, for trainer/tokenizer only.
 *
 * Beyond what such a file says, the JSON uses: "vocab" of a BPE as a list of tokens by id (null for none);
 * "merge_order", ids by falling precedence, in place of "merges": all pairs of tokens that make the first one,
 * then those of the second, and so on; a score of null in a Unigram model, for a piece that
 * no text has; "longest" of a Precompiled normalizer.
 */
#ifndef TRAINER_TOKENIZER_FOREIGN_H
#define TRAINER_TOKENIZER_FOREIGN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* A tokenizer as JSON. */
struct foreign {
    json_t *root;          /* owned */
    int32_t bos, eos, pad; /* as the file has them, -1 for none */
};

/* What is in a file, by how it begins. What is none of the others is taken for JSON. */
enum foreign_kind { FOREIGN_JSON, FOREIGN_TIKTOKEN, FOREIGN_SENTENCEPIECE };
enum foreign_kind foreign_kind(const char *bytes, size_t n);

/* A sentencepiece model (sentencepiece_model.proto), unigram or BPE. config: tokenizer_config.json, or NULL.
 * Errors: BAD_FILE, NO_MEMORY. */
int sentencepiece_read(struct foreign *out, const char *bytes, size_t n, const json_t *config,
                       struct err *err);
/* Lines of a token in base64 and its rank. The pattern and the special tokens are those of the known vocabulary
 * with as many tokens; config may say others. Errors as above. */
int tiktoken_read(struct foreign *out, const char *bytes, size_t n, const json_t *config,
                  struct err *err);

/* Put an added token that is found in text as it is given into an object that has them by id. */
void foreign_put_token(json_t *tokens, int64_t id, const char *content, size_t n, bool special);
/* The list of them, with those of config's "added_tokens_decoder", which win. Takes `tokens`. */
json_t *foreign_tokens(json_t *tokens, const json_t *config);
/* A flag of config, `preset` where it says nothing. */
bool foreign_flag(const json_t *config, const char *key, bool preset);
/* The post-processor that puts `before` and `after`, ids or -1, around a text. */
json_t *foreign_template(int32_t before, int32_t after);

#endif
