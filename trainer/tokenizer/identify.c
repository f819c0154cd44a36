/* identify.c - which ids begin, end and fill a text, and the hash of a tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/sha256.h"
#include "trainer/tokenizer/parts.h"

/* The id of a special token in tokenizer_config.json or special_tokens_map.json: a string, or an object with
 * "content". *none: the file says there is none. */
static int32_t named_token(const struct tokenizer *t, const json_t *config, const char *key,
                           bool *none)
{
    const json_t *v = json_object_get(config, key);

    *none = json_is_null(v);
    v = json_is_object(v) ? json_object_get(v, "content") : v;
    return json_is_string(v) ? tokenizer_find(t, json_string_value(v), json_string_length(v)) : -1;
}

/* The id, or the first of a list of ids, in generation_config.json or config.json. */
static int32_t numbered_token(const struct tokenizer *t, const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    v = json_is_array(v) ? json_array_get(v, 0) : v;
    const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < t->size ? (int32_t)id : -1;
}

static int32_t special_id(const struct tokenizer *t, const struct configs *c, const char *token_key,
                          const char *id_key, int32_t preset)
{
    bool none;
    int32_t id = named_token(t, c->tokenizer, token_key, &none);

    if (id < 0 && !none) {
        id = named_token(t, c->specials, token_key, &none);
    }
    if (id < 0 && !none) {
        id = numbered_token(t, c->generation, id_key);
    }
    if (id < 0 && !none) {
        id = numbered_token(t, c->model, id_key);
    }
    return id < 0 && !none ? preset : id;
}

/* The end of a text by name, where no file names it. */
static int32_t customary_eos(const struct tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int32_t id = tokenizer_find(t, names[i], strlen(names[i]));
        if (id >= 0 && tokenizer_is_special(t, id)) {
            return id;
        }
    }
    return -1;
}

static int find_stops(struct tokenizer *t, const struct configs *c, struct err *err)
{
    const json_t *list = json_object_get(c->generation, "eos_token_id"), *item;
    size_t i;

    if (t->eos >= 0) {
        TRY(token_list_put(&t->stops, t->eos, err));
    }
    if (json_is_integer(list)) {
        const json_int_t id = json_integer_value(list);
        return id >= 0 && id < t->size ? token_list_put(&t->stops, (int32_t)id, err) : 0;
    }
    json_array_foreach(list, i, item)
    {
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id >= 0 && id < t->size) {
            TRY(token_list_put(&t->stops, (int32_t)id, err));
        }
    }
    return 0;
}

/* Of a foreign one also what the configuration made of it; its model is in the file. */
static void hash_foreign(struct sha256 *sha, json_t *root)
{
    json_t *parts = json_copy(root);

    (void)json_object_del(parts, "model");
    char *text = json_dumps(parts, JSON_COMPACT);
    sha256_add(sha, text, text != NULL ? strlen(text) : 0);
    free(text);
    json_decref(parts);
}

static void make_hash(struct tokenizer *t, json_t *foreign)
{
    struct sha256 sha;
    char eos[32];

    const int n = snprintf(eos, sizeof eos, "eos %d", (int)t->eos);
    sha256_begin(&sha);
    if (foreign != NULL) {
        sha256_add(&sha, t->files[TOKENIZER_FILES - 1].content.at,
                   t->files[TOKENIZER_FILES - 1].content.n);
        hash_foreign(&sha, foreign);
    } else {
        sha256_add(&sha, t->files[0].content.at, t->files[0].content.n);
    }
    sha256_add(&sha, eos, (size_t)n);
    sha256_end(&sha, t->hash);
}

int tokenizer_identify(struct tokenizer *t, const struct configs *c, const struct foreign *f,
                       struct err *err)
{
    t->bos = special_id(t, c, "bos_token", "bos_token_id", f->bos);
    t->eos = special_id(t, c, "eos_token", "eos_token_id", f->eos);
    t->pad = special_id(t, c, "pad_token", "pad_token_id", f->pad);
    if (t->eos < 0) {
        t->eos = customary_eos(t);
    }
    make_hash(t, f->root);
    return find_stops(t, c, err);
}
