/* linear.c - a matrix product with a weight, and what is added to it. */
#include "trainer/layers/layer.h"

#include "kernels/check.h"
#include "trainer/shares.h"

/* Gradients of those stacked parameters that are trained where not all are. */
static void plan_pieces(struct linear *l, const struct planner *p, int n, int first_weight,
                        int first_bias)
{
    int64_t row = 0;

    for (int i = 0; i < n; i++) {
        const struct weight *w = &p->weights[first_weight + i];
        struct trained_part piece = {.dw = tensor_none(), .db = tensor_none(), .first = row};
        if (tensor_count(l->dw) == 0) {
            piece.dw = w->dw;
        }
        if (first_bias >= 0 && tensor_count(l->db) == 0) {
            piece.db = p->weights[first_bias + i].dw;
        }
        if (tensor_count(piece.dw) + tensor_count(piece.db) > 0) {
            piece.dy = tensor_make(p->room.part.data, p->room.part.type, p->d->R, w->w.dim[0]);
            l->pieces[l->piece_count++] = piece;
        }
        row += w->w.dim[0];
    }
}

static void plan_adapters(struct linear *l, struct planner *p, const enum param_id *weights, int n,
                          int layer)
{
    const int64_t width = l->w.dim[0];
    int64_t row = 0;

    for (int i = 0; i < n; i++) {
        for (int t = 0; t < LORA_TARGETS; t++) {
            const enum lora_target target = (enum lora_target)t;
            if (param_has_lora(&p->d->arch, target) &&
                param_lora_site(target).first == weights[i]) {
                lora_plan(&l->lora[l->lora_count++], p, target, row, width, layer);
            }
        }
        row += share_of(weights[i], p->d).rows;
    }
}

void linear_plan(struct linear *l, struct planner *p, const enum param_id *weights,
                 const enum param_id *biases, int n, int layer)
{
    const bool has_bias = biases != NULL && param_get(biases[0], &p->d->arch).exists;
    const int first = p->count;

    CHECK(n <= LINEAR_PARTS, "%d parameters in one matrix", n);
    *l = (struct linear){.b = tensor_none(), .db = tensor_none()};
    l->takes_all = share_of(weights[0], p->d).rows < param_get(weights[0], &p->d->arch).rows;
    l->gives_part = share_of(weights[0], p->d).cols < param_get(weights[0], &p->d->arch).cols;
    l->all[0] = p->room.all[0];
    l->all[1] = p->room.all[1];
    plan_weights(p, &l->w, &l->dw, weights, n, layer);
    if (has_bias) {
        plan_weights(p, &l->b, &l->db, biases, n, layer);
    }
    plan_pieces(l, p, n, first, has_bias ? first + n : -1);
    plan_adapters(l, p, weights, n, layer);
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
    const struct tensor in = l->takes_all ? tp_enter_forward(c, l->all[0], x) : x;
    const struct tensor out = l->gives_part ? tp_inside(c, l->all[1], y) : y;

    product_forward(c, out, in, l->w);
    for (int i = 0; i < l->lora_count; i++) {
        lora_forward(&l->lora[i], c, out, in);
    }
    if (l->gives_part) {
        tp_leave_forward(c, y, out);
    }
    if (tensor_count(l->b) > 0) {
        c->k->bias_forward(c->q, y, l->b);
    }
}

static void piece_backward(const struct trained_part *p, const struct ctx *c, struct tensor dy,
                           struct tensor x)
{
    const struct tensor part = here(c, p->dy);

    c->k->take_columns(c->q, part, dy, p->first);
    if (tensor_count(p->db) > 0) {
        c->k->bias_backward(c->q, p->db, part);
    }
    if (tensor_count(p->dw) > 0) {
        c->k->gemm(c->q, p->dw, part, TRANSPOSED, x, AS_IS, 1.0F);
    }
}

bool linear_reads_input(const struct linear *l)
{
    bool reads = tensor_count(l->dw) > 0 || l->lora_count > 0;

    for (int i = 0; i < l->piece_count; i++) {
        reads = reads || tensor_count(l->pieces[i].dw) > 0;
    }
    return reads;
}

void linear_backward(const struct linear *l, const struct ctx *c, struct tensor dx,
                     struct tensor dy, struct tensor x)
{
    const bool gives_dx = tensor_count(dx) > 0;
    const struct tensor to = dx;

    if (tensor_count(l->db) > 0) {
        c->k->bias_backward(c->q, l->db, dy);
    }
    if (l->gives_part) {
        dy = tp_leave_backward(c, l->all[0], dy);
    }
    if (l->takes_all) {
        x = linear_reads_input(l) ? tp_enter_forward(c, l->all[0], x) : x;
        dx = gives_dx ? tp_inside(c, l->all[1], dx) : dx;
    }
    if (tensor_count(l->dw) > 0) {
        c->k->gemm(c->q, l->dw, dy, TRANSPOSED, x, AS_IS, 1.0F);
    }
    for (int i = 0; i < l->piece_count; i++) {
        piece_backward(&l->pieces[i], c, dy, x);
    }
    if (gives_dx) {
        c->k->gemm(c->q, dx, dy, AS_IS, l->w, AS_IS, 0.0F);
    }
    for (int i = 0; i < l->lora_count; i++) {
        lora_backward(&l->lora[i], c, dx, dy, x);
    }
    if (gives_dx && l->takes_all) {
        tp_enter_backward(c, to, dx);
    }
}
