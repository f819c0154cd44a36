/* bpe_train.c - a byte-level BPE learned from a text, as the files that Hugging Face reads. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe_learn.h"
#include "trainer/tokenizer/parts.h"

static const char end_of_text[] = "<|endoftext|>";

/* GPT-2's and Llama 3's patterns. The second keeps runs of letters, ideographs included, together up to
 * punctuation and line ends and counts digits by threes. */
static const char *const patterns[] = {
    [BPE_PATTERN_GPT4] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [BPE_PATTERN_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                         "\\s+(?!\\S)|\\s+",
};

static json_t *vocab_json(const struct bpe_learned *l)
{
    json_t *vocab = json_object();

    for (int64_t id = 0; id < l->vocab.size; id++) {
        (void)json_object_set_new(vocab, vocab_token(&l->vocab, id, NULL), json_integer(id));
    }
    (void)json_object_set_new(vocab, end_of_text, json_integer(l->vocab.size));
    return vocab;
}

/* "left right": the form that every version of the library reads. */
static json_t *merges_json(const struct bpe_learned *l)
{
    json_t *list = json_array();

    for (size_t i = 0; i < l->count; i++) {
        (void)json_array_append_new(
            list, json_sprintf("%s %s", vocab_token(&l->vocab, l->merges[i].left, NULL),
                               vocab_token(&l->vocab, l->merges[i].right, NULL)));
    }
    return list;
}

static json_t *byte_level(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 0, "use_regex", regex);
}

static json_t *pre_tokenizer(enum bpe_pattern pattern)
{
    if (pattern == BPE_PATTERN_GPT2) {
        return byte_level(true);
    }
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", patterns[pattern], "behavior", "Isolated",
                     "invert", 0, byte_level(false));
}

static json_t *tokenizer_json(const struct bpe_learned *l, enum bpe_pattern pattern)
{
    json_t *added = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                              (json_int_t)l->vocab.size, "content", end_of_text, "single_word", 0,
                              "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                              "dropout", "unk_token", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "ignore_merges", 0, "vocab", vocab_json(l), "merges", merges_json(l));
    return json_pack("{s:s, s:n, s:n, s:[o], s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                     pre_tokenizer(pattern), "post_processor", byte_level(false), "decoder",
                     byte_level(false), "model", model);
}

/* PreTrainedTokenizerFast takes tokenizer.json as it is. */
static json_t *config_json(int64_t end_id)
{
    char id[24];
    (void)snprintf(id, sizeof id, "%lld", (long long)end_id);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:{s:{s:s, s:b, s:b, s:b, s:b, s:b}}}", "tokenizer_class",
        "PreTrainedTokenizerFast", "bos_token", end_of_text, "eos_token", end_of_text, "pad_token",
        end_of_text, "clean_up_tokenization_spaces", 0, "added_tokens_decoder", id, "content",
        end_of_text, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

static json_t *specials_json(void)
{
    return json_pack("{s:s, s:s, s:s}", "bos_token", end_of_text, "eos_token", end_of_text,
                     "pad_token", end_of_text);
}

/* Takes over the reference. */
static int dump(struct text *out, json_t *j, struct err *err)
{
    char *s = j == NULL ? NULL : json_dumps(j, JSON_INDENT(2));
    int rc = s == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory to write a tokenizer") : 0;

    if (rc == 0) {
        rc = text_put(out, s, strlen(s), err);
    }
    if (rc == 0) {
        rc = text_put(out, "\n", 1, err);
    }
    free(s);
    json_decref(j);
    return rc;
}

static int make(struct tokenizer **out, const struct bpe_learned *l, enum bpe_pattern pattern,
                struct err *err)
{
    struct text files[TOKENIZER_FILES] = {{0}};

    int rc = dump(&files[0], tokenizer_json(l, pattern), err);
    if (rc == 0) {
        rc = dump(&files[1], config_json(l->vocab.size), err);
    }
    if (rc == 0) {
        rc = dump(&files[2], specials_json(), err);
    }
    if (rc == 0) {
        rc = tokenizer_make(out, files, err);
    }
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        text_free(&files[i]);
    }
    return rc;
}

int bpe_train(struct tokenizer **out, const char *path, const struct bpe_options *o,
              struct err *err)
{
    struct bpe_words words = {0};
    struct bpe_learned learned = {0};

    *out = NULL;
    if (o->vocab_size < 257 || o->vocab_size > TOKEN_ID_MAX) {
        return FAIL(err, ERR_BAD_SPEC, "a vocabulary of %lld tokens is not in [257, %d]",
                    (long long)o->vocab_size, TOKEN_ID_MAX);
    }
    int rc = bpe_words_read(&words, path, patterns[o->pattern], end_of_text, o, err);
    if (rc == 0 && words.count == 0) {
        rc = FAIL(err, ERR_NO_TOKENS, "%s is empty: there is nothing to learn a tokenizer from",
                  o->name != NULL ? o->name : path);
    }
    if (rc == 0) {
        rc = bpe_learn(&learned, o->vocab_size - 1, &words, err);
    }
    if (rc == 0) {
        rc = make(out, &learned, o->pattern, err);
    }
    bpe_words_free(&words);
    bpe_learned_free(&learned);
    return rc;
}
