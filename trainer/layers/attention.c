/* attention.c - causal self-attention with grouped query heads, and its two projections. */
#include "trainer/layers/layer.h"

static struct attention_shape shape_of(const struct dims *d)
{
    return (struct attention_shape){.B = d->B,
                                    .S = d->S,
                                    .H = d->H_tp,
                                    .G = d->G_tp,
                                    .K = d->K,
                                    .scale = d->arch.attention_scale};
}

/* Dropout of scores counts heads of the whole layer. */
static bool drops_scores(struct dropout *drop, const struct attention *a, const struct ctx *c)
{
    const bool drops = drop_at(drop, c, a->layer, DROP_SCORES);

    drop->feature0 = c->d->tp_rank * c->d->H_tp;
    return drops;
}

/* Ranks that share sequences each have some of the queries, and all of the keys for a moment. */
static void plan_context(struct attention *a, struct planner *p)
{
    const struct dims *d = p->d;
    const int64_t cols = 2 * d->G_tp * d->K;

    if (d->cp > 1) {
        a->own = plan_scratch(p, d->act, d->R, cols);
        a->all = plan_scratch(p, d->act, d->R * d->cp, cols);
        a->placed = plan_scratch(p, d->act, d->R * d->cp, cols);
        a->dplaced = plan_scratch(p, d->act, d->R * d->cp, cols);
    }
}

void attention_plan(struct attention *a, struct planner *p, int layer)
{
    static const enum param_id w[3] = {PARAM_Q_W, PARAM_K_W, PARAM_V_W};
    static const enum param_id b[3] = {PARAM_Q_B, PARAM_K_B, PARAM_V_B};
    static const enum param_id out_w = PARAM_OUT_W, out_b = PARAM_OUT_B;
    const struct dims *d = p->d;
    const int64_t fused = (d->H_tp + 2 * d->G_tp) * d->K;
    const size_t scratch = layout_mark(p->lo, LIFE_SCRATCH);

    a->layer = layer;
    linear_plan(&a->qkv, p, w, b, 3, layer);
    a->fused = plan_keep(p, d->act, d->R, fused);
    a->again = plan_rebuilds(p, REBUILD_CORE_ATTN);
    a->mixed = plan_keep_part(p, REBUILD_CORE_ATTN, d->act, d->R, d->H_tp * d->K);
    a->lse = plan_keep_part(p, REBUILD_CORE_ATTN, DTYPE_REAL, d->R, d->H_tp);
    linear_plan(&a->out, p, &out_w, &out_b, 1, layer);
    if (d->training) {
        const size_t kept = layout_mark(p->lo, LIFE_SCRATCH);
        a->dmixed = plan_scratch(p, d->act, d->R, d->H_tp * d->K);
        a->dfused = plan_scratch(p, d->act, d->R, fused);
        plan_context(a, p);
        /* What is rebuilt stays until the block has been through backward. */
        layout_release(p->lo, LIFE_SCRATCH, p->below ? scratch : kept);
    } else {
        a->cache[0] = layout_take(p->lo, LIFE_CACHE, d->act, d->B, d->S * d->G_tp * d->K);
        a->cache[1] = layout_take(p->lo, LIFE_CACHE, d->act, d->B, d->S * d->G_tp * d->K);
        layout_release(p->lo, LIFE_SCRATCH, scratch);
    }
}

/* Through the cache: each row sees those before it in its sequence. */
static void attend_cached(const struct attention *a, const struct ctx *c, int64_t window)
{
    const struct attention_shape s = shape_of(c->d);
    const struct tensor place[2] = {c->batch.slot, c->batch.pos};

    c->k->attention_decode(c->q, here(c, a->mixed), a->cache, here(c, a->fused), place, window, &s);
}

/* y[r] = x[rows[r]]: what an embedding does. */
static void take_rows(const struct ctx *c, struct tensor y, struct tensor x, struct tensor rows)
{
    c->k->embedding_forward(c->q, y, rows, x, 0, tensor_none(), tensor_none());
}

