/* grads.c - sums of gradients over ranks, and their norm. */
#include "trainer/grads.h"

#include <math.h>

#include "trainer/pieces.h"
#include "trainer/shares.h"

/* Whose gradients of the same parameters a vector's are summed over. */
static struct comm *group_of(const struct grad_groups *g, enum vector_id vector)
{
    return vector == VECTOR_EXPERTS ? g->edp : g->dp;
}

void grads_zero(const struct model *m, const struct kernels *k, struct queue *q)
{
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        if (vector_is_divided(m, v) && tensor_count(m->vectors[v].grads) > 0) {
            k->zero(q, m->vectors[v].grads); /* gaps take part in sums */
        }
    }
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        if (weight_is_trained(w) && !vector_is_divided(m, w->vector)) {
            k->zero(q, w->dw);
        }
    }
}

static void sum_weight(const struct model *m, const struct weight *w, const struct grad_groups *g,
                       struct queue *q)
{
    const struct share s = share_of(w->id, &m->d);

    if (s.is_partial) {
        comm_all_reduce(s.copies == m->d.tp ? g->tp : g->kv, q, w->dw);
    }
    if (s.on_two_stages) {
        comm_all_reduce(g->embedding, q, w->dw);
    }
    if (!vector_is_divided(m, w->vector)) {
        comm_all_reduce(group_of(g, w->vector), q, w->dw);
    }
}

static void sum_vector(const struct vector *v, struct comm *c, struct queue *q)
{
    for (int b = 0; b < flat_buckets(&v->flat); b++) {
        const struct stretch all = flat_bucket(&v->flat, b), mine = flat_slice(&v->flat, b);
        comm_wait(c, q,
                  comm_start_reduce_scatter(c, q, piece_tensor(v->grads, mine.at, mine.count),
                                            piece_tensor(v->grads, all.at, all.count)));
    }
}

void grads_sum(const struct model *m, const struct grad_groups *g, struct queue *q)
{
    for (int i = 0; i < m->weight_count; i++) {
        if (weight_is_trained(&m->weights[i])) {
            sum_weight(m, &m->weights[i], g, q);
        }
    }
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        if (vector_is_divided(m, v)) {
            sum_vector(&m->vectors[v], group_of(g, v), q);
        }
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
        p->k->sum_squares(p->q, m->square_sum,
                          piece_tensor(m->vectors[w->vector].grads, piece.at, piece.count));
    }
}

/* Of the parameters of a vector that the ranks of a stage have, each once, into m->square_sum. */
static void sum_squares(const struct model *m, const struct squares *p, enum vector_id vector,
                        const struct grad_groups *g)
{
    const struct flat *flat = &m->vectors[vector].flat;
    struct squares squares = *p;

    p->k->zero(p->q, m->square_sum);
    for (int i = 0; i < m->weight_count && flat->slices == 1; i++) {
        const struct weight *w = &m->weights[i];
        if (w->vector == vector && weight_is_trained(w) && share_of(w->id, &m->d).is_first) {
            p->k->sum_squares(p->q, m->square_sum, w->dw);
        }
    }
    for (int b = 0; b < flat_buckets(flat) && flat->slices > 1; b++) {
        pieces_each(m, vector, flat_slice(flat, b), add_squares, &squares);
    }
    if (flat->slices > 1) {
        comm_all_reduce(group_of(g, vector), p->q, m->square_sum);
    }
    comm_all_reduce(vector == VECTOR_EXPERTS ? g->ep : g->tp, p->q, m->square_sum);
}

double grads_norm(const struct model *m, const struct kernels *k, struct queue *q,
                  const struct grad_groups *g)
{
    const struct squares p = {k, q};
    double *sum = m->square_sum.data, experts = 0.0;

    if (m->d.E > 0) {
        sum_squares(m, &p, VECTOR_EXPERTS, g);
        experts = *sum;
    }
    sum_squares(m, &p, VECTOR_DENSE, g);
    *sum += experts;
    comm_all_reduce(g->pp, q, m->square_sum);
    return sqrt(*sum);
}

double grads_clip_scale(double norm, double clip)
{
    const double scale = clip / (norm + 1e-6);

    return clip > 0.0 && scale < 1.0 ? scale : 1.0;
}
