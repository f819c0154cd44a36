/* model.c - the layers of a rank in order. */
#include "trainer/model.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/workspace.h"
#include "trainer/base/poison.h"
#include "trainer/schedule.h"
#include "trainer/shares.h"
#include "trainer/trained.h"

int model_new(struct model **out, const struct dims *d, struct err *err)
{
    struct model *m = calloc(1, sizeof *m);

    if (m != NULL) {
        m->d = *d;
        m->slots = 1;
        m->lowest = d->training ? trained_lowest(d) : 0;
        m->blocks = calloc((size_t)d->L, sizeof *m->blocks);
        m->weights = calloc((size_t)params_tensors(&d->arch), sizeof *m->weights);
    }
    if (m == NULL || m->blocks == NULL || m->weights == NULL) {
        model_free(m);
        return FAIL(err, ERR_NO_MEMORY, "no memory to plan a model of %lld layers",
                    (long long)d->L);
    }
    *out = m;
    return 0;
}

void model_free(struct model *m)
{
    if (m == NULL) {
        return;
    }
    free(m->blocks);
    free(m->weights);
    free(m);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* For a linear layer of [out, in]: forward, and the two products of backward. */
static size_t linear_workspace(const struct dims *d, int64_t rows, int64_t out, int64_t in,
                               enum dtype result)
{
    size_t n = workspace_gemm(rows, out, in, d->act, result, d->threads);

    if (d->training) {
        n = larger(n, workspace_gemm(rows, in, out, d->act, d->act, d->threads));
        n = larger(n, workspace_gemm(out, in, rows, d->act, DTYPE_REAL, d->threads));
    }
    return n;
}

/* Bytes of workspace for the largest kernel call of the model. */
static size_t workspace_of(const struct dims *d)
{
    const int64_t qkv = (d->H_tp + 2 * d->G_tp) * d->K;
    const int64_t up = d->arch.gated ? 2 * d->F_tp : d->F_tp;
    const struct attention_shape s = {.B = d->B, .S = d->S, .H = d->H_tp, .G = d->G_tp, .K = d->K};
    const int64_t wide = up > qkv ? up : qkv, widest = wide > d->D ? wide : d->D;
    size_t n = workspace_attention(&s, d->act, d->threads);

    n = larger(n, workspace_columns(d->R, widest, d->threads));
    n = larger(n, linear_workspace(d, d->R, qkv, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->H_tp * d->K, d->act));
    n = larger(n, linear_workspace(d, d->R, up, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->F_tp, d->act));
    /* The last chunk of the head may be any number of rows; bounds grow with the rows. */
    n = larger(n, linear_workspace(d, d->chunk, d->V_tp, d->D, DTYPE_REAL));
    if (!d->training) {
        const int64_t heads = d->H_tp * d->K, in = d->F_tp > heads ? d->F_tp : heads;
        n = larger(n, workspace_rows(d->R, in > d->D ? in : d->D, d->act));
    }
    if (d->arch.lora.r > 0) {
        n = larger(n, linear_workspace(d, d->R, d->arch.lora.r, widest, d->act));
        n = larger(n, linear_workspace(d, d->R, widest, d->arch.lora.r, d->act));
    }
    return n;
}

/* The longest dimension of the adapters' A (inputs) or B (outputs). */
static int64_t widest_adapter(const struct dims *d, enum lora_part part)
{
    int64_t most = 0;

    for (int t = 0; t < LORA_TARGETS; t++) {
        if (param_has_lora(&d->arch, (enum lora_target)t)) {
            const struct share p = share_of(param_adapter((enum lora_target)t, part), d);
            const int64_t n = part == LORA_A ? p.cols : p.rows;
            most = n > most ? n : most;
        }
    }
    return most;
}

/* The most columns of a matrix that a linear layer handles apart from the others: of an adapter, or trained while others
 * are not. */
static int64_t widest_part(const struct dims *d)
{
    const int64_t adapter = widest_adapter(d, LORA_B), up = d->arch.gated ? d->F_tp : 0;
    const int64_t heads = d->H_tp * d->K;
    const int64_t stacked = d->freeze == NULL ? 0 : heads > up ? heads : up;

    return adapter > stacked ? adapter : stacked;
}

static struct tensor plan_room(struct planner *p, int64_t cols)
{
    return cols > 0 ? plan_scratch(p, p->d->act, p->d->R, cols) : tensor_none();
}

static void plan_rooms(struct planner *p)
{
    const struct dims *d = p->d;
    const bool drops = d->training && d->arch.lora.dropout > 0.0;

    p->room.part = plan_room(p, widest_part(d));
    p->room.dropped = plan_room(p, drops ? widest_adapter(d, LORA_A) : 0);
    p->room.du = plan_room(p, d->training ? d->arch.lora.r : 0);
    p->room.all[0] = plan_room(p, d->sp > 1 ? d->D : 0);
    p->room.all[1] = plan_room(p, d->sp > 1 ? d->D : 0);
}

static void plan_batch(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;

    m->ids = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
    m->pos = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
    m->slot = tensor_none();
    if (!d->training) {
        m->slot = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
    }
    m->square_sum = layout_take(lo, LIFE_BATCH, DTYPE_F64, 1, 1);
    m->first[1] = tensor_none();
    if (d->training) {
        m->labels = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        m->first[0] = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        if (d->arch.window > 0) {
            m->first[1] = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        }
    }
}

/* Kept tensors of further slots lie behind those of the first, in the same order. */
static void plan_slots(struct model *m, struct layout *lo)
{
    m->saved_stride = layout_mark(lo, LIFE_SAVED);
    for (int i = 1; i < m->slots; i++) {
        (void)layout_take(lo, LIFE_SAVED, DTYPE_F32, (int64_t)(m->saved_stride / 4), 1);
    }
}

/* The vector of gradients, and this rank's slices of what the optimizer keeps. */
static void plan_flat(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;
    const int64_t used = (int64_t)(layout_mark(lo, LIFE_GRAD) / sizeof(real));

    m->flat = flat_make(used, d->bucket, d->slices, d->slice);
    m->grads = tensor_none();
    if (used == 0) {
        return;
    }
    if (m->flat.count > used) {
        (void)layout_take(lo, LIFE_GRAD, DTYPE_REAL, m->flat.count - used, 1);
    }
    m->grads = tensor_make(lo->region[LIFE_GRAD].base, DTYPE_REAL, m->flat.count, 1);
    if (d->slices > 1 && m->grads.data != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(m->grads.data,
                                    tensor_bytes(m->grads)); /* gaps are summed too */
    }
    for (int i = 0; i < 3; i++) {
        const bool kept = d->slices > 1 && (i < 2 || d->masters);
        m->state[i] =
            kept ? layout_take(lo, LIFE_OPTIMIZER, DTYPE_REAL, m->flat.count / d->slices, 1)
                 : tensor_none();
    }
    m->gathered = tensor_none();
    if (d->slices > 1) {
        m->gathered = layout_take(lo, LIFE_COMM, d->act, m->flat.bucket, 1);
    }
}

/* Whether a block's input is kept: the first of those that are made again together. */
static bool begins_group(const struct model *m, int l)
{
    return l <= m->lowest || recompute_begins(&m->d.recompute, l);
}

static void plan_blocks(struct model *m, struct planner *p)
{
    const int L = (int)m->d.L;
    size_t scratch = 0;
    int first = 0;

    for (int l = 0; l < L; l++) {
        struct block *b = &m->blocks[l];
        p->below = l < m->lowest;
        p->rebuilt = p->below ? 0 : recompute_parts(&m->d.recompute, l);
        p->inside = !begins_group(m, l);
        if (!p->inside) {
            scratch = layout_mark(p->lo, LIFE_SCRATCH);
            first = l;
        }
        block_plan(b, p, l);
        b->lowest = l == m->lowest;
        b->redo = 0;
        if (l + 1 == L || begins_group(m, l + 1)) {
            b->redo = plan_rebuilds(p, REBUILD_BLOCK) ? l + 1 - first : 0;
            layout_release(p->lo, LIFE_SCRATCH, scratch);
        }
    }
}

void model_plan(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;
    struct planner p = {.lo = lo, .d = d, .weights = m->weights};

    plan_batch(m, lo);
    m->workspace = layout_take(lo, LIFE_SCRATCH, DTYPE_F32, (int64_t)(workspace_of(d) / 4) + 1, 1);
    if (d->training) {
        m->grad[0] = plan_scratch(&p, d->act, d->R_sp, d->D);
        m->grad[1] = plan_scratch(&p, d->act, d->R_sp, d->D);
    }
    plan_rooms(&p);
    embedding_plan(&m->embedding, &p);
    rope_plan(&m->rope, &p, d->S);
    plan_blocks(m, &p);
    /* When generating, the blocks pass the stream on in one place, and so to here. */
    m->out = layout_take(lo, d->training ? LIFE_SAVED : LIFE_SCRATCH, d->act, d->R_sp, d->D);
    head_plan(&m->head, &p, &m->embedding);
    m->head.lowest = m->lowest == d->L;
    plan_slots(m, lo);
    plan_flat(m, lo);
    m->weight_count = p.count;
    CHECK(p.count == params_tensors(&d->arch), "%d of %d parameters planned", p.count,
          params_tensors(&d->arch));
}

int model_whole(struct model **out, const struct dims *d, struct err *err)
{
    const struct dims whole = dims_whole(d);
    struct layout lo = {0};

    TRY(model_new(out, &whole, err));
    model_plan(*out, &lo);
    return 0;
}

static struct tensor micro_rows(struct tensor t, int64_t micro, int64_t rows)
{
    if (t.dim[0] == 0) {
        return t;
    }
    const struct tensor one = tensor_slice(t, micro, 1);
    return tensor_slice(tensor_make(one.data, one.type, tensor_cols(one), 1), 0, rows);
}

struct ctx model_ctx(const struct model *m, const struct kernels *k, struct queue *q,
                     struct comm *tp, int64_t micro, int64_t rows)
{
    struct ctx c = {.k = k,
                    .q = q,
                    .tp = tp,
                    .d = &m->d,
                    .rows = rows,
                    .most = m->d.R,
                    .saved = m->d.training ? m->blocks[0].x.data : NULL,
                    .saved_stride = m->saved_stride};

    c.batch.ids = micro_rows(m->ids, micro, rows);
    c.batch.pos = micro_rows(m->pos, micro, rows);
    c.batch.slot = micro_rows(m->slot, micro, rows);
    if (m->d.training) {
        c.batch.labels = micro_rows(m->labels, micro, rows);
        c.batch.first[0] = micro_rows(m->first[0], micro, rows);
        c.batch.first[1] = micro_rows(m->first[1], micro, rows);
    }
    return c;
}

static struct tensor output_of(const struct model *m, int64_t l)
{
    return l + 1 < m->d.L ? m->blocks[l + 1].x : m->out;
}

void model_forward(const struct model *m, const struct ctx *c)
{
    embedding_forward(&m->embedding, c, here(c, m->blocks[0].x));
    for (int64_t l = 0; l < m->d.L; l++) {
        block_forward(&m->blocks[l], &m->rope, c, here(c, output_of(m, l)));
    }
}

void model_backward(struct model *m, const struct ctx *c, double scale)
{
    head_backward(&m->head, c, here(c, m->grad[0]), here(c, m->out), scale);
    for (int64_t l = m->d.L - 1; l >= 0 && l >= m->lowest; l--) {
        for (int64_t i = l + 1 - m->blocks[l].redo; i <= l; i++) { /* the last output is spare */
            block_forward(&m->blocks[i], &m->rope, c,
                          here(c, i < l ? output_of(m, i) : m->grad[1]));
        }
        block_backward(&m->blocks[l], &m->rope, c, here(c, m->grad[1]), here(c, m->grad[0]));
        const struct tensor t = m->grad[0];
        m->grad[0] = m->grad[1];
        m->grad[1] = t;
    }
    if (m->lowest < 0) {
        embedding_backward(&m->embedding, c, here(c, m->grad[0]));
    }
}

void model_loss(const struct model *m, const struct ctx *c)
{
    model_forward(m, c);
    head_forward(&m->head, c, here(c, m->out));
}

void model_round(const struct model *m, const struct kernels *k, struct queue *q)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        if (w->w.data != w->master.data) {
            k->cast(q, w->w, w->master);
        }
    }
}

