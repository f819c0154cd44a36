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
    const bool drops = drops_scores(&drop, a, c);
    c->k->attention_forward(c->q, here(c, a->mixed), here(c, a->lse), here(c, a->fused),
                            c->batch.first[slides], &s, drops ? &drop : NULL);
}

void attention_forward(const struct attention *a, const struct rope *r, const struct ctx *c,
                       struct tensor y, struct tensor x)
{
    linear_forward(&a->qkv, c, here(c, a->fused), x);
    rope_forward(r, c, here(c, a->fused));
    attend(a, c);
    linear_forward(&a->out, c, y, here(c, a->mixed));
}

void attention_backward(const struct attention *a, const struct rope *r, const struct ctx *c,
                        struct tensor dx, struct tensor dy, struct tensor x)
{
    const struct arch *arch = &c->d->arch;
    const bool slides = arch->window > 0 && a->layer >= arch->window_layer0;
    const struct attention_shape s = shape_of(c->d);
    const struct tensor saved[3] = {here(c, a->mixed), here(c, a->lse), here(c, a->fused)};
    struct dropout drop;
    const bool drops = drops_scores(&drop, a, c);

    if (a->again) {
        attend(a, c);
    }
    linear_backward(&a->out, c, here(c, a->dmixed), dy, here(c, a->mixed));
    c->k->attention_backward(c->q, here(c, a->dfused), here(c, a->dmixed), saved,
                             c->batch.first[slides], &s, drops ? &drop : NULL);
    rope_backward(r, c, here(c, a->dfused));
    linear_backward(&a->qkv, c, dx, here(c, a->dfused), x);
}
