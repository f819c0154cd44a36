/* model.c - the layers of a rank in order. */
#include "trainer/model.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/workspace.h"
#include "trainer/base/poison.h"
#include "trainer/ckpt/snapshot.h"
#include "trainer/grads.h"
#include "trainer/schedule.h"
#include "trainer/shares.h"
#include "trainer/trained.h"

/* Chunks and blocks of a rank. */
static int place_chunks(struct model *m)
{
    const struct dims *d = &m->d;
    int blocks = 0;

    for (int i = 0; i < d->chunks; i++) {
        m->chunks[i] = (struct chunk){.block0 = blocks,
                                      .count = d->layers[i].count,
                                      .first = d->layers[i].first,
                                      .is_first = i == 0 && d->pp_rank == 0,
                                      .is_last = i == d->chunks - 1 && d->pp_rank == d->pp - 1,
                                      .slots = 1};
        blocks += d->layers[i].count;
    }
    return blocks;
}

static const struct chunk *last_chunk(const struct model *m)
{
    return &m->chunks[m->d.chunks - 1];
}

/* Nothing goes back to a stage below all that is trained. */
static int list_traffic(struct model *m, struct err *err)
{
    const struct dims *d = &m->d;
    const struct pipe pipe = {.pp = d->pp,
                              .rank = d->pp_rank,
                              .chunks = d->chunks,
                              .micros = (int)d->micros,
                              .group = d->passes};

    if (!d->training) {
        CHECK(d->pp == 1, "%d pipeline ranks generate", d->pp);
        return 0;
    }
    TRY(traffic_new(&m->traffic, &pipe, err));
    for (int i = 0; i < d->chunks; i++) {
        const struct chunk *c = &m->chunks[i];
        m->traffic.gives[i] = m->lowest < c->first;
        m->traffic.gets[i] = m->lowest < c->first + c->count;
    }
    traffic_train(&m->traffic);
    for (int i = 0; i < LINES; i++) {
        if (m->traffic.line[i].rooms > PIPELINE_ROOMS) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, "microbatch_group_size_per_virtual_pipeline_stage",
                              "groups of %d microbatches would have %d messages wait at a pipeline "
                              "rank; %d may: take a smaller group, of at least %d",
                              d->passes, m->traffic.line[i].rooms, PIPELINE_ROOMS, d->pp);
        }
    }
    return 0;
}

/* Whether chunks share slots or have their own. */
static void choose_slots(struct model *m)
{
    size_t bytes[2] = {0};

    for (int apart = 0; apart < 2 && m->d.training && m->d.chunks > 1; apart++) {
        struct layout lo = {0};
        m->apart = apart == 1;
        model_plan(m, &lo);
        bytes[apart] = lo.region[LIFE_SAVED].peak;
        m->apart = m->apart && bytes[1] < bytes[0];
    }
}

int model_new(struct model **out, const struct dims *d, struct err *err)
{
    struct model *m = calloc(1, sizeof *m);

    if (m != NULL) {
        m->d = *d;
        m->lowest = d->training ? trained_lowest(d) : 0;
        const int blocks = place_chunks(m);
        m->blocks = calloc((size_t)blocks + 1, sizeof *m->blocks); /* a stage may have none */
        m->experts = calloc((size_t)blocks * (size_t)d->E_ep + 1, sizeof *m->experts);
        m->weights = calloc((size_t)shares_count(d), sizeof *m->weights);
        m->copies = calloc((size_t)shares_count(d), sizeof *m->copies);
    }
    if (m == NULL || m->blocks == NULL || m->experts == NULL || m->weights == NULL ||
        m->copies == NULL) {
        model_free(m);
        return FAIL(err, ERR_NO_MEMORY, "no memory to plan a model of %lld layers",
                    (long long)d->L);
    }
    const int rc = list_traffic(m, err);
    if (rc != 0) {
        model_free(m);
        return rc;
    }
    choose_slots(m);
    *out = m;
    return 0;
}

