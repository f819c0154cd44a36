/* layer.h - what a layer is.
 *
 * Not a class: three functions with one stem, next to each other in one file.
 *
 *   X_plan      declares the tensors of X in a layout, in the order the forward pass touches them
 *   X_forward   a straight line of kernel calls
 *   X_backward  the same line, read from the bottom up
 *
 * There is no tape and no graph. A layer keeps what its backward pass needs in tensors it took with
 * plan_keep; what it can rebuild cheaply it takes from LIFE_SCRATCH. Layers know their local sizes;
 * they know nothing about pipelines, data parallelism, recomputation, element types or backends.
 *
 * A tensor of activations holds up to dims.R rows, or dims.R_sp, those of this rank, outside of divided layers (sequence
 * parallel); the rows of the present call are those of here().
 */
#ifndef TRAINER_LAYERS_LAYER_H
#define TRAINER_LAYERS_LAYER_H

#include "kernels/kernels.h"
#include "kernels/real.h"
#include "trainer/comm/comm.h"
#include "trainer/dims.h"
#include "trainer/layout.h"
#include "trainer/params.h"

/* A parameter of this rank with its gradient and its optimizer state. */
struct weight {
    enum param_id id;
    int place;        /* params.h                                               */
    struct tensor w;  /* as kernels read it: real or bf16 [rows, cols]          */
    struct tensor dw; /* real; absent when not trained                          */
    struct tensor
        master; /* real; w itself when weights are not rounded or not trained, or state is divided */
    struct tensor m, v;    /* real; absent when not trained, and where state is divided */
    enum vector_id vector; /* which of them dw is in (flat.h)                        */
    int64_t flat;          /* of dw: its first element there                           */
};

/* Scratch that linear layers use in turns, of their element type, as long as the longest call needs. */
struct lora_room {
    struct tensor part;    /* a few columns of y or dy         */
    struct tensor dropped; /* what dropout leaves of x         */
    struct tensor du;      /* gradient of what lies between A and B */
    struct tensor all[2];  /* [R,D] what enters, what leaves; sequence parallel */
};

/* What plan functions work on. */
struct planner {
    struct layout *lo;
    const struct dims *d;
    struct weight *weights; /* filled in the order of planning */
    int count;
    struct lora_room room;
    bool below;       /* a block below all that is trained: nothing is kept for a backward pass */
    unsigned rebuilt; /* recompute_parts() of the present block                                 */
    bool inside;      /* a block that is made again together with the one before it             */
    struct tensor turn[2];  /* t and dh of blocks that are made again together                   */
    struct expert *experts; /* those that the next layer with experts may have               */
};

/* Take parameters that lie one below the other as one matrix: w and dw [sum of rows, cols]. Those that are not trained have
 * no gradient; *dw is absent unless all are. */
void plan_weights(struct planner *p, struct tensor *w, struct tensor *dw, const enum param_id *ids,
                  int n, int place);
/* Activations that the backward pass reads: kept, or rebuilt by recomputation, of the block or of this part of it, or not
 * needed. */
struct tensor plan_keep(struct planner *p, enum dtype type, int64_t rows, int64_t cols);
struct tensor plan_keep_part(struct planner *p, enum recompute_part part, enum dtype type,
                             int64_t rows, int64_t cols);
/* Whether a part is rebuilt by itself, not with its block. */
bool plan_rebuilds(const struct planner *p, enum recompute_part part);
struct tensor plan_scratch(struct planner *p, enum dtype type, int64_t rows, int64_t cols);

/* The tokens of a microbatch. All [R] i32. */
struct batch {
    struct tensor ids, labels; /* label < 0: not trained                                   */
    struct tensor pos;         /* position of the row in its sequence                      */
    struct tensor slot;        /* which sequence of the cache the row goes on; generating  */
    struct tensor first[2];    /* first place that may be seen: without, with sliding window */
    struct tensor order
        [2]; /* [R cp] context parallel: the row, of all ranks' rows, of every place; and back */
};

struct grad_sums;

