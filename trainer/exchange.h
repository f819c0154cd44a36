/* exchange.h - what a rank exchanges with others in one training step: operations and bytes, of every kind, in every group.
 *
 * A dry run of step.c: the planned layers tell what their forward and backward passes start. Numbers are those that
 * comm.c counts, for microbatches as wide as samples are. Where experts are on several ranks it depends on the router how many
 * rows an all-to-all has: its bytes are the most there can be.
 */
#ifndef TRAINER_EXCHANGE_H
#define TRAINER_EXCHANGE_H

#include "trainer/comm/comm.h"

struct model;

/* The groups of struct engine. */
enum exchange_group {
    EXCHANGE_TP,
    EXCHANGE_KV,
    EXCHANGE_CP,
    EXCHANGE_DP,
    EXCHANGE_PP,
    EXCHANGE_EMBEDDING,
    EXCHANGE_EP,
    EXCHANGE_EDP,
    EXCHANGE_GROUPS
};

/* A group of one exchanges nothing. */
struct exchange {
    int64_t count[EXCHANGE_GROUPS][COMM_KIND_COUNT];
    int64_t bytes[EXCHANGE_GROUPS][COMM_KIND_COUNT]; /* as in struct comm */
};

/* m: planned, with or without memory; training. */
void exchange_plan(struct exchange *out, const struct model *m);

#endif
