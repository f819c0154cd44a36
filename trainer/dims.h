/* dims.h - the sizes of a run and of this rank's share of the model.
 *
 * The one glossary of single-letter names, used in every layer and kernel:
 *   B sequences in a microbatch    S tokens in a sequence     R = B S rows of an activation matrix
 *   D model width                  F MLP width                L layers
 *   H query heads                  G key and value heads      K head size
 *   V vocabulary                   E experts                  N parameters or tokens, as said there
 *   X width of an expert           Y width of the MLP beside the experts
 * A suffix says what a size was divided by: F_tp = F / tp, R_sp = R / sp. Only dims_make() divides.
 */
#ifndef TRAINER_DIMS_H
#define TRAINER_DIMS_H

#include "trainer/arch.h"
#include "trainer/flat.h"
#include "trainer/mesh.h"
#include "trainer/placement.h"
#include "trainer/recompute.h"
#include "trainer/scale.h"
#include "trainer/spec.h"

/* Layers [first, first + count) of the model. */
struct layers {
    int first, count;
};

struct dims {
    struct arch arch;
    int64_t B, S, R, D, F, L, H, G, K, V, E, X, Y;
    int cp,
        cp_rank; /* context parallel: of 2 cp chunks of a sequence chunk cp_rank and that as far from the end */
    int64_t S_all; /* tokens in a sequence; S = S_all / cp of them are this rank's            */
    int tp, tp_rank;
    bool sequence; /* sequence parallel, where tp > 1                              */
    int sp;        /* over how many ranks rows outside of divided layers are split */
    int64_t R_sp;  /* = R / sp: rows [sp rank R_sp, ..) are this rank's            */
    int64_t H_tp, G_tp, F_tp,
        V_tp; /* this rank's share; G_tp is 1 where there are fewer groups than ranks */
    int64_t Y_tp;
    int ep, ep_rank;   /* over how many ranks experts are divided: [E0, E0 + E_ep) are this one's */
    int etp, etp_rank; /* and over how many each of them                                        */
    int edp, edp_rank; /* ranks of a stage with the same part of the same experts               */
    int64_t E_ep, E0, X_etp;
    int64_t G0, V0;  /* its first group, and its first row of the vocabulary */
    int64_t chunk;   /* rows of the head that have logits at a time          */
    int64_t micros;  /* microbatches of this rank in one step                */
    int dp, dp_rank; /* data-parallel ranks                                 */
    int pp, pp_rank; /* pipeline ranks: chunk c of this rank is stage c pp + pp_rank   */
    int chunks;      /* of the model on this rank                                      */
    struct layers layers[PLACEMENT_CHUNKS]; /* of each chunk                            */
    int passes; /* microbatches that pass a chunk before the next; 0: pp (schedule.h) */
    /* Of the optimizer state of both vectors: over how many ranks, and which is this one's. */
    int slices[VECTORS], slice[VECTORS];
    int64_t bucket; /* elements of gradients that are exchanged at a time (flat.h)  */
    bool
        overlaps; /* gradients are summed over data-parallel ranks while the backward pass goes on */
    int64_t micro0;           /* of those of all data-parallel ranks its first one    */
    enum dtype act;           /* activations and weights as kernels read them         */
    bool masters;             /* weights are kept in f32 beside the rounded ones      */
    struct scale_rules scale; /* of the loss, in training                   */
    bool training;            /* gradients and optimizer state exist                  */
    bool behind;              /* checkpoints are written behind training: copies exist */
    struct recompute_choice recompute;
    bool aux_all; /* balance of experts over all layers together, as in Hugging Face (moe.c)    */
    double aux_coef, z_coef; /* of the losses for balance, and of the router's logits */
    double dropout;
    const char *freeze; /* patterns of trained.h, borrowed from the spec; NULL: none */
    int threads;
};

/* Sizes of a training run: micro_batch and sequence are resolved values. */
struct dims dims_make(const struct arch *a, const struct spec *s, int64_t micro_batch,
                      int64_t sequence, int threads);

/* Divide by tensor parallelism: d of a rank that holds everything becomes that of rank `rank` of `tp`. CHECKs
 * that it divides (rules.def). */
void dims_divide(struct dims *d, int tp, int rank);

/* Divide the experts: over ep ranks of the mesh, each expert over etp; with `distributed` the state of their optimizer among the
 * ranks that have the same. CHECKs that it divides. */
void dims_divide_experts(struct dims *d, const struct mesh *m, bool distributed);

/* Divide the layers among the ranks of a pipeline: this is rank `rank`. passes: as in dims. */
void dims_divide_layers(struct dims *d, const struct placement *p, int rank, int passes);

/* Divide every sequence: this rank has two chunks of 2 cp. Before the other divisions. CHECKs that it divides. */
void dims_divide_context(struct dims *d, int cp, int rank);

/* The place of this rank's first token of a sequence; places between its two chunks. */
int64_t dims_place0(const struct dims *d);
int64_t dims_skip(const struct dims *d);

/* Divide the batch: microbatches [rank micros / dp, ..) are this rank's; with `distributed` the optimizer's state
 * too (flat.h), among ranks that share sequences as well. CHECKs that it divides. */
void dims_divide_batch(struct dims *d, int dp, int rank, bool distributed);

/* The sizes of a rank that holds all of the model; the batch is of no account. */
struct dims dims_whole(const struct dims *d);

/* Sizes for generating: one sequence of up to `positions` tokens. */
struct dims dims_inference(const struct arch *a, enum dtype type, int64_t batch, int64_t positions,
                           int threads);

/* Sizes for generating `slots` texts side by side, each of up to `positions` tokens; one forward pass
 * takes up to `rows` tokens of any of them, of which `slots` at a time have logits. */
struct dims dims_serving(const struct arch *a, enum dtype type,
                         const int64_t slots_positions_rows[3], int threads);

#endif