/* Keys and values of whole sequences, for queries of this rank's chunks. Not kept: backward gathers them again. */
static struct attention_context gather_keys(const struct attention *a, const struct ctx *c)
{
    const struct dims *d = c->d;
    const struct tensor own = here(c, a->own), all = here(c, a->all);
    const struct attention_context context = {.keys = here(c, a->placed),
                                              .dkeys = here(c, a->dplaced),
                                              .T = d->S_all,
                                              .place0 = dims_place0(d),
                                              .skip = dims_skip(d)};

    c->k->take_columns(c->q, own, here(c, a->fused), d->H_tp * d->K);
    comm_wait(c->cp, c->q, comm_start_all_gather(c->cp, c->q, all, own));
    take_rows(c, context.keys, all, c->batch.order[0]);
    return context;
}

/* This rank's rows of the sum of what all queries add to keys and values, into dfused, where these are 0. */
static void scatter_keys(const struct attention *a, const struct ctx *c)
{
    const struct tensor own = here(c, a->own), all = here(c, a->all);

    take_rows(c, all, here(c, a->dplaced), c->batch.order[1]);
    comm_wait(c->cp, c->q, comm_start_reduce_scatter(c->cp, c->q, own, all));
    c->k->add_columns(c->q, here(c, a->dfused), own, c->d->H_tp * c->d->K);
}

/* From fused to mixed and lse. */
static void attend(const struct attention *a, const struct ctx *c)
{
    const struct arch *arch = &c->d->arch;
    const bool slides = arch->window > 0 && a->layer >= arch->window_layer0;
    const struct attention_shape s = shape_of(c->d);
    struct dropout drop;

    if (!c->d->training) {
        attend_cached(a, c, slides ? arch->window : 0);
        return;
    }
    const bool drops = drops_scores(&drop, a, c), shares = c->d->cp > 1;
    struct attention_context context = {0};
    if (shares) {
        context = gather_keys(a, c);
    }
    c->k->attention_forward(c->q, here(c, a->mixed), here(c, a->lse), here(c, a->fused),
                            c->batch.first[slides], &s, drops ? &drop : NULL,
                            shares ? &context : NULL);
}

void attention_forward(const struct attention *a, const struct rope *r, const struct ctx *c,
                       struct tensor y, struct tensor x)
{
    linear_forward(&a->qkv, c, here(c, a->fused), x);
    rope_forward(r, c, here(c, a->fused));
    attend(a, c);
    linear_forward(&a->out, c, y, here(c, a->mixed));
}

/* From dmixed to dfused. */
static void attend_backward(const struct attention *a, const struct ctx *c)
{
    const struct arch *arch = &c->d->arch;
    const bool slides = arch->window > 0 && a->layer >= arch->window_layer0;
    const struct attention_shape s = shape_of(c->d);
    const struct tensor saved[3] = {here(c, a->mixed), here(c, a->lse), here(c, a->fused)};
    struct dropout drop;
    const bool drops = drops_scores(&drop, a, c), shares = c->d->cp > 1;
    struct attention_context context = {0};

    if (shares) {
        context = gather_keys(a, c);
        c->k->zero(c->q, here(c, a->dfused));
    }
    c->k->attention_backward(c->q, here(c, a->dfused), here(c, a->dmixed), saved,
                             c->batch.first[slides], &s, drops ? &drop : NULL,
                             shares ? &context : NULL);
    if (shares) {
        scatter_keys(a, c);
    }
}

void attention_backward(const struct attention *a, const struct rope *r, const struct ctx *c,
                        struct tensor dx, struct tensor dy, struct tensor x)
{
    if (a->again) {
        attend(a, c);
    }
    linear_backward(&a->out, c, here(c, a->dmixed), dy, here(c, a->mixed));
    attend_backward(a, c);
    rope_backward(r, c, here(c, a->dfused));
    linear_backward(&a->qkv, c, dx, here(c, a->dfused), x);
}
