/* recompute.h - what of a block is not kept for the backward pass but made again in it.
 *
 *    selective   modules of every block: core_attn (scores and what they mix: attention is fused here, so that this is
 *                R (H K + H) elements and no S x S matrix), mlp (what its first product gives), layernorm (outputs of
 *                both norms)
 *    full        whole blocks. `uniform`: groups of num_layers blocks run again together, from the kept input of the
 *                first; `block`: the first num_layers blocks of a chunk, each from its input
 *
 * Names and meanings: Megatron-LM (arXiv:2205.05198; reference/megatron.md 1.11).
 */
#ifndef TRAINER_RECOMPUTE_H
#define TRAINER_RECOMPUTE_H

#include <stdbool.h>

#include "trainer/spec.h"

enum recompute_part {
    REBUILD_CORE_ATTN = 1,
    REBUILD_MLP = 2,
    REBUILD_LAYERNORM = 4,
    REBUILD_BLOCK = 8 /* all of it */
};

struct recompute_choice {
    enum recompute kind;
    unsigned modules; /* of selective: parts                */
    enum recompute_method method;
    int layers; /* of full: recompute_num_layers, at least 1 */
};

/* Errors: BAD_SPEC naming a field that does not fit the others, or a module that nobody knows. */
int recompute_read(struct recompute_choice *out, const struct spec *s, struct err *err);

/* The parts of block i of a chunk, from 0, that are made again. */
unsigned recompute_parts(const struct recompute_choice *c, int i);

/* Whether block i of a chunk is the first of those that are made again together. */
bool recompute_begins(const struct recompute_choice *c, int i);

#endif
