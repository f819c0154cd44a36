/* parts.c - names and shapes of file tensors, and patches of them in memory. */
#include "trainer/ckpt/parts.h"

#include <stdio.h>

#include "kernels/check.h"
#include "trainer/pieces.h"
#include "trainer/shares.h"

static const char *const prefixes[] = {"", "", "master.", "exp_avg.", "exp_avg_sq."};

struct tensor part_matrix(const struct weight *w, enum part part)
{
    switch (part) {
    case PART_WEIGHT:
    case PART_HEAD: return w->w;
    case PART_MASTER: return w->master;
    case PART_M: return w->m;
    case PART_V: return w->v;
    }
    return tensor_none();
}

int part_file_shape(const struct param *p, int64_t shape[2])
{
    shape[0] = p->transposed ? p->cols : p->outputs;
    shape[1] = p->transposed ? p->outputs : p->cols;
    return p->vector ? 1 : 2;
}

bool part_exists(const struct model *m, const struct weight *w, enum part part)
{
    const bool trained = tensor_count(w->dw) > 0;

    switch (part) {
    case PART_WEIGHT: return m->d.arch.lora.r == 0 || lora_holds(&m->d.arch, w->id);
    case PART_HEAD:
        return w->id == PARAM_EMBED && m->d.arch.tied && param_is_also(&m->d.arch, w->id);
    case PART_MASTER: return trained && m->d.masters;
    case PART_M:
    case PART_V: return trained;
    }
    return false;
}

void part_name(char out[PART_NAME], const struct model *m, const struct weight *w, enum part part)
{
    const struct param p = param_get(w->id, &m->d.arch);
    char name[LORA_NAME];

    if (part == PART_HEAD) {
        lora_name(name, &m->d.arch, PARAM_HEAD, 0);
    } else if (part == PART_WEIGHT && m->d.arch.lora.r > 0) {
        lora_name(name, &m->d.arch, w->id, w->place);
    } else {
        param_name(name, &p, w->place);
    }
    (void)snprintf(out, PART_NAME, "%s%s", prefixes[part], name);
}

int part_sharing(const struct model *m, int i)
{
    const struct param p = param_get(m->weights[i].id, &m->d.arch);

    return (int)(p.outputs / p.rows);
}

/* Of the ranks with the same numbers of a weight: how many there are, and which this is. */
static int turn_of(const struct model *m, const struct weight *w, int *mine)
{
    const struct dims *d = &m->d;

    if (w->vector == VECTOR_EXPERTS) {
        *mine = d->edp_rank;
        return d->edp;
    }
    *mine = d->dp_rank * d->cp + d->cp_rank;
    return d->dp * d->cp;
}

bool part_is_mine(const struct model *m, const struct weight *w, int i, enum part part)
{
    const bool is_divided = part >= PART_MASTER && vector_is_divided(m, w->vector);
    int mine = 0;
    const int ranks = turn_of(m, w, &mine);

    return share_of(w->id, &m->d).is_first && (is_divided || i % ranks == mine);
}

/* Elements [from, from + count) of this rank's matrix of a parameter, from `at` on in memory. */
struct run {
    char *at;
    enum dtype type;
    int64_t from, count;
};

/* Rows that exist and lie together in the whole parameter, from row `row` of memory on, at most `most`. */
static int64_t rows_together(const struct share *s, int64_t row, int64_t most)
{
    const int64_t each = s->rows / s->piece_count;
    const int64_t end = (row / each + 1) * each, held = end < s->held ? end : s->held;

    return held - row < most ? held - row : most;
}

static int patches_of(const struct share *s, const struct run *r, each_patch *each, void *context,
                      struct err *err)
{
    for (int64_t done = 0; done < r->count;) {
        const int64_t row = (r->from + done) / s->cols, col = (r->from + done) % s->cols;
        const int64_t left = r->count - done, to_end = s->cols - col;
        if (row >= s->held) {
            return 0; /* padding, which is last */
        }
        struct patch p = {.at = r->at + (size_t)done * dtype_size(r->type),
                          .type = r->type,
                          .stride = s->cols,
                          .rows = 1,
                          .cols = to_end < left ? to_end : left,
                          .row0 = share_row(s, row),
                          .col0 = s->col0 + col};
        if (col == 0 && left >= s->cols) {
            p.rows = rows_together(s, row, left / s->cols);
            p.cols = s->cols;
        }
        TRY(each(context, &p, err));
        done += p.rows * p.cols;
    }
    return 0;
}

static int slices_of(const struct model *m, const struct weight *w, struct tensor state,
                     each_patch *each, void *context, struct err *err)
{
    const struct flat *flat = &m->vectors[w->vector].flat;
    const struct share s = share_of(w->id, &m->d);
    const struct stretch own = {w->flat, tensor_count(w->dw)};

    for (int b = 0; b < flat_buckets(flat); b++) {
        const struct stretch slice = flat_slice(flat, b), piece = stretch_common(slice, own);
        const int64_t at = flat_state(flat, b) + piece.at - slice.at;
        const struct run r = {.at = (char *)state.data + (size_t)at * dtype_size(state.type),
                              .type = state.type,
                              .from = piece.at - w->flat,
                              .count = piece.count};
        if (piece.count > 0) {
            TRY(patches_of(&s, &r, each, context, err));
        }
    }
    return 0;
}

int part_patches(const struct model *m, const struct weight *w, enum part part, each_patch *each,
                 void *context, struct err *err)
{
    const struct share s = share_of(w->id, &m->d);
    const struct tensor t = part_matrix(w, part);

    if (part >= PART_MASTER && vector_is_divided(m, w->vector)) {
        const struct vector *v = &m->vectors[w->vector];
        return slices_of(m, w, v->state[part == PART_MASTER ? 2 : part - PART_M], each, context,
                         err);
    }
    const struct run all = {t.data, t.type, 0, s.rows * s.cols};
    CHECK(tensor_count(t) == all.count, "%lld elements of %lld", (long long)tensor_count(t),
          (long long)all.count);
    return patches_of(&s, &all, each, context, err);
}
