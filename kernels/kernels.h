/* kernels.h - every numerical operation the trainer may call, as one table per backend.
 *
 * The CPU and the CUDA backend each fill one `struct kernels`. Nothing above this file knows which
 * one it holds; that is decided once, in rank.c. The layer code therefore links without CUDA, and
 * so does the server, which only plans.
 *
 * Conventions, for every entry:
 *   - argument order: queue, outputs, inputs, scalars; an output is never also an input unless
 *     its comment says "in place";
 *   - dX is the gradient of the loss with respect to X; gradients of weights are ADDED to, gradients
 *     of activations are OVERWRITTEN;
 *   - activations and weights are DTYPE_REAL, DTYPE_BF16 or DTYPE_F16, read and written through f32 (f64 in
 *     the double build); gradients of weights, statistics and moments are DTYPE_REAL; rounding is to
 *     nearest, ties to even;
 *   - sums are kept in real whatever the element type, in an order that does not depend on the
 *     number of threads (gemm excepted, whose library may block the depth by it), and that is always
 *     the same, so that a run repeats bit for bit on the same machine with the same threads;
 *   - a kernel cannot fail: wrong shapes are bugs (CHECK), a lost device ends the rank.
 *
 * Shapes: R rows (tokens of a microbatch, R = B S), D model width, F MLP width, H query heads, G key
 * and value heads, K head size, V vocabulary. A fused qkv row is [H K | G K | G K].
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where work runs, in order: a CUDA stream, or nothing at all on the CPU. The workspace is memory
 * of the scratch region (kernels/workspace.h says how much); a kernel uses it within one call. */
struct queue {
    void *stream;           /* the backend's; NULL on the CPU              */
    void *workspace;        /* borrowed, 64-byte aligned                   */
    size_t workspace_bytes; /* at least what workspace.h asks for the call */
};

enum trans { AS_IS, TRANSPOSED };

enum activation { ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU, ACT_SILU, ACT_COUNT };

/* Attention over B sequences of S tokens; row r is position r % S of sequence r / S. */
struct attention_shape {
    int64_t B, S, H, G, K; /* G divides H: query head h reads key head h / (H / G) */
    double scale;          /* of the scores, usually K^-1/2                        */
};

/* Keys and values of whole sequences, of which the call has some of the queries (context parallel): query s is at
 * place place0 + s, those of the second half, s >= S / 2, are `skip` places further on. */
struct attention_context {
    struct tensor keys;  /* [B T, 2 G K]: key and value heads of every place */
    struct tensor dkeys; /* likewise, overwritten by the backward pass: what these queries add */
    int64_t T;           /* places of a sequence */
    int64_t place0, skip;
};

/* Which elements dropout keeps is a function of these and of the element's place, never of ranks or
 * order. Row r of the call is row n = row0 + r of a microbatch, number i = n % S of sample sample0 + n / S; its
 * place is place0 + i, in the second half of S `skip` more; its position pos0 + place. */
struct dropout {
    double p; /* probability of dropping; kept values are divided by 1 - p */
    uint64_t seed;
    int64_t step, sample0, pos0, row0, place0, skip, S;
    int layer, site;
    int64_t feature0; /* index in the whole width of the call's column 0 */
};

/* One AdamW step (Loshchilov & Hutter 2019, arXiv:1711.05101), t counted from 1:
 *   g' = g scale;  p *= 1 - lr wd;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
 *   p -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)                                        */
struct adamw {
    double lr, beta1, beta2, eps, weight_decay;
    double scale; /* of the gradient: clipping, loss scale */
    int64_t t;
};

/* Where a router sends R tokens: k of E experts each, with weights. */
struct routing {
    struct tensor choice;      /* [R,k] i32, the likeliest first    */
    struct tensor weight;      /* [R,k] real                        */
    struct tensor probability; /* [R,E] real                        */
    struct tensor lse;         /* [R,1] real: log of the sum of exponentials of the logits */
};

/* Experts over ranks: `ep` of them have E / ep each, and each of these is divided into etp parts, ranks of their own. */
struct route_grid {
    int64_t E, ep, etp;
};

struct kernels {
    const char *name; /* "cpu" or "cuda"                                              */
    const char *isa;  /* "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+bf16"; ""   */

    /* c = op(a) op(b) + beta c.   op(a) [M,K], op(b) [K,N], c [M,N]; beta is 0 or 1.
     * Types (a = b): real with c real; bf16 or f16 with c of that type or real. Products are summed in
     * real. */
    void (*gemm)(struct queue *q, struct tensor c, struct tensor a, enum trans ta, struct tensor b,
                 enum trans tb, float beta);