void model_free(struct model *m)
{
    if (m == NULL) {
        return;
    }
    traffic_free(&m->traffic);
    free(m->blocks);
    free(m->experts);
    free(m->weights);
    free(m->copies);
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

/* An expert may get any number of rows; bounds grow with the rows. */
static size_t experts_workspace(const struct dims *d)
{
    const int64_t rows = moe_rows(d);
    size_t n = linear_workspace(d, rows, 2 * d->X_etp, d->D, d->act);

    n = larger(n, linear_workspace(d, rows, d->X_etp, d->D, d->act));
    n = larger(n, linear_workspace(d, rows, d->D, d->X_etp, d->act));
    n = larger(n, linear_workspace(d, d->R, d->E, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->E, d->D, DTYPE_REAL));
    if (d->Y > 0) {
        n = larger(n, linear_workspace(d, d->R, 2 * d->Y_tp, d->D, d->act));
        n = larger(n, linear_workspace(d, d->R, d->D, d->Y_tp, d->act));
        n = larger(n, linear_workspace(d, d->R, 1, d->D, DTYPE_REAL));
        n = larger(n, linear_workspace(d, d->R, 1, d->D, d->act));
        n = larger(n, workspace_columns(d->R, 2 * d->Y_tp, d->threads));
    }
    if (!d->training) {
        const int64_t in = d->Y_tp > d->X_etp ? d->Y_tp : d->X_etp;
        n = larger(n, workspace_rows(rows, in > d->D ? in : d->D, d->act));
    }
    return n;
}

/* Bytes of workspace for the largest kernel call of the model. */
static size_t workspace_of(const struct dims *d, bool has_head)
{
    const int64_t qkv = (d->H_tp + 2 * d->G_tp) * d->K;
    const int64_t up = d->arch.gated ? 2 * d->F_tp : d->F_tp;
    const struct attention_shape s = {
        .B = d->B, .S = d->S_all, .H = d->H_tp, .G = d->G_tp, .K = d->K};
    const int64_t wide = up > qkv ? up : qkv, widest = wide > d->D ? wide : d->D;
    size_t n = workspace_attention(&s, d->act, d->threads);

    n = larger(n, workspace_columns(d->R, widest, d->threads));
    n = larger(n, linear_workspace(d, d->R, qkv, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->H_tp * d->K, d->act));
    n = larger(n, linear_workspace(d, d->R, up, d->D, d->act));
    n = larger(n, linear_workspace(d, d->R, d->D, d->F_tp, d->act));
    n = larger(n, d->E > 0 ? experts_workspace(d) : 0);
    /* The last chunk of the head may be any number of rows; bounds grow with the rows. */
    if (has_head) {
        n = larger(n, linear_workspace(d, d->chunk, d->V_tp, d->D, DTYPE_REAL));
    }
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
    m->balance_sums = tensor_none();
    if (d->training && d->E > 0) {
        m->balance_sums = layout_take(lo, LIFE_BATCH, DTYPE_F64, 2, 1);
    }
    m->head.loss_sum = layout_take(lo, LIFE_BATCH, DTYPE_F64, 1, 1);
    m->head.hits = layout_take(lo, LIFE_BATCH, DTYPE_F64, 1, 1);
    m->first[1] = tensor_none();
    m->order[0] = tensor_none();
    m->order[1] = tensor_none();
    if (d->training) {
        m->labels = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        m->first[0] = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        if (d->arch.window > 0) {
            m->first[1] = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R);
        }
        for (int i = 0; i < 2 && d->cp > 1; i++) {
            m->order[i] = layout_take(lo, LIFE_BATCH, DTYPE_I32, d->micros, d->R * d->cp);
        }
    }
}

/* Kept tensors of further slots lie behind those of the first, in the same order. */
static void plan_slots(struct layout *lo, size_t stride, int slots)
{
    for (int i = 1; i < slots && stride > 0; i++) {
        (void)layout_take(lo, LIFE_SAVED, DTYPE_F32, (int64_t)(stride / 4), 1);
    }
}

/* A vector of gradients, and this rank's slices of what the optimizer keeps. */
static void plan_vector(struct model *m, struct layout *lo, enum vector_id id, enum life life)
{
    struct vector *v = &m->vectors[id];
    const int slices = m->d.slices[id];
    const int64_t used = (int64_t)(layout_mark(lo, life) / sizeof(real));

    *v = (struct vector){.flat = flat_make(used, m->d.bucket, slices, m->d.slice[id]),
                         .grads = tensor_none(),
                         .state = {tensor_none(), tensor_none(), tensor_none()}};
    if (used == 0) {
        return;
    }
    if (v->flat.count > used) {
        (void)layout_take(lo, life, DTYPE_REAL, v->flat.count - used, 1);
    }
    v->grads = tensor_make(lo->region[life].base, DTYPE_REAL, v->flat.count, 1);
    if (slices > 1 && v->grads.data != NULL) {
        ASAN_UNPOISON_MEMORY_REGION(v->grads.data,
                                    tensor_bytes(v->grads)); /* gaps are summed too */
    }
    for (int i = 0; i < 3 && slices > 1; i++) {
        if (i < 2 || m->d.masters) {
            v->state[i] = layout_take(lo, LIFE_OPTIMIZER, DTYPE_REAL, v->flat.count / slices, 1);
        }
    }
}

