/* load.c - tokenizer.json to the parts of a tokenizer. The file is hostile: every type is checked. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/load_steps.h"

enum { SEQUENCES_MAX = 16 }; /* nesting of Sequence */

int load_string(const json_t *object, const char *key, const char **s, size_t *n, struct err *err)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_string(v)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: '%s' is not a string", key);
    }
    *s = json_string_value(v);
    *n = json_string_length(v);
    return 0;
}

int load_flag(const json_t *object, const char *key, bool preset, bool *out, struct err *err)
{
    const json_t *v = json_object_get(object, key);

    if (v == NULL || json_is_null(v)) {
        *out = preset;
        return 0;
    }
    if (!json_is_boolean(v)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: '%s' is not true or false", key);
    }
    *out = json_is_true(v);
    return 0;
}

int load_type(const json_t *component, const char *role, const char **type, struct err *err)
{
    if (!json_is_object(component)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: a %s is not an object", role);
    }
    *type = json_string_value(json_object_get(component, "type"));
    if (*type == NULL) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: a %s has no type", role);
    }
    return 0;
}

int load_unknown(const char *role, const char *type, struct err *err)
{
    return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the %s '%s' is not supported", role,
                text_excerpt(type, strlen(type)).at);
}

int load_sequence(const json_t *component, const char *key, const char *role, int depth,
                  load_component *each, struct tokenizer *t, struct err *err)
{
    const json_t *list = json_object_get(component, key), *item;
    size_t i;

    if (!json_is_array(list)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: a Sequence of %ss has no list '%s'", role,
                    key);
    }
    if (depth == SEQUENCES_MAX) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: %ss are nested more than %d deep", role,
                    SEQUENCES_MAX);
    }
    json_array_foreach(list, i, item)
    {
        TRY(each(t, item, depth + 1, err));
    }
    return 0;
}

static int add_token(struct tokenizer *t, const json_t *item, struct err *err)
{
    const json_t *id = json_object_get(item, "id");
    struct added_token a = {0};
    const char *content;
    size_t n;

    TRY(load_string(item, "content", &content, &n, err));
    if (!json_is_integer(id)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the id of added token '%s' is no integer",
                    text_excerpt(content, n).at);
    }
    TRY(load_flag(item, "single_word", false, &a.single_word, err));
    TRY(load_flag(item, "lstrip", false, &a.lstrip, err));
    TRY(load_flag(item, "rstrip", false, &a.rstrip, err));
    TRY(load_flag(item, "special", false, &a.special, err));
    TRY(load_flag(item, "normalized", !a.special, &a.normalized, err));
    if (n == 0) {
        return 0;
    }
    /* A token of the model keeps the model's id, whatever is said here. */
    const int32_t known = vocab_find(&t->model.vocab, content, n);
    const int64_t wanted = known >= 0 ? known : json_integer_value(id);
    size_t other_n;
    const char *other = vocab_token(&t->model.vocab, wanted, &other_n);
    if (known < 0 && other != NULL) {
        return FAIL(err, ERR_BAD_FILE, "tokens '%s' and '%s' have the same id %lld",
                    text_excerpt(other, other_n).at, text_excerpt(content, n).at,
                    (long long)wanted);
    }
    TRY(vocab_put(&t->added, content, n, wanted, err));
    a.id = (int32_t)wanted;
    if (t->token_count == t->token_room) {
        const size_t room = t->token_room == 0 ? 64 : t->token_room * 2;
        struct added_token *tokens = realloc(t->tokens, room * sizeof *tokens);
        if (tokens == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for added tokens");
        }
        t->tokens = tokens;
        t->token_room = room;
    }
    t->tokens[t->token_count++] = a;
    t->any_lstrip = t->any_lstrip || a.lstrip;
    t->any_single_word = t->any_single_word || a.single_word;
    return 0;
}

static int by_id(const void *a, const void *b, void *context)
{
    const struct added_token *tokens = context;
    const int32_t x = tokens[*(const uint32_t *)a].id, y = tokens[*(const uint32_t *)b].id;
    return (x > y) - (x < y);
}

static int sort_added(struct tokenizer *t, struct err *err)
{
    t->token_order = malloc((t->token_count + 1) * sizeof *t->token_order);
    if (t->token_order == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for added tokens");
    }
    for (size_t i = 0; i < t->token_count; i++) {
        t->token_order[i] = (uint32_t)i;
    }
    qsort_r(t->token_order, t->token_count, sizeof *t->token_order, by_id, t->tokens);
    return 0;
}

