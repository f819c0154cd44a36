/* tokenizer.c - open, describe and save a tokenizer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/base/sha256.h"
#include "trainer/tokenizer/parts.h"

enum { FILE_BYTES_MAX = 1 << 28 }; /* of tokenizer.json and the files beside it */

/* Kept to be saved again; the first is what the tokenizer is. */
static const char *const file_names[TOKENIZER_FILES] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",   "vocab.json",
    "merges.txt",        "tokenizer.model",
};
enum { FILE_CONFIG = 1, FILE_SPECIALS = 2 };

int token_list_put(struct token_list *l, int32_t id, struct err *err)
{
    if (l->count == l->room) {
        const size_t room = l->room < 64 ? 64 : l->room + l->room / 2;
        int32_t *ids = realloc(l->ids, room * sizeof *ids);
        if (ids == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for %zu tokens", room);
        }
        l->ids = ids;
        l->room = room;
    }
    l->ids[l->count++] = id;
    return 0;
}

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

const struct added_token *tokenizer_added(const struct tokenizer *t, int32_t id)
{
    size_t low = 0, high = t->token_count;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (t->tokens[t->token_order[mid]].id < id) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    const struct added_token *a = low < t->token_count ? &t->tokens[t->token_order[low]] : NULL;
    return a != NULL && a->id == id ? a : NULL;
}

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

/* Configurations beside tokenizer.json, in the order in which they are asked. */
struct configs {
    json_t *tokenizer, *specials, *generation, *model; /* owned; NULL: no such file */
};

static int32_t special_id(const struct tokenizer *t, const struct configs *c, const char *token_key,
                          const char *id_key)
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
    return id;
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

static void make_hash(struct tokenizer *t)
{
    struct sha256 sha;
    char eos[32];

    const int n = snprintf(eos, sizeof eos, "eos %d", (int)t->eos);
    sha256_begin(&sha);
    sha256_add(&sha, t->files[0].content.at, t->files[0].content.n);
    sha256_add(&sha, eos, (size_t)n);
    sha256_end(&sha, t->hash);
}

static int identify(struct tokenizer *t, const struct configs *c, struct err *err)
{
    t->bos = special_id(t, c, "bos_token", "bos_token_id");
    t->eos = special_id(t, c, "eos_token", "eos_token_id");
    t->pad = special_id(t, c, "pad_token", "pad_token_id");
    if (t->eos < 0) {
        t->eos = customary_eos(t);
    }
    make_hash(t);
    return find_stops(t, c, err);
}

/* A file of the folder; not being there is no error. */
static int read_beside(struct text *out, const char *dir, const char *name, bool *present,
                       struct err *err)
{
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, dir, name, err));
    const int rc = io_read_file(&out->at, &out->n, path, FILE_BYTES_MAX, err);
    out->room = out->n;
    *present = rc == 0;
    if (rc == ERR_TOO_LARGE) {
        return FAIL(err, ERR_BAD_FILE, "%s has more than %d bytes", path, FILE_BYTES_MAX);
    }
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static int read_model_config(json_t **out, const char *dir, const char *name, struct err *err)
{
    struct text content = {0};
    bool present;

    int rc = read_beside(&content, dir, name, &present, err);
    if (rc == 0 && present) {
        rc = json_parse_text(out, content.at, content.n, name, err);
    }
    text_free(&content);
    return rc;
}

static int read_configs(struct configs *c, const struct tokenizer *t, const char *dir,
                        struct err *err)
{
    if (t->files[FILE_CONFIG].present) {
        TRY(json_parse_text(&c->tokenizer, t->files[FILE_CONFIG].content.at,
                            t->files[FILE_CONFIG].content.n, file_names[FILE_CONFIG], err));
    }
    if (t->files[FILE_SPECIALS].present) {
        TRY(json_parse_text(&c->specials, t->files[FILE_SPECIALS].content.at,
                            t->files[FILE_SPECIALS].content.n, file_names[FILE_SPECIALS], err));
    }
    if (dir == NULL) {
        return 0;
    }
    TRY(read_model_config(&c->generation, dir, "generation_config.json", err));
    return read_model_config(&c->model, dir, "config.json", err);
}

/* Parse what is in t->files. dir is NULL when nothing lies beside them. */
static int complete(struct tokenizer *t, const char *dir, struct err *err)
{
    struct configs c = {0};

    TRY(tokenizer_load(t, t->files[0].content.at, t->files[0].content.n, err));
    int rc = read_configs(&c, t, dir, err);
    if (rc == 0) {
        rc = identify(t, &c, err);
    }
    json_decref(c.tokenizer);
    json_decref(c.specials);
    json_decref(c.generation);
    json_decref(c.model);
    return rc;
}

