/* block.c - one transformer block. */
#include "trainer/layers/layer.h"

/* The output of a norm: kept, or made again. */
static struct tensor plan_normed(struct planner *p)
{
    const struct dims *d = p->d;

    return plan_keep_part(p, REBUILD_LAYERNORM, d->act, d->R_sp, d->D);
}

void block_plan(struct block *b, struct planner *p, int layer)
{
    const struct dims *d = p->d;
    const bool kept = d->training && !p->inside;

    b->layer = layer;
    b->again = plan_rebuilds(p, REBUILD_LAYERNORM);
    b->x = layout_take(p->lo, kept ? LIFE_SAVED : LIFE_SCRATCH, d->act, d->R_sp, d->D);
    norm_plan(&b->norm1, p, PARAM_NORM1_W, PARAM_NORM1_B, layer);
    b->h1 = plan_normed(p);
    b->x2 = plan_keep(p, d->act, d->R_sp, d->D);
    b->h2 = b->again ? b->h1 : plan_normed(p);
    if (!p->inside) {
        p->turn[0] = plan_scratch(p, d->act, d->R_sp, d->D);
        p->turn[1] = d->training ? plan_scratch(p, d->act, d->R_sp, d->D) : tensor_none();
    }
    b->t = p->turn[0];
    b->dh = p->turn[1];
    attention_plan(&b->attention, p, layer);
    norm_plan(&b->norm2, p, PARAM_NORM2_W, PARAM_NORM2_B, layer);
    b->sparse = arch_is_sparse(&d->arch, layer);
    if (b->sparse) {
        b->moe.experts = p->experts;
        p->experts += d->E_ep;
        moe_plan(&b->moe, p, layer);
    } else {
        mlp_plan(&b->mlp, p, MLP_DENSE, layer);
    }
}

/* y = x + branch, the branch with dropout; all [R_sp,D]. branch is overwritten. */
static void join(const struct block *b, const struct ctx *c, struct tensor y, struct tensor x,
                 struct tensor branch, enum drop_site site)
{
    struct dropout drop;

    if (drop_at(&drop, c, b->layer, site)) {
        c->k->dropout(c->q, branch, branch, &drop);
    }
    c->k->add(c->q, y, x, branch);
}

/* The gradient that enters the branch of join(): dy itself, or its kept part in `spare`. */
static struct tensor part(const struct block *b, const struct ctx *c, struct tensor dy,
                          struct tensor spare, enum drop_site site)
{
    struct dropout drop;

    if (!drop_at(&drop, c, b->layer, site)) {
        return dy;
    }
    c->k->dropout(c->q, spare, dy, &drop);
    return spare;
}

void block_forward(const struct block *b, const struct rope *r, const struct ctx *c,
                   struct tensor y)
{
    const struct tensor x = here(c, b->x), x2 = here(c, b->x2), t = here(c, b->t);

    norm_forward(&b->norm1, c, here(c, b->h1), x);
    attention_forward(&b->attention, r, c, t, here(c, b->h1));
    join(b, c, x2, x, t, DROP_ATTENTION);
    norm_forward(&b->norm2, c, here(c, b->h2), x2);
    if (b->sparse) {
        moe_forward(&b->moe, c, t, here(c, b->h2));
    } else {
        mlp_forward(&b->mlp, c, t, here(c, b->h2));
    }
    join(b, c, y, x2, t, DROP_MLP);
}

void block_backward(const struct block *b, const struct rope *r, const struct ctx *c,
                    struct tensor dx, struct tensor dy)
{
    const struct tensor x = here(c, b->x), x2 = here(c, b->x2);
    const struct tensor t = here(c, b->t), dh = here(c, b->dh);
    const bool ends = b->lowest && !norm_is_trained(&b->norm1);

    if (b->again) {
        norm_forward(&b->norm2, c, here(c, b->h2), x2);
    }
    const struct tensor dbranch = part(b, c, dy, t, DROP_MLP);
    if (b->sparse) {
        moe_backward(&b->moe, c, dh, dbranch, here(c, b->h2));
    } else {
        mlp_backward(&b->mlp, c, dh, dbranch, here(c, b->h2));
    }
    norm_backward(&b->norm2, c, t, dh, x2);
    c->k->add(c->q, dx, dy, t);
    if (b->again) {
        norm_forward(&b->norm1, c, here(c, b->h1), x);
    }
    attention_backward(&b->attention, r, c, ends ? tensor_none() : dh,
                       part(b, c, dx, t, DROP_ATTENTION), here(c, b->h1));
    if (!ends) {
        norm_backward(&b->norm1, c, t, dh, x);
        c->k->add(c->q, dx, dx, t);
    }
}