/* What a layer call runs on. */
struct ctx {
    const struct kernels *k;
    struct queue *q;
    struct comm *tp, *cp; /* cp: training */
    struct comm *ep;      /* the ranks that experts are divided over */
    const struct dims *d;
    struct batch batch;
    int64_t rows;        /* of this call; d->R in training                    */
    int64_t most;        /* rows that tensors have room for: the model's dims.R */
    bool training;       /* dropout is on                                     */
    struct dropout drop; /* seed, step, sample0: the layer fills in the rest  */
    int slot;            /* which microbatch in flight: where kept tensors are */
    char *saved;         /* region SAVED of slot 0, and bytes of a slot       */
    size_t saved_stride;
    /* Losses for the balance of experts (moe.c). again: a forward pass that was made before. */
    bool again, balances;       /* whether this microbatch has any                               */
    struct tensor balance;      /* kept [1,2E+1]: statistics of all layers so far                */
    struct tensor balance_sums; /* f64 [2,1]: losses for balance and of logits are added to      */
    double balance_scale;       /* what theirs of this microbatch count in the loss              */
    struct grad_sums *sums;     /* told of gradients that are final; NULL: nobody is (grads.h)   */
};

/* The rows of this call, as many for each as t has room for, in the slot of this call if t is a kept tensor. */
struct tensor here(const struct ctx *c, struct tensor t);
/* Its first `rows`, however many the call has. */
struct tensor here_rows(const struct ctx *c, struct tensor t, int64_t rows);

/* The conjugate pairs of Megatron-LM (arXiv:1909.08053, fig. 3: f and g), and those of sequence parallel
 * (arXiv:2205.05198, fig. 5), between which this rank has some of the rows:
 *                   forward                       backward
 *   tp_enter        identity    | all-gather      all-reduce  | reduce-scatter
 *   tp_leave        all-reduce  | reduce-scatter  identity    | all-gather
 * x, y [R_sp,D] lie outside. `all` [R,D] lies between: x or y itself, unless sequence parallel, then it is in `room`. */
struct tensor tp_inside(const struct ctx *c, struct tensor room, struct tensor outside);
struct tensor tp_enter_forward(const struct ctx *c, struct tensor room, struct tensor x);
void tp_enter_backward(const struct ctx *c, struct tensor dx, struct tensor all);
void tp_leave_forward(const struct ctx *c, struct tensor y, struct tensor all);
struct tensor tp_leave_backward(const struct ctx *c, struct tensor room, struct tensor dy);

/* Places of dropout in a model. */
enum drop_site {
    DROP_EMBEDDING,
    DROP_SCORES,
    DROP_ATTENTION,
    DROP_MLP,
    DROP_LORA /* and those after it, one for each lora_target */
};

/* Whether this call drops, with probability p; fills *drop for a site inside of divided layers; for any of the model's own. */
bool drop_inside(struct dropout *drop, const struct ctx *c, double p, int layer, int site);
bool drop_at(struct dropout *drop, const struct ctx *c, int layer, enum drop_site site);

/* y = x w^T. When generating, each row by itself: what else is in the batch does not change a text. */
void product_forward(const struct ctx *c, struct tensor y, struct tensor x, struct tensor w);

/* y[:, first ..] += scale drop(x) A^T B^T, an adapter of a linear layer or of some of its rows. */
struct lora {
    struct tensor a, da, b, db;      /* [r,in], [out,r]                                     */
    struct tensor u;                 /* kept [R,r]                                          */
    struct tensor part, dropped, du; /* scratch [R,out] (may be absent), [R,in], [R,r]      */
    int64_t first, input0;           /* its first column in y; in the whole layer's input */
    double scale;
    int layer, site; /* of its dropout */
};
double lora_scale(const struct lora_choice *choice);
/* first, width: its first column in y, and all columns of y. */
void lora_plan(struct lora *l, struct planner *p, enum lora_target target, int64_t first,
               int64_t width, int layer);
/* y and dx are added to; dx may be absent. */
void lora_forward(const struct lora *l, const struct ctx *c, struct tensor y, struct tensor x);
void lora_backward(const struct lora *l, const struct ctx *c, struct tensor dx, struct tensor dy,
                   struct tensor x);

enum { LINEAR_PARTS = 3 };

/* A trained part of a matrix that is not trained as a whole. */
struct trained_part {
    struct tensor dw, db; /* either may be absent */
    struct tensor dy;     /* scratch [R,rows]     */
    int64_t first;
};

/* y = x w^T + b + adapters.   w [out,in] is one or several rows of the parameter table; b may be absent. */
struct linear {
    struct tensor w, dw, b, db; /* gradients: absent unless of the whole */
    struct trained_part pieces[LINEAR_PARTS];
    struct lora lora[LINEAR_PARTS];
    int piece_count, lora_count;
    bool takes_all;       /* its outputs are divided: x comes through tp_enter           */
    bool gives_part;      /* its inputs are divided: y is a part of a sum until tp_leave */
    struct tensor all[2]; /* scratch: of x or dy, of y or dx, inside                     */
};
/* biases: NULL, or n ids like `weights`. */
void linear_plan(struct linear *l, struct planner *p, const enum param_id *weights,
                 const enum param_id *biases, int n, int layer);
