/* state_save.c - from memory into files: each rank writes its own patches, each byte is written by one rank. */
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/agree.h"
#include "trainer/ckpt/parts.h"
#include "trainer/ckpt/state.h"
#include "trainer/ckpt/values.h"
#include "trainer/ckpt/writer.h"
#include "trainer/shares.h"

enum { TURN = 1 << 18 /* bytes transposed at a time */ };

/* A file, or shards of it, being written. */
struct save {
    const struct model *m, *whole;
    struct writer *w;
    enum part from, to;
    int64_t *number[PART_V + 1]; /* in the writer, of each weight of the whole model; -1: none */
    struct param p;              /* what is written now: its parameter and its number          */
    int64_t at;
    char *turn; /* TURN bytes */
};

static enum st_dtype file_type(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return ST_F32;
    case DTYPE_F64: return ST_F64;
    case DTYPE_BF16: return ST_BF16;
    case DTYPE_F16: return ST_F16;
    case DTYPE_I32: return ST_I32;
    case DTYPE_I64: return ST_I64;
    case DTYPE_E4M3:
    case DTYPE_E5M2:
    case DTYPE_COUNT: break;
    }
    CHECK(false, "element type %d", (int)type);
    return ST_F32;
}

/* Declare the tensors of a part, and keep their numbers; those of the whole model, the same in all ranks. */
static int declare(struct save *s, enum part part, int64_t *next, struct err *err)
{
    const struct model *m = s->whole;

    for (int i = 0; i < m->weight_count; i += part_sharing(m, i)) {
        const struct param p = param_get(m->weights[i].id, &m->d.arch);
        const bool exists = part_exists(m, &m->weights[i], part);
        char full[PART_NAME];
        int64_t shape[2];

        for (int k = 0; k < part_sharing(m, i); k++) {
            s->number[part][i + k] = exists ? *next : -1;
        }
        if (exists) {
            part_name(full, m, &m->weights[i], part);
            const int dims = part_file_shape(&p, shape);
            TRY(writer_declare(s->w, full, file_type(part_matrix(&m->weights[i], part).type), dims,
                               shape, err));
            (*next)++;
        }
    }
    return 0;
}

/* Element `index` of the tensor on, from memory. */
static int put(struct save *s, int64_t index, const char *from, int64_t count, size_t size,
               struct err *err)
{
    return writer_put_at(s->w, s->at, (uint64_t)index * size, from, (size_t)count * size, err);
}

/* Columns of memory are rows of the file, so many at a time as the room takes. */
static int put_turned(struct save *s, const struct patch *x, struct err *err)
{
    const size_t size = dtype_size(x->type);
    const enum st_dtype type = values_stored(x->type);
    const int64_t most = (int64_t)(TURN / size), rows = x->rows < most ? x->rows : most;
    const int64_t cols = most / rows < x->cols ? most / rows : x->cols;

    for (int64_t row = 0; row < x->rows; row += rows) {
        const int64_t high = x->rows - row < rows ? x->rows - row : rows;
        for (int64_t col = 0; col < x->cols; col += cols) {
            const int64_t wide = x->cols - col < cols ? x->cols - col : cols;
            char *from = (char *)x->at + (size_t)(row * x->stride + col) * size;
            const struct values_grid to = {s->turn, type, high}, of = {from, type, x->stride};
            CHECK(values_transpose(to, of, high, wide), "floats fit");
            for (int64_t c = 0; c < wide; c++) {
                const int64_t index =
                    (x->col0 + col + c) * s->p.outputs + s->p.first + x->row0 + row;
                TRY(put(s, index, s->turn + (size_t)(c * high) * size, high, size, err));
            }
        }
    }
    return 0;
}

static int put_patch(void *context, const struct patch *x, struct err *err)
{
    struct save *s = context;
    const size_t size = dtype_size(x->type);

    if (s->p.transposed) {
        return put_turned(s, x, err);
    }
    for (int64_t row = 0; row < x->rows; row++) {
        const int64_t index = (s->p.first + x->row0 + row) * s->p.cols + x->col0;
        TRY(put(s, index, (const char *)x->at + (size_t)(row * x->stride) * size, x->cols, size,
                err));
    }
    return 0;
}

/* The place of a local weight in the whole model; both lists have one order, so it is soon found from `from` on. */
static int place_of(const struct model *whole, const struct weight *w, int from)
{
    for (int i = 0; i < whole->weight_count; i++) {
        const int at = (from + i) % whole->weight_count;
        if (whole->weights[at].id == w->id && whole->weights[at].place == w->place) {
            return at;
        }
    }
    CHECK(false, "parameter %d of layer %d is in no model", (int)w->id, w->place);
    return 0;
}

static int put_parts(struct save *s, struct err *err)
{
    for (enum part part = s->from; part <= s->to; part++) {
        for (int i = 0, at = 0; i < s->m->weight_count; i++, at++) {
            const struct weight *w = &s->m->weights[i];
            at = place_of(s->whole, w, at);
            s->p = param_get(w->id, &s->m->d.arch);
            s->at = s->number[part][at];
            if (s->at >= 0 && part_is_mine(s->m, w, i, part)) {
                TRY(part_patches(s->m, w, part, put_patch, s, err));
            }
        }
    }
    return writer_share_end(s->w, err);
}

