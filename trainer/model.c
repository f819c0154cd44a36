/* model.c - the layers of a rank in order. */
#include "trainer/model.h"

#include <stdlib.h>

#include "kernels/check.h"
#include "kernels/workspace.h"
#include "trainer/schedule.h"

int model_new(struct model **out, const struct dims *d, struct err *err)
{
    struct model *m = calloc(1, sizeof *m);

    if (m != NULL) {
        m->d = *d;
        m->slots = 1;
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
    const int64_t qkv = (d->H + 2 * d->G) * d->K, up = d->arch.gated ? 2 * d->F : d->F;
    const struct attention_shape s = {.B = d->B, .S = d->S, .H = d->H, .G = d->G, .K = d->K};
    const int64_t wide = up > qkv ? up : qkv, widest = wide > d->D ? wide : d->D;
    size_t n = workspace_attention(&s, d->act, d->threads);

    n = larger(n, workspace_columns(d->R, widest, d->threads));
    n = larger(n, linear_workspace(d, d->R, qkv, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->H * d->K, d->act));
    n = larger(n, linear_workspace(d, d->R, up, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->F, d->act));
    /* The last chunk of the head may be any number of rows; bounds grow with the rows. */
    n = larger(n, linear_workspace(d, d->chunk, d->V, d->D, DTYPE_REAL));
    if (!d->training) {
        const int64_t heads = d->H * d->K, in = d->F > heads ? d->F : heads;
        n = larger(n, workspace_rows(d->R, in > d->D ? in : d->D, d->act));
    }
    return n;
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

/* A file tensor that interleaves several parameters is put together here when a checkpoint is written
 * (ckpt/state.c): GPT-2's fused and transposed query, key and value. */
static void plan_snapshot(struct model *m, struct layout *lo)
{
    int64_t most = 0;

    for (int i = 0; i < PARAM_COUNT; i++) {
        const struct param q = param_get((enum param_id)i, &m->d.arch);
        const int64_t n = q.exists && q.transposed && q.outputs > q.rows ? q.outputs * q.cols : 0;
        most = n > most ? n : most;
    }
    m->snapshot = tensor_none();
    if (most > 0 && m->d.training) {
        m->snapshot = layout_take(lo, LIFE_SNAPSHOT, DTYPE_REAL, most, 1);
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

void model_plan(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;
    struct planner p = {.lo = lo, .d = d, .weights = m->weights};

    plan_batch(m, lo);
    m->workspace = layout_take(lo, LIFE_SCRATCH, DTYPE_F32, (int64_t)(workspace_of(d) / 4) + 1, 1);
    if (d->training) {
        m->grad[0] = plan_scratch(&p, d->act, d->R, d->D);
        m->grad[1] = plan_scratch(&p, d->act, d->R, d->D);
    }
    embedding_plan(&m->embedding, &p);
    rope_plan(&m->rope, &p, d->S);
    for (int64_t l = 0; l < d->L; l++) {
        block_plan(&m->blocks[l], &p, (int)l);
    }
    /* When generating, the blocks pass the stream on in one place, and so to here. */
    m->out = layout_take(lo, d->training ? LIFE_SAVED : LIFE_SCRATCH, d->act, d->R, d->D);
    head_plan(&m->head, &p, &m->embedding);
    plan_slots(m, lo);
    plan_snapshot(m, lo);
    m->weight_count = p.count;
    CHECK(p.count == params_tensors(&d->arch), "%d of %d parameters planned", p.count,
          params_tensors(&d->arch));
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
    for (int64_t l = m->d.L - 1; l >= 0; l--) {
        if (m->d.recompute == RECOMPUTE_FULL) { /* its own output is not needed again */
            block_forward(&m->blocks[l], &m->rope, c, here(c, m->grad[1]));
        }
        block_backward(&m->blocks[l], &m->rope, c, here(c, m->grad[1]), here(c, m->grad[0]));
        const struct tensor t = m->grad[0];
        m->grad[0] = m->grad[1];
        m->grad[1] = t;
    }
    embedding_backward(&m->embedding, c, here(c, m->grad[0]));
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

void model_init(const struct model *m, const struct kernels *k, struct queue *q, uint64_t seed)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        CHECK(w->master.type == DTYPE_REAL, "weights of a new model are %s",
              dtype_name(w->master.type));
        param_init(w->master.data, w->id, &m->d.arch, w->layer, seed);
    }
    model_round(m, k, q);
}
