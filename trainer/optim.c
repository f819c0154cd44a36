/* optim.c - the optimizer step, on whole weights or on this rank's slices of them. */
#include "trainer/optim.h"

#include <math.h>
#include <string.h>

#include "trainer/shares.h"

static bool is_trained(const struct weight *w)
{
    return tensor_count(w->dw) > 0;
}

static struct stretch stretch_of(const struct weight *w)
{
    return (struct stretch){w->flat, is_trained(w) ? tensor_count(w->dw) : 0};
}

/* Elements [from, from + count) of a tensor as a vector. */
static struct tensor part_of(struct tensor t, int64_t from, int64_t count)
{
    char *at = (char *)t.data + (size_t)from * dtype_size(t.type);

    return tensor_make(at, t.type, count, 1);
}

void grads_zero(const struct model *m, const struct kernels *k, struct queue *q)
{
    if (m->flat.slices > 1) {
        k->zero(q, m->grads); /* gaps take part in sums */
        return;
    }
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
        if (is_trained(w) && m->flat.slices == 1) {
            comm_all_reduce(g->dp, q, w->dw);
        }
    }
    for (int b = 0; b < flat_buckets(&m->flat) && m->flat.slices > 1; b++) {
        const struct stretch all = flat_bucket(&m->flat, b), mine = flat_slice(&m->flat, b);
        comm_wait(g->dp, q,
                  comm_start_reduce_scatter(g->dp, q, part_of(m->grads, mine.at, mine.count),
                                            part_of(m->grads, all.at, all.count)));
    }
}

/* Call `each` for every piece of a trained weight that lies in the stretch. */
typedef void each_piece(const struct model *m, const struct weight *w, struct stretch piece,
                        void *context);
static void for_pieces(const struct model *m, struct stretch of, each_piece *each, void *context)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct stretch piece = stretch_common(of, stretch_of(&m->weights[i]));
        if (piece.count > 0) {
            each(m, &m->weights[i], piece, context);
        }
    }
}

/* What the pieces of a call share. */
struct pass {
    const struct kernels *k;
    struct queue *q;
    const struct adamw *a;
    struct stretch slice; /* this rank's of the bucket   */
    int64_t state;        /* where its state begins      */
    struct stretch all;   /* the bucket                  */
    uint64_t seed;
};

static void add_squares(const struct model *m, const struct weight *w, struct stretch piece,
                        void *context)
{
    struct pass *p = context;

    if (share_of(w->id, &m->d).is_first) {
        p->k->sum_squares(p->q, m->square_sum, part_of(m->grads, piece.at, piece.count));
    }
}

double grads_norm(const struct model *m, const struct kernels *k, struct queue *q,
                  const struct grad_groups *g)
{
    struct pass p = {.k = k, .q = q};

    k->zero(q, m->square_sum);
    for (int i = 0; i < m->weight_count && m->flat.slices == 1; i++) {
        const struct weight *w = &m->weights[i];
        if (is_trained(w) && share_of(w->id, &m->d).is_first) {
            k->sum_squares(q, m->square_sum, w->dw);
        }
    }
    for (int b = 0; b < flat_buckets(&m->flat) && m->flat.slices > 1; b++) {
        for_pieces(m, flat_slice(&m->flat, b), add_squares, &p);
    }
    if (m->flat.slices > 1) {
        comm_all_reduce(g->dp, q, m->square_sum);
    }
    comm_all_reduce(g->tp, q, m->square_sum);
    return sqrt(*(const double *)m->square_sum.data);
}

double grads_clip_scale(double norm, double clip)
{
    const double scale = clip / (norm + 1e-6);

    return clip > 0.0 && scale < 1.0 ? scale : 1.0;
}

static struct adamw choice_for(const struct model *m, const struct weight *w, const struct adamw *a)
{
    struct adamw one = *a;

    if (param_get(w->id, &m->d.arch).vector) {
        one.weight_decay = 0.0;
    }
    return one;
}

