/* mesh.c - places in the two grids, and groups as sets of axes that vary. */
#include "trainer/mesh.h"

#include "kernels/check.h"

enum {
    AXES = 4,
    T = 1,
    C = 2,
    D = 4,
    P = 8
}; /* bits of axes: tensor, context or expert, data, pipeline */

/* Which axes of which grid a group runs over. In the expert grid C stands for ep. */
static const struct {
    const char *name;
    bool expert;
    unsigned axes;
} groups[GROUP_COUNT] = {
    [GROUP_TP] = {"tp", false, T},
    [GROUP_CP] = {"cp", false, C},
    [GROUP_DP] = {"dp", false, D},
    [GROUP_PP] = {"pp", false, P},
    [GROUP_DP_CP] = {"dp-cp", false, D | C},
    [GROUP_TP_PP] = {"tp-pp", false, T | P},
    [GROUP_TP_CP] = {"tp-cp", false, T | C},
    [GROUP_TP_DP] = {"tp-dp", false, T | D},
    [GROUP_TP_DP_CP] = {"tp-dp-cp", false, T | D | C},
    [GROUP_ETP] = {"expert tp", true, T},
    [GROUP_EP] = {"expert ep", true, C},
    [GROUP_EDP] = {"expert dp", true, D},
    [GROUP_ETP_EP] = {"expert tp-ep", true, T | C},
    [GROUP_ETP_EP_PP] = {"expert tp-ep-pp", true, T | C | P},
    [GROUP_EMBEDDING] = {"embedding", false, P},
    [GROUP_WORLD] = {"world", false, T | C | D | P},
};

/* Sizes and strides of one grid, in the order of the bits. */
struct grid {
    int size[AXES], stride[AXES];
};

static struct grid make_grid(const struct mesh_sizes *s, bool expert, int edp)
{
    struct grid g = {
        .size = {expert ? s->etp : s->tp, expert ? s->ep : s->cp, expert ? edp : s->dp, s->pp}};
    const int inner = g.size[0] * g.size[1];

    g.stride[0] = 1;
    g.stride[1] = g.size[0];
    g.stride[2] = s->pp_before_dp ? inner * s->pp : inner;
    g.stride[3] = s->pp_before_dp ? inner : inner * g.size[2];
    return g;
}

static int place(const struct grid *g, int axis, int rank)
{
    return rank / g->stride[axis] % g->size[axis];
}

static int check_sizes(const struct mesh_sizes *s, struct err *err)
{
    const int of[] = {s->tp, s->cp, s->dp, s->pp, s->ep, s->etp};
    static const char *const name[] = {"tensor_model_parallel_size", "context_parallel_size",
                                       "data_parallel_size",         "pipeline_model_parallel_size",
                                       "expert_model_parallel_size", "expert_tensor_parallel_size"};

    for (int i = 0; i < (int)(sizeof of / sizeof of[0]); i++) {
        if (of[i] < 1 || of[i] > MESH_RANKS) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, name[i], "%s is %d: it must be 1 to %d", name[i],
                              of[i], MESH_RANKS);
        }
    }
    const long long world = (long long)s->tp * s->cp * s->dp * s->pp;
    if (world > MESH_RANKS) {
        return FAIL(err, ERR_BAD_SPEC, "tp %d x cp %d x dp %d x pp %d are %lld ranks, more than %d",
                    s->tp, s->cp, s->dp, s->pp, world, MESH_RANKS);
    }
    const int stage = s->tp * s->cp * s->dp;
    if (stage % s->etp != 0 || stage / s->etp % s->ep != 0) {
        return FAIL_PARAM(
            err, ERR_BAD_SPEC, "expert_model_parallel_size",
            "expert parallel size %d x expert tensor parallel size %d does not divide "
            "the %d ranks of a pipeline stage (tp %d x cp %d x dp %d)",
            s->ep, s->etp, stage, s->tp, s->cp, s->dp);
    }
    return 0;
}

int mesh_make(struct mesh *out, const struct mesh_sizes *sizes, int rank, struct err *err)
{
    struct mesh_sizes s = *sizes;

    s.etp = s.etp == 0 ? s.tp : s.etp;
    TRY(check_sizes(&s, err));
    *out = (struct mesh){.size = s, .rank = rank, .world = s.tp * s.cp * s.dp * s.pp};
    CHECK(rank >= 0 && rank < out->world, "rank %d of %d", rank, out->world);
    out->edp = s.tp * s.cp * s.dp / (s.etp * s.ep);
    const struct grid dense = make_grid(&s, false, out->edp),
                      expert = make_grid(&s, true, out->edp);
    out->tp = place(&dense, 0, rank);
    out->cp = place(&dense, 1, rank);
    out->dp = place(&dense, 2, rank);
    out->pp = place(&dense, 3, rank);
    out->etp = place(&expert, 0, rank);
    out->ep = place(&expert, 1, rank);
    out->edp_rank = place(&expert, 2, rank);
    out->is_first = out->pp == 0;
    out->is_last = out->pp == s.pp - 1;
    return 0;
}

int mesh_group(const struct mesh *m, enum mesh_group group, int *members, int *mine)
{
    const struct grid g = make_grid(&m->size, groups[group].expert, m->edp);
    const bool alone = group == GROUP_EMBEDDING && !m->is_first && !m->is_last;
    int count = 0;

    for (int rank = 0; rank < m->world; rank++) {
        bool in = !alone || rank == m->rank;
        for (int axis = 0; axis < AXES && in; axis++) {
            const bool varies = (groups[group].axes >> axis & 1U) != 0;
            in = varies || place(&g, axis, rank) == place(&g, axis, m->rank);
        }
        const int stage = place(&g, 3, rank);
        if (group == GROUP_EMBEDDING && !alone) {
            in = in && (stage == 0 || stage == m->size.pp - 1);
        }
        if (in) {
            *mine = rank == m->rank ? count : *mine;
            members[count++] = rank;
        }
    }
    return count;
}

/* The rank at the same place of another stage. */
static int at_stage(const struct mesh *m, int stage)
{
    const struct grid g = make_grid(&m->size, false, m->edp);

    return m->rank + (stage - m->pp) * g.stride[3];
}

int mesh_previous(const struct mesh *m)
{
    return at_stage(m, (m->pp + m->size.pp - 1) % m->size.pp);
}

int mesh_next(const struct mesh *m)
{
    return at_stage(m, (m->pp + 1) % m->size.pp);
}

const char *mesh_group_name(enum mesh_group group)
{
    return groups[group].name;
}
