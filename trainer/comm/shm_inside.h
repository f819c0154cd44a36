/* shm_inside.h - what the files of the shared-memory back end know of each other. */
#ifndef TRAINER_COMM_SHM_INSIDE_H
#define TRAINER_COMM_SHM_INSIDE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "trainer/comm/shm.h"

enum { SHM_LINE = 64, SHM_PENDING = 64, SHM_DEEP = 2 };

/* A rank's bell. */
struct bell {
    _Alignas(SHM_LINE) _Atomic uint32_t rung; /* futex word                                    */
    _Atomic uint32_t sleeping;                /* its rank is asleep, or about to be            */
    _Atomic uint32_t lost;                    /* the launcher buried it                        */
};

/* What a rank gives to one of its groups; the slab follows. */
struct slot {
    _Alignas(SHM_LINE) _Atomic uint64_t phase;
    /* of the round that is filled in, written before the phase */
    uint32_t kind, how, type;
    uint32_t more; /* another round follows */
    uint64_t bytes;
    _Alignas(SHM_LINE) unsigned char slab[];
};

/* From one rank to one peer: SHM_DEEP slabs follow. */
struct channel {
    _Alignas(SHM_LINE) _Atomic uint64_t sent;  /* pieces, by the sender    */
    uint64_t bytes[SHM_DEEP];                  /* of each piece            */
    _Alignas(SHM_LINE) _Atomic uint64_t taken; /* pieces, by the receiver */
    _Alignas(SHM_LINE) unsigned char slab[];
};

/* A started operation. */
struct pending {
    struct comm_order order;
    size_t
        done; /* bytes (of a member's part) that went through; for all-to-all of each pair at most */
};

/* Operations of one group, or messages of one pair in one direction, first come first. */
struct line {
    struct pending of[SHM_PENDING];
    uint64_t started, ended; /* since the beginning; of[n % SHM_PENDING] */
};

struct shm_rank {
    struct shm *shm;
    int rank, timeout_ms;
    const struct kernels *k;
    shm_end *end;
    void *context;
    struct group *groups; /* list; not owned: by their comms */
    struct queue queue;   /* without workspace, for casts    */
};

struct group {
    struct group *next;
    struct shm_rank *owner;
    const char *name;
    int kind, rank, size;
    int *members;        /* owned; ranks of the job              */
    struct slot **slots; /* owned; of each member                */
    struct line line;
    uint64_t round; /* rounds that are over                 */
    int step;       /* in the present round: phases reached */
    size_t slab;
    /* messages; NULL without */
    struct channel **out, **in; /* owned; to and from each member */
    struct line *sends, *takes; /* owned; one for each member     */
};

struct bell *shm_bell(struct shm *s, int rank);
struct slot *shm_slot(struct shm *s, int kind, int rank);
struct channel *shm_channel(struct shm *s, int from, int peer);

/* Wake the members that sleep. */
void shm_ring(const struct group *g);

/* Do what can be done now; true when something was. */
bool shm_step_group(struct group *g);
bool shm_step_messages(struct group *g);

#endif
