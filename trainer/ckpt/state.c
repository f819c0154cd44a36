/* state.c - from the tensors of files into this rank's share of a model. */
#include "trainer/ckpt/state.h"

#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/ckpt/parts.h"
#include "trainer/pieces.h"
#include "trainer/shares.h"

/* Under its full name, or without the part before the first dot, as bare models are saved. */
static const struct st_tensor *find(const struct safetensors_folder *f, const char *name)
{
    const struct st_tensor *t = safetensors_folder_find(f, name);
    const char *dot = strchr(name, '.');

    return t == NULL && dot != NULL ? safetensors_folder_find(f, dot + 1) : t;
}

/* "[2, 3]" */
static void shape_text(char out[64], int dims, const int64_t *shape)
{
    size_t n = (size_t)snprintf(out, 64, "[");

    for (int i = 0; i < dims && i < 2; i++) {
        n += (size_t)snprintf(out + n, 64 - n, "%s%lld", i == 0 ? "" : ", ", (long long)shape[i]);
    }
    (void)snprintf(out + n, 64 - n, "%s]", dims > 2 ? ", .." : "");
}

static int check_shape(const struct st_tensor *t, const struct param *p, struct err *err)
{
    int64_t want[2];
    const int dims = part_file_shape(p, want);
    char has_text[64], want_text[64];

    if (t->dims == dims && t->shape[0] == want[0] && (dims == 1 || t->shape[1] == want[1])) {
        return 0;
    }
    shape_text(has_text, t->dims, t->shape);
    shape_text(want_text, dims, want);
    return FAIL(err, ERR_NO_MODEL, "%s in the weights has shape %s, config.json says %s", t->name,
                has_text, want_text);
}

/* A tensor of a file, and the parameter that it holds. */
struct source {
    const struct st_tensor *t;
    const struct param *p;
};

static int load_patch(void *context, const struct patch *x, struct err *err)
{
    const struct source *from = context;
    const struct param *p = from->p;
    struct st_rect rect = {
        .row0 = p->first + x->row0, .rows = x->rows, .col0 = x->col0, .cols = x->cols};

    if (p->transposed) {
        rect = (struct st_rect){
            .row0 = x->col0, .rows = x->cols, .col0 = p->first + x->row0, .cols = x->rows};
    }
    return safetensors_read(from->t, rect, p->transposed ? ST_TRANSPOSED : ST_AS_IS, x->at, x->type,
                            x->stride, err);
}

/* This rank's share of a part. */
static int load_part(const struct model *m, const struct weight *w, enum part part,
                     const struct st_tensor *t, struct err *err)
{
    const struct param p = param_get(w->id, &m->d.arch);
    const struct share s = share_of(w->id, &m->d);
    const struct tensor whole = part_matrix(w, part);

    TRY(check_shape(t, &p, err));
    if (s.held < s.rows && tensor_count(whole) > 0) { /* padding */
        const struct tensor behind = tensor_slice(whole, s.held, s.rows - s.held);
        memset(behind.data, 0, tensor_bytes(behind));
    }
    return part_patches(m, w, part, load_patch, &(struct source){t, &p}, err);
}

/* The masters; where the state is divided, this rank's slices of these, and the weights. */
static int load_values(const struct model *m, const struct weight *w, const struct st_tensor *t,
                       struct err *err)
{
    if (!vector_is_divided(m, w->vector)) {
        return load_part(m, w, PART_MASTER, t, err);
    }
    if (m->d.masters && tensor_count(w->dw) > 0) {
        TRY(load_part(m, w, PART_MASTER, t, err));
    }
    return load_part(m, w, PART_WEIGHT, t, err);
}

int state_load_weights(const struct model *m, const struct safetensors_folder *f, struct err *err)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct param p = param_get(w->id, &m->d.arch);
        char name[PARAM_NAME];

        if (param_is_adapter(w->id)) {
            continue;
        }
        param_name(name, &p, w->place);
        const struct st_tensor *t = find(f, name);
        if (t == NULL && w->id == PARAM_HEAD) {
            return FAIL(err, ERR_NO_MODEL,
                        "the weights have no lm_head.weight, and config.json does not say "
                        "tie_word_embeddings: true");
        }
        if (t == NULL) {
            return FAIL(err, ERR_NO_MODEL, "the weights have no tensor %s", name);
        }
        TRY(load_values(m, w, t, err));
    }
    return 0;
}

int state_load_adapter(const struct model *m, const char *dir, struct err *err)
{
    struct safetensors *st = NULL;
    int rc = 0;

    TRY(lora_open(&st, &m->d.arch, dir, err));
    for (int i = 0; i < m->weight_count && rc == 0; i++) {
        const struct weight *w = &m->weights[i];
        char name[LORA_NAME];

        if (lora_holds(&m->d.arch, w->id)) {
            lora_name(name, &m->d.arch, w->id, w->place);
            rc = load_values(m, w, safetensors_find(st, name), err);
        }
    }
    safetensors_close(st);
    return rc;
}

/* Causal masks and rotary frequencies, which old files store; the head of a tied model. */
static bool is_buffer(const struct model *m, const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t e = strlen(ends[i]);
        if (n >= e && strcmp(name + n - e, ends[i]) == 0) {
            return true;
        }
    }
    return m->d.arch.tied && strcmp(name, "lm_head.weight") == 0;
}

static bool is_used(const struct model *whole, const struct safetensors_folder *f,
                    const struct st_tensor *t)
{
    for (int i = 0; i < whole->weight_count; i++) {
        const struct param p = param_get(whole->weights[i].id, &whole->d.arch);
        char name[PARAM_NAME];
        param_name(name, &p, whole->weights[i].place);
        if (!param_is_adapter(whole->weights[i].id) && find(f, name) == t) {
            return true;
        }
    }
    return false;
}

int state_load_optimizer(const struct model *m, const char *dir, struct err *err)
{
    struct safetensors *st = NULL;
    char path[IO_PATH_MAX];
    int rc = 0;

    TRY(io_join(path, sizeof path, dir, "optimizer.safetensors", err));
    TRY(safetensors_open(&st, path, err));
    for (int i = 0; rc == 0 && i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        for (enum part part = PART_MASTER; rc == 0 && part <= PART_V; part++) {
            char full[PART_NAME];
            part_name(full, m, w, part);
            const struct st_tensor *t = safetensors_find(st, full);
            if (!part_exists(m, w, part)) {
                continue;
            }
            rc = t == NULL ? FAIL(err, ERR_BAD_FILE, "%s has no tensor %s", path, full)
                           : load_part(m, w, part, t, err);
        }
    }
    safetensors_close(st);
    return rc;
}

int state_unused(const struct model *m, const struct safetensors_folder *f, int64_t *unused,
                 const char **first, struct err *err)
{
    struct model *whole = NULL;

    *first = NULL;
    *unused = safetensors_folder_count(f);
    TRY(model_whole(&whole, &m->d, err));
    for (int i = 0; i < whole->weight_count; i += part_sharing(whole, i)) {
        /* there, or loading would have failed */
        *unused -= param_is_adapter(whole->weights[i].id) ? 0 : 1;
    }
    for (int64_t i = 0; i < safetensors_folder_count(f); i++) {
        *unused -= is_buffer(m, safetensors_folder_at(f, i)->name) ? 1 : 0;
    }
    for (int64_t i = 0; *unused > 0 && *first == NULL; i++) {
        const struct st_tensor *t = safetensors_folder_at(f, i);
        *first = is_buffer(m, t->name) || is_used(whole, f, t) ? NULL : t->name;
    }
    model_free(whole);
    return 0;
}
