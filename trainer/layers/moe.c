/* moe.c - experts: a router, rows of tokens sent to them and back, and an MLP beside them.
 *
 *   y[t] = sum over the k experts e that the router chose for t: w[t,e] down_e(silu(gate_e(x[t])) * up_e(x[t]))
 *          + sigmoid(mix(x[t])) shared(x[t])
 *
 * Experts may be divided over the ranks of a group: `ep` have E / ep each, and etp of them each a part of the same ones.
 * A row is sent to every part of an expert, whose results are parts of a sum (arXiv:2006.16668, arXiv:2201.05596).
 */
#include "kernels/check.h"
#include "trainer/layers/layer.h"

static int group_size(const struct dims *d)
{
    return d->ep * d->etp;
}

/* Rows that this rank sends at most. */
static int64_t rows_sent(const struct dims *d)
{
    return d->R_sp * d->arch.moe.k * d->etp;
}

int64_t moe_rows(const struct dims *d)
{
    const int64_t k = d->arch.moe.k, most = k < d->E_ep ? k : d->E_ep;

    return d->arch.moe.E > 0 ? group_size(d) * d->R_sp * most : 0;
}

int64_t moe_balanced_rows(const struct ctx *c)
{
    return c->rows * c->d->cp;
}

static void plan_expert(struct expert *e, struct planner *p, int place)
{
    static const enum param_id up[2] = {PARAM_EXPERT_GATE_W, PARAM_EXPERT_UP_W};
    static const enum param_id down = PARAM_EXPERT_DOWN_W;
    const int first = p->count;

    plan_weights(p, &e->up, &e->dup, up, 2, place);
    for (int i = 0; i < 2; i++) {
        e->part[i] = p->weights[first + i].dw;
    }
    plan_weights(p, &e->down, &e->ddown, &down, 1, place);
}

static void plan_router(struct moe *m, struct planner *p)
{
    static const enum param_id router = PARAM_ROUTER_W;
    const struct dims *d = p->d;
    const int64_t R = d->R_sp, k = d->arch.moe.k;

    plan_weights(p, &m->router, &m->drouter, &router, 1, m->layer);
    m->route.choice = plan_keep(p, DTYPE_I32, R, k);
    m->route.weight = plan_keep(p, DTYPE_REAL, R, k);
    m->route.probability = plan_keep(p, DTYPE_REAL, R, d->E);
    m->route.lse = plan_keep(p, DTYPE_REAL, R, 1);
    m->stats = plan_keep(p, DTYPE_REAL, 1, 2 * d->E + 1);
    m->slot = plan_keep(p, DTYPE_I32, R, k * d->etp);
    m->source = plan_keep(p, DTYPE_I32, rows_sent(d), 1);
    m->counts = plan_keep(p, DTYPE_I32, group_size(d), d->E * d->etp);
}

static void plan_shared(struct moe *m, struct planner *p)
{
    static const enum param_id mix = PARAM_SHARED_MIX_W;
    const struct dims *d = p->d;

    if (d->Y > 0) {
        plan_weights(p, &m->mix, &m->dmix, &mix, 1, m->layer);
        m->beside = plan_keep(p, d->act, d->R_sp, d->D);
        m->gate = plan_keep(p, DTYPE_REAL, d->R_sp, 1);
        mlp_plan(&m->shared, p, MLP_SHARED, m->layer);
    }
}

static void plan_backward(struct moe *m, struct planner *p)
{
    const struct dims *d = p->d;
    const int64_t rows = moe_rows(d);

    m->da = plan_scratch(p, d->act, rows, d->X_etp);
    m->dh = plan_scratch(p, d->act, rows, 2 * d->X_etp);
    m->part = plan_scratch(p, d->act, rows, d->X_etp);
    m->dlogits = plan_scratch(p, d->act, d->R_sp, d->E);
    m->dweight = plan_scratch(p, DTYPE_REAL, d->R_sp, d->arch.moe.k);
    m->pull = plan_scratch(p, DTYPE_REAL, 1, d->E);
    if (d->Y > 0) {
        m->dbeside = plan_scratch(p, d->act, d->R_sp, d->D);
        m->dgate = plan_scratch(p, d->act, d->R_sp, 1);
        m->dx = plan_scratch(p, d->act, d->R_sp, d->D);
    }
}

