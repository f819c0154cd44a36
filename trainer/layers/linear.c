/* linear.c - a matrix product with a weight. */
#include "trainer/layers/layer.h"

void linear_plan(struct linear *l, struct planner *p, const enum param_id *weights,
                 const enum param_id *biases, int n, int layer)
{
    plan_weights(p, &l->w, &l->dw, weights, n, layer);
    l->b = tensor_none();
    l->db = tensor_none();
    if (biases != NULL && param_get(biases[0], &p->d->arch).exists) {
        plan_weights(p, &l->b, &l->db, biases, n, layer);
    }
}

void product_forward(const struct ctx *c, struct tensor y, struct tensor x, struct tensor w)
{
    if (c->d->training) {
        c->k->gemm(c->q, y, x, AS_IS, w, TRANSPOSED, 0.0F);
    } else {
        c->k->gemm_rows(c->q, y, x, w);
    }
}

void linear_forward(const struct linear *l, const struct ctx *c, struct tensor y, struct tensor x)
{
    product_forward(c, y, x, l->w);
    if (tensor_count(l->b) > 0) {
        c->k->bias_forward(c->q, y, l->b);
    }
}

void linear_backward(const struct linear *l, const struct ctx *c, struct tensor dx,
                     struct tensor dy, struct tensor x)
{
    if (tensor_count(l->b) > 0) {
        c->k->bias_backward(c->q, l->db, dy);
    }
    c->k->gemm(c->q, l->dw, dy, TRANSPOSED, x, AS_IS, 1.0F);
    c->k->gemm(c->q, dx, dy, AS_IS, l->w, AS_IS, 0.0F);
}
