/* head.c - final norm, logits by chunks, cross entropy.
 *
 * Logits of a whole microbatch would be the largest tensor of a run by far (R x V). They are made for
 * `chunk` rows at a time, turned into loss and gradient at once, and forgotten.
 */
#include "trainer/layers/layer.h"

void head_plan(struct head *h, struct planner *p, const struct embedding *e)
{
    static const enum param_id id = PARAM_HEAD;
    const struct dims *d = p->d;
    const size_t scratch = layout_mark(p->lo, LIFE_SCRATCH);

    p->rebuilt = REBUILD_BLOCK; /* backward begins with the norm: nothing of it is kept */
    norm_plan(&h->norm, p, PARAM_NORM_W, PARAM_NORM_B, 0);
    h->w = e->w;
    h->dw = e->dw;
    if (!d->arch.tied) {
        plan_weights(p, &h->w, &h->dw, &id, 1, 0);
    }
    h->h = plan_scratch(p, d->act, d->R, d->D);
    h->h_sp = d->sp > 1 ? plan_scratch(p, d->act, d->R_sp, d->D) : h->h;
    h->logits = plan_scratch(p, DTYPE_REAL, d->chunk, d->V_tp);
    h->dlogits = h->logits;
    h->stats = plan_scratch(p, DTYPE_REAL, d->chunk, 3);
    h->loss = plan_scratch(p, DTYPE_REAL, d->chunk, 1);
    h->parts = tensor_none();
    if (d->tp > 1) {
        h->parts = plan_scratch(p, DTYPE_REAL, d->chunk * d->tp, 3);
    }
    if (d->training) {
        h->dh = plan_scratch(p, d->act, d->R, d->D);
        h->dh_sp = d->sp > 1 ? plan_scratch(p, d->act, d->R_sp, d->D) : h->dh;
        if (d->act != DTYPE_REAL) {
            h->dlogits = plan_scratch(p, d->act, d->chunk, d->V_tp);
        }
    }
    layout_release(p->lo, LIFE_SCRATCH, scratch);
}

/* Statistics of this rank's part of the vocabulary become those of all of it. */
static void combine_ranks(const struct head *h, const struct ctx *c, struct tensor stats)
{
    if (c->tp->size == 1) {
        return;
    }
    const struct tensor parts =
        tensor_slice(h->parts, 0, tensor_rows(stats) * (int64_t)c->tp->size);
    comm_wait(c->tp, c->q, comm_start_all_gather(c->tp, c->q, parts, stats));
    c->k->cross_entropy_merge(c->q, stats, parts);
}

/* Rows [row, row + rows) of the normed input: logits, statistics, and their losses to loss_sum, what is predicted right to hits. */
static void losses_of(const struct head *h, const struct ctx *c, int64_t row, int64_t rows)
{
    const struct tensor logits = tensor_slice(h->logits, 0, rows);
    const struct tensor stats = tensor_slice(h->stats, 0, rows);
    const struct tensor loss = tensor_slice(h->loss, 0, rows);
    const struct tensor labels = tensor_slice(c->batch.labels, row, rows);

    c->k->gemm(c->q, logits, tensor_slice(h->h, row, rows), AS_IS, h->w, TRANSPOSED, 0.0F);
    c->k->cross_entropy_stats(c->q, stats, logits, labels, c->d->V0, c->d->V);
    combine_ranks(h, c, stats);
    c->k->cross_entropy_loss(c->q, loss, stats, labels);
    c->k->sum(c->q, h->loss_sum, loss);
    c->k->cross_entropy_hits(c->q, h->hits, stats, labels);
}

static int64_t chunk_at(const struct ctx *c, int64_t row)
{
    return c->rows - row < c->d->chunk ? c->rows - row : c->d->chunk;
}

/* The final norm; every rank has all rows of it. */
static void make_input(const struct head *h, const struct ctx *c, struct tensor x)
{
    norm_forward(&h->norm, c, here(c, h->h_sp), x);
    (void)tp_enter_forward(c, h->h, here(c, h->h_sp));
}

void head_forward(const struct head *h, const struct ctx *c, struct tensor x)
{
    make_input(h, c, x);
    for (int64_t row = 0; row < c->rows; row += c->d->chunk) {
        losses_of(h, c, row, chunk_at(c, row));
    }
}

void head_backward(const struct head *h, const struct ctx *c, struct tensor dx, struct tensor x,
                   double scale)
{
    const bool ends = h->lowest && !norm_is_trained(&h->norm);

    make_input(h, c, x);
    for (int64_t row = 0; row < c->rows; row += c->d->chunk) {
        const int64_t rows = chunk_at(c, row);
        const struct tensor dlogits = tensor_slice(h->dlogits, 0, rows);

        losses_of(h, c, row, rows);
        c->k->cross_entropy_backward(
            c->q, dlogits, tensor_slice(h->logits, 0, rows), tensor_slice(h->stats, 0, rows),
            tensor_slice(c->batch.labels, row, rows), c->d->V0, c->d->V, scale);
        if (tensor_count(h->dw) > 0) {
            c->k->gemm(c->q, h->dw, dlogits, TRANSPOSED, tensor_slice(h->h, row, rows), AS_IS,
                       1.0F);
        }
        if (!ends) {
            c->k->gemm(c->q, tensor_slice(h->dh, row, rows), dlogits, AS_IS, h->w, AS_IS, 0.0F);
        }
    }
    if (!ends) {
        tp_enter_backward(c, here(c, h->dh_sp), here(c, h->dh));
        norm_backward(&h->norm, c, dx, here(c, h->dh_sp), x);
    }
}

struct tensor head_logits(const struct head *h, const struct ctx *c, struct tensor x)
{
    const int64_t rows = tensor_rows(x);
    const struct tensor logits = tensor_slice(h->logits, 0, rows);
    struct ctx some = *c;

    some.rows = rows * c->d->sp; /* the norm's tensors are of x's kind */
    norm_forward(&h->norm, &some, here(&some, h->h_sp), x);
    product_forward(c, logits, here(&some, h->h_sp), h->w);
    return logits;
}