void moe_plan(struct moe *m, struct planner *p, int layer)
{
    const struct dims *d = p->d;
    const size_t scratch = layout_mark(p->lo, LIFE_SCRATCH);
    const int64_t rows = moe_rows(d);
    const bool alone = group_size(d) == 1;

    CHECK(group_size(d) <= MOE_RANKS && d->sp == d->tp, "experts on %d ranks, sp %d of %d",
          group_size(d), d->sp, d->tp);
    m->layer = layer;
    m->again = plan_rebuilds(p, REBUILD_MLP);
    m->sends_again = m->again || alone;
    plan_router(m, p);
    for (int i = 0; i < d->E_ep; i++) {
        plan_expert(&m->experts[i], p, param_place(&d->arch, layer, (int)d->E0 + i));
    }
    m->back = plan_keep(p, d->act, rows_sent(d), d->D);
    m->h = plan_keep_part(p, REBUILD_MLP, d->act, rows, 2 * d->X_etp);
    m->in = tensor_none();
    if (!m->sends_again) {
        m->in = plan_keep(p, d->act, rows, d->D);
    }
    plan_shared(m, p);
    const size_t kept = layout_mark(p->lo, LIFE_SCRATCH);
    if (m->sends_again) {
        m->in = plan_scratch(p, d->act, rows, d->D);
    }
    m->logits = plan_scratch(p, DTYPE_REAL, d->R_sp, d->E);
    m->a = plan_scratch(p, d->act, rows, d->X_etp);
    m->sent = alone ? m->in : plan_scratch(p, d->act, rows_sent(d), d->D);
    m->out = alone ? m->back : plan_scratch(p, d->act, rows, d->D);
    if (d->training) {
        plan_backward(m, p);
    }
    /* What is rebuilt stays until the block has been through backward. */
    layout_release(p->lo, LIFE_SCRATCH, d->training && !p->below ? kept : scratch);
}

/* All of a tensor that is no rows of this call, in its slot. */
static struct tensor all_of(const struct ctx *c, struct tensor t)
{
    return here_rows(c, t, t.dim[0]);
}

static struct routing route_here(const struct moe *m, const struct ctx *c)
{
    return (struct routing){.choice = here(c, m->route.choice),
                            .weight = here(c, m->route.weight),
                            .probability = here(c, m->route.probability),
                            .lse = here(c, m->route.lse)};
}

/* What all-to-alls take: rows from and to each rank of the group. */
struct rows {
    int64_t in[MOE_RANKS], out[MOE_RANKS], in_all, out_all;
};

/* Rows that rank `from` of the group sends to expert i of rank `to`. */
static int64_t rows_of(const struct ctx *c, struct tensor counts, int64_t from, int64_t to,
                       int64_t i)
{
    return ((const int32_t *)counts.data)[from * tensor_cols(counts) + to * c->d->E_ep + i];
}

static struct rows count_rows(const struct moe *m, const struct ctx *c)
{
    const struct tensor counts = all_of(c, m->counts);
    const int mine = c->ep->rank;
    struct rows n = {.in_all = 0};

    for (int r = 0; r < c->ep->size; r++) {
        for (int64_t i = 0; i < c->d->E_ep; i++) {
            n.out[r] += rows_of(c, counts, mine, r, i);
            n.in[r] += rows_of(c, counts, r, mine, i);
        }
        n.in_all += n.in[r];
        n.out_all += n.out[r];
    }
    CHECK(n.in_all <= m->h.dim[0], "%lld rows for the experts of a rank, which has room for %lld",
          (long long)n.in_all, (long long)m->h.dim[0]);
    return n;
}

/* Rows to where the experts are; or, `back`, to where they came from. */
static void exchange(const struct ctx *c, struct tensor to, struct tensor from,
                     const struct rows *n, bool back)
{
    if (c->ep->size > 1) {
        comm_wait(c->ep, c->q,
                  comm_start_all_to_all(c->ep, c->q, to, back ? n->out : n->in, from,
                                        back ? n->in : n->out));
    }
}

/* Statistics of all rows of the microbatch, of which sequence-parallel ranks have some each. */
static void see_balance(const struct moe *m, const struct ctx *c, const struct routing *r)
{
    const struct tensor stats = all_of(c, m->stats);
    const double T = (double)moe_balanced_rows(c), k = (double)c->d->arch.moe.k,
                 E = (double)c->d->E;

    c->k->route_stats(c->q, stats, r);
    if (c->d->sp > 1) {
        comm_all_reduce(c->tp, c->q, stats);
    }
    if (c->d->cp > 1) {
        comm_all_reduce(c->cp, c->q, stats);
    }
    if (c->again || !c->balances) {
        return;
    }
    c->k->add(c->q, c->balance, c->balance, stats);
    if (c->d->cp_rank == 0) { /* of those that share sequences one tells */
        c->k->route_losses(c->q, c->balance_sums, stats, c->d->aux_all ? 0.0 : E / (k * T * T),
                           1.0 / T);
    }
}

