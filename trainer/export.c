/* export.c - tensor by tensor from folder to folder. */
#include "trainer/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/folder.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/writer.h"
#include "trainer/layers/layer.h"
#include "trainer/lora.h"
#include "trainer/model_folder.h"

enum { PIECE_BYTES = 8 << 20, COPIED_BYTES = 256 << 20, CONFIG_BYTES = 1 << 20 };

struct exporter {
    const struct export_options *o;
    struct model_folder from;
    struct arch arch;
    struct safetensors_folder *weights; /* owned              */
    struct safetensors *adapter;        /* owned; may be NULL */
    struct writer *writer;              /* owned              */
    double *piece;                      /* owned              */
    double *left, *right;  /* owned; of the present tensor: W' = W + scale left right */
    char dir[IO_PATH_MAX]; /* written here, then renamed */
    int64_t merged;
};

/* Whether a file's name is that of a weight, perhaps without the part before the first dot. */
static bool names_weight(const char *file, const char *weight)
{
    const char *dot = strchr(weight, '.');

    return strcmp(file, weight) == 0 || (dot != NULL && strcmp(file, dot + 1) == 0);
}

static bool find_adapter(const struct exporter *e, const char *file, enum lora_target *target,
                         int *layer)
{
    char name[PARAM_NAME];

    for (int t = 0; t < LORA_TARGETS; t++) {
        if (!param_has_lora(&e->arch, (enum lora_target)t)) {
            continue;
        }
        const struct param p = param_get(param_lora_site((enum lora_target)t).first, &e->arch);
        for (int64_t l = 0; l < e->arch.L; l++) {
            param_name(name, &p, (int)l);
            if (names_weight(file, name)) {
                *target = (enum lora_target)t;
                *layer = (int)l;
                return true;
            }
        }
    }
    return false;
}

/* A whole adapter matrix [rows, cols], or its transpose, to memory of its own. */
static int read_part(double **out, const struct exporter *e, enum param_id id, int layer,
                     enum st_turn turn, struct err *err)
{
    const struct param p = param_get(id, &e->arch);
    char name[PARAM_NAME];

    param_name(name, &p, layer);
    const struct st_tensor *t = safetensors_find(e->adapter, name);
    free(*out);
    *out = calloc((size_t)(p.rows * p.cols), sizeof **out);
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an adapter");
    }
    return safetensors_read(t, st_rect_all(t), turn, *out, DTYPE_F64,
                            turn == ST_AS_IS ? p.cols : p.rows, err);
}

/* The two factors of what is added to a tensor as its file holds it, [outputs, inputs] or transposed. */
static int read_factors(struct exporter *e, const struct st_tensor *t, enum lora_target target,
                        int layer, struct err *err)
{
    const struct param p = param_get(param_lora_site(target).first, &e->arch);
    const enum param_id a = param_adapter(target, LORA_A), b = param_adapter(target, LORA_B);
    const int64_t rows = p.transposed ? p.cols : p.outputs,
                  cols = p.transposed ? p.outputs : p.cols;

    if (t->dims != 2 || t->shape[0] != rows || t->shape[1] != cols) {
        return FAIL(err, ERR_NO_MODEL, "%s is not of the shape that config.json says", t->name);
    }
    if (p.transposed) {
        TRY(read_part(&e->left, e, a, layer, ST_TRANSPOSED, err));
        return read_part(&e->right, e, b, layer, ST_TRANSPOSED, err);
    }
    TRY(read_part(&e->left, e, b, layer, ST_AS_IS, err));
    return read_part(&e->right, e, a, layer, ST_AS_IS, err);
}

/* Rows [row, row + rows) of W += scale left right. */
static void add_product(const struct exporter *e, double *w, int64_t row, int64_t rows,
                        int64_t cols)
{
    const double scale = lora_scale(&e->arch.lora);
    const int64_t r = e->arch.lora.r;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        double *to = w + i * cols;
        for (int64_t k = 0; k < r; k++) {
            const double by = scale * e->left[(row + i) * r + k];
            const double *from = e->right + k * cols;
            for (int64_t j = 0; j < cols; j++) {
                to[j] += by * from[j];
            }
        }
    }
}

/* What the adapter has instead of a tensor of the base; NULL: nothing. The head of a tied model is its embedding. */
static const struct st_tensor *find_whole(const struct exporter *e, const char *file)
{
    const struct arch *a = &e->arch;
    char name[PARAM_NAME], from[LORA_NAME];

    for (int i = 0; i < PARAM_COUNT; i++) {
        const bool tied = i == PARAM_HEAD && a->tied;
        const enum param_id id = tied ? PARAM_EMBED : (enum param_id)i;
        if (!param_is_also(a, id)) {
            continue;
        }
        const struct param p = param_get((enum param_id)i, a);
        const int64_t layers = p.in_layer ? a->L : 1;
        for (int64_t l = 0; l < layers; l++) {
            param_name(name, &p, (int)l);
            if (names_weight(file, name)) {
                lora_name(from, a, id, (int)l);
                return safetensors_find(e->adapter, from);
            }
        }
    }
    return NULL;
}

