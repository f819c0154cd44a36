/* snapshot.c - one copy of each tensor that this rank writes. */
#include "trainer/ckpt/snapshot.h"

#include <string.h>

#include "trainer/ckpt/parts.h"
#include "trainer/pieces.h"

static struct tensor take_like(struct layout *lo, struct tensor t)
{
    return layout_take(lo, LIFE_SNAPSHOT, t.type, tensor_rows(t), tensor_cols(t));
}

static bool is_written(const struct model *m, int i, enum part part)
{
    const struct weight *w = &m->weights[i];

    return part_exists(m, w, part) && part_is_mine(m, w, i, part);
}

static void plan_copy(struct model *m, struct layout *lo, int i)
{
    const struct weight *w = &m->weights[i];
    struct weight *c = &m->copies[i];
    const bool whole = !vector_is_divided(m, w->vector);

    *c = *w;
    if (is_written(m, i, PART_WEIGHT) || is_written(m, i, PART_HEAD)) {
        c->w = take_like(lo, w->w);
    }
    if (w->master.data == w->w.data) {
        c->master = c->w;
    }
    if (whole && is_written(m, i, PART_MASTER)) {
        c->master = take_like(lo, w->master);
    }
    if (whole && is_written(m, i, PART_M)) {
        c->m = take_like(lo, w->m);
        c->v = take_like(lo, w->v);
    }
}

void snapshot_plan(struct model *m, struct layout *lo)
{
    if (!m->d.behind) {
        return;
    }
    for (int i = 0; i < m->weight_count; i++) {
        plan_copy(m, lo, i);
    }
    for (int i = 0; i < VECTORS * 3; i++) {
        const struct tensor state = m->vectors[i / 3].state[i % 3];
        m->state_copies[i / 3][i % 3] =
            tensor_count(state) > 0 ? take_like(lo, state) : tensor_none();
    }
}

static void copy(struct tensor to, struct tensor from)
{
    if (to.data != from.data) {
        memcpy(to.data, from.data, tensor_bytes(from));
    }
}

void snapshot_take(const struct model *m)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i], *c = &m->copies[i];
        copy(c->w, w->w);
        if (w->master.data != w->w.data) {
            copy(c->master, w->master);
        }
        copy(c->m, w->m);
        copy(c->v, w->v);
    }
    for (int i = 0; i < VECTORS * 3; i++) {
        copy(m->state_copies[i / 3][i % 3], m->vectors[i / 3].state[i % 3]);
    }
}

struct model snapshot_model(const struct model *m)
{
    struct model out = *m;

    out.weights = m->copies;
    for (int i = 0; i < VECTORS; i++) {
        memcpy(out.vectors[i].state, m->state_copies[i], sizeof out.vectors[i].state);
    }
    return out;
}