/* Where each row goes. */
static void send_where(const struct moe *m, const struct ctx *c, const struct routing *r)
{
    const struct route_grid grid = {c->d->E, c->d->ep, c->d->etp};
    const struct tensor counts = all_of(c, m->counts);
    const struct tensor mine = tensor_slice(counts, c->ep->rank, 1);

    CHECK(c->ep->size == group_size(c->d), "experts on %d ranks in a group of %d", group_size(c->d),
          c->ep->size);
    c->k->route_order(c->q, here(c, m->slot), here(c, m->source), mine, r->choice, &grid);
    if (c->ep->size > 1) {
        comm_wait(c->ep, c->q, comm_start_all_gather(c->ep, c->q, counts, mine));
    }
}

static struct tensor inputs_of(const struct moe *m, const struct ctx *c, const struct rows *n)
{
    return here_rows(c, m->in, n->in_all);
}

/* The rows of x that experts get. */
static void send(const struct moe *m, const struct ctx *c, struct tensor x, const struct rows *n)
{
    const struct tensor sent = here_rows(c, m->sent, n->out_all);

    c->k->embedding_forward(c->q, sent, here_rows(c, m->source, n->out_all), x, 0, tensor_none(),
                            tensor_none());
    exchange(c, inputs_of(m, c, n), sent, n, false);
}

/* The rows of one expert from one rank. */
struct segment {
    struct tensor in, h, a, da, dh, part, out;
};

static struct segment segment_at(const struct moe *m, const struct ctx *c, int64_t row,
                                 int64_t rows)
{
    const struct rows all = {.in_all = row + rows};
    struct segment s = {.in = tensor_slice(inputs_of(m, c, &all), row, rows),
                        .h = tensor_slice(here_rows(c, m->h, row + rows), row, rows),
                        .a = tensor_slice(m->a, row, rows),
                        .out = tensor_slice(here_rows(c, m->out, row + rows), row, rows)};

    if (c->d->training) {
        s.da = tensor_slice(m->da, row, rows);
        s.dh = tensor_slice(m->dh, row, rows);
        s.part = tensor_slice(m->part, row, rows);
    }
    return s;
}

typedef void each_segment(const struct ctx *c, const struct expert *e, const struct segment *s);

static void each(const struct moe *m, const struct ctx *c, each_segment *call)
{
    const struct tensor counts = all_of(c, m->counts);
    int64_t row = 0;

    for (int r = 0; r < c->ep->size; r++) {
        for (int64_t i = 0; i < c->d->E_ep; i++) {
            const int64_t rows = rows_of(c, counts, r, c->ep->rank, i);
            if (rows > 0) {
                const struct segment s = segment_at(m, c, row, rows);
                call(c, &m->experts[i], &s);
            }
            row += rows;
        }
    }
}

static void enter(const struct ctx *c, const struct expert *e, const struct segment *s)
{
    product_forward(c, s->h, s->in, e->up);
}

static void pass(const struct ctx *c, const struct expert *e, const struct segment *s)
{
    enter(c, e, s);
    c->k->swiglu_forward(c->q, s->a, s->h);
    product_forward(c, s->out, s->a, e->down);
}

/* s->out holds the gradient of what came out, then that of what went in. */
static void pass_back(const struct ctx *c, const struct expert *e, const struct segment *s)
{
    c->k->swiglu_forward(c->q, s->a, s->h); /* cheaper to repeat than to keep */
    if (tensor_count(e->ddown) > 0) {
        c->k->gemm(c->q, e->ddown, s->out, TRANSPOSED, s->a, AS_IS, 1.0F);
    }
    c->k->gemm(c->q, s->da, s->out, AS_IS, e->down, AS_IS, 0.0F);
    c->k->swiglu_backward(c->q, s->dh, s->da, s->h);
    if (tensor_count(e->dup) > 0) {
        c->k->gemm(c->q, e->dup, s->dh, TRANSPOSED, s->in, AS_IS, 1.0F);
    }
    for (int i = 0; i < 2 && tensor_count(e->dup) == 0; i++) {
        if (tensor_count(e->part[i]) > 0) {
            c->k->take_columns(c->q, s->part, s->dh, i * c->d->X_etp);
            c->k->gemm(c->q, e->part[i], s->part, TRANSPOSED, s->in, AS_IS, 1.0F);
        }
    }
    c->k->gemm(c->q, s->out, s->dh, AS_IS, e->up, AS_IS, 0.0F);
}

