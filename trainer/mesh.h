/* mesh.h - the ranks of a job as two grids: which groups a rank is in, and with whom.
 *
 * The dense grid orders ranks tp, cp, dp, pp from the fastest axis to the slowest; the expert grid, which
 * holds the experts of MoE layers, etp, ep, edp, pp over the same ranks:
 *
 *    rank = tp + TP (cp + CP (dp + DP pp)) = etp + ETP (ep + EP (edp + EDP pp))
 *
 * So pipeline stages are the same ranks in both. Source: Megatron core parallel_state
 * (reference/megatron.md 1.6); groups equal its own (vectors/megatron/rank_groups.json).
 */
#ifndef TRAINER_MESH_H
#define TRAINER_MESH_H

#include <stdbool.h>

#include "trainer/base/err.h"

enum { MESH_RANKS = 4096 }; /* most ranks of a job */

/* Sizes of the axes, each at least 1. etp 0: as tp, where it divides. */
struct mesh_sizes {
    int tp, cp, dp, pp; /* tensor, context, data, pipeline */
    int ep, etp;        /* experts over ranks, tensor parallel inside an expert */
    bool pp_before_dp;  /* dp is the slowest axis: `--use-tp-pp-dp-mapping` */
};

struct mesh {
    struct mesh_sizes size;
    int world, edp;
    int rank;               /* whose view it is */
    int tp, cp, dp, pp;     /* its place in the dense grid  */
    int etp, ep, edp_rank;  /* and in the expert grid       */
    bool is_first, is_last; /* of the pipeline              */
};

/* The groups of a rank. EMBEDDING: the first and the last stage, which share a tied embedding; ranks of other
 * stages are alone in theirs. */
enum mesh_group {
    GROUP_TP,
    GROUP_CP,
    GROUP_DP,
    GROUP_PP,
    GROUP_DP_CP,
    GROUP_TP_PP,
    GROUP_TP_CP,
    GROUP_TP_DP,
    GROUP_TP_DP_CP,
    GROUP_ETP,
    GROUP_EP,
    GROUP_EDP,
    GROUP_ETP_EP,
    GROUP_ETP_EP_PP,
    GROUP_EMBEDDING,
    GROUP_WORLD,
    GROUP_COUNT
};

/* Errors: BAD_SPEC naming the sizes that don't divide, with the values that would. */
int mesh_make(struct mesh *out, const struct mesh_sizes *sizes, int rank, struct err *err);

/* The members of the rank's group, ascending; *mine is its own index. Returns how many there are, at most
 * `world` (the room of `members`). */
int mesh_group(const struct mesh *m, enum mesh_group group, int *members, int *mine);

/* The rank of the stage before or after, around the ring of the pipeline. */
int mesh_previous(const struct mesh *m);
int mesh_next(const struct mesh *m);

const char *mesh_group_name(enum mesh_group group); /* "tp", "expert tp" */

#endif
