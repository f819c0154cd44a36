/* lora.c - low-rank adapters beside a linear layer (Hu et al. 2021, arXiv:2106.09685): y += scale B A drop(x).
 *
 *   u = scale drop(x) A^T         kept [R,r]
 *   y[:, first ..] += u B^T
 *
 *   dB += dy^T u;   du = scale dy B;   dA += du^T drop(x);   dx += drop(du A)
 *
 * What an adapter acts on may be a few columns of y, as of queries, keys and values that lie in one matrix.
 */
#include "trainer/layers/layer.h"
#include "trainer/shares.h"

double lora_scale(const struct lora_choice *choice)
{
    const double r = (double)choice->r;

    return choice->alpha / (choice->rslora ? sqrt(r) : r);
}

static struct tensor as_matrix(struct tensor room, int64_t rows, int64_t cols)
{
    return tensor_make(room.data, room.type, rows, cols);
}

void lora_plan(struct lora *l, struct planner *p, enum lora_target target, int64_t first,
               int64_t width, int layer)
{
    const struct dims *d = p->d;
    const enum param_id a = param_adapter(target, LORA_A), b = param_adapter(target, LORA_B);
    const int64_t out = share_of(b, d).rows, in = share_of(a, d).cols;

    *l = (struct lora){.part = tensor_none(), .dropped = tensor_none(), .du = tensor_none()};
    plan_weights(p, &l->a, &l->da, &a, 1, layer);
    plan_weights(p, &l->b, &l->db, &b, 1, layer);
    l->u = plan_keep(p, d->act, d->R, d->arch.lora.r);
    if (out < width || !d->training) { /* when generating, each row by itself: product_forward */
        l->part = as_matrix(p->room.part, d->R, out);
    }
    if (d->training) {
        l->du = as_matrix(p->room.du, d->R, d->arch.lora.r);
    }
    if (d->training && d->arch.lora.dropout > 0.0) {
        l->dropped = as_matrix(p->room.dropped, d->R, in);
    }
    l->input0 = share_of(a, d).col0;
    l->first = first;
    l->scale = lora_scale(&d->arch.lora);
    l->layer = layer;
    l->site = (int)DROP_LORA + (int)target;
}

static bool drops(const struct lora *l, const struct ctx *c, struct dropout *drop)
{
    const bool drops = drop_inside(drop, c, c->d->arch.lora.dropout, l->layer, l->site);

    drop->feature0 = l->input0;
    return drops;
}

/* What goes into A: x, or what dropout leaves of it. */
static struct tensor input_of(const struct lora *l, const struct ctx *c, struct tensor x)
{
    struct dropout drop;

    if (!drops(l, c, &drop)) {
        return x;
    }
    const struct tensor dropped = here(c, l->dropped);
    c->k->dropout(c->q, dropped, x, &drop);
    return dropped;
}

void lora_forward(const struct lora *l, const struct ctx *c, struct tensor y, struct tensor x)
{
    const struct tensor u = here(c, l->u), part = here(c, l->part);

    product_forward(c, u, input_of(l, c, x), l->a);
    c->k->scale(c->q, u, l->scale);
    if (tensor_count(part) == 0) {
        c->k->gemm(c->q, y, u, AS_IS, l->b, TRANSPOSED, 1.0F);
        return;
    }
    product_forward(c, part, u, l->b);
    c->k->add_columns(c->q, y, part, l->first);
}

/* dx += drop(du A); `spare`, where dropout is on, is overwritten. */
static void add_input_gradient(const struct lora *l, const struct ctx *c, struct tensor dx,
                               struct tensor du, struct tensor spare)
{
    struct dropout drop;

    if (!drops(l, c, &drop)) {
        c->k->gemm(c->q, dx, du, AS_IS, l->a, AS_IS, 1.0F);
        return;
    }
    c->k->gemm(c->q, spare, du, AS_IS, l->a, AS_IS, 0.0F);
    c->k->dropout(c->q, spare, spare, &drop);
    c->k->add(c->q, dx, dx, spare);
}

void lora_backward(const struct lora *l, const struct ctx *c, struct tensor dx, struct tensor dy,
                   struct tensor x)
{
    const struct tensor u = here(c, l->u), du = here(c, l->du), part = here(c, l->part);
    const struct tensor input = input_of(l, c, x);

    if (tensor_count(part) > 0) {
        c->k->take_columns(c->q, part, dy, l->first);
        dy = part;
    }
    c->k->gemm(c->q, du, dy, AS_IS, l->b, AS_IS, 0.0F);
    c->k->scale(c->q, du, l->scale);
    if (tensor_count(l->db) > 0) {
        c->k->gemm(c->q, l->db, dy, TRANSPOSED, u, AS_IS, 1.0F);
    }
    if (tensor_count(l->da) > 0) {
        c->k->gemm(c->q, l->da, du, TRANSPOSED, input, AS_IS, 1.0F);
    }
    if (tensor_count(dx) > 0) {
        add_input_gradient(l, c, dx, du, here(c, l->dropped));
    }
}
