/* exchange.c - each function tells what the one of the same name in layers/, step.c, grads.c or optim.c starts. */
#include "trainer/exchange.h"

#include "trainer/model.h"
#include "trainer/pieces.h"
#include "trainer/shares.h"

/* What is counted, and how often the present part of a step takes place. */
struct tally {
    struct exchange *x;
    const struct dims *d;
    int64_t times;
};

static int group_size(const struct dims *d, enum exchange_group group)
{
    switch (group) {
    case EXCHANGE_TP: return d->tp;
    case EXCHANGE_KV: return d->tp > d->G ? d->tp / (int)d->G : 1;
    case EXCHANGE_CP: return d->cp;
    case EXCHANGE_DP: return d->dp * d->cp;
    case EXCHANGE_PP: return d->pp;
    case EXCHANGE_EMBEDDING: return d->pp > 1 ? 2 : 1;
    case EXCHANGE_EP: return d->ep * d->etp;
    case EXCHANGE_EDP: return d->edp;
    case EXCHANGE_GROUPS: break;
    }
    return 1;
}

static void add(struct tally *t, enum exchange_group group, enum comm_kind kind, size_t bytes)
{
    if (group_size(t->d, group) > 1) {
        t->x->count[group][kind] += t->times;
        t->x->bytes[group][kind] += t->times * (int64_t)bytes;
    }
}

/* The residual stream, all rows of it. */
static size_t stream_bytes(const struct dims *d)
{
    return (size_t)(d->R * d->D) * dtype_size(d->act);
}

static void gather_rows(struct tally *t)
{
    if (t->d->sp > 1) {
        add(t, EXCHANGE_TP, COMM_ALL_GATHER, stream_bytes(t->d));
    }
}

static void sum_rows(struct tally *t)
{
    add(t, EXCHANGE_TP, t->d->sp > 1 ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE, stream_bytes(t->d));
}

static void linear_forward_adds(struct tally *t, const struct linear *l)
{
    if (l->takes_all) {
        gather_rows(t);
    }
    if (l->gives_part) {
        sum_rows(t);
    }
}

static void linear_backward_adds(struct tally *t, const struct linear *l, bool gives_dx)
{
    if (l->gives_part || (l->takes_all && linear_reads_input(l))) {
        gather_rows(t);
    }
    if (l->takes_all && gives_dx) {
        sum_rows(t);
    }
}

static void gather_keys(struct tally *t, const struct attention *a)
{
    add(t, EXCHANGE_CP, COMM_ALL_GATHER, tensor_bytes(a->all));
}

static void attention_forward_adds(struct tally *t, const struct attention *a)
{
    linear_forward_adds(t, &a->qkv);
    gather_keys(t, a);
    linear_forward_adds(t, &a->out);
}

static void attention_backward_adds(struct tally *t, const struct attention *a, bool gives_dx)
{
    if (a->again) {
        gather_keys(t, a);
    }
    linear_backward_adds(t, &a->out, true);
    gather_keys(t, a);
    add(t, EXCHANGE_CP, COMM_REDUCE_SCATTER, tensor_bytes(a->all));
    linear_backward_adds(t, &a->qkv, gives_dx);
}

static void mlp_forward_adds(struct tally *t, const struct mlp *m)
{
    linear_forward_adds(t, &m->up);
    linear_forward_adds(t, &m->down);
}

static void mlp_backward_adds(struct tally *t, const struct mlp *m)
{
    if (m->again) {
        linear_forward_adds(t, &m->up);
    }
    linear_backward_adds(t, &m->down, true);
    linear_backward_adds(t, &m->up, true);
}

/* Rows to experts, or back. */
static void send_rows(struct tally *t, const struct moe *m)
{
    const size_t in = tensor_bytes(m->in), sent = tensor_bytes(m->back);

    add(t, EXCHANGE_EP, COMM_ALL_TO_ALL, in > sent ? in : sent);
}

static void moe_forward_adds(struct tally *t, const struct moe *m)
{
    if (t->d->sp > 1) {
        add(t, EXCHANGE_TP, COMM_ALL_REDUCE, tensor_bytes(m->stats));
    }
    add(t, EXCHANGE_CP, COMM_ALL_REDUCE, tensor_bytes(m->stats));
    add(t, EXCHANGE_EP, COMM_ALL_GATHER, tensor_bytes(m->counts));
    send_rows(t, m);
    send_rows(t, m);
    if (t->d->Y > 0) {
        mlp_forward_adds(t, &m->shared);
    }
}

static void moe_backward_adds(struct tally *t, const struct moe *m)
{
    if (m->sends_again) {
        send_rows(t, m);
    }
    send_rows(t, m);
    send_rows(t, m);
    if (t->d->Y > 0) {
        mlp_backward_adds(t, &m->shared);
    }
}

static void block_forward_adds(struct tally *t, const struct block *b)
{
    attention_forward_adds(t, &b->attention);
    if (b->sparse) {
        moe_forward_adds(t, &b->moe);
    } else {
        mlp_forward_adds(t, &b->mlp);
    }
}

static void block_backward_adds(struct tally *t, const struct block *b)
{
    if (b->sparse) {
        moe_backward_adds(t, &b->moe);
    } else {
        mlp_backward_adds(t, &b->mlp);
    }
    attention_backward_adds(t, &b->attention, !b->lowest || norm_is_trained(&b->norm1));
}