static void plan_vectors(struct model *m, struct layout *lo)
{
    int64_t bucket = 0;

    plan_vector(m, lo, VECTOR_DENSE, LIFE_GRAD);
    plan_vector(m, lo, VECTOR_EXPERTS, LIFE_EXPERT_GRAD);
    for (int i = 0; i < VECTORS; i++) {
        const struct flat *f = &m->vectors[i].flat;
        bucket = f->slices > 1 && f->bucket > bucket ? f->bucket : bucket;
    }
    m->gathered = bucket > 0 ? layout_take(lo, LIFE_COMM, m->d.act, bucket, 1) : tensor_none();
}

/* Whether block i of a chunk keeps its input: the first of those that are made again together. */
static bool begins_group(const struct model *m, const struct chunk *c, int i)
{
    return c->first + i <= m->lowest || recompute_begins(&m->d.recompute, i);
}

static void plan_blocks(struct model *m, struct planner *p, const struct chunk *c)
{
    size_t scratch = 0;
    int begin = 0;

    for (int i = 0; i < c->count; i++) {
        struct block *b = &m->blocks[c->block0 + i];
        p->below = c->first + i < m->lowest;
        p->rebuilt = p->below ? 0 : recompute_parts(&m->d.recompute, i);
        p->inside = !begins_group(m, c, i);
        if (!p->inside) {
            scratch = layout_mark(p->lo, LIFE_SCRATCH);
            begin = i;
        }
        b->weight0 = p->count;
        block_plan(b, p, c->first + i);
        b->lowest = c->first + i == m->lowest;
        b->redo = 0;
        if (i + 1 == c->count || begins_group(m, c, i + 1)) {
            b->redo = plan_rebuilds(p, REBUILD_BLOCK) ? i + 1 - begin : 0;
            layout_release(p->lo, LIFE_SCRATCH, scratch);
        }
    }
}

static void plan_chunk(struct model *m, struct planner *p, struct chunk *c)
{
    const struct dims *d = &m->d;
    static const enum param_id tokens = PARAM_EMBED;

    c->balance = tensor_none();
    c->weight0 = p->count;
    if (d->training && d->E > 0) {
        c->balance = layout_take(p->lo, LIFE_SAVED, DTYPE_REAL, 1, 2 * d->E + 1);
    }
    if (c->is_first) {
        embedding_plan(&m->embedding, p);
    } else if (c->is_last && d->arch.tied) { /* its own copy */
        plan_weights(p, &m->embedding.w, &m->embedding.dw, &tokens, 1, 0);
    }
    plan_blocks(m, p, c);
    c->head0 = p->count;
    if (c->is_last) {
        /* When generating, the blocks pass the stream on in one place, and so to here. */
        m->out = layout_take(p->lo, d->training ? LIFE_SAVED : LIFE_SCRATCH, d->act, d->R_sp, d->D);
        head_plan(&m->head, p, &m->embedding);
        m->head.lowest = m->lowest == d->L;
    }
    c->weight1 = p->count;
}

/* Chunks with their slots. Those of a pool begin at the same place and are as long as the longest. */
static void plan_chunks(struct model *m, struct planner *p)
{
    struct layout *lo = p->lo;
    char *const base = lo->region[LIFE_SAVED].base;
    const size_t pool = layout_mark(lo, LIFE_SAVED);
    const bool shared = m->d.training && !m->apart;
    size_t longest = 0;

    for (int i = 0; i < m->d.chunks; i++) {
        struct chunk *c = &m->chunks[i];
        if (shared) {
            layout_release(lo, LIFE_SAVED, pool);
        }
        const size_t begin = layout_mark(lo, LIFE_SAVED);
        plan_chunk(m, p, c);
        c->saved = base != NULL && m->d.training ? base + begin : NULL;
        c->saved_stride = layout_mark(lo, LIFE_SAVED) - begin;
        c->slots = m->d.training ? (shared ? m->traffic.slots : m->traffic.own_slots[i]) : 1;
        longest = larger(longest, c->saved_stride);
        if (!shared) {
            plan_slots(lo, c->saved_stride, c->slots);
        }
    }
    if (shared) {
        const size_t used = layout_mark(lo, LIFE_SAVED) - pool;
        if (used < longest) {
            (void)layout_take(lo, LIFE_SAVED, DTYPE_F32, (int64_t)((longest - used) / 4), 1);
        }
        plan_slots(lo, longest, m->traffic.slots);
        for (int i = 0; i < m->d.chunks; i++) {
            m->chunks[i].saved_stride = longest;
        }
    }
}

