/* ops.h - the operations of one instruction set, in the order of kernels/kernels.h, which is their
 * contract. */
#ifndef KERNELS_CPU_VEC_OPS_H
#define KERNELS_CPU_VEC_OPS_H

#include "kernels/cpu/vec/vec.h"

void VEC(gemm_plain)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                     struct tensor b, enum trans tb, float beta);
void VEC(gemm_scaled)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                      struct tensor b, enum trans tb, float beta, double factor);
void VEC(quantise)(struct queue *q, struct tensor y, struct tensor amax, struct tensor x,
                   double scale);
void VEC(gemm_rows)(struct queue *q, struct tensor c, struct tensor a, struct tensor b);
double VEC(probe)(int ms);

void VEC(bias_forward)(struct queue *q, struct tensor y, struct tensor b);
void VEC(bias_backward)(struct queue *q, struct tensor db, struct tensor dy);
void VEC(embedding_forward)(struct queue *q, struct tensor y, struct tensor ids, struct tensor w,
                            int64_t row0, struct tensor pos, struct tensor p);
void VEC(embedding_backward)(struct queue *q, struct tensor dw, struct tensor dp, struct tensor dy,
                             struct tensor ids, int64_t row0, struct tensor pos);
void VEC(layernorm_forward)(struct queue *q, struct tensor y, struct tensor mean,
                            struct tensor rstd, struct tensor x, struct tensor w, struct tensor b,
                            double eps);
void VEC(layernorm_backward)(struct queue *q, struct tensor dx, struct tensor dw, struct tensor db,
                             struct tensor dy, struct tensor x, struct tensor w,
                             const struct tensor stats[2]);
void VEC(rmsnorm_forward)(struct queue *q, struct tensor y, struct tensor rstd, struct tensor x,
                          struct tensor w, double eps);
void VEC(rmsnorm_backward)(struct queue *q, struct tensor dx, struct tensor dw, struct tensor dy,
                           struct tensor x, struct tensor w, struct tensor rstd);
void VEC(rope)(struct queue *q, struct tensor x, int64_t heads, struct tensor pos,
               struct tensor cos, struct tensor sin, bool inverse);
void VEC(attention_forward)(struct queue *q, struct tensor out, struct tensor lse,
                            struct tensor qkv, struct tensor first, const struct attention_shape *s,
                            const struct dropout *drop, const struct attention_context *context);
void VEC(attention_backward)(struct queue *q, struct tensor dqkv, struct tensor dout,
                             const struct tensor saved[3], struct tensor first,
                             const struct attention_shape *s, const struct dropout *drop,
                             const struct attention_context *context);
void VEC(attention_decode)(struct queue *q, struct tensor out, const struct tensor cache[2],
                           struct tensor qkv, const struct tensor place[2], int64_t window,
                           const struct attention_shape *s);
void VEC(activation_forward)(struct queue *q, struct tensor y, struct tensor x,
                             enum activation act);
void VEC(activation_backward)(struct queue *q, struct tensor dx, struct tensor dy, struct tensor x,
                              enum activation act);
void VEC(swiglu_forward)(struct queue *q, struct tensor y, struct tensor gu);
void VEC(swiglu_backward)(struct queue *q, struct tensor dgu, struct tensor dy, struct tensor gu);
void VEC(dropout)(struct queue *q, struct tensor y, struct tensor x, const struct dropout *d);
void VEC(add)(struct queue *q, struct tensor y, struct tensor a, struct tensor b);
void VEC(scale)(struct queue *q, struct tensor y, double factor);
void VEC(take_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first);
void VEC(add_columns)(struct queue *q, struct tensor y, struct tensor x, int64_t first);
void VEC(route_forward)(struct queue *q, const struct routing *o, struct tensor logits,
                        bool renormalise);
void VEC(route_backward)(struct queue *q, struct tensor dlogits, struct tensor dweight,
                         const struct routing *o, struct tensor pull, double z, bool renormalise);
void VEC(route_stats)(struct queue *q, struct tensor stats, const struct routing *o);
void VEC(route_losses)(struct queue *q, struct tensor sums, struct tensor stats, double aux,
                       double z);
void VEC(route_drop)(struct queue *q, struct tensor kept, struct tensor list, struct tensor choice,
                     struct tensor weight, int64_t row0, int64_t most);
void VEC(route_order)(struct queue *q, struct tensor slot, struct tensor source,
                      struct tensor counts, struct tensor kept, const struct route_grid *g);
void VEC(combine_forward)(struct queue *q, struct tensor y, struct tensor e, struct tensor slot,
                          struct tensor weight);
void VEC(combine_backward)(struct queue *q, struct tensor e, struct tensor dweight,
                           struct tensor dy, struct tensor slot, struct tensor weight);
void VEC(gate_rows_forward)(struct queue *q, struct tensor y, struct tensor x, struct tensor gate);
void VEC(gate_rows_backward)(struct queue *q, struct tensor dx, struct tensor dgate,
                             struct tensor dy, struct tensor x, struct tensor gate);
void VEC(cross_entropy_stats)(struct queue *q, struct tensor stats, struct tensor logits,
                              struct tensor labels, int64_t vocab0, int64_t valid);
void VEC(cross_entropy_merge)(struct queue *q, struct tensor stats, struct tensor parts);
void VEC(cross_entropy_loss)(struct queue *q, struct tensor loss, struct tensor stats,
                             struct tensor labels);
void VEC(cross_entropy_hits)(struct queue *q, struct tensor hits, struct tensor stats,
                             struct tensor labels);
void VEC(cross_entropy_backward)(struct queue *q, struct tensor dlogits, struct tensor logits,
                                 struct tensor stats, struct tensor labels, int64_t vocab0,
                                 int64_t valid, double scale);
void VEC(adamw)(struct queue *q, struct tensor master, struct tensor m, struct tensor v,
                struct tensor low, struct tensor grad, const struct adamw *a);
void VEC(sum_squares)(struct queue *q, struct tensor out, struct tensor x);
void VEC(sum)(struct queue *q, struct tensor out, struct tensor x);
void VEC(cast)(struct queue *q, struct tensor y, struct tensor x);
void VEC(zero)(struct queue *q, struct tensor y);

#endif