static void head_backward_adds(struct tally *t, const struct head *h)
{
    const struct dims *d = t->d;

    gather_rows(t);
    for (int64_t row = 0; row < d->R; row += d->chunk) {
        const int64_t rows = d->R - row < d->chunk ? d->R - row : d->chunk;
        add(t, EXCHANGE_TP, COMM_ALL_GATHER, (size_t)(rows * d->tp * 3) * sizeof(real));
    }
    if (!h->lowest || norm_is_trained(&h->norm)) {
        sum_rows(t);
    }
}

static void embedding_backward_adds(struct tally *t, const struct embedding *e)
{
    if (tensor_count(e->dw) + tensor_count(e->dp) > 0) {
        gather_rows(t);
    }
}

/* A microbatch through a chunk, and back. */
static void chunk_adds(struct tally *t, const struct model *m, const struct chunk *c)
{
    const struct block *blocks = &m->blocks[c->block0];

    if (c->is_first) {
        sum_rows(t);
    }
    for (int i = 0; i < c->count; i++) {
        block_forward_adds(t, &blocks[i]);
    }
    if (c->is_last) {
        head_backward_adds(t, &m->head);
    }
    for (int i = c->count - 1; i >= 0 && c->first + i >= m->lowest; i--) {
        for (int k = i + 1 - blocks[i].redo; k <= i; k++) {
            block_forward_adds(t, &blocks[k]);
        }
        block_backward_adds(t, &blocks[i]);
    }
    if (c->is_first && m->lowest < 0) {
        embedding_backward_adds(t, &m->embedding);
    }
}

static void pipeline_adds(struct tally *t, const struct traffic *traffic)
{
    const int64_t rows = t->d->R_sp + model_message_tail(t->d);
    const size_t bytes = (size_t)(rows * t->d->D) * dtype_size(t->d->act);

    for (int i = 0; i < traffic->count; i++) {
        if (traffic->errands[i].to >= 0) {
            add(t, EXCHANGE_PP, COMM_SEND, bytes);
        }
        if (traffic->errands[i].line >= 0) {
            add(t, EXCHANGE_PP, COMM_RECV, bytes);
        }
    }
}

static void sum_losses(struct tally *t, const struct model *m)
{
    static const enum exchange_group groups[2] = {EXCHANGE_DP, EXCHANGE_PP};

    for (int i = 0; i < 2; i++) {
        add(t, groups[i], COMM_ALL_REDUCE, tensor_bytes(m->head.loss_sum));
        add(t, groups[i], COMM_ALL_REDUCE, tensor_bytes(m->head.hits));
        if (tensor_count(m->balance_sums) > 0) {
            add(t, groups[i], COMM_ALL_REDUCE, tensor_bytes(m->balance_sums));
        }
    }
}

static enum exchange_group group_of(enum vector_id vector)
{
    return vector == VECTOR_EXPERTS ? EXCHANGE_EDP : EXCHANGE_DP;
}

static void sum_vector_adds(struct tally *t, const struct model *m, enum vector_id vector)
{
    const struct flat *flat = &m->vectors[vector].flat;

    for (int b = 0; b < flat_buckets(flat) && flat->slices > 1; b++) {
        const size_t count = (size_t)flat_bucket(flat, b).count;
        add(t, group_of(vector), COMM_REDUCE_SCATTER, count * sizeof(real));
        add(t, group_of(vector), COMM_ALL_GATHER, count * dtype_size(m->d.act)); /* of weights */
    }
}

static void grads_sum_adds(struct tally *t, const struct model *m)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct share s = share_of(w->id, &m->d);
        const size_t bytes = tensor_bytes(w->dw);
        if (weight_is_trained(w) && s.is_partial) {
            add(t, s.copies == m->d.tp ? EXCHANGE_TP : EXCHANGE_KV, COMM_ALL_REDUCE, bytes);
        }
        if (weight_is_trained(w) && s.on_two_stages) {
            add(t, EXCHANGE_EMBEDDING, COMM_ALL_REDUCE, bytes);
        }
        if (weight_is_trained(w) && !vector_is_divided(m, w->vector)) {
            add(t, group_of(w->vector), COMM_ALL_REDUCE, bytes);
        }
    }
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        sum_vector_adds(t, m, v);
    }
}

static void grads_norm_adds(struct tally *t, const struct model *m)
{
    const size_t bytes = tensor_bytes(m->square_sum);

    for (enum vector_id v = VECTOR_DENSE; v < (m->d.E > 0 ? VECTORS : VECTOR_EXPERTS); v++) {
        if (vector_is_divided(m, v)) {
            add(t, group_of(v), COMM_ALL_REDUCE, bytes);
        }
        add(t, v == VECTOR_EXPERTS ? EXCHANGE_EP : EXCHANGE_TP, COMM_ALL_REDUCE, bytes);
    }
    add(t, EXCHANGE_PP, COMM_ALL_REDUCE, bytes);
}

void exchange_plan(struct exchange *out, const struct model *m)
{
    struct tally micro = {.x = out, .d = &m->d, .times = m->d.micros};
    struct tally step = {.x = out, .d = &m->d, .times = 1};

    *out = (struct exchange){{{0}}, {{0}}};
    for (int i = 0; i < m->d.chunks; i++) {
        chunk_adds(&micro, m, &m->chunks[i]);
    }
    pipeline_adds(&step, &m->traffic);
    sum_losses(&step, m);
    grads_sum_adds(&step, m);
    grads_norm_adds(&step, m);
}
