/* tokenizer.c - open, describe and save a tokenizer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/tokenizer/parts.h"

enum { FILE_BYTES_MAX = 1 << 28 }; /* of tokenizer.json and the files beside it */

/* Kept to be saved again; the first is what the tokenizer is, without it the last. */
static const char *const file_names[TOKENIZER_FILES] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",   "vocab.json",
    "merges.txt",        "tokenizer.model",
};
enum { FILE_JSON, FILE_CONFIG, FILE_SPECIALS, FILE_FOREIGN = TOKENIZER_FILES - 1 };

/* What a tokenizer without tokenizer.json may be, beside any name that ends with .tiktoken. */
static const char *const foreign_names[] = {"tokenizer.model", "spiece.model",
                                            "sentencepiece.bpe.model"};
static const char tiktoken_ending[] = ".tiktoken";

int token_list_reserve(struct token_list *l, size_t n, struct err *err)
{
    if (l->room - l->count >= n) {
        return 0;
    }
    size_t room = l->room < 64 ? 64 : l->room + l->room / 2;
    room = room - l->count < n ? l->count + n : room;
    int32_t *ids = room > SIZE_MAX / sizeof *ids ? NULL : realloc(l->ids, room * sizeof *ids);
    if (ids == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %zu tokens", room);
    }
    l->ids = ids;
    l->room = room;
    return 0;
}

int token_list_put(struct token_list *l, int32_t id, struct err *err)
{
    TRY(token_list_reserve(l, 1, err));
    l->ids[l->count++] = id;
    return 0;
}

int token_list_append(struct token_list *l, const int32_t *ids, size_t n, struct err *err)
{
    TRY(token_list_reserve(l, n, err));
    if (n > 0) {
        memcpy(l->ids + l->count, ids, n * sizeof *ids);
        l->count += n;
    }
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

/* Read a tokenizer that is no tokenizer.json. */
static int read_foreign(struct tokenizer *t, struct foreign *f, const json_t *config,
                        struct err *err)
{
    const struct text *file = &t->files[FILE_FOREIGN].content;
    const bool tiktoken = foreign_kind(file->at, file->n) == FOREIGN_TIKTOKEN;

    TRY(tiktoken ? tiktoken_read(f, file->at, file->n, config, err)
                 : sentencepiece_read(f, file->at, file->n, config, err));
    return tokenizer_load_json(t, f->root, err);
}

/* Parse what is in t->files. dir is NULL when nothing lies beside them. */
static int complete(struct tokenizer *t, const char *dir, struct err *err)
{
    const struct text *json = &t->files[FILE_JSON].content;
    struct foreign f = {.bos = -1, .eos = -1, .pad = -1};
    struct configs c = {0};

    int rc = read_configs(&c, t, dir, err);
    if (rc == 0) {
        rc = t->files[FILE_JSON].present ? tokenizer_load(t, json->at, json->n, err)
                                         : read_foreign(t, &f, c.tokenizer, err);
    }
    if (rc == 0) {
        rc = tokenizer_identify(t, &c, &f, err);
    }
    json_decref(f.root);
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

/* A file that is no tokenizer.json goes where these are. */
static void note_foreign(struct tokenizer *t)
{
    struct tokenizer_file *json = &t->files[FILE_JSON], *foreign = &t->files[FILE_FOREIGN];

    if (json->present && foreign_kind(json->content.at, json->content.n) != FOREIGN_JSON) {
        text_free(&foreign->content);
        foreign->content = json->content;
        foreign->present = true;
        json->content = (struct text){0};
        json->present = false;
    }
}

static bool is_tiktoken_name(const char *name)
{
    const size_t n = strlen(name), ending = strlen(tiktoken_ending);
    return n > ending && strcmp(name + n - ending, tiktoken_ending) == 0;
}

bool tokenizer_there(const char *dir)
{
    struct io_names names;
    struct err err;
    bool there = false;

    if (io_list_dir(&names, dir, &err) != 0) {
        return false;
    }
    for (int i = 0; i < names.count; i++) {
        const char *name = names.at[i]->d_name;
        there = there || strcmp(name, file_names[FILE_JSON]) == 0 || is_tiktoken_name(name);
        for (size_t k = 0; k < sizeof foreign_names / sizeof *foreign_names; k++) {
            there = there || strcmp(name, foreign_names[k]) == 0;
        }
    }
    io_names_fini(&names);
    return there;
}

static int find_foreign(struct tokenizer *t, const char *dir, struct err *err)
{
    struct tokenizer_file *f = &t->files[FILE_FOREIGN];
    struct io_names names;
    int rc = 0;

    for (size_t i = 0; rc == 0 && !f->present && i < sizeof foreign_names / sizeof *foreign_names;
         i++) {
        rc = read_beside(&f->content, dir, foreign_names[i], &f->present, err);
    }
    TRY(rc);
    TRY(io_list_dir(&names, dir, err));
    for (int i = 0; rc == 0 && !f->present && i < names.count; i++) {
        const char *name = names.at[i]->d_name;
        if (is_tiktoken_name(name)) {
            rc = read_beside(&f->content, dir, name, &f->present, err);
        }
    }
    io_names_fini(&names);
    return rc;
}

static int open_files(struct tokenizer *t, const char *path, struct err *err)
{
    char dir[IO_PATH_MAX];
    const char *name;

    TRY(find_folder(dir, sizeof dir, &name, path, err));
    for (int i = 0; i < TOKENIZER_FILES; i++) {
        struct tokenizer_file *f = &t->files[i];
        TRY(read_beside(&f->content, dir, i == FILE_JSON ? name : f->name, &f->present, err));
    }
    note_foreign(t);
    if (!t->files[FILE_JSON].present && !t->files[FILE_FOREIGN].present) {
        TRY(find_foreign(t, dir, err));
    }
    if (!t->files[FILE_JSON].present && !t->files[FILE_FOREIGN].present) {
        return FAIL(err, ERR_NOT_FOUND,
                    "there is no tokenizer.json, tokenizer.model or .tiktoken file in %s", dir);
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
        t->files[i].present = i == FILE_JSON || files[i].n > 0;
        rc = text_put(&t->files[i].content, files[i].at, files[i].n, err);
    }
    note_foreign(t);
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
