/* state.c - between memory's matrices and the tensors of files. */
#include "trainer/ckpt/state.h"

#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/writer.h"
#include "trainer/lora.h"

/* HEAD: the embedding of a tied model again, under the name of its head (lora.h). */
enum part { PART_WEIGHT, PART_HEAD, PART_MASTER, PART_M, PART_V };

static const char *const prefixes[] = {"", "", "master.", "exp_avg.", "exp_avg_sq."};

enum { FILE_NAME = LORA_NAME + 16 };

static struct tensor part_of(const struct weight *w, enum part part)
{
    switch (part) {
    case PART_WEIGHT:
    case PART_HEAD: return w->w;
    case PART_MASTER: return w->master;
    case PART_M: return w->m;
    case PART_V: return w->v;
    }
    return tensor_none();
}

/* The tensor as the file has it: [outputs], [outputs, inputs] or, transposed, [inputs, outputs]. */
static int file_shape(const struct param *p, int64_t shape[2])
{
    shape[0] = p->transposed ? p->cols : p->outputs;
    shape[1] = p->transposed ? p->outputs : p->cols;
    return p->vector ? 1 : 2;
}

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
    const int dims = file_shape(p, want);
    char has_text[64], want_text[64];

    if (t->dims == dims && t->shape[0] == want[0] && (dims == 1 || t->shape[1] == want[1])) {
        return 0;
    }
    shape_text(has_text, t->dims, t->shape);
    shape_text(want_text, dims, want);
    return FAIL(err, ERR_NO_MODEL, "%s in the weights has shape %s, config.json says %s", t->name,
                has_text, want_text);
}

static int load_tensor(const struct st_tensor *t, const struct param *p, struct tensor out,
                       struct err *err)
{
    struct st_rect rect = {.row0 = p->first, .rows = p->rows, .cols = p->cols};

    TRY(check_shape(t, p, err));
    if (p->transposed) {
        rect = (struct st_rect){.rows = p->cols, .col0 = p->first, .cols = p->rows};
    }
    return safetensors_read(t, rect, p->transposed ? ST_TRANSPOSED : ST_AS_IS, out.data, out.type,
                            p->cols, err);
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
        param_name(name, &p, w->layer);
        const struct st_tensor *t = find(f, name);
        if (t == NULL && w->id == PARAM_HEAD) {
            return FAIL(err, ERR_NO_MODEL,
                        "the weights have no lm_head.weight, and config.json does not say "
                        "tie_word_embeddings: true");
        }
        if (t == NULL) {
            return FAIL(err, ERR_NO_MODEL, "the weights have no tensor %s", name);
        }
        TRY(load_tensor(t, &p, w->master, err));
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
        const struct param p = param_get(w->id, &m->d.arch);
        char name[LORA_NAME];

        if (lora_holds(&m->d.arch, w->id)) {
            lora_name(name, &m->d.arch, w->id, w->layer);
            rc = load_tensor(safetensors_find(st, name), &p, w->master, err);
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

static bool is_used(const struct model *m, const struct safetensors_folder *f,
                    const struct st_tensor *t)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct param p = param_get(m->weights[i].id, &m->d.arch);
        char name[PARAM_NAME];
        param_name(name, &p, m->weights[i].layer);
        if (!param_is_adapter(m->weights[i].id) && find(f, name) == t) {
            return true;
        }
    }
    return false;
}

/* Whether a part of a weight is in the files of a checkpoint: of a model with adapters only these are, and what the optimizer
 * keeps only of what is trained; masters only where weights are rounded. */
static bool has_part(const struct model *m, const struct weight *w, enum part part)
{
    const bool trained = tensor_count(w->dw) > 0;

    switch (part) {
    case PART_WEIGHT: return m->d.arch.lora.r == 0 || lora_holds(&m->d.arch, w->id);
    case PART_HEAD:
        return w->id == PARAM_EMBED && m->d.arch.tied && param_is_also(&m->d.arch, w->id);
    case PART_MASTER: return trained && m->d.masters;
    case PART_M:
    case PART_V: return trained;
    }
    return false;
}

/* Its name in the file. */
static void part_name(char out[FILE_NAME], const struct model *m, const struct weight *w,
                      enum part part)
{
    const struct param p = param_get(w->id, &m->d.arch);
    char name[LORA_NAME];

    if (part == PART_HEAD) {
        lora_name(name, &m->d.arch, PARAM_HEAD, 0);
    } else if (part == PART_WEIGHT && m->d.arch.lora.r > 0) {
        lora_name(name, &m->d.arch, w->id, w->layer);
    } else {
        param_name(name, &p, w->layer);
    }
    (void)snprintf(out, FILE_NAME, "%s%s", prefixes[part], name);
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
        const struct param p = param_get(w->id, &m->d.arch);
        for (enum part part = PART_MASTER; rc == 0 && part <= PART_V; part++) {
            char full[FILE_NAME];
            part_name(full, m, w, part);
            const struct st_tensor *t = safetensors_find(st, full);
            if (!has_part(m, w, part)) {
                continue;
            }
            rc = t == NULL ? FAIL(err, ERR_BAD_FILE, "%s has no tensor %s", path, full)
                           : load_tensor(t, &p, part_of(w, part), err);
        }
    }
    safetensors_close(st);
    return rc;
}

/* How many parameters, from the i-th on, share a file tensor. */
static int sharing(const struct model *m, int i)
{
    const struct param p = param_get(m->weights[i].id, &m->d.arch);

    return (int)(p.outputs / p.rows);
}