void linear_forward(const struct linear *l, const struct ctx *c, struct tensor y, struct tensor x);
/* dx = dy w;  dw += dy^T x;  db += sum of dy's rows, of what is trained; dx may be absent: it then is not computed. */
void linear_backward(const struct linear *l, const struct ctx *c, struct tensor dx,
                     struct tensor dy, struct tensor x);
/* Does backward read x? Each rank kept its own rows of it alone: they are gathered again for that. */
bool linear_reads_input(const struct linear *l);

/* Token embedding, plus learned positions in GPT-2. y [R_sp,D]. */
struct embedding {
    struct tensor w, dw, p, dp; /* [V,D]; positions [P,D] and gradients may be absent */
    struct tensor all;          /* scratch: y or dy inside                            */
};
void embedding_plan(struct embedding *e, struct planner *p);
void embedding_forward(const struct embedding *e, const struct ctx *c, struct tensor y);
void embedding_backward(const struct embedding *e, const struct ctx *c, struct tensor dy);

/* LayerNorm or RMSNorm. x, y [R_sp,D]. */
struct norm {
    struct tensor w, dw, b, db; /* b: LayerNorm only           */
    struct tensor mean, rstd;   /* kept [R_sp,1]; mean: LayerNorm */
};
void norm_plan(struct norm *n, struct planner *p, enum param_id w, enum param_id b, int layer);
bool norm_is_trained(const struct norm *n);
void norm_forward(const struct norm *n, const struct ctx *c, struct tensor y, struct tensor x);
void norm_backward(const struct norm *n, const struct ctx *c, struct tensor dx, struct tensor dy,
                   struct tensor x);

/* Tables of rotary positions, cos and sin [positions, K/2]; absent in GPT-2. */
struct rope {
    struct tensor cos, sin;
};
void rope_plan(struct rope *r, struct planner *p, int64_t positions);
void rope_fill(const struct rope *r, const struct arch *a);
void rope_forward(const struct rope *r, const struct ctx *c, struct tensor qkv);
void rope_backward(const struct rope *r, const struct ctx *c, struct tensor dqkv);

/* Causal self-attention with its projections. x, y [R_sp,D]. */
struct attention {
    struct linear qkv, out;
    struct tensor fused, mixed, lse; /* kept: [R,(H+2G)K], [R,H K], [R,H]      */
    struct tensor dmixed, dfused;    /* scratch                                */
    struct tensor cache[2];          /* keys, values [B, S G K], when generating */
    int layer;
    bool again; /* mixed and lse are made again in backward */
    /* scratch, context parallel: keys and values of this rank's rows, of all ranks' rows, of all places; gradients of
     * those */
    struct tensor own, all, placed, dplaced;
};
void attention_plan(struct attention *a, struct planner *p, int layer);
void attention_forward(const struct attention *a, const struct rope *r, const struct ctx *c,
                       struct tensor y, struct tensor x);
void attention_backward(const struct attention *a, const struct rope *r, const struct ctx *c,
                        struct tensor dx, struct tensor dy, struct tensor x);

/* GPT-2: down(act(up(x))); the others: down(silu(gate(x)) * up(x)). x, y [R_sp,D]. */
struct mlp {
    struct linear up, down;  /* up holds gate above up when gated      */
    struct tensor h;         /* kept: [R,F] or [R,2F]                  */
    struct tensor a, da, dh; /* scratch: [R,F], [R,F], like h          */
    bool again;              /* h is made again in backward            */
};
enum mlp_kind { MLP_DENSE, MLP_SHARED /* beside experts */ };
void mlp_plan(struct mlp *m, struct planner *p, enum mlp_kind kind, int layer);
void mlp_forward(const struct mlp *m, const struct ctx *c, struct tensor y, struct tensor x);
void mlp_backward(const struct mlp *m, const struct ctx *c, struct tensor dx, struct tensor dy,
                  struct tensor x);

/* One of the experts of this rank, or its part of one. */
struct expert {
    struct tensor up, dup, down,
        ddown;             /* [2X,D]: gate above up; [D,X]; gradients may be absent   */
    struct tensor part[2]; /* gradients of gate and up; may be absent                 */
};

enum { MOE_RANKS = 64 }; /* most in a group that experts are divided over */