static void plan_messages(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;

    m->mail = (struct mailbox){0};
    m->logits = tensor_none();
    if (d->training) {
        pipeline_plan(&m->mail, lo, &m->traffic, d->act, d->R_sp + model_message_tail(d), d->D);
    }
    if (d->training && (d->pp > 1 || d->tp > 1)) {
        m->logits = layout_take(lo, LIFE_COMM, DTYPE_REAL, d->tp, d->V_tp);
    }
}

void model_plan(struct model *m, struct layout *lo)
{
    const struct dims *d = &m->d;
    struct planner p = {.lo = lo, .d = d, .weights = m->weights, .experts = m->experts};
    const int64_t workspace = (int64_t)(workspace_of(d, last_chunk(m)->is_last) / 4) + 1;

    plan_batch(m, lo);
    m->workspace = layout_take(lo, LIFE_SCRATCH, DTYPE_F32, workspace, 1);
    if (d->training) {
        m->grad[0] = plan_scratch(&p, d->act, d->R_sp, d->D);
        m->grad[1] = plan_scratch(&p, d->act, d->R_sp, d->D);
    }
    plan_rooms(&p);
    rope_plan(&m->rope, &p, d->S_all);
    plan_chunks(m, &p);
    plan_messages(m, lo);
    plan_vectors(m, lo);
    m->weight_count = p.count;
    CHECK(p.count == shares_count(d), "%d of %d parameters planned", p.count, shares_count(d));
    snapshot_plan(m, lo);
}

int model_whole(struct model **out, const struct dims *d, struct err *err)
{
    const struct dims whole = dims_whole(d);
    struct layout lo = {0};

    TRY(model_new(out, &whole, err));
    model_plan(*out, &lo);
    return 0;
}

int64_t model_message_tail(const struct dims *d)
{
    const int64_t row = d->D * (int64_t)dtype_size(d->act);
    const int64_t bytes = (2 * d->E + 1) * (int64_t)sizeof(real);

    return d->training && d->E > 0 && d->aux_all && d->pp > 1 ? (bytes + row - 1) / row : 0;
}

/* What a message holds of the stream. */
static struct tensor stream_of(const struct ctx *c, struct tensor message)
{
    return tensor_count(message) > 0 ? tensor_slice(message, 0, c->rows / c->d->sp) : message;
}

/* Statistics behind the stream of a message that came become those of this chunk; or, `out`, the other way round. */
static void pass_balance(const struct ctx *c, struct tensor message, bool out)
{
    const int64_t rows = c->rows / c->d->sp;

    if (tensor_count(message) == 0 || tensor_rows(message) == rows) {
        return;
    }
    char *tail = (char *)message.data + (size_t)(rows * c->d->D) * dtype_size(message.type);
    const size_t bytes = tensor_bytes(c->balance);
    CHECK(bytes <= (size_t)((tensor_rows(message) - rows) * c->d->D) * dtype_size(message.type),
          "%zu bytes of statistics", bytes);
    if (out) {
        memcpy(tail, c->balance.data, bytes);
    } else {
        memcpy(c->balance.data, tail, bytes);
    }
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
                    .ep = tp, /* of ranks that divide nothing */
                    .d = &m->d,
                    .rows = rows,
                    .most = m->d.R,
                    .saved = m->chunks[0].saved,
                    .saved_stride = m->chunks[0].saved_stride};

    c.batch.ids = micro_rows(m->ids, micro, rows);
    c.batch.pos = micro_rows(m->pos, micro, rows);
    c.batch.slot = micro_rows(m->slot, micro, rows);
    if (m->d.training) {
        c.batch.labels = micro_rows(m->labels, micro, rows);
        c.batch.first[0] = micro_rows(m->first[0], micro, rows);
        c.batch.first[1] = micro_rows(m->first[1], micro, rows);
        c.batch.order[0] = micro_rows(m->order[0], micro, rows * m->d.cp);
        c.batch.order[1] = micro_rows(m->order[1], micro, rows * m->d.cp);
    }
    return c;
}