static void step_whole(const struct model *m, const struct kernels *k, struct queue *q,
                       const struct adamw *a)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const bool rounded = w->w.data != w->master.data;
        const struct adamw one = choice_for(m, w, a);
        if (is_trained(w)) {
            k->adamw(q, w->master, w->m, w->v, rounded ? w->w : tensor_none(), w->dw, &one);
        }
    }
}

/* Where the state of a piece lies. */
static struct tensor state_of(const struct model *m, const struct pass *p, int which,
                              struct stretch piece)
{
    return part_of(m->state[which], p->state + piece.at - p->slice.at, piece.count);
}

static void step_piece(const struct model *m, const struct weight *w, struct stretch piece,
                       void *context)
{
    struct pass *p = context;
    const struct adamw one = choice_for(m, w, p->a);
    const struct tensor weights = part_of(w->w, piece.at - w->flat, piece.count);
    const struct tensor master = m->d.masters ? state_of(m, p, 2, piece) : weights;

    p->k->adamw(p->q, master, state_of(m, p, 0, piece), state_of(m, p, 1, piece),
                m->d.masters ? weights : tensor_none(), part_of(m->grads, piece.at, piece.count),
                &one);
    memcpy(part_of(m->gathered, piece.at - p->all.at, piece.count).data, weights.data,
           tensor_bytes(weights));
}

static void take_piece(const struct model *m, const struct weight *w, struct stretch piece,
                       void *context)
{
    const struct pass *p = context;
    const struct tensor to = part_of(w->w, piece.at - w->flat, piece.count);

    memcpy(to.data, part_of(m->gathered, piece.at - p->all.at, piece.count).data, tensor_bytes(to));
}

static void step_slices(const struct model *m, struct pass *p, struct comm *dp)
{
    for (int b = 0; b < flat_buckets(&m->flat); b++) {
        p->all = flat_bucket(&m->flat, b);
        p->slice = flat_slice(&m->flat, b);
        p->state = flat_state(&m->flat, b);
        for_pieces(m, p->slice, step_piece, p);
        comm_wait(
            dp, p->q,
            comm_start_all_gather(dp, p->q, part_of(m->gathered, 0, p->all.count),
                                  part_of(m->gathered, p->slice.at - p->all.at, p->slice.count)));
        for_pieces(m, p->all, take_piece, p);
    }
}

void optim_step(const struct model *m, const struct kernels *k, struct queue *q,
                const struct adamw *a, const struct grad_groups *g)
{
    if (m->flat.slices == 1) {
        step_whole(m, k, q, a);
    } else {
        step_slices(m, &(struct pass){.k = k, .q = q, .a = a}, g->dp);
    }
}

/* A piece in stretches of rows. */
static void init_piece(const struct model *m, const struct weight *w, struct stretch piece,
                       void *context)
{
    const struct pass *p = context;
    const struct share s = share_of(w->id, &m->d);
    real *out = state_of(m, p, 2, piece).data;

    for (int64_t done = 0; done < piece.count;) {
        const int64_t at = piece.at - w->flat + done, col = at % s.cols;
        const int64_t left = piece.count - done, n = s.cols - col < left ? s.cols - col : left;
        const struct param_stretch stretch = {share_row(&s, at / s.cols), s.col0 + col, n};
        if (stretch.row < 0) {
            memset(out + done, 0, (size_t)n * sizeof *out);
        } else {
            param_init(out + done, w->id, &m->d.arch, w->layer, p->seed, stretch);
        }
        done += n;
    }
}

void optim_init_masters(const struct model *m, uint64_t seed)
{
    struct pass p = {.seed = seed};

    for (int b = 0; b < flat_buckets(&m->flat) && tensor_count(m->state[2]) > 0; b++) {
        p.all = flat_bucket(&m->flat, b);
        p.slice = flat_slice(&m->flat, b);
        p.state = flat_state(&m->flat, b);
        for_pieces(m, p.slice, init_piece, &p);
    }
}
