/* embedding.c - from token ids to rows. */
#include "trainer/layers/layer.h"

void embedding_plan(struct embedding *e, struct planner *p)
{
    const enum param_id tokens = PARAM_EMBED, positions = PARAM_POSITION;

    plan_weights(p, &e->w, &e->dw, &tokens, 1, 0);
    e->all = p->room.all[1];
    e->p = tensor_none();
    e->dp = tensor_none();
    if (p->d->arch.learned_positions) {
        plan_weights(p, &e->p, &e->dp, &positions, 1, 0);
    }
}

void embedding_forward(const struct embedding *e, const struct ctx *c, struct tensor y)
{
    const struct tensor all = tp_inside(c, e->all, y);
    struct dropout drop;

    /* one rank of those whose sum it is adds the positions */
    c->k->embedding_forward(c->q, all, c->batch.ids, e->w, c->d->V0, c->batch.pos,
                            c->d->tp_rank == 0 ? e->p : tensor_none());
    tp_leave_forward(c, y, all);
    if (drop_at(&drop, c, 0, DROP_EMBEDDING)) {
        c->k->dropout(c->q, y, y, &drop);
    }
}

void embedding_backward(const struct embedding *e, const struct ctx *c, struct tensor dy)
{
    struct dropout drop;

    if (tensor_count(e->dw) + tensor_count(e->dp) == 0) {
        return;
    }
    if (drop_at(&drop, c, 0, DROP_EMBEDDING)) {
        c->k->dropout(c->q, dy, dy, &drop);
    }
    c->k->embedding_backward(c->q, e->dw, e->dp, tp_leave_backward(c, e->all, dy), c->batch.ids,
                             c->d->V0, c->batch.pos);
}