/* Experts and what is around them. x, y [R_sp,D]. N: rows that this rank's experts get. */
struct moe {
    struct tensor router, drouter;      /* [E,D]                                      */
    struct expert *experts;             /* borrowed [E_ep]                            */
    struct routing route;               /* kept, of this rank's rows                  */
    struct tensor stats;                /* kept [1,2E+1]: route_stats() of all rows   */
    struct tensor slot, source, counts; /* kept: route_order(), counts of all ranks of the group */
    struct tensor back;                 /* kept [k etp R_sp,D]: what came back        */
    struct tensor in, h;                /* [N,D], [N,2X]: kept, or made again         */
    struct tensor logits, a, sent, out; /* scratch: [R_sp,E], [N,X], like back, [N,D] */
    struct tensor da, dh, part, dlogits, dweight; /* likewise, like a, h, a, logits, weights    */
    struct tensor pull;                           /* [1,E]: gradient of probabilities            */
    struct mlp shared;                            /* beside the experts                         */
    struct tensor mix, dmix;                      /* [1,D]: how much of it counts               */
    struct tensor beside, gate;       /* kept [R_sp,D], [R_sp,1]: what it gives, and of mix */
    struct tensor dbeside, dgate, dx; /* scratch                                 */
    int layer;
    bool again, sends_again; /* h is made again in backward; in is         */
};
/* The most rows that the experts of a rank get. */
int64_t moe_rows(const struct dims *d);
/* Rows whose experts are balanced among each other: those of a microbatch, on whatever ranks they are. */
int64_t moe_balanced_rows(const struct ctx *c);
void moe_plan(struct moe *m, struct planner *p, int layer);
/* While training the losses for balance are added to c->balance_sums, but for those of all layers together. */
void moe_forward(const struct moe *m, const struct ctx *c, struct tensor y, struct tensor x);
void moe_backward(const struct moe *m, const struct ctx *c, struct tensor dx, struct tensor dy,
                  struct tensor x);

/* x2 = x + attention(norm1(x));  y = x2 + mlp(norm2(x2)).   x, y [R_sp,D]. */
struct block {
    struct norm norm1, norm2;
    struct attention attention;
    struct mlp mlp; /* or, sparse: */
    struct moe moe;
    bool sparse;
    struct tensor
        x; /* the block's input: kept, but inside of blocks that are made again together */
    struct tensor h1, x2, h2; /* kept                                           */
    struct tensor t, dh;      /* scratch                                        */
    int layer;
    int weight0; /* its first weight among the model's */
    bool again;  /* h1 and h2, which then are one, are made again in backward */
    int redo;    /* blocks that run again before its backward, itself the last; 0: none */
    bool lowest; /* nothing below is trained: the gradient of x is not computed */
};
/* Scratch is left taken: what blocks that are made again together rebuild. */
void block_plan(struct block *b, struct planner *p, int layer);
void block_forward(const struct block *b, const struct rope *r, const struct ctx *c,
                   struct tensor y);
/* dx may be scratch that the block itself does not use; its content means nothing when the block is the lowest. */
void block_backward(const struct block *b, const struct rope *r, const struct ctx *c,
                    struct tensor dx, struct tensor dy);

/* Final norm, logits of `chunk` rows at a time, cross entropy. x [R_sp,D]. */
struct head {
    struct norm norm;
    struct tensor w, dw;       /* [V,D]; the embedding when tied           */
    struct tensor h, dh;       /* scratch [R,D]                            */
    struct tensor h_sp, dh_sp; /* likewise of this rank's rows; h, dh without sequence parallel */
    struct tensor logits, dlogits; /* scratch [chunk,V], real; as act        */
    struct tensor stats, loss;     /* scratch [chunk,3], [chunk,1]             */
    struct tensor loss_sum,
        hits;            /* f64 [1], the model's: added to by each call; labels predicted right */
    bool lowest;         /* nothing below is trained                 */
    struct tensor parts; /* scratch [chunk tp,3]: statistics of all ranks; absent without */
};
void head_plan(struct head *h, struct planner *p, const struct embedding *e);
/* Adds the losses of the rows to loss_sum. */
void head_forward(const struct head *h, const struct ctx *c, struct tensor x);
/* The same, and dx = the gradient of scale times those losses, unless the head is the lowest; weights' gradients added to.
 * Logits exist once: loss and gradient are taken from them in one visit. */
void head_backward(const struct head *h, const struct ctx *c, struct tensor dx, struct tensor x,
                   double scale);
/* Logits of rows of x, at most `chunk`: real [rows,V], in scratch; valid until the next call. */
struct tensor head_logits(const struct head *h, const struct ctx *c, struct tensor x);

#endif
