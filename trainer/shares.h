/* shares.h - which part of a parameter a tensor-parallel rank holds.
 *
 *    VOCAB      rows [V0, V0 + V_tp) of ceil(V / tp) each; those behind the vocabulary are padding, and 0
 *    HEADS      rows of its H_tp query heads
 *    GROUPS     rows of its G_tp key and value heads; where there are fewer than ranks, tp / G ranks hold the
 *               same one, and each has the gradient of its own query heads: a part of a sum
 *    WIDTH      rows of its F_tp features of the MLP
 *    FUSED      its query, key and value rows, from three places
 *    HEADS_IN, WIDTH_IN   columns that take what HEADS and WIDTH give
 *
 *    EXPERT     of its experts E0 .. (each parameter is of one expert), rows of their X_etp features; EXPERT_IN columns
 *    SHARED     rows of its Y_tp features of the MLP beside the experts; SHARED_IN columns
 *
 *    ROWWISE    whole on every rank; with sequence parallel each rank has the gradient of its own rows of
 *               activations: a part of a sum
 *
 * Of a pipeline a rank holds the parameters of its layers; the first stage has the embeddings, the last the final norm
 * and the head. A tied embedding is on both: the gradient is the sum of the two, which the last one's copy leaves to the
 * first to count.
 *
 * Adapters of a divided layer have one half that is whole on every rank, with a part of its gradient.
 */
#ifndef TRAINER_SHARES_H
#define TRAINER_SHARES_H

#include "trainer/dims.h"
#include "trainer/params.h"

enum { SHARE_PIECES = 3 };

struct share {
    int64_t rows, cols;          /* in memory                                                    */
    int piece_count;             /* stretches of rows, one below the other; equal rows           */
    int64_t first[SHARE_PIECES]; /* row of the whole parameter where each begins        */
    int64_t held;                /* rows that exist; the rest is padding                         */
    int64_t col0;                /* its first column of the whole parameter                      */
    int copies;                  /* ranks of the group that hold the same part                   */
    bool is_first;               /* of the copies: whose gradient counts in the norm             */
    bool is_partial;             /* the gradient is a part of a sum over the copies              */
    bool on_two_stages;          /* it is a part of a sum over the first and the last stage      */
};

struct share share_of(enum param_id id, const struct dims *d);

/* Whether the rank holds (a share of) the parameter at a place of the model (params.h). */
bool share_is_here(enum param_id id, int place, const struct dims *d);

/* How many parameters it holds. */
int shares_count(const struct dims *d);

/* The row of the whole parameter of row `row` in memory; -1 for padding. */
int64_t share_row(const struct share *s, int64_t row);

#endif