/* Put a token where the search finds it: as it is, or as the normalizer makes it. */
static int index_token(struct tokenizer *t, size_t i, struct regex_work *w, struct text made[2],
                       struct err *err)
{
    struct piece p = {.at_start = true};

    struct added_token *a = &t->tokens[i];
    p.s = vocab_token(&t->added, a->id, &p.n);
    for (size_t k = 0; a->normalized && k < t->normal.count; k++) {
        TRY(step_rewrite(&t->normal.at[k], w, &p, &made[k % 2], (struct followed){0}, err));
        p.s = made[k % 2].at;
        p.n = made[k % 2].n;
    }
    a->shown_at = t->shown.n;
    a->shown_n = p.n;
    TRY(text_put(&t->shown, p.s, p.n, err));
    struct trie *trie = a->normalized ? &t->normalized : &t->raw;
    return p.n == 0 ? 0 : trie_put(trie, p.s, p.n, (int32_t)i, err);
}

static int load_added(struct tokenizer *t, const json_t *list, struct err *err)
{
    struct text made[2] = {{0}};
    struct regex_work *w;
    const json_t *item;
    size_t k;
    int rc = 0;

    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: 'added_tokens' is not a list");
    }
    json_array_foreach(list, k, item)
    {
        TRY(add_token(t, item, err));
    }
    TRY(sort_added(t, err));
    TRY(regex_work_new(&w, err));
    for (int special = 1; special >= 0; special--) {
        for (size_t i = 0; rc == 0 && i < t->token_count; i++) {
            if (t->tokens[i].special == (special == 1)) {
                rc = index_token(t, i, w, made, err);
            }
        }
    }
    regex_work_free(w);
    text_free(&made[0]);
    text_free(&made[1]);
    return rc;
}

/* What the steps allow: where the first split is, whether a text can be cut, what the model gets. */
static int finish(struct tokenizer *t, struct err *err)
{
    const struct step_list *l = &t->split;
    bool keep = true;

    t->first_split = l->count;
    for (size_t i = l->count; i-- > 0;) {
        t->first_split = l->at[i].kind == STEP_SPLIT ? i : t->first_split;
    }
    for (size_t i = 0; i < t->normal.count; i++) {
        keep = keep && step_keeps_seams(&t->normal.at[i]);
    }
    for (size_t i = 0; i <= t->first_split && i < l->count; i++) {
        keep = keep && step_keeps_seams(&l->at[i]);
    }
    if (t->model.kind == TOKENS_BPE) {
        const bool bytes = l->count > 0 && l->at[l->count - 1].kind == STEP_BYTES;
        TRY(bpe_finish(&t->model.bpe, bytes, err));
    }
    t->can_cut = keep && (t->first_split < l->count || token_model_cuts(&t->model));
    t->size = t->model.vocab.size > t->added.size ? t->model.vocab.size : t->added.size;
    if (t->size == 0) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: the vocabulary is empty");
    }
    return 0;
}

int tokenizer_load_json(struct tokenizer *t, const json_t *root, struct err *err)
{
    if (!json_is_object(root)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json is not a JSON object");
    }
    TRY(load_model(&t->model, json_object_get(root, "model"), err));
    TRY(load_normalizer(t, json_object_get(root, "normalizer"), 0, err));
    TRY(load_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), 0, err));
    TRY(load_added(t, json_object_get(root, "added_tokens"), err));
    TRY(finish(t, err));
    TRY(load_post_processor(t, json_object_get(root, "post_processor"), 0, err));
    return load_decoder(t, json_object_get(root, "decoder"), 0, err);
}

int tokenizer_load(struct tokenizer *t, const char *json, size_t bytes, struct err *err)
{
    const size_t good = utf8_prefix(json, bytes, NULL);
    json_error_t why;

    if (good < bytes) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: byte %zu is not UTF-8 (0x%02X)", good + 1,
                    (unsigned)(unsigned char)json[good]);
    }
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (root == NULL) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json is not JSON: line %d, byte %d: %s", why.line,
                    why.position, text_excerpt(why.text, strlen(why.text)).at);
    }
    const int rc = tokenizer_load_json(t, root, err);
    json_decref(root);
    return rc;
}
