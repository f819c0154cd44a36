/* layer.c - what all layers share: taking tensors, rows of a call, dropout, tensor parallelism. */
#include "trainer/layers/layer.h"

#include "kernels/check.h"
#include "trainer/shares.h"
#include "trainer/trained.h"

/* Where the state is divided, the model takes this rank's slices of all parameters at the end. */
static void plan_optimizer(struct weight *w, struct planner *p)
{
    const int64_t rows = w->w.dim[0], cols = tensor_cols(w->w);

    if (p->d->slices[w->vector] > 1) {
        return;
    }
    w->m = layout_take(p->lo, LIFE_OPTIMIZER, DTYPE_REAL, rows, cols);
    w->v = layout_take(p->lo, LIFE_OPTIMIZER, DTYPE_REAL, rows, cols);
    if (p->d->masters) {
        w->master = layout_take(p->lo, LIFE_OPTIMIZER, DTYPE_REAL, rows, cols);
    }
}

static int64_t grads_so_far(const struct planner *p, enum life life)
{
    return (int64_t)(layout_mark(p->lo, life) / sizeof(real));
}

void plan_weights(struct planner *p, struct tensor *w, struct tensor *dw, const enum param_id *ids,
                  int n, int place)
{
    const struct dims *d = p->d;
    const int64_t cols = share_of(ids[0], d).cols;
    const bool of_expert = param_get(ids[0], &d->arch).in_expert;
    const enum life grads = of_expert ? LIFE_EXPERT_GRAD : LIFE_GRAD;
    int64_t rows = 0, row = 0;
    int trained = 0;

    for (int i = 0; i < n; i++) {
        const struct share s = share_of(ids[i], d);
        CHECK(param_get(ids[i], &d->arch).exists && s.cols == cols,
              "parameter %d cannot be stacked", (int)ids[i]);
        rows += s.rows;
        trained += trained_has(d, ids[i], place);
    }
    *w = layout_take(p->lo, LIFE_WEIGHT, d->act, rows, cols);
    int64_t flat = grads_so_far(p, grads);
    *dw = trained == n ? layout_take(p->lo, grads, DTYPE_REAL, rows, cols) : tensor_none();
    for (int i = 0; i < n; i++) {
        const int64_t part = share_of(ids[i], d).rows;
        struct weight *x = &p->weights[p->count++];
        *x = (struct weight){.id = ids[i],
                             .place = place,
                             .w = tensor_slice(*w, row, part),
                             .vector = of_expert ? VECTOR_EXPERTS : VECTOR_DENSE,
                             .flat = flat};
        x->master = x->w;
        if (trained_has(d, ids[i], place)) {
            flat = trained == n ? flat + part * cols : flat;
            x->flat = trained == n ? x->flat : grads_so_far(p, grads);
            x->dw = trained == n ? tensor_slice(*dw, row, part)
                                 : layout_take(p->lo, grads, DTYPE_REAL, part, cols);
            plan_optimizer(x, p);
        }
        row += part;
    }
}

struct tensor plan_keep(struct planner *p, enum dtype type, int64_t rows, int64_t cols)
{
    const bool kept = p->d->training && (p->rebuilt & REBUILD_BLOCK) == 0 && !p->below;

    return layout_take(p->lo, kept ? LIFE_SAVED : LIFE_SCRATCH, type, rows, cols);
}

struct tensor plan_keep_part(struct planner *p, enum recompute_part part, enum dtype type,
                             int64_t rows, int64_t cols)
{
    return plan_rebuilds(p, part) ? plan_scratch(p, type, rows, cols)
                                  : plan_keep(p, type, rows, cols);
}

bool plan_rebuilds(const struct planner *p, enum recompute_part part)
{
    return (p->rebuilt & (unsigned)part) != 0;
}

struct tensor plan_scratch(struct planner *p, enum dtype type, int64_t rows, int64_t cols)
{
    return layout_take(p->lo, LIFE_SCRATCH, type, rows, cols);
}

struct tensor here_rows(const struct ctx *c, struct tensor t, int64_t rows)
{
    char *at = t.data;

    if (t.dim[0] > rows) {
        t = tensor_slice(t, 0, rows);
    }
    CHECK(t.dim[0] == rows, "%lld rows of %lld", (long long)rows, (long long)t.dim[0]);
    if (c->slot > 0 && at >= c->saved && at < c->saved + c->saved_stride) {
        t.data = at + (size_t)c->slot * c->saved_stride;
    }
    return t;
}

struct tensor here(const struct ctx *c, struct tensor t)
{
    const int64_t rows = t.dim[0] * c->rows / c->most;

    CHECK(rows * c->most == t.dim[0] * c->rows, "%lld rows for %lld", (long long)t.dim[0],
          (long long)c->most);
    return here_rows(c, t, rows);
}

struct tensor tp_inside(const struct ctx *c, struct tensor room, struct tensor outside)
{
    return c->d->sp > 1 ? here(c, room) : outside;
}

/* Every rank's rows. */
static struct tensor gather_rows(const struct ctx *c, struct tensor room, struct tensor mine)
{
    const struct tensor all = tp_inside(c, room, mine);

    if (c->d->sp > 1) {
        comm_wait(c->tp, c->q, comm_start_all_gather(c->tp, c->q, all, mine));
    }
    return all;
}

/* This rank's rows of the sum of every rank's. */
static void sum_rows(const struct ctx *c, struct tensor mine, struct tensor all)
{
    if (c->d->sp > 1) {
        comm_wait(c->tp, c->q, comm_start_reduce_scatter(c->tp, c->q, mine, all));
    } else {
        comm_all_reduce(c->tp, c->q, all);
    }
}

struct tensor tp_enter_forward(const struct ctx *c, struct tensor room, struct tensor x)
{
    return gather_rows(c, room, x);
}

void tp_enter_backward(const struct ctx *c, struct tensor dx, struct tensor all)
{
    sum_rows(c, dx, all);
}

void tp_leave_forward(const struct ctx *c, struct tensor y, struct tensor all)
{
    sum_rows(c, y, all);
}

struct tensor tp_leave_backward(const struct ctx *c, struct tensor room, struct tensor dy)
{
    return gather_rows(c, room, dy);
}

bool drop_inside(struct dropout *drop, const struct ctx *c, double p, int layer, int site)
{
    if (!c->training || !(p > 0.0)) {
        return false;
    }
    *drop = c->drop;
    drop->p = p;
    drop->S = c->d->S;
    drop->place0 = dims_place0(c->d);
    drop->skip = dims_skip(c->d);
    drop->layer = layer;
    drop->site = site;
    return true;
}

bool drop_at(struct dropout *drop, const struct ctx *c, int layer, enum drop_site site)
{
    if (!drop_inside(drop, c, c->d->dropout, layer, (int)site)) {
        return false;
    }
    if (c->d->sp > 1 && site != DROP_SCORES) { /* outside of divided layers */
        drop->row0 = c->d->tp_rank * (c->rows / c->d->sp);
    }
    return true;
}
