/* mlp.c - the two MLPs: GPT-2's and the gated one of Llama. */
#include "trainer/layers/layer.h"

void mlp_plan(struct mlp *m, struct planner *p, enum mlp_kind kind, int layer)
{
    static const enum param_id weights[2][2] = {{PARAM_GATE_W, PARAM_UP_W},
                                                {PARAM_SHARED_GATE_W, PARAM_SHARED_UP_W}};
    static const enum param_id gated_b[2] = {PARAM_GATE_B, PARAM_UP_B};
    static const enum param_id down[2] = {PARAM_DOWN_W, PARAM_SHARED_DOWN_W}, down_b = PARAM_DOWN_B;
    const enum param_id *gated_w = weights[kind];
    const bool biased = kind == MLP_DENSE;
    const struct dims *d = p->d;
    const int64_t width = biased ? d->F_tp : d->Y_tp;
    const int parts = d->arch.gated ? 2 : 1;
    const size_t scratch = layout_mark(p->lo, LIFE_SCRATCH);

    linear_plan(&m->up, p, &gated_w[2 - parts], biased ? &gated_b[2 - parts] : NULL, parts, layer);
    m->again = plan_rebuilds(p, REBUILD_MLP);
    m->h = plan_keep_part(p, REBUILD_MLP, d->act, d->R, parts * width);
    linear_plan(&m->down, p, &down[kind], biased ? &down_b : NULL, 1, layer);
    const size_t kept = layout_mark(p->lo, LIFE_SCRATCH);
    m->a = plan_scratch(p, d->act, d->R, width);
    if (d->training) {
        m->da = plan_scratch(p, d->act, d->R, width);
        m->dh = plan_scratch(p, d->act, d->R, parts * width);
    }
    /* What is rebuilt stays until the block has been through backward. */
    layout_release(p->lo, LIFE_SCRATCH, d->training && !p->below ? kept : scratch);
}

static void activate(const struct mlp *m, const struct ctx *c)
{
    if (c->d->arch.gated) {
        c->k->swiglu_forward(c->q, here(c, m->a), here(c, m->h));
    } else {
        c->k->activation_forward(c->q, here(c, m->a), here(c, m->h), c->d->arch.act);
    }
}

void mlp_forward(const struct mlp *m, const struct ctx *c, struct tensor y, struct tensor x)
{
    linear_forward(&m->up, c, here(c, m->h), x);
    activate(m, c);
    linear_forward(&m->down, c, y, here(c, m->a));
}

void mlp_backward(const struct mlp *m, const struct ctx *c, struct tensor dx, struct tensor dy,
                  struct tensor x)
{
    if (m->again) {
        linear_forward(&m->up, c, here(c, m->h), x);
    }
    activate(m, c); /* cheaper to repeat than to keep */
    linear_backward(&m->down, c, here(c, m->da), dy, here(c, m->a));
    if (c->d->arch.gated) {
        c->k->swiglu_backward(c->q, here(c, m->dh), here(c, m->da), here(c, m->h));
    } else {
        c->k->activation_backward(c->q, here(c, m->dh), here(c, m->da), here(c, m->h),
                                  c->d->arch.act);
    }
    linear_backward(&m->up, c, dx, here(c, m->dh), x);
}