static bool same_shape(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->dims == b->dims && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

static enum st_dtype type_of(const struct exporter *e, const struct st_tensor *t)
{
    if (!st_dtype_is_float(t->dtype)) {
        return t->dtype;
    }
    switch (e->o->precision) {
    case EXPORT_AS_IT_IS: return t->dtype;
    case EXPORT_F32: return ST_F32;
    case EXPORT_BF16: return ST_BF16;
    case EXPORT_F16: return ST_F16;
    case EXPORT_F64: return ST_F64;
    }
    return t->dtype;
}

static int copy_tensor(struct exporter *e, const struct st_tensor *t, struct err *err)
{
    for (uint64_t at = 0; at < t->bytes; at += PIECE_BYTES) {
        const uint64_t left = t->bytes - at;
        const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        TRY(safetensors_read_bytes(t, at, e->piece, n, err));
        TRY(writer_put_bytes(e->writer, e->piece, n, err));
    }
    return 0;
}

/* Through double, which holds every type of file exactly. */
static int convert_tensor(struct exporter *e, const struct st_tensor *t, bool merges,
                          struct err *err)
{
    const int64_t rows = st_rows(t), cols = st_cols(t);
    const int64_t room = PIECE_BYTES / (int64_t)sizeof(double) / cols;

    if (room < 1) {
        return FAIL(err, ERR_NO_MODEL, "%s has rows of %lld elements, which is too many", t->name,
                    (long long)cols);
    }
    for (int64_t row = 0; row < rows; row += room) {
        const int64_t n = rows - row < room ? rows - row : room;
        const struct st_rect rect = {.row0 = row, .rows = n, .cols = cols};
        TRY(safetensors_read(t, rect, ST_AS_IS, e->piece, DTYPE_F64, cols, err));
        if (merges) {
            add_product(e, e->piece, row, n, cols);
        }
        TRY(writer_put(e->writer, tensor_make(e->piece, DTYPE_F64, n, cols), ST_AS_IS, err));
    }
    return 0;
}

static int export_tensor(struct exporter *e, const struct st_tensor *t, struct err *err)
{
    const struct st_tensor *whole = e->adapter != NULL ? find_whole(e, t->name) : NULL;
    enum lora_target target = LORA_TARGETS;
    int layer = 0;

    if (whole != NULL) {
        if (!same_shape(whole, t) || !st_dtype_is_float(t->dtype)) {
            return FAIL(err, ERR_NO_MODEL, "%s is not of the shape that config.json says", t->name);
        }
        e->merged += e->arch.tied && strcmp(t->name, "lm_head.weight") == 0 ? 0 : 1;
        return type_of(e, t) == whole->dtype ? copy_tensor(e, whole, err)
                                             : convert_tensor(e, whole, false, err);
    }

    if (e->adapter != NULL && find_adapter(e, t->name, &target, &layer)) {
        if (!st_dtype_is_float(t->dtype)) {
            return FAIL(err, ERR_NO_MODEL, "%s does not hold floats", t->name);
        }
        TRY(read_factors(e, t, target, layer, err));
        e->merged++;
        return convert_tensor(e, t, true, err);
    }
    return type_of(e, t) == t->dtype ? copy_tensor(e, t, err) : convert_tensor(e, t, false, err);
}

/* Tensors of the base that the adapter changes. */
static int64_t adapter_count(const struct arch *a)
{
    int64_t n = 0;

    for (int t = 0; t < LORA_TARGETS; t++) {
        n += param_has_lora(a, (enum lora_target)t) ? a->L : 0;
    }
    for (int i = 0; i < PARAM_COUNT; i++) {
        n += !param_is_also(a, (enum param_id)i)       ? 0
             : param_get((enum param_id)i, a).in_layer ? a->L
                                                       : 1;
    }
    return n;
}

static int export_weights(struct exporter *e, struct err *err)
{
    const int64_t count = safetensors_folder_count(e->weights);

    TRY(writer_new(&e->writer, e->dir, "model", WRITER_SHARD_BYTES, err));
    for (int64_t i = 0; i < count; i++) {
        const struct st_tensor *t = safetensors_folder_at(e->weights, i);
        TRY(writer_declare(e->writer, t->name, type_of(e, t), t->dims, t->shape, err));
    }
    TRY(writer_start(e->writer, err));
    for (int64_t next = writer_next(e->writer); next >= 0; next = writer_next(e->writer)) {
        TRY(export_tensor(e, safetensors_folder_at(e->weights, next), err));
    }
    if (e->merged != adapter_count(&e->arch)) {
        return FAIL(err, ERR_NO_MODEL,
                    "the base model has weights for %lld of %lld adapters: they do not belong "
                    "together",
                    (long long)e->merged, (long long)adapter_count(&e->arch));
    }
    return writer_finish(e->writer, err);
}

/* config.json with the type that was asked for, or as it was. */
static int export_config(const struct exporter *e, struct err *err)
{
    static const enum dtype types[] = {[EXPORT_AS_IT_IS] = DTYPE_COUNT,
                                       [EXPORT_F32] = DTYPE_F32,
                                       [EXPORT_BF16] = DTYPE_BF16,
                                       [EXPORT_F16] = DTYPE_F16,
                                       [EXPORT_F64] = DTYPE_F64};
    char path[IO_PATH_MAX];
    json_t *config = NULL, *out = NULL;

    TRY(io_join(path, sizeof path, e->dir, "config.json", err));
    TRY(arch_read_config(&config, e->from.base, err));
    out = e->o->precision == EXPORT_AS_IT_IS
              ? json_incref(config)
              : arch_config(&e->arch, config, types[e->o->precision]);
    json_decref(config);
    if (out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for config.json");
    }
    const int rc = json_write_file(path, out, err);
    json_decref(out);
    return rc;
}

/* Copy a file if it is there. */
static int copy_file(const struct exporter *e, const char *dir, const char *name, struct err *err)
{
    char from[IO_PATH_MAX], to[IO_PATH_MAX];
    char *bytes = NULL;
    size_t n = 0;

    TRY(io_join(from, sizeof from, dir, name, err));
    TRY(io_join(to, sizeof to, e->dir, name, err));
    if (access(from, F_OK) != 0) {
        return 0;
    }
    TRY(io_read_file(&bytes, &n, from, COPIED_BYTES, err));
    const int rc = io_write_file(to, bytes, n, err);
    free(bytes);
    return rc;
}

static int export_files(const struct exporter *e, struct err *err)
{
    static const char *const beside_tokenizer[] = {"tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "special_tokens_map.json",
                                                   "added_tokens.json",
                                                   "vocab.json",
                                                   "merges.txt",
                                                   "tokenizer.model",
                                                   "chat_template.jinja"};
    const char *tokenizer = model_folder_tokenizer(&e->from);

    TRY(export_config(e, err));
    TRY(copy_file(e, e->from.base, "generation_config.json", err));
    TRY(copy_file(e, tokenizer, "generation_config.json", err)); /* of the adapter, if it has one */
    for (size_t i = 0; i < sizeof beside_tokenizer / sizeof beside_tokenizer[0]; i++) {
        TRY(copy_file(e, tokenizer, beside_tokenizer[i], err));
    }
    return 0;
}

static int check_out(const char *out, struct err *err)
{
    struct io_names names;

    TRY(io_list_dir(&names, out, err));
    const int count = names.count;
    io_names_fini(&names);
    return count == 0 ? 0 : FAIL(err, ERR_BAD_STATE, "the folder %s is there and not empty", out);
}

static int export_all(struct exporter *e, struct err *err)
{
    TRY(model_folder_find(&e->from, e->o->dir, NULL, e->o->base, err));
    TRY(model_folder_arch(&e->arch, &e->from, err));
    TRY(safetensors_folder_open(&e->weights, e->from.base, err));
    if (e->arch.lora.r > 0) {
        TRY(lora_open(&e->adapter, &e->arch, e->from.adapter, err));
    }
    e->piece = malloc(PIECE_BYTES);
    if (e->piece == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to export a model");
    }
    TRY(io_remove_tree(e->dir, err));
    TRY(io_make_dir(e->dir, err));
    TRY(export_files(e, err));
    TRY(export_weights(e, err));
    if (rename(e->dir, e->o->out) != 0) {
        return IO_FAIL(err, errno, "cannot rename %s: %s", e->dir, strerror(errno));
    }
    return 0;
}

int export_model(const struct export_options *o, struct err *err)
{
    struct exporter e = {.o = o};
    struct err ignored = {0};

    TRY(check_out(o->out, err));
    const size_t length = strlen(o->out);
    const size_t slashes = length > 1 && o->out[length - 1] == '/';
    if (snprintf(e.dir, sizeof e.dir, "%.*s.part", (int)(length - slashes), o->out) >=
        (int)sizeof e.dir) {
        return FAIL(err, ERR_IO, "the path of the folder is too long");
    }
    const int rc = export_all(&e, err);
    writer_free(e.writer);
    safetensors_folder_close(e.weights);
    safetensors_close(e.adapter);
    free(e.piece);
    free(e.left);
    free(e.right);
    if (rc != 0) {
        (void)io_remove_tree(e.dir, &ignored);
    }
    return rc;
}
