/* shares.c - parts of parameters by the words of params.def. */
#include "trainer/shares.h"

#include <stdio.h>

#include "kernels/check.h"

static struct share rows_of(const struct param *p, int64_t rows, int64_t first)
{
    return (struct share){.rows = rows,
                          .cols = p->cols,
                          .piece_count = 1,
                          .first = {first},
                          .held = rows,
                          .copies = 1,
                          .is_first = true};
}

static struct share columns_of(const struct param *p, int64_t cols, int64_t col0)
{
    struct share s = rows_of(p, p->rows, 0);

    s.cols = cols;
    s.col0 = col0;
    return s;
}

static struct share whole(const struct param *p, const struct dims *d, bool is_partial)
{
    struct share s = rows_of(p, p->rows, 0);

    s.copies = d->tp;
    s.is_first = d->tp_rank == 0;
    s.is_partial = is_partial && d->tp > 1;
    return s;
}

static struct share groups_of(const struct param *p, const struct dims *d)
{
    struct share s = rows_of(p, d->G_tp * d->K, d->G0 * d->K);

    if (d->tp > d->G) {
        s.copies = d->tp / (int)d->G; /* at most tp */
        s.is_first = d->tp_rank % s.copies == 0;
        s.is_partial = true;
    }
    return s;
}

static struct share vocabulary_of(const struct param *p, const struct dims *d)
{
    struct share s = rows_of(p, d->V_tp, d->V0);
    const int64_t left = d->V - d->V0;

    s.held = left < 0 ? 0 : left < d->V_tp ? left : d->V_tp;
    return s;
}

static struct share fused_of(const struct param *p, const struct dims *d)
{
    const int64_t heads = d->H_tp * d->K, whole_heads = d->H * d->K;
    struct share s = rows_of(p, 3 * heads, 0);

    CHECK(d->G == d->H, "a fused adapter of %lld heads in %lld groups", (long long)d->H,
          (long long)d->G);
    s.piece_count = SHARE_PIECES;
    for (int i = 0; i < SHARE_PIECES; i++) {
        s.first[i] = i * whole_heads + d->tp_rank * heads;
    }
    return s;
}

static struct share share_of_all(enum param_id id, const struct dims *d)
{
    const struct param p = param_get(id, &d->arch);
    const int64_t r = d->tp_rank;

    switch (p.shard) {
    case SHARD_WHOLE: return whole(&p, d, param_is_adapter(id));
    case SHARD_ROWWISE: return whole(&p, d, d->sp > 1);
    case SHARD_VOCAB: return vocabulary_of(&p, d);
    case SHARD_HEADS: return rows_of(&p, d->H_tp * d->K, r * d->H_tp * d->K);
    case SHARD_GROUPS: return groups_of(&p, d);
    case SHARD_WIDTH: return rows_of(&p, d->F_tp, r * d->F_tp);
    case SHARD_FUSED: return fused_of(&p, d);
    case SHARD_HEADS_IN: return columns_of(&p, d->H_tp * d->K, r * d->H_tp * d->K);
    case SHARD_WIDTH_IN: return columns_of(&p, d->F_tp, r * d->F_tp);
    case SHARD_EXPERT: return rows_of(&p, d->X_etp, d->etp_rank * d->X_etp);
    case SHARD_EXPERT_IN: return columns_of(&p, d->X_etp, d->etp_rank * d->X_etp);
    case SHARD_SHARED: return rows_of(&p, d->Y_tp, r * d->Y_tp);
    case SHARD_SHARED_IN: return columns_of(&p, d->Y_tp, r * d->Y_tp);
    }
    CHECK(false, "parameter %d has no shard", (int)id);
    return (struct share){0};
}

struct share share_of(enum param_id id, const struct dims *d)
{
    struct share s = share_of_all(id, d);

    s.on_two_stages = id == PARAM_EMBED && d->arch.tied && d->pp > 1;
    if (s.on_two_stages && d->pp_rank > 0) {
        s.is_first = false;
    }
    return s;
}

/* Whether a layer, and of an expert's parameter the expert, is this rank's. */
static bool is_mine(const struct param *p, int place, const struct dims *d)
{
    const int layer = param_layer(&d->arch, place), expert = param_expert(&d->arch, place);
    const bool has_expert = !p->in_expert || (expert >= d->E0 && expert < d->E0 + d->E_ep);
    bool has_layer = false;

    for (int c = 0; c < d->chunks; c++) {
        const struct layers l = d->layers[c];
        has_layer = has_layer || (layer >= l.first && layer < l.first + l.count);
    }
    return has_layer && has_expert;
}

bool share_is_here(enum param_id id, int place, const struct dims *d)
{
    const struct param p = param_get(id, &d->arch);
    const bool first = d->pp_rank == 0, last = d->pp_rank == d->pp - 1;

    if (!p.exists || p.in_layer) {
        return p.exists && is_mine(&p, place, d) && param_is_at(id, &d->arch, place);
    }
    if (id == PARAM_EMBED || id == PARAM_POSITION) {
        return first || (last && id == PARAM_EMBED && d->arch.tied);
    }
    return last;
}

int shares_count(const struct dims *d)
{
    int n = 0;

    for (int i = 0; i < PARAM_COUNT; i++) {
        for (int place = 0; place < param_places((enum param_id)i, &d->arch); place++) {
            n += share_is_here((enum param_id)i, place, d);
        }
    }
    return n;
}

int64_t share_row(const struct share *s, int64_t row)
{
    const int64_t each = s->rows / s->piece_count;

    return row < s->held ? s->first[row / each] + row % each : -1;
}