/* A row of the rank's share; padding is 0. */
static void init_row(const struct model *m, const struct weight *w, const struct share *s,
                     uint64_t seed, int64_t row, real *out)
{
    const struct param_stretch at = {share_row(s, row), s->col0, s->cols};

    if (at.row < 0) {
        memset(out, 0, (size_t)s->cols * sizeof *out);
    } else {
        param_init(out, w->id, &m->d.arch, w->layer, seed, at);
    }
}

/* Rows of a master; one that is rounded, since it is not trained, goes through the workspace. */
static void init_weight(const struct model *m, const struct weight *w, const struct kernels *k,
                        struct queue *q, uint64_t seed)
{
    const struct share s = share_of(w->id, &m->d);
    const struct tensor to = w->master;

    if (to.type != DTYPE_REAL) {
        const struct tensor row = tensor_make(q->workspace, DTYPE_REAL, 1, s.cols);
        CHECK(tensor_bytes(row) <= q->workspace_bytes, "a workspace of %zu bytes for %lld columns",
              q->workspace_bytes, (long long)s.cols);
        for (int64_t i = 0; i < s.rows; i++) {
            init_row(m, w, &s, seed, i, row.data);
            k->cast(q, tensor_slice(to, i, 1), row);
        }
        return;
    }
#pragma omp parallel for num_threads(m->d.threads) schedule(static)
    for (int64_t i = 0; i < s.rows; i++) {
        init_row(m, w, &s, seed, i, (real *)to.data + i * s.cols);
    }
}

static void init_weights(const struct model *m, const struct kernels *k, struct queue *q,
                         uint64_t seed, bool adapters)
{
    for (int i = 0; i < m->weight_count; i++) {
        if (param_is_adapter(m->weights[i].id) == adapters) {
            init_weight(m, &m->weights[i], k, q, seed);
        }
    }
    model_round(m, k, q);
}

void model_init(const struct model *m, const struct kernels *k, struct queue *q, uint64_t seed)
{
    init_weights(m, k, q, seed, false);
}

void model_init_adapters(const struct model *m, const struct kernels *k, struct queue *q,
                         uint64_t seed)
{
    init_weights(m, k, q, seed, true);
}
