/* grads.c - sums of gradients over ranks, and their norm. */
#include "trainer/grads.h"

#include <math.h>

#include "trainer/pieces.h"
#include "trainer/shares.h"

void grads_zero(const struct model *m, const struct kernels *k, struct queue *q)
{
    if (m->flat.slices > 1) {
        k->zero(q, m->grads); /* gaps take part in sums */
        return;
    }
    for (int i = 0; i < m->weight_count; i++) {
        if (weight_is_trained(&m->weights[i])) {
            k->zero(q, m->weights[i].dw);
        }
    }
}

void grads_sum(const struct model *m, const struct grad_groups *g, struct queue *q)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct share s = share_of(w->id, &m->d);
        if (weight_is_trained(w) && s.is_partial) {
            comm_all_reduce(s.copies == m->d.tp ? g->tp : g->kv, q, w->dw);
        }
        if (weight_is_trained(w) && s.on_two_stages) {
            comm_all_reduce(g->embedding, q, w->dw);
        }
        if (weight_is_trained(w) && m->flat.slices == 1) {
            comm_all_reduce(g->dp, q, w->dw);
        }
    }
    for (int b = 0; b < flat_buckets(&m->flat) && m->flat.slices > 1; b++) {
        const struct stretch all = flat_bucket(&m->flat, b), mine = flat_slice(&m->flat, b);
        comm_wait(g->dp, q,
                  comm_start_reduce_scatter(g->dp, q, piece_tensor(m->grads, mine.at, mine.count),
                                            piece_tensor(m->grads, all.at, all.count)));
    }
}

/* What the pieces of a norm share. */
struct squares {
    const struct kernels *k;
    struct queue *q;
};

static void add_squares(const struct model *m, const struct weight *w, struct stretch piece,
                        void *context)
{
    const struct squares *p = context;

    if (share_of(w->id, &m->d).is_first) {
        p->k->sum_squares(p->q, m->square_sum, piece_tensor(m->grads, piece.at, piece.count));
    }
}

double grads_norm(const struct model *m, const struct kernels *k, struct queue *q,
                  const struct grad_groups *g)
{
    struct squares p = {k, q};

    k->zero(q, m->square_sum);
    for (int i = 0; i < m->weight_count && m->flat.slices == 1; i++) {
        const struct weight *w = &m->weights[i];
        if (weight_is_trained(w) && share_of(w->id, &m->d).is_first) {
            k->sum_squares(q, m->square_sum, w->dw);
        }
    }
    for (int b = 0; b < flat_buckets(&m->flat) && m->flat.slices > 1; b++) {
        pieces_each(m, flat_slice(&m->flat, b), add_squares, &p);
    }
    if (m->flat.slices > 1) {
        comm_all_reduce(g->dp, q, m->square_sum);
    }
    comm_all_reduce(g->tp, q, m->square_sum);
    comm_all_reduce(g->pp, q, m->square_sum);
    return sqrt(*(const double *)m->square_sum.data);
}

double grads_clip_scale(double norm, double clip)
{
    const double scale = clip / (norm + 1e-6);

    return clip > 0.0 && scale < 1.0 ? scale : 1.0;
}