enum { FILES = 2 /* weights, optimizer */ };

struct state_save {
    struct model m, *whole; /* what is written: shallow; the whole owned */
    struct save file[FILES];
    int64_t *numbers; /* owned */
    char *turn;       /* owned */
};

void state_save_free(struct state_save *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < FILES; i++) {
        writer_free(s->file[i].w);
    }
    free(s->numbers);
    free(s->turn);
    model_free(s->whole);
    free(s);
}

static int plan_file(struct save *s, const char *dir, const char *stem, struct err *err)
{
    const bool in_one =
        s->from != PART_WEIGHT || s->m->d.arch.lora.r > 0; /* as PEFT and Hone read it */
    int64_t next = 0;

    TRY(writer_new(&s->w, dir, stem, in_one ? UINT64_MAX : WRITER_SHARD_BYTES, err));
    for (enum part part = s->from; part <= s->to; part++) {
        TRY(declare(s, part, &next, err));
    }
    return 0;
}

static int plan_files(struct state_save *s, const char *dir, struct err *err)
{
    const char *stems[FILES] = {s->m.d.arch.lora.r > 0 ? "adapter_model" : "model", "optimizer"};

    TRY(model_whole(&s->whole, &s->m.d, err));
    const size_t n = (size_t)s->whole->weight_count;
    s->numbers = calloc(n * (PART_V + 1), sizeof *s->numbers);
    s->turn = malloc(TURN);
    if (s->numbers == NULL || s->turn == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to save %zu tensors", n);
    }
    for (int i = 0; i < FILES; i++) {
        struct save *f = &s->file[i];
        *f = (struct save){.m = &s->m, .whole = s->whole, .turn = s->turn};
        f->from = i == 0 ? PART_WEIGHT : PART_MASTER;
        f->to = i == 0 ? PART_HEAD : PART_V;
        for (int part = 0; part <= PART_V; part++) {
            f->number[part] = s->numbers + (size_t)part * n;
        }
        TRY(plan_file(f, dir, stems[i], err));
    }
    return 0;
}

static int share_files(struct state_save *s, bool creates, struct err *err)
{
    for (int i = 0; i < FILES; i++) {
        TRY(writer_share(s->file[i].w, creates, err));
    }
    return 0;
}

int state_save_open(struct state_save **out, const struct model *m, const char *dir,
                    const struct state_ranks *ranks, struct err *err)
{
    struct state_save *s = calloc(1, sizeof *s);
    int rc = s == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory to save") : 0;

    *out = NULL;
    if (rc == 0) {
        s->m = *m;
        rc = plan_files(s, dir, err);
    }
    if (rc == 0 && ranks->world->rank == 0) {
        rc = share_files(s, true, err);
    }
    rc = agree(ranks->world, ranks->q, rc, err); /* the files are there */
    if (rc == 0 && s != NULL && ranks->world->rank != 0) {
        rc = share_files(s, false, err);
    }
    rc = agree(ranks->world, ranks->q, rc, err);
    if (rc != 0) {
        state_save_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int state_save_write(struct state_save *s, struct err *err)
{
    for (int i = 0; i < FILES; i++) {
        TRY(put_parts(&s->file[i], err));
    }
    return 0;
}

int state_save_finish(struct state_save *s, struct err *err)
{
    for (int i = 0; i < FILES; i++) {
        TRY(writer_share_finish(s->file[i].w, err));
    }
    return 0;
}

uint64_t state_save_written(const struct state_save *s)
{
    uint64_t bytes = 0;

    for (int i = 0; i < FILES; i++) {
        bytes += writer_share_written(s->file[i].w);
    }
    return bytes;
}

static int close_save(struct state_save *s, int rc, const struct state_ranks *ranks,
                      struct err *err)
{
    rc = agree(ranks->world, ranks->q, rc, err); /* they are full */
    if (rc == 0 && ranks->world->rank == 0) {
        rc = state_save_finish(s, err);
    }
    if (ranks->written != NULL) {
        *ranks->written += state_save_written(s);
    }
    rc = agree(ranks->world, ranks->q, rc, err);
    state_save_free(s);
    return rc;
}

int state_save(const struct model *m, const char *dir, const struct state_ranks *ranks,
               struct err *err)
{
    struct state_save *s = NULL;

    TRY(state_save_open(&s, m, dir, ranks, err));
    return close_save(s, state_save_write(s, err), ranks, err);
}

int state_bytes(const struct model *m, uint64_t *bytes, struct err *err)
{
    struct model *whole = NULL;

    *bytes = 0;
    TRY(model_whole(&whole, &m->d, err));
    for (int i = 0; i < whole->weight_count; i++) {
        for (enum part part = PART_WEIGHT; part <= PART_V; part++) {
            const struct weight *w = &whole->weights[i];
            *bytes += part_exists(whole, w, part) ? tensor_bytes(part_matrix(w, part)) : 0;
        }
    }
    model_free(whole);
    return 0;
}
