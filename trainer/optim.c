/* optim.c - the optimizer step, on whole weights or on this rank's slices of them. */
#include "trainer/optim.h"

#include <string.h>

#include "trainer/pieces.h"
#include "trainer/shares.h"

/* What the pieces of a call share. */
struct pass {
    const struct kernels *k;
    struct queue *q;
    const struct adamw *a;
    enum vector_id vector;
    struct stretch slice; /* this rank's of the bucket   */
    int64_t state;        /* where its state begins      */
    struct stretch all;   /* the bucket                  */
    uint64_t seed;
};

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
        if (weight_is_trained(w) && !vector_is_divided(m, w->vector)) {
            k->adamw(q, w->master, w->m, w->v, rounded ? w->w : tensor_none(), w->dw, &one);
        }
    }
}

/* Where the state of a piece lies. */
static struct tensor state_of(const struct model *m, const struct pass *p, int which,
                              struct stretch piece)
{
    return piece_tensor(m->vectors[p->vector].state[which], p->state + piece.at - p->slice.at,
                        piece.count);
}

static void step_piece(const struct model *m, const struct weight *w, struct stretch piece,
                       void *context)
{
    struct pass *p = context;
    const struct adamw one = choice_for(m, w, p->a);
    const struct tensor weights = piece_tensor(w->w, piece.at - w->flat, piece.count);
    const struct tensor master = m->d.masters ? state_of(m, p, 2, piece) : weights;

    p->k->adamw(p->q, master, state_of(m, p, 0, piece), state_of(m, p, 1, piece),
                m->d.masters ? weights : tensor_none(),
                piece_tensor(m->vectors[p->vector].grads, piece.at, piece.count), &one);
    memcpy(piece_tensor(m->gathered, piece.at - p->all.at, piece.count).data, weights.data,
           tensor_bytes(weights));
}

static void take_piece(const struct model *m, const struct weight *w, struct stretch piece,
                       void *context)
{
    const struct pass *p = context;
    const struct tensor to = piece_tensor(w->w, piece.at - w->flat, piece.count);

    memcpy(to.data, piece_tensor(m->gathered, piece.at - p->all.at, piece.count).data,
           tensor_bytes(to));
}

/* The b-th bucket. */
static void set_bucket(struct pass *p, const struct flat *flat, int b)
{
    p->all = flat_bucket(flat, b);
    p->slice = flat_slice(flat, b);
    p->state = flat_state(flat, b);
}

static void step_slices(const struct model *m, struct pass *p, struct comm *c)
{
    const struct flat *flat = &m->vectors[p->vector].flat;

    for (int b = 0; b < flat_buckets(flat); b++) {
        set_bucket(p, flat, b);
        pieces_each(m, p->vector, p->slice, step_piece, p);
        comm_wait(c, p->q,
                  comm_start_all_gather(
                      c, p->q, piece_tensor(m->gathered, 0, p->all.count),
                      piece_tensor(m->gathered, p->slice.at - p->all.at, p->slice.count)));
        pieces_each(m, p->vector, p->all, take_piece, p);
    }
}

void optim_step(const struct model *m, const struct kernels *k, struct queue *q,
                const struct adamw *a, const struct grad_groups *g)
{
    step_whole(m, k, q, a);
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        if (vector_is_divided(m, v)) {
            step_slices(m, &(struct pass){.k = k, .q = q, .a = a, .vector = v},
                        v == VECTOR_EXPERTS ? g->edp : g->dp);
        }
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
            param_init(out + done, w->id, &m->d.arch, w->place, p->seed, stretch);
        }
        done += n;
    }
}

void optim_init_masters(const struct model *m, uint64_t seed)
{
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        const struct flat *flat = &m->vectors[v].flat;
        struct pass p = {.seed = seed, .vector = v};
        for (int b = 0; b < flat_buckets(flat) && tensor_count(m->vectors[v].state[2]) > 0; b++) {
            set_bucket(&p, flat, b);
            pieces_each(m, v, p.slice, init_piece, &p);
        }
    }
}