/* y += what the MLP beside the experts gives. */
static void add_shared(const struct moe *m, const struct ctx *c, struct tensor y, struct tensor x)
{
    const struct tensor beside = here(c, m->beside), gate = here(c, m->gate);

    mlp_forward(&m->shared, c, beside, x);
    product_forward(c, gate, x, m->mix);
    c->k->gate_rows_forward(c->q, y, beside, gate);
}

void moe_forward(const struct moe *m, const struct ctx *c, struct tensor y, struct tensor x)
{
    const struct tensor logits = here(c, m->logits);
    const struct routing r = route_here(m, c);

    product_forward(c, logits, x, m->router);
    c->k->route_forward(c->q, &r, logits, c->d->arch.moe.renormalise);
    if (c->training) {
        see_balance(m, c, &r);
    }
    send_where(m, c, &r);
    const struct rows n = count_rows(m, c);
    send(m, c, x, &n);
    each(m, c, pass);
    const struct tensor back = here_rows(c, m->back, n.out_all);
    exchange(c, back, here_rows(c, m->out, n.in_all), &n, true);
    c->k->combine_forward(c->q, y, back, here(c, m->slot), r.weight);
    if (c->d->Y > 0) {
        add_shared(m, c, y, x);
    }
}

/* dx += the gradient of x through the MLP beside. */
static void shared_backward(const struct moe *m, const struct ctx *c, struct tensor dx,
                            struct tensor dy, struct tensor x)
{
    const struct tensor dbeside = here(c, m->dbeside), dgate = here(c, m->dgate);
    const struct tensor more = here(c, m->dx);

    c->k->gate_rows_backward(c->q, dbeside, dgate, dy, here(c, m->beside), here(c, m->gate));
    mlp_backward(&m->shared, c, more, dbeside, x);
    c->k->add(c->q, dx, dx, more);
    if (tensor_count(m->dmix) > 0) {
        c->k->gemm(c->q, m->dmix, dgate, TRANSPOSED, x, AS_IS, 1.0F);
    }
    c->k->gemm(c->q, dx, dgate, AS_IS, m->mix, AS_IS, 1.0F);
}

/* dx += the gradient of x through the router, of the losses for balance too. */
static void router_backward(const struct moe *m, const struct ctx *c, struct tensor dx,
                            struct tensor x)
{
    const struct tensor dlogits = here(c, m->dlogits), weight = here(c, m->dweight);
    const struct routing r = route_here(m, c);
    const struct dims *d = c->d;
    const double T = (double)moe_balanced_rows(c), E = (double)d->E, k = (double)d->arch.moe.k;
    const double L = (double)arch_sparse_layers(&d->arch), by = c->balance_scale;
    const struct tensor from = d->aux_all ? c->balance : all_of(c, m->stats);
    const double aux = d->aux_all ? E / (L * T * L * T) : E / (k * T * T);

    c->k->cast(c->q, m->pull, tensor_make(from.data, from.type, 1, d->E));
    c->k->scale(c->q, m->pull, by * d->aux_coef * aux);
    c->k->route_backward(c->q, dlogits, weight, &r, m->pull, by * d->z_coef * 2.0 / T,
                         d->arch.moe.renormalise);
    if (tensor_count(m->drouter) > 0) {
        c->k->gemm(c->q, m->drouter, dlogits, TRANSPOSED, x, AS_IS, 1.0F);
    }
    c->k->gemm(c->q, dx, dlogits, AS_IS, m->router, AS_IS, 1.0F);
}

void moe_backward(const struct moe *m, const struct ctx *c, struct tensor dx, struct tensor dy,
                  struct tensor x)
{
    const struct rows n = count_rows(m, c);
    const struct tensor back = here_rows(c, m->back, n.out_all);
    const struct tensor out = here_rows(c, m->out, n.in_all), slot = here(c, m->slot);

    if (m->sends_again) {
        send(m, c, x, &n);
    }
    if (m->again) {
        each(m, c, enter);
    }
    c->k->combine_backward(c->q, back, here(c, m->dweight), dy, slot, here(c, m->route.weight));
    exchange(c, out, back, &n, false);
    each(m, c, pass_back);
    exchange(c, back, out, &n, true);
    c->k->combine_forward(c->q, dx, back, slot, tensor_none());
    router_backward(m, c, dx, x);
    if (c->d->Y > 0) {
        shared_backward(m, c, dx, dy, x);
    }
}
