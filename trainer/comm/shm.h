/* shm.h - groups of ranks that are processes of one host and share memory.
 *
 * The launcher makes the memory before it forks ranks. In it lie, for every kind of group and every rank, a
 * slab through which the rank gives to that group, and for every pair that sends messages, two; tensors
 * themselves stay private. A large operation goes through the slab in rounds:
 *
 *    fill      write my piece, once all have left the round before       phase 3k+1
 *    reduce    sum my part of all pieces, in rank order (all-reduce)      phase 3k+2
 *    take      read what I want                                           phase 3k+3
 *
 * A rank's phase is one word that it alone writes. Nobody spins for long or yields: who has nothing to do
 * sleeps on its own futex word, its bell, which others ring when they moved on. While a rank waits for one
 * operation it works on all that it has started, so that no order of waits can lock ranks up.
 *
 * Speeds and why: reference/comm-cuda.md, sections 0 and 1.
 */
#ifndef TRAINER_COMM_SHM_H
#define TRAINER_COMM_SHM_H

#include "trainer/base/err.h"
#include "trainer/comm/comm.h"

struct shm;      /* the shared memory, as the launcher and every rank see it */
struct shm_rank; /* a rank's own part                                        */

struct shm_sizes {
    int ranks;   /* of the job                                                        */
    int kinds;   /* of groups: each rank is in at most one group of a kind            */
    int peers;   /* ranks of the largest group whose members send messages; 0: none   */
    size_t slab; /* bytes, a multiple of 64, at least 64 a rank                       */
};

/* Bytes of the whole memory, for the plan. */
size_t shm_bytes(const struct shm_sizes *sizes);

/* Make the memory; children that are forked later share it. Errors: NO_MEMORY. */
int shm_make(struct shm **out, const struct shm_sizes *sizes, struct err *err);
void shm_free(struct shm *s); /* NULL is allowed */

/* The launcher saw that a rank has ended: whoever waits for it learns that at once. */
void shm_mark_lost(struct shm *s, int rank);

/* What a rank does when a peer is lost or not heard of for timeout_ms; `why` is a sentence that names the
 * missing ranks. Must not return. */
typedef void shm_end(void *context, const char *why);

/* In a rank, once. Touches the rank's slabs, so that no page fault comes later. Errors: NO_MEMORY. */
int shm_join(struct shm_rank **out, struct shm *s, int rank, const struct kernels *k,
             int timeout_ms, shm_end *end, void *context, struct err *err);
void shm_leave(struct shm_rank *r); /* after its groups were closed; NULL is allowed */

/* The rank's group of a kind: `members` are ranks of the job, ascending, with it among them. `name` is used in
 * messages and borrowed ("tensor parallel"). With `sends` its members send messages: one kind at most.
 * Errors: NO_MEMORY. */
int shm_group(struct comm *out, struct shm_rank *r, int kind, const char *name, const int *members,
              int count, bool sends, struct err *err);

#endif