int64_t state_unused(const struct model *m, const struct safetensors_folder *f, const char **first)
{
    int64_t unused = safetensors_folder_count(f);

    *first = NULL;
    for (int i = 0; i < m->weight_count; i += sharing(m, i)) {
        unused -=
            param_is_adapter(m->weights[i].id) ? 0 : 1; /* there, or loading would have failed */
    }
    for (int64_t i = 0; i < safetensors_folder_count(f); i++) {
        unused -= is_buffer(m, safetensors_folder_at(f, i)->name) ? 1 : 0;
    }
    for (int64_t i = 0; unused > 0 && *first == NULL; i++) {
        const struct st_tensor *t = safetensors_folder_at(f, i);
        *first = is_buffer(m, t->name) || is_used(m, f, t) ? NULL : t->name;
    }
    return unused;
}

static enum st_dtype file_type(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return ST_F32;
    case DTYPE_F64: return ST_F64;
    case DTYPE_BF16: return ST_BF16;
    case DTYPE_F16: return ST_F16;
    case DTYPE_I32: return ST_I32;
    case DTYPE_I64: return ST_I64;
    case DTYPE_COUNT: break;
    }
    CHECK(false, "element type %d", (int)type);
    return ST_F32;
}

/* Declare every tensor of the parts [from, to], parts outermost. */
static int declare(const struct model *m, struct writer *w, enum part from, enum part to,
                   struct err *err)
{
    for (enum part part = from; part <= to; part++) {
        for (int i = 0; i < m->weight_count; i += sharing(m, i)) {
            const struct param p = param_get(m->weights[i].id, &m->d.arch);
            char full[FILE_NAME];
            int64_t shape[2];

            if (!has_part(m, &m->weights[i], part)) {
                continue;
            }
            part_name(full, m, &m->weights[i], part);
            const int dims = file_shape(&p, shape);
            TRY(writer_declare(w, full, file_type(part_of(&m->weights[i], part).type), dims, shape,
                               err));
        }
    }
    return 0;
}

/* The part and the first parameter behind a writer's number, in the order of declare(). */
static void locate(const struct model *m, enum part from, int64_t number, enum part *part, int *at)
{
    int64_t n = 0;

    for (*part = from; *part <= PART_V; (*part)++) {
        for (*at = 0; *at < m->weight_count; *at += sharing(m, *at)) {
            if (has_part(m, &m->weights[*at], *part) && n++ == number) {
                return;
            }
        }
    }
    CHECK(false, "no tensor %lld", (long long)number);
}

/* Interleaved parts are put together row below row first, and then transposed as a whole. */
static int put_fused(const struct model *m, struct writer *w, int at, enum part part,
                     struct err *err)
{
    const int n = sharing(m, at);
    const struct tensor one = part_of(&m->weights[at], part);
    struct tensor all = one;

    all.dim[0] = one.dim[0] * n;
    all.data = m->snapshot.data;
    CHECK(tensor_bytes(all) <= tensor_bytes(m->snapshot), "%zu bytes in a snapshot of %zu",
          tensor_bytes(all), tensor_bytes(m->snapshot));
    for (int i = 0; i < n; i++) {
        const struct tensor t = part_of(&m->weights[at + i], part);
        memcpy(tensor_slice(all, i * one.dim[0], one.dim[0]).data, t.data, tensor_bytes(t));
    }
    return writer_put(w, all, ST_TRANSPOSED, err);
}

static int put(const struct model *m, struct writer *w, int at, enum part part, struct err *err)
{
    const struct param p = param_get(m->weights[at].id, &m->d.arch);
    const int n = sharing(m, at);

    if (p.transposed && n > 1) {
        return put_fused(m, w, at, part, err);
    }
    for (int i = 0; i < n; i++) {
        TRY(writer_put(w, part_of(&m->weights[at + i], part),
                       p.transposed ? ST_TRANSPOSED : ST_AS_IS, err));
    }
    return 0;
}

static int write_values(const struct model *m, struct writer *w, enum part from, enum part to,
                        struct err *err)
{
    TRY(declare(m, w, from, to, err));
    TRY(writer_start(w, err));
    for (int64_t next = writer_next(w); next >= 0; next = writer_next(w)) {
        enum part part = from;
        int at = 0;
        locate(m, from, next, &part, &at);
        TRY(put(m, w, at, part, err));
    }
    return writer_finish(w, err);
}

static int write_file(const struct model *m, struct checkpoint_save *save, const char *stem,
                      enum part from, enum part to, struct err *err)
{
    const bool in_one = from != PART_WEIGHT || m->d.arch.lora.r > 0; /* as PEFT and Hone read it */
    struct writer *w = NULL;
    int files = 0;

    TRY(writer_new(&w, checkpoint_save_dir(save), stem, in_one ? UINT64_MAX : WRITER_SHARD_BYTES,
                   err));
    int rc = write_values(m, w, from, to, err);
    if (rc == 0) {
        const struct manifest_file *written = writer_files(w, &files);
        rc = checkpoint_files_hashed(save, written, files, err);
    }
    writer_free(w);
    return rc;
}

int state_save(const struct model *m, struct checkpoint_save *save, struct err *err)
{
    TRY(write_file(m, save, m->d.arch.lora.r > 0 ? "adapter_model" : "model", PART_WEIGHT,
                   PART_HEAD, err));
    return write_file(m, save, "optimizer", PART_MASTER, PART_V, err);
}

uint64_t state_bytes(const struct model *m)
{
    uint64_t bytes = 0;

    for (int i = 0; i < m->weight_count; i++) {
        for (enum part part = PART_WEIGHT; part <= PART_V; part++) {
            const struct weight *w = &m->weights[i];
            bytes += has_part(m, w, part) ? tensor_bytes(part_of(w, part)) : 0;
        }
    }
    return bytes;
}
