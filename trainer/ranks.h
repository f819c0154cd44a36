/* ranks.h - the groups in which the ranks of a run exchange tensors. */
#ifndef TRAINER_RANKS_H
#define TRAINER_RANKS_H

#include "trainer/comm/shm.h"
#include "trainer/mesh.h"
#include "trainer/step.h"

/* What ranks on this host share: the memory of shm_make for such a mesh. */
struct shm_sizes ranks_shm(const struct mesh_sizes *sizes);

/* This rank's part of that memory, rounded up; 0 for a rank that is alone. */
size_t ranks_bytes(const struct mesh_sizes *sizes);

/* Join every group that rank m->rank of the mesh is in: all comms of the engine, which is open. Errors: NO_MEMORY; ranks_leave
 * is due then too. */
int ranks_join(struct engine *e, struct shm_rank *r, const struct mesh *m, struct err *err);

/* Back to groups of one. Before shm_leave. */
void ranks_leave(struct engine *e);

#endif