static struct tokenizer *new_tokenizer(void)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    for (int i = 0; t != NULL && i < TOKENIZER_FILES; i++) {
        t->files[i].name = file_names[i];
    }
    return t;
}

/* Split PATH into a folder and the name of the tokenizer.json in it. */
static int find_folder(char *dir, size_t room, const char **name, const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) != 0) {
        return FAIL(err, ERR_NOT_FOUND, "there is no tokenizer at %s: %s", path, strerror(errno));
    }
    const char *slash = strrchr(path, '/');
    const bool folder = S_ISDIR(st.st_mode);
    const size_t n = folder ? strlen(path) : slash == NULL ? 1 : (size_t)(slash - path);
    if (n >= room) {
        return FAIL(err, ERR_NOT_FOUND, "the path of the tokenizer is too long");
    }
    memcpy(dir, folder || slash != NULL ? path : ".", n);
    dir[n] = '\0';
    if (!folder && slash == path) {
        memcpy(dir, "/", 2);
    }
    *name = folder ? file_names[0] : slash == NULL ? path : slash + 1;
    return 0;
}

static int open_files(struct tokenizer *t, const char *path, struct err *err)
{
    char dir[IO_PATH_MAX];
    const char *name;

    TRY(find_folder(dir, sizeof dir, &name, path, err));
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        struct tokenizer_file *f = &t->files[i];
        TRY(read_beside(&f->content, dir, i == 0 ? name : f->name, &f->present, err));
        if (i == 0 && !f->present) {
            return FAIL(err, ERR_NOT_FOUND, "there is no tokenizer.json in %s", dir);
        }
    }
    return complete(t, dir, err);
}

int tokenizer_open(struct tokenizer **out, const char *path, struct err *err)
{
    struct tokenizer *t = new_tokenizer();

    *out = NULL;
    if (t == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    const int rc = open_files(t, path, err);
    if (rc != 0) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int tokenizer_make(struct tokenizer **out, const struct text files[TOKENIZER_FILES],
                   struct err *err)
{
    struct tokenizer *t = new_tokenizer();
    int rc = 0;

    *out = NULL;
    if (t == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    for (int i = 0; rc == 0 && i < TOKENIZER_FILES; i++) {
        t->files[i].present = files[i].n > 0;
        rc = text_put(&t->files[i].content, files[i].at, files[i].n, err);
    }
    if (rc == 0) {
        rc = complete(t, NULL, err);
    }
    if (rc != 0) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, struct err *err)
{
    struct text files[TOKENIZER_FILES] = {{0}};

    TRY(text_put(&files[0], json, bytes, err));
    const int rc = tokenizer_make(out, files, err);
    text_free(&files[0]);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    step_list_free(&t->normal);
    step_list_free(&t->split);
    token_model_free(&t->model);
    vocab_free(&t->added);
    free(t->tokens);
    free(t->token_order);
    text_free(&t->shown);
    trie_free(&t->raw);
    trie_free(&t->normalized);
    token_list_free(&t->before);
    token_list_free(&t->after);
    token_list_free(&t->stops);
    for (size_t i = 0; i < t->unmake_count; i++) {
        regex_free(t->unmakes[i].pattern.regex);
        text_free(&t->unmakes[i].pattern.literal);
        text_free(&t->unmakes[i].pattern.with);
    }
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        text_free(&t->files[i].content);
    }
    free(t);
}

int tokenizer_save(const struct tokenizer *t, const char *dir, struct err *err)
{
    /* tokenizer.json last: who finds it finds all. */
    for (int i = TOKENIZER_FILES - 1; i >= 0; i--) {
        char path[IO_PATH_MAX];
        if (t->files[i].present) {
            TRY(io_join(path, sizeof path, dir, t->files[i].name, err));
            TRY(io_write_file(path, t->files[i].content.at, t->files[i].content.n, err));
        }
    }
    return 0;
}

int64_t tokenizer_size(const struct tokenizer *t)
{
    return t->size;
}

const char *tokenizer_hash(const struct tokenizer *t)
{
    return t->hash;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_pad(const struct tokenizer *t)
{
    return t->pad;
}

bool tokenizer_stops(const struct tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->stops.count; i++) {
        if (t->stops.ids[i] == id) {
            return true;
        }
    }
    return false;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *bytes)
{
    const char *s = vocab_token(&t->added, id, bytes);
    return s != NULL ? s : vocab_token(&t->model.vocab, id, bytes);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token, size_t bytes)
{
    const int32_t id = vocab_find(&t->added, token, bytes);
    return id >= 0 ? id : vocab_find(&t->model.vocab, token, bytes);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct added_token *a = tokenizer_added(t, id);
    return a != NULL && a->special;
}
