/* model.h - all layers of a rank, in order, and its parameters.
 *
 *   ids -> embedding -> block 0 .. L-1 -> head -> losses
 *
 * A rank of a pipeline holds one or several chunks of it, each a stage; the first stage begins with the embedding,
 * the last ends with the head, and between them activations are messages (pipeline.h).
 *
 * model_plan runs in a layout without memory (the planner, also in the server) and again in one with
 * memory (a rank). In training one slot of kept tensors exists for each microbatch in flight: all chunks share a pool of
 * slots as long as the longest, or each has its own, whichever takes less.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/flat.h"
#include "trainer/layers/layer.h"
#include "trainer/pipeline.h"

/* A stage of the model on this rank. */
struct chunk {
    int block0, count;      /* its blocks among the rank's */
    int first;              /* layer of the model          */
    bool is_first, is_last; /* stage: has the embedding, the head */
    int weight0, head0,
        weight1; /* among the model's weights: its own begin, those of its head, its own end */
    struct tensor balance; /* kept: ctx.balance; absent without experts */
    char *saved;           /* kept tensors of its first slot, and bytes of a slot */
    size_t saved_stride;
    int slots;
};

/* Gradients that are summed over the same ranks, and what the optimizer keeps of this rank's slices. */
struct vector {
    struct flat flat;
    struct tensor grads;    /* real [flat.count], with the gaps                       */
    struct tensor state[3]; /* real: moments and masters; absent where it is not divided */
};

struct model {
    struct dims d;
    struct embedding embedding;
    struct rope rope;
    struct block *blocks; /* owned: those of this rank, chunk after chunk */
    struct chunk chunks[PLACEMENT_CHUNKS];
    bool apart;             /* each chunk has its own slots                        */
    struct traffic traffic; /* of a step, when training                            */
    struct mailbox mail;
    struct head head;
    struct tensor out; /* kept: output of the last block, in the last stage   */
    struct tensor
        logits; /* real [V_tp tp], of one row: where the last stage's go to all; absent on one rank */
    struct tensor grad[2];    /* scratch: gradient of the residual stream, in turns  */
    int lowest;               /* block below which nothing is trained (trained.h)    */
    struct tensor workspace;  /* scratch: for kernels                                */
    struct tensor square_sum; /* f64 [1]                                             */
    struct tensor
        balance_sums;       /* f64 [2,1]: losses for balance of experts, and of routers' logits */
    struct expert *experts; /* owned: those of all blocks in order                 */
    struct vector vectors[VECTORS]; /* of gradients                                 */
    struct tensor
        gathered; /* of the weights' type: a bucket of them; absent where none is divided */
    struct tensor ids, labels, pos, slot, first[2],
        order[2];           /* i32 [micros, R]: the tokens of a step */
    struct weight *weights; /* owned [weight_count], in the order of planning      */
    int weight_count;
    struct weight
        *copies; /* owned: of weights, where checkpoints are written behind training (snapshot.h) */
    struct tensor state_copies[VECTORS][3]; /* of the state of slices */
};

/* A model without memory. Errors: NO_MEMORY. */
int model_new(struct model **out, const struct dims *d, struct err *err);
void model_free(struct model *m);

/* Take every tensor of the model from `lo`, as often as it is called. */
void model_plan(struct model *m, struct layout *lo);

/* The same model undivided, planned without memory: the list of all its parameters. Errors: NO_MEMORY. */
int model_whole(struct model **out, const struct dims *d, struct err *err);

/* The context of a call on `rows` rows of microbatch `micro`. */
struct ctx model_ctx(const struct model *m, const struct kernels *k, struct queue *q,
                     struct comm *tp, int64_t micro, int64_t rows);

/* Of a model with one chunk: run the blocks on the batch of c; the result is here(c, m->out). */
void model_forward(const struct model *m, const struct ctx *c);

/* Rows of a message between stages behind those of the stream: the statistics that the loss for the balance of experts of all
 * layers together is made of travel to the last stage with the activations, and back with the gradients. 0 without it. */
int64_t model_message_tail(const struct dims *d);

/* The context of a chunk's work in a slot. */
struct ctx model_chunk_ctx(const struct model *m, const struct ctx *c, int chunk, int slot);

/* One chunk forward: from `in`, absent in the first stage, to `out`, absent in the last, where the result is
 * here(c, m->out). [rows + tail, D]: training, with the tail of model_message_tail, also backward. */
void model_chunk_forward(const struct model *m, const struct ctx *c, int chunk, struct tensor in,
                         struct tensor out);

/* After that in the same slot: weights' gradients added to, in the last stage also the losses. in: gradient of what
 * went out, absent in the last stage and where nothing below is trained; out: that of what came in, may be absent. in is
 * overwritten. scale: of the sum of the losses. */
void model_chunk_backward(const struct model *m, const struct ctx *c, int chunk, struct tensor in,
                          struct tensor out, double scale);

/* After model_chunk_forward of the last stage: losses only, added to head.loss_sum. */
void model_loss(const struct model *m, const struct ctx *c);

/* Random initial values from the seed, masters and then rounded: of the weights, of the adapters. */
void model_init(const struct model *m, const struct kernels *k, struct queue *q, uint64_t seed);
void model_init_adapters(const struct model *m, const struct kernels *k, struct queue *q,
                         uint64_t seed);

/* Copy masters to the weights that kernels read, where these are rounded. */
void model_round(const struct model *m, const struct kernels *k, struct queue *q);

#endif
