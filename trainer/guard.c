/* guard.c - finds the gradient that is not finite. */
#include "trainer/guard.h"

#include <math.h>

#include "trainer/optim.h"

enum { RANKS = 1 << 16, PARAMS = 1 << 8, EXPERTS = 1 << 10 };

_Static_assert((int)PARAM_COUNT <= (int)PARAMS, "a parameter is part of a place");

/* The places of gradients in the order of the backward pass, the first of them the largest: the model's own above
 * the blocks, the blocks from the last on, the model's own below them. */
static int64_t place_of(const struct weight *w, const struct arch *a)
{
    const bool below = w->id == PARAM_EMBED || w->id == PARAM_POSITION;
    const int64_t level = param_get(w->id, a).in_layer ? param_layer(a, w->place) + 1
                          : below                      ? 0
                                                       : (int64_t)a->L + 1;

    return (level * PARAMS + (int64_t)w->id) * EXPERTS + param_expert(a, w->place);
}

static bool is_finite(const struct engine *e, struct tensor t)
{
    const struct tensor sum = e->model->square_sum;
    struct queue q = e->q;

    e->k->zero(&q, sum);
    e->k->sum_squares(&q, sum, t);
    return isfinite(*(const double *)sum.data);
}

/* Of all ranks the first place and its lowest rank as one number, larger ones first; -1: none. It is exact in f64. */
static double first_place(struct engine *e)
{
    const struct model *m = e->model;
    int64_t found = -1;

    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const int64_t place = place_of(w, &m->d.arch) * RANKS + (RANKS - 1 - e->world.rank);
        if (tensor_count(w->dw) > 0 && place > found && !is_finite(e, w->dw)) {
            found = place;
        }
    }
    *(double *)m->square_sum.data = (double)found;
    comm_wait(&e->world, &e->q, comm_start_all_reduce(&e->world, &e->q, m->square_sum, COMM_MAX));
    return *(const double *)m->square_sum.data;
}

/* "the gradient of NAME on rank N". */
static void name_gradient(struct engine *e, char out[PARAM_NAME + 64])
{
    const int64_t found = (int64_t)first_place(e);
    char name[PARAM_NAME];

    if (found < 0) {
        (void)snprintf(out, PARAM_NAME + 64, "the sum of all gradients");
        return;
    }
    const int64_t expert = found / RANKS % EXPERTS, place = found / RANKS / EXPERTS;
    const struct param p = param_get((enum param_id)(place % PARAMS), &e->model->d.arch);
    param_name(name, &p, (int)(place / PARAMS - 1 + expert * e->model->d.L));
    (void)snprintf(out, PARAM_NAME + 64, "the gradient of %s on rank %lld", name,
                   (long long)(RANKS - 1 - found % RANKS));
}

int guard_step(struct engine *e, const struct step_result *result, int64_t step,
               const struct spec *s, struct err *err)
{
    const bool scaled = s->precision == PRECISION_FP16;
    char where[PARAM_NAME + 64];

    if (!result->skipped || (scaled && !e->scale.pinned)) {
        return 0;
    }
    name_gradient(e, where);
    if (scaled) {
        return FAIL(err, ERR_DIVERGED,
                    "step %lld overflows at the loss scale %g, which cannot become smaller, after "
                    "%lld skipped steps in a row (%lld in all): %s is not finite; lower "
                    "learning_rate (%g) or use bf16",
                    (long long)step, e->scale.now, (long long)e->scale.in_row,
                    (long long)e->scale.skipped, where, s->learning_rate);
    }
    return FAIL(err, ERR_DIVERGED,
                "the %s is not a finite number at step %lld, first %s: lower learning_rate (%g) or "
                "lengthen the warmup",
                isfinite(result->loss) ? "gradient" : "loss", (long long)step, where,
                s->learning_rate);
}
