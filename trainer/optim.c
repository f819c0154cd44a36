/* optim.c - the optimizer step of a rank that holds everything. */
#include "trainer/optim.h"

#include <math.h>

#include "trainer/shares.h"

static bool is_trained(const struct weight *w)
{
    return tensor_count(w->dw) > 0;
}

void grads_zero(const struct model *m, const struct kernels *k, struct queue *q)
{
    for (int i = 0; i < m->weight_count; i++) {
        if (is_trained(&m->weights[i])) {
            k->zero(q, m->weights[i].dw);
        }
    }
}

void grads_sum(const struct model *m, const struct grad_groups *g, struct queue *q)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct share s = share_of(w->id, &m->d);
        if (is_trained(w) && s.is_partial) {
            comm_all_reduce(s.copies == m->d.tp ? g->tp : g->kv, q, w->dw);
        }
        if (is_trained(w)) {
            comm_all_reduce(g->dp, q, w->dw);
        }
    }
}

double grads_norm(const struct model *m, const struct kernels *k, struct queue *q, struct comm *tp)
{
    k->zero(q, m->square_sum);
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        if (is_trained(w) && share_of(w->id, &m->d).is_first) {
            k->sum_squares(q, m->square_sum, w->dw);
        }
    }
    comm_all_reduce(tp, q, m->square_sum);
    return sqrt(*(const double *)m->square_sum.data);
}

double grads_clip_scale(double norm, double clip)
{
    const double scale = clip / (norm + 1e-6);

    return clip > 0.0 && scale < 1.0 ? scale : 1.0;
}

void optim_step(const struct model *m, const struct kernels *k, struct queue *q,
                const struct adamw *a)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const bool rounded = w->w.data != w->master.data;
        struct adamw one = *a;

        if (!is_trained(w)) {
            continue;
        }
        if (param_get(w->id, &m->d.arch).vector) {
            one.weight_decay = 0.0;
        }
        k->adamw(q, w->master, w->m, w->v, rounded ? w->w : tensor_none(), w->dw, &one);
    }
}
