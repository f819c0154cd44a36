/* load_model.c - the model of a tokenizer.json: its vocabulary and what goes with it. */
#include <string.h>

#include "trainer/tokenizer/load_steps.h"

static int load_optional_string(const json_t *object, const char *key, struct text *out,
                                bool *given, struct err *err)
{
    const json_t *v = json_object_get(object, key);

    *given = v != NULL && !json_is_null(v);
    if (!*given) {
        return 0;
    }
    if (!json_is_string(v)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: '%s' is not a string", key);
    }
    return text_put(out, json_string_value(v), json_string_length(v), err);
}

static int load_vocab(struct vocab *v, json_t *vocab, struct err *err)
{
    const char *token;
    json_t *id, *item;
    size_t i;

    json_array_foreach(vocab, i, item)
    {
        if (json_is_string(item)) {
            TRY(vocab_put(v, json_string_value(item), json_string_length(item), (int64_t)i, err));
        }
    }
    if (!json_is_object(vocab) && !json_is_array(vocab)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the model has no object 'vocab'");
    }
    json_object_foreach(vocab, token, id)
    {
        if (!json_is_integer(id)) {
            return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the id of token '%s' is not an integer",
                        text_excerpt(token, strlen(token)).at);
        }
        TRY(vocab_put(v, token, strlen(token), json_integer_value(id), err));
    }
    return 0;
}

static int load_merge(struct bpe *m, const json_t *merge, size_t i, struct err *err)
{
    if (json_is_string(merge)) {
        const char *s = json_string_value(merge);
        const size_t n = json_string_length(merge);
        const char *space = memchr(s, ' ', n);
        if (n >= 8 && memcmp(s, "#version", 8) == 0) {
            return 0;
        }
        if (space != NULL && memchr(space + 1, ' ', n - (size_t)(space - s) - 1) == NULL) {
            return bpe_put_merge(m, s, (size_t)(space - s), space + 1, n - (size_t)(space - s) - 1,
                                 err);
        }
    } else if (json_array_size(merge) == 2) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (json_is_string(a) && json_is_string(b)) {
            return bpe_put_merge(m, json_string_value(a), json_string_length(a),
                                 json_string_value(b), json_string_length(b), err);
        }
    }
    return FAIL(err, ERR_BAD_FILE, "tokenizer.json: merge %zu is not a pair of tokens", i + 1);
}

/* The ids of what is merged, the first one first (foreign.h). */
static int load_order(struct bpe *m, const json_t *order, struct err *err)
{
    const json_t *id;
    size_t i;

    if (json_array_size(order) > (size_t)m->vocab->size) {
        return FAIL(err, ERR_BAD_FILE,
                    "tokenizer.json: 'merge_order' has more tokens than 'vocab'");
    }
    json_array_foreach(order, i, id)
    {
        TRY(bpe_put_splits(m, (int32_t)json_integer_value(id), err));
    }
    return 0;
}

static int load_bpe(struct token_model *model, const json_t *object, struct err *err)
{
    const json_t *merges = json_object_get(object, "merges"), *merge,
                 *order = json_object_get(object, "merge_order");
    struct bpe *m = &model->bpe;
    bool given;
    size_t i;

    if (json_number_value(json_object_get(object, "dropout")) != 0.0) {
        return load_unknown("model option", "dropout", err);
    }
    m->vocab = &model->vocab;
    TRY(load_optional_string(object, "unk_token", &m->unk, &m->has_unk, err));
    TRY(load_optional_string(object, "continuing_subword_prefix", &m->prefix, &given, err));
    TRY(load_optional_string(object, "end_of_word_suffix", &m->suffix, &given, err));
    TRY(load_flag(object, "fuse_unk", false, &m->fuse_unk, err));
    TRY(load_flag(object, "byte_fallback", false, &m->byte_fallback, err));
    TRY(load_flag(object, "ignore_merges", false, &m->ignore_merges, err));
    TRY(load_vocab(&model->vocab, json_object_get(object, "vocab"), err));
    if (order != NULL) {
        return load_order(m, order, err);
    }
    if (!json_is_array(merges)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the model has no list 'merges'");
    }
    json_array_foreach(merges, i, merge)
    {
        TRY(load_merge(m, merge, i, err));
    }
    return 0;
}

/* A list of pairs: piece and score; a score of null hides the piece from texts. */
static int load_pieces(struct token_model *model, const json_t *list, struct err *err)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(list)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the model has no list 'vocab'");
    }
    json_array_foreach(list, i, item)
    {
        const json_t *piece = json_array_get(item, 0), *score = json_array_get(item, 1);
        if (!json_is_string(piece) || (!json_is_number(score) && !json_is_null(score))) {
            return FAIL(err, ERR_BAD_FILE,
                        "tokenizer.json: piece %zu is not a pair of a piece and its score", i + 1);
        }
        TRY(vocab_put(&model->vocab, json_string_value(piece), json_string_length(piece),
                      (int64_t)i, err));
        TRY(unigram_put(&model->unigram, json_number_value(score), json_is_null(score), err));
    }
    return 0;
}

static int load_unigram(struct token_model *model, const json_t *object, struct err *err)
{
    const json_t *unk = json_object_get(object, "unk_id");
    struct unigram *m = &model->unigram;

    model->kind = TOKENS_UNIGRAM;
    m->vocab = &model->vocab;
    TRY(load_pieces(model, json_object_get(object, "vocab"), err));
    TRY(load_flag(object, "byte_fallback", false, &m->byte_fallback, err));
    m->has_unk = unk != NULL && !json_is_null(unk);
    if (m->has_unk && (!json_is_integer(unk) || json_integer_value(unk) < 0 ||
                       json_integer_value(unk) >= model->vocab.size)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: 'unk_id' is not the id of a piece");
    }
    m->unk_id = (int32_t)json_integer_value(unk);
    unigram_finish(m);
    return 0;
}

static int load_words(struct token_model *model, const json_t *object, struct err *err)
{
    bool given;

    model->kind = TOKENS_WORDS;
    TRY(load_optional_string(object, "unk_token", &model->unknown, &given, err));
    return load_vocab(&model->vocab, json_object_get(object, "vocab"), err);
}

int load_model(struct token_model *m, const json_t *object, struct err *err)
{
    const json_t *type = json_object_get(object, "type");
    const char *name = "BPE";

    if (!json_is_object(object)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json has no object 'model'");
    }
    if (type != NULL) {
        name = json_is_string(type) ? json_string_value(type) : "?";
    } else if (json_is_array(json_object_get(object, "vocab"))) {
        name = "Unigram"; /* as old files have it, without a type */
    }
    if (strcmp(name, "BPE") == 0) {
        return load_bpe(m, object, err);
    }
    if (strcmp(name, "Unigram") == 0) {
        return load_unigram(m, object, err);
    }
    if (strcmp(name, "WordLevel") == 0) {
        return load_words(m, object, err);
    }
    return load_unknown("model", name, err);
}
