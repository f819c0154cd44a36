/* norm.c - LayerNorm or RMSNorm, as the architecture says. */
#include "trainer/layers/layer.h"

void norm_plan(struct norm *n, struct planner *p, enum param_id w, enum param_id b, int layer)
{
    const bool centred = p->d->arch.norm == NORM_LAYER;

    *n = (struct norm){.b = tensor_none(), .db = tensor_none(), .mean = tensor_none()};
    plan_weights(p, &n->w, &n->dw, &w, 1, layer);
    if (centred) {
        plan_weights(p, &n->b, &n->db, &b, 1, layer);
        n->mean = plan_keep(p, DTYPE_REAL, p->d->R_sp, 1);
    }
    n->rstd = plan_keep(p, DTYPE_REAL, p->d->R_sp, 1);
}

bool norm_is_trained(const struct norm *n)
{
    return tensor_count(n->dw) + tensor_count(n->db) > 0;
}

void norm_forward(const struct norm *n, const struct ctx *c, struct tensor y, struct tensor x)
{
    const double eps = c->d->arch.norm_eps;

    switch (c->d->arch.norm) {
    case NORM_LAYER:
        c->k->layernorm_forward(c->q, y, here(c, n->mean), here(c, n->rstd), x, n->w, n->b, eps);
        break;
    case NORM_RMS: c->k->rmsnorm_forward(c->q, y, here(c, n->rstd), x, n->w, eps); break;
    }
}

void norm_backward(const struct norm *n, const struct ctx *c, struct tensor dx, struct tensor dy,
                   struct tensor x)
{
    switch (c->d->arch.norm) {
    case NORM_LAYER: {
        const struct tensor stats[2] = {here(c, n->mean), here(c, n->rstd)};
        c->k->layernorm_backward(c->q, dx, n->dw, n->db, dy, x, n->w, stats);
        break;
    }
    case NORM_RMS: c->k->rmsnorm_backward(c->q, dx, n->dw, dy, x, n->w, here(c, n->rstd)); break;
    }
}