struct ctx model_chunk_ctx(const struct model *m, const struct ctx *c, int chunk, int slot)
{
    const struct chunk *k = &m->chunks[chunk];
    struct ctx mine = *c;

    CHECK(slot >= 0 && slot < k->slots, "slot %d of %d", slot, k->slots);
    mine.slot = slot;
    mine.saved = k->saved;
    mine.saved_stride = k->saved_stride;
    if (tensor_count(k->balance) > 0) {
        mine.balance = here_rows(&mine, k->balance, 1);
        mine.balance_sums = m->balance_sums;
    }
    return mine;
}

/* Where the stream enters block i of a chunk, or leaves it behind the last. */
static struct tensor entry_of(const struct model *m, const struct ctx *c, const struct chunk *k,
                              int i, struct tensor out)
{
    if (i < k->count) {
        return here(c, m->blocks[k->block0 + i].x);
    }
    return k->is_last ? here(c, m->out) : out;
}

void model_chunk_forward(const struct model *m, const struct ctx *c, int chunk, struct tensor in,
                         struct tensor out)
{
    const struct chunk *k = &m->chunks[chunk];
    const struct tensor stream = stream_of(c, out);

    CHECK(k->is_first == (tensor_count(in) == 0) && k->is_last == (tensor_count(out) == 0),
          "chunk %d has not what its stage needs", chunk);
    if (c->training && tensor_count(c->balance) > 0) {
        c->k->zero(c->q, c->balance);
        pass_balance(c, in, false);
    }
    if (k->is_first) {
        embedding_forward(&m->embedding, c, entry_of(m, c, k, 0, out));
    } else {
        c->k->cast(c->q, entry_of(m, c, k, 0, stream), stream_of(c, in));
    }
    for (int i = 0; i < k->count; i++) {
        block_forward(&m->blocks[k->block0 + i], &m->rope, c, entry_of(m, c, k, i + 1, stream));
    }
    if (c->training && tensor_count(c->balance) > 0) {
        pass_balance(c, out, true);
    }
    if (k->is_last && c->balances && m->d.aux_all && m->d.cp_rank == 0) {
        const double T = (double)moe_balanced_rows(c), L = (double)arch_sparse_layers(&m->d.arch);
        c->k->route_losses(c->q, c->balance_sums, c->balance, (double)m->d.E / (L * T * L * T),
                           0.0);
    }
}

void model_forward(const struct model *m, const struct ctx *c)
{
    model_chunk_forward(m, c, 0, tensor_none(), tensor_none());
}

static void tell_final(const struct ctx *c, int from, int to)
{
    if (c->sums != NULL) {
        grads_final(c->sums, from, to);
    }
}

void model_chunk_backward(const struct model *m, const struct ctx *c, int chunk, struct tensor in,
                          struct tensor out, double scale)
{
    const struct chunk *at = &m->chunks[chunk];
    const struct tensor turns[2] = {here(c, m->grad[0]), here(c, m->grad[1])};
    const struct tensor stream = stream_of(c, out);
    struct tensor dy = stream_of(c, in);
    struct ctx redo = *c;
    int turn = 0; /* whose content is free */

    redo.again = true;
    pass_balance(c, in, false);
    if (at->is_last) {
        dy = turns[turn++];
        head_backward(&m->head, c, dy, here(c, m->out), scale);
        tell_final(c, at->head0, at->weight1);
    }
    for (int i = at->count - 1; i >= 0 && at->first + i >= m->lowest; i--) {
        const struct block *b = &m->blocks[at->block0 + i];
        const struct tensor dx = turns[turn];
        for (int k = i + 1 - b->redo; k <= i; k++) { /* the last output is spare */
            block_forward(&m->blocks[at->block0 + k], &m->rope, &redo,
                          k < i ? entry_of(m, c, at, k + 1, stream) : dx);
        }
        block_backward(b, &m->rope, c, dx, dy);
        tell_final(c, b->weight0, i + 1 < at->count ? b[1].weight0 : at->head0);
        dy = dx;
        turn = 1 - turn;
    }
    if (at->is_first && m->lowest < 0) {
        embedding_backward(&m->embedding, c, dy);
        tell_final(c, at->weight0, at->count > 0 ? m->blocks[at->block0].weight0 : at->head0);
    }
    if (tensor_count(out) > 0) {
        c->k->cast(c->q, stream, dy);
        pass_balance(c, out, true);
    }
}

void model_loss(const struct model *m, const struct ctx *c)
{
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
        param_init(out, w->id, &m->d.arch, w->place, seed, at);
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