    /* c = factor op(a) op(b) + beta c.   a, b E4M3 or E5M2, c real, bf16 or f16; as gemm beside that. */
    void (*gemm_scaled)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                        struct tensor b, enum trans tb, float beta, double factor);
    /* y = scale x, E4M3 or E5M2: to nearest, ties to even, saturating; a NaN stays one.   x real, bf16 or f16.
     * amax[0] = the larger of amax[0] and of every |x|, NaNs passed over.   amax [1] f32, may be absent. */
    void (*quantise)(struct queue *q, struct tensor y, struct tensor amax, struct tensor x,
                     double scale);

    /* c = a b^T.   a [M,K], b [N,K], c [M,N], types as for gemm but f16. Row m of c is a function of row m of a
     * and of b alone, bit for bit: not of M, of the other rows or of the number of threads. */
    void (*gemm_rows)(struct queue *q, struct tensor c, struct tensor a, struct tensor b);

    /* y[r,:] += b.   y [R,N] in place, b [N].      db[n] += sum_r dy[r,n]. */
    void (*bias_forward)(struct queue *q, struct tensor y, struct tensor b);
    void (*bias_backward)(struct queue *q, struct tensor db, struct tensor dy);

    /* y[r,:] = w[ids[r]-row0,:] (+ p[pos[r],:]).   y [R,D], w [rows,D], ids, pos [R] i32. Ids
     * outside [row0, row0 + rows) give 0 (vocabulary-parallel ranks). p, pos may be absent. */
    void (*embedding_forward)(struct queue *q, struct tensor y, struct tensor ids, struct tensor w,
                              int64_t row0, struct tensor pos, struct tensor p);
    /* dw, dp added to, summed in row order. Each of dw, dp may be absent, and pos without dp. */
    void (*embedding_backward)(struct queue *q, struct tensor dw, struct tensor dp,
                               struct tensor dy, struct tensor ids, int64_t row0,
                               struct tensor pos);

    /* LayerNorm, Ba et al. 2016 (arXiv:1607.06450): y = (x - mean) rstd w + b.
     * x, y [R,D]; w, b [D]; mean, rstd [R] real, kept for the backward pass. dw, db may be absent. */
    void (*layernorm_forward)(struct queue *q, struct tensor y, struct tensor mean,
                              struct tensor rstd, struct tensor x, struct tensor w, struct tensor b,
                              double eps);
    void (*layernorm_backward)(struct queue *q, struct tensor dx, struct tensor dw,
                               struct tensor db, struct tensor dy, struct tensor x, struct tensor w,
                               const struct tensor stats[2]); /* mean, rstd */

    /* RMSNorm, Zhang & Sennrich 2019 (arXiv:1910.07467).
     *   y[r,d] = x[r,d] rstd[r] w[d],   rstd[r] = (mean_d x[r,d]^2 + eps)^-1/2
     * x, y [R,D]; w [D]; rstd [R] real, kept for the backward pass. dw may be absent. */
    void (*rmsnorm_forward)(struct queue *q, struct tensor y, struct tensor rstd, struct tensor x,
                            struct tensor w, double eps);
    void (*rmsnorm_backward)(struct queue *q, struct tensor dx, struct tensor dw, struct tensor dy,
                             struct tensor x, struct tensor w, struct tensor rstd);

    /* Rotary embedding, halves layout (Su et al. 2021, arXiv:2104.09864; Hugging Face's form), in
     * place, on the first `heads` heads of K elements of each row of x [R, at least heads K]:
     *   a = x[j], b = x[j + K/2]:  x[j] = a cos - b sin,  x[j + K/2] = b cos + a sin
     * cos, sin [positions, K/2] real, already scaled; pos [R] i32. inverse: -sin, the backward pass. */
    void (*rope)(struct queue *q, struct tensor x, int64_t heads, struct tensor pos,
                 struct tensor cos, struct tensor sin, bool inverse);

    /* Causal attention with grouped query heads, by blocks with running maxima (Dao et al. 2022,
     * arXiv:2205.14135): the S x S matrix is never stored.
     * qkv [R,(H+2G)K], out [R,H K], lse [R,H] real: log of the sum of exponentials, kept.
     * first [R] i32: place in the sequence of the first key row r sees (document start, sliding
     * window); first[r] <= place of r, not decreasing within a sequence.
     * drop may be NULL; else attention probabilities drop by (.., head as feature, key position).
     * context: NULL, or keys and values in place of those in qkv. */
    void (*attention_forward)(struct queue *q, struct tensor out, struct tensor lse,
                              struct tensor qkv, struct tensor first,
                              const struct attention_shape *s, const struct dropout *drop,
                              const struct attention_context *context);
    /* dqkv overwritten, but for keys and values where there is a context. saved: out, lse, qkv, as in the forward pass. */
    void (*attention_backward)(struct queue *q, struct tensor dqkv, struct tensor dout,
                               const struct tensor saved[3], struct tensor first,
                               const struct attention_shape *s, const struct dropout *drop,
                               const struct attention_context *context);
    /* New tokens of any of B sequences: enters the keys and values of all rows of qkv [R,(H+2G)K] into
     * the caches [B, T G K], row r at position pos[r] of sequence slot[r]; then row r attends over
     * max(0, pos[r]+1-window) .. pos[r] of its sequence (window 0: all). out [R,H K]; place: slot, pos,
     * both [R] i32, no two rows alike. s->S is T, the capacity of the caches. Rows of out are as
     * independent of each other as those of gemm_rows. */
    void (*attention_decode)(struct queue *q, struct tensor out, const struct tensor cache[2],
                             struct tensor qkv, const struct tensor place[2], int64_t window,
                             const struct attention_shape *s);

    /* y = act(x).   dx = dy act'(x).   All [R,F]. GELU: Hendrycks & Gimpel 2016 (arXiv:1606.08415),
     * exact (erf) or its tanh form. */
    void (*activation_forward)(struct queue *q, struct tensor y, struct tensor x,
                               enum activation act);
    void (*activation_backward)(struct queue *q, struct tensor dx, struct tensor dy,
                                struct tensor x, enum activation act);

    /* SwiGLU, Shazeer 2020 (arXiv:2002.05202):  y = silu(g) u.  gu [R,2F] holds g | u; y [R,F]. */
    void (*swiglu_forward)(struct queue *q, struct tensor y, struct tensor gu);
    void (*swiglu_backward)(struct queue *q, struct tensor dgu, struct tensor dy, struct tensor gu);

    /* y = x kept or dropped; y may be x. Applied to dy the same call is the backward pass. */
    void (*dropout)(struct queue *q, struct tensor y, struct tensor x, const struct dropout *d);

    /* y = a + b; y may be a or b. Types may differ. */
    void (*add)(struct queue *q, struct tensor y, struct tensor a, struct tensor b);

    /* y *= factor, in place. */
    void (*scale)(struct queue *q, struct tensor y, double factor);
    /* Some columns of a matrix: y = x[:, first ..],   y [R,N], x [R,M] of one type;
     * y[:, first ..] += x, in place,   x [R,N], y [R,M].   first + N <= M. */
    void (*take_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first);
    void (*add_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first);

    /* A router of experts. probability = softmax(logits [R,E] real); choice: the k largest, of equals the lower index
     * first; weight: their probabilities, or, renormalised, those of a softmax over the chosen logits alone. */
    void (*route_forward)(struct queue *q, const struct routing *o, struct tensor logits,
                          bool renormalise);
    /* dlogits [R,E] real, bf16 or f16, from dweight [R,k] real, and from pull [E] real, the gradient of every row's
     * probabilities, and z: that of lse is z lse. At most 1024 experts. */
    void (*route_backward)(struct queue *q, struct tensor dlogits, struct tensor dweight,
                           const struct routing *o, struct tensor pull, double z, bool renormalise);
    /* stats [1,2E+1] real, overwritten: rows that chose each expert, sums of probabilities, the sum of lse^2. */
    void (*route_stats)(struct queue *q, struct tensor stats, const struct routing *o);
    /* sums[0] += aux sum_e stats[e] stats[E + e];   sums[1] += z stats[2E].   sums [2] f64, on the device. */
    void (*route_losses)(struct queue *q, struct tensor sums, struct tensor stats, double aux,
                         double z);
    /* kept [R,k] i32: rows row0 .. of choice [T,k], -1 where an expert has `most` others with more weight, of equals
     * earlier ones. weight [T,k] real; list [T,k] i32 is overwritten. */
    void (*route_drop)(struct queue *q, struct tensor kept, struct tensor list,
                       struct tensor choice, struct tensor weight, int64_t row0, int64_t most);
    /* The order in which rows are sent: by rank of g (ep, then part), by expert, by row. counts [E etp] i32: how many,
     * in that order; slot [R,k etp] i32: where each goes, -1 where kept is; source [R k etp] i32: the row that each is
     * of, then -1. */
    void (*route_order)(struct queue *q, struct tensor slot, struct tensor source,
                        struct tensor counts, struct tensor kept, const struct route_grid *g);
    /* y[r,:] = sum_i w[r,i / etp] e[slot[r,i],:], where slot is not -1.   y [R,D], e [N,D], slot [R,k etp] i32, w
     * [R,k] real; w may be absent: 1. */
    void (*combine_forward)(struct queue *q, struct tensor y, struct tensor e, struct tensor slot,
                            struct tensor weight);
    /* Its backward: the gradient of e takes the place of e (rows that no slot names are left); dweight [R,k] real
     * overwritten. */
    void (*combine_backward)(struct queue *q, struct tensor e, struct tensor dweight,
                             struct tensor dy, struct tensor slot, struct tensor weight);
    /* y[r,:] += sigmoid(gate[r]) x[r,:].   y, x [R,D]; gate [R] real.      dx overwritten; dgate [R] as dx. */
    void (*gate_rows_forward)(struct queue *q, struct tensor y, struct tensor x,
                              struct tensor gate);
    void (*gate_rows_backward)(struct queue *q, struct tensor dx, struct tensor dgate,
                               struct tensor dy, struct tensor x, struct tensor gate);

    /* Cross entropy over a vocabulary slice [vocab0, vocab0 + V), in two passes so that ranks can
     * combine their statistics between them. logits [R,V] real; labels [R] i32, < 0 is not trained.
     *   stats [R,3] real: max, sum of exp(x - max), logit of the label or 0 where it is elsewhere.
     * Columns at or beyond `valid` of the whole vocabulary are padding and take no part. */
    void (*cross_entropy_stats)(struct queue *q, struct tensor stats, struct tensor logits,
                                struct tensor labels, int64_t vocab0, int64_t valid);
    /* Statistics of the slices of a vocabulary, parts [n R,3] one rank's after the other's, become those of all of
     * it, stats [R,3]. Sums are taken in the order of the parts. */
    void (*cross_entropy_merge)(struct queue *q, struct tensor stats, struct tensor parts);
    /* loss [R] real: max + log(sum) - logit of the label; 0 where not trained. */
    void (*cross_entropy_loss)(struct queue *q, struct tensor loss, struct tensor stats,
                               struct tensor labels);
    /* hits[0] += trained rows whose label has the largest logit (a tie counts).   hits [1] f64, on the device. */
    void (*cross_entropy_hits)(struct queue *q, struct tensor hits, struct tensor stats,
                               struct tensor labels);
    /* dlogits = scale (softmax - onehot); 0 in rows not trained and in padding. dlogits [R,V] real,
     * bf16 or f16; it may be logits itself (in place) when real. */
    void (*cross_entropy_backward)(struct queue *q, struct tensor dlogits, struct tensor logits,
                                   struct tensor stats, struct tensor labels, int64_t vocab0,
                                   int64_t valid, double scale);

    /* master, m, v [n] real in place; grad [n] real; low [n] bf16 or f16 receives the rounded master; it
     * may be absent. */
    void (*adamw)(struct queue *q, struct tensor master, struct tensor m, struct tensor v,
                  struct tensor low, struct tensor grad, const struct adamw *a);

    /* out[0] += sum of squares, sum of x.   out [1] f64, on the device; x real. */
    void (*sum_squares)(struct queue *q, struct tensor out, struct tensor x);
    void (*sum)(struct queue *q, struct tensor out, struct tensor x);

    /* y = x with the element type of y: any of f32, f64, bf16, f16, E4M3, E5M2 to any. */
    void (*cast)(struct queue *q, struct tensor y, struct tensor x);
    /* Bytes to zero. */
    void (*zero)(struct queue *q, struct tensor y);
};

/* The CPU table for the best instruction set this machine has, or for the one that the environment
 * variable HONE_ISA names ("v2", "v3", "v4", "v4bf16"). The choice is made at the first call and
 * kept; oneDNN is held to the same set. NULL when HONE_ISA names a set that this machine lacks or
 * nobody knows; kernels_cpu_why() then is a sentence that says so. */
const struct kernels *kernels_cpu(void);
const char *kernels_cpu_why(void);

/* Threads that kernels of this process use from now on; 1 at start. */
void kernels_cpu_threads(int threads);

/* Fused multiply-add rate of this machine with `threads` threads on the widest vectors that the
 * chosen table uses, in flop/s, measured for about `ms` milliseconds. Speeds are quoted as ratios
 * to it. */
double kernels_cpu_probe(int threads, int ms);

#ifdef __cplusplus
}
#endif
#endif
