/* grads.c - sums of gradients over ranks, and their norm. */
#include "trainer/grads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int grads_open(struct grad_sums *s, const struct model *m, struct err *err)
{
    *s = (struct grad_sums){.m = m};
    s->final = calloc((size_t)m->weight_count + 1, sizeof *s->final);
    bool all = s->final != NULL;
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        s->missing[v] =
            calloc((size_t)flat_buckets(&m->vectors[v].flat) + 1, sizeof *s->missing[v]);
        all = all && s->missing[v] != NULL;
    }
    return all ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for %d gradients", m->weight_count);
}

void grads_close(struct grad_sums *s)
{
    free(s->final);
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        free(s->missing[v]);
    }
    *s = (struct grad_sums){0};
}

void grads_begin(struct grad_sums *s, const struct grad_groups *g, struct queue *q)
{
    const struct model *m = s->m;

    s->g = *g;
    s->q = q;
    s->started = s->ended = s->early = 0;
    memset(s->final, 0, (size_t)m->weight_count * sizeof *s->final);
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        const struct flat *flat = &m->vectors[v].flat;
        for (int b = 0; b < flat_buckets(flat) && vector_is_divided(m, v); b++) {
            s->missing[v][b] = 0;
            for (int i = 0; i < m->weight_count; i++) {
                s->missing[v][b] += weight_is_in(&m->weights[i], v, flat_bucket(flat, b));
            }
        }
    }
}

static void wait_oldest(struct grad_sums *s)
{
    const int at = s->ended++ % GRADS_PENDING;

    comm_wait(s->pending[at].comm, s->q, s->pending[at].ticket);
}

/* The place of an operation that is about to start. */
static comm_ticket *next_pending(struct grad_sums *s, struct comm *c)
{
    if (s->started - s->ended == GRADS_PENDING) {
        wait_oldest(s);
    }
    s->pending[s->started % GRADS_PENDING].comm = c;
    return &s->pending[s->started++ % GRADS_PENDING].ticket;
}

static void start_bucket(struct grad_sums *s, enum vector_id vector, int b)
{
    const struct vector *v = &s->m->vectors[vector];
    const struct stretch all = flat_bucket(&v->flat, b), mine = flat_slice(&v->flat, b);
    struct comm *c = group_of(&s->g, vector);
    comm_ticket *ticket = next_pending(s, c);

    *ticket = comm_start_reduce_scatter(c, s->q, piece_tensor(v->grads, mine.at, mine.count),
                                        piece_tensor(v->grads, all.at, all.count));
}

/* One weight has its gradient: what other tensor-parallel ranks have of it is added at once, so that what it is in can start. */
static void finish_weight(struct grad_sums *s, int i)
{
    const struct weight *w = &s->m->weights[i];
    const struct share share = share_of(w->id, &s->m->d);
    const struct flat *flat = &s->m->vectors[w->vector].flat;

    s->final[i] = true;
    if (!weight_is_trained(w)) {
        return;
    }
    if (share.is_partial) {
        comm_all_reduce(share.copies == s->m->d.tp ? s->g.tp : s->g.kv, s->q, w->dw);
    }
    if (share.on_two_stages) {
        comm_all_reduce(s->g.embedding, s->q, w->dw);
    }
    if (!vector_is_divided(s->m, w->vector)) {
        struct comm *c = group_of(&s->g, w->vector);
        comm_ticket *ticket = next_pending(s, c);
        *ticket = comm_start_all_reduce(c, s->q, w->dw, COMM_SUM);
        return;
    }
    for (int b = flat_buckets(flat) - 1; b >= 0; b--) {
        if (weight_is_in(w, w->vector, flat_bucket(flat, b)) && --s->missing[w->vector][b] == 0) {
            start_bucket(s, w->vector, b);
        }
    }
}

void grads_final(struct grad_sums *s, int from, int to)
{
    for (int i = to - 1; i >= from; i--) {
        /* first and last stage meet when both are through */
        if (!s->final[i] && !share_of(s->m->weights[i].id, &s->m->d).on_two_stages) {
            finish_weight(s, i);
        }
    }
    s->early = s->started;
}

void grads_finish(struct grad_sums *s)
{
    for (int i = s->m->weight_count - 1; i >= 0; i--) {
        if (!s->final[i]) {
            finish_weight(s, i);
        }
    }
    while (s->ended < s->started) {
        wait_oldest(s);
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
