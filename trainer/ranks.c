/* ranks.c - which groups there are: one row each. */
#include "trainer/ranks.h"

#include <stdlib.h>

enum kind {
    KIND_WORLD,
    KIND_TP,
    KIND_KV,
    KIND_DP,
    KIND_CP,
    KIND_PP,
    KIND_EMBEDDING,
    KIND_EP,
    KIND_EDP,
    KIND_COUNT
};

/* Bytes of a slab for each rank of a job: pieces that stay in a core's cache. */
enum { SLAB = 128 << 10 };

struct shm_sizes ranks_shm(const struct mesh_sizes *s)
{
    return (struct shm_sizes){.ranks = s->tp * s->cp * s->dp * s->pp,
                              .kinds = KIND_COUNT,
                              .peers = s->pp > 1 ? s->pp : 0,
                              .slab = SLAB};
}

size_t ranks_bytes(const struct mesh_sizes *s)
{
    const struct shm_sizes sizes = ranks_shm(s);
    const size_t ranks = (size_t)sizes.ranks;

    return ranks == 1 ? 0 : (shm_bytes(&sizes) + ranks - 1) / ranks;
}

/* A group of the mesh. */
struct seat {
    struct comm *comm;
    enum kind kind;
    enum mesh_group group;
    const char *name;
    bool sends; /* messages between two ranks */
};

/* Of the tensor-parallel ranks those that hold the same key and value heads: `copies` neighbours. */
static int join_copies(struct engine *e, struct shm_rank *r, const int *tensor, int mine,
                       struct err *err)
{
    const int tp = e->model->d.tp, groups = (int)e->model->d.G;
    const int copies = tp > groups ? tp / groups : 1;

    if (copies == 1) {
        return 0;
    }
    return shm_group(&e->kv, r, KIND_KV, "key and value",
                     tensor + (ptrdiff_t)(mine / copies) * copies, copies, false, err);
}

int ranks_join(struct engine *e, struct shm_rank *r, const struct mesh *m, struct err *err)
{
    const struct seat seats[] = {
        {&e->world, KIND_WORLD, GROUP_WORLD, "world", false},
        {&e->tp, KIND_TP, GROUP_TP, "tensor parallel", false},
        {&e->dp, KIND_DP, GROUP_DP_CP, "data parallel", false},
        {&e->cp, KIND_CP, GROUP_CP, "context parallel", false},
        {&e->pp, KIND_PP, GROUP_PP, "pipeline", true},
        {&e->embedding, KIND_EMBEDDING, GROUP_EMBEDDING, "embedding", false},
        {&e->ep, KIND_EP, GROUP_ETP_EP, "expert parallel", false},
        {&e->edp, KIND_EDP, GROUP_EDP, "expert data parallel", false}};
    int *members = calloc((size_t)m->world, sizeof *members), mine = 0, rc = 0;

    if (members == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the groups of %d ranks", m->world);
    }
    for (size_t i = 0; i < sizeof seats / sizeof seats[0] && rc == 0; i++) {
        const int count = mesh_group(m, seats[i].group, members, &mine);
        if (count > 1) {
            rc = shm_group(seats[i].comm, r, (int)seats[i].kind, seats[i].name, members, count,
                           seats[i].sends, err);
        }
    }
    if (rc == 0) {
        (void)mesh_group(m, GROUP_TP, members, &mine);
        rc = join_copies(e, r, members, mine, err);
    }
    free(members);
    return rc;
}

void ranks_leave(struct engine *e)
{
    struct comm *const all[] = {&e->world, &e->tp, &e->kv,        &e->dp, &e->cp,
                                &e->pp,    &e->ep, &e->embedding, &e->edp};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        comm_close(all[i]);
        *all[i] = comm_self();
    }
}
