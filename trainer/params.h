/* params.h - the parameter table and the questions one may ask it. */
#ifndef TRAINER_PARAMS_H
#define TRAINER_PARAMS_H

#include <stdbool.h>

#include "kernels/real.h"
#include "trainer/arch.h"

enum param_id {
#define PARAM(id, scope, when, rows, cols, kind, gpt2, form, llama, shard, init) PARAM_##id,
#include "trainer/params.def"
    PARAM_COUNT
};

enum shard {
    SHARD_WHOLE,   /* every tensor-parallel rank holds all of it      */
    SHARD_ROWWISE, /* likewise; acts outside of divided layers, on every row by itself */
    SHARD_VOCAB,   /* split along outputs, or vocabulary ...          */
    SHARD_HEADS,
    SHARD_GROUPS,
    SHARD_WIDTH,
    SHARD_FUSED,
    SHARD_HEADS_IN, /* along inputs: the product is a part of a sum */
    SHARD_WIDTH_IN,
    SHARD_EXPERT, /* one of the experts of some ranks, and of these split along outputs .. */
    SHARD_EXPERT_IN,
    SHARD_SHARED,
    SHARD_SHARED_IN
};

enum init { INIT_ONES, INIT_ZEROS, INIT_NORMAL, INIT_NORMAL_RESID, INIT_UNIFORM };

/* One parameter of one architecture. In its Hugging Face file tensor it fills outputs
 * [first, first + rows) of `outputs`; `transposed` tensors are [inputs, outputs] there. */
struct param {
    const char *format; /* Hugging Face name, with %d where the layer stands, then the expert */
    bool exists, in_layer, vector, transposed;
    bool in_expert;     /* of a layer                                         */
    int layers;         /* of the model                                       */
    int64_t rows, cols; /* in memory, whole                                   */
    int64_t first, outputs;
    enum shard shard;
    enum init init;
};

struct param param_get(enum param_id id, const struct arch *a);

/* A and B of a target, and whether a parameter is one of these. */
enum lora_part { LORA_A, LORA_B };
enum param_id param_adapter(enum lora_target target, enum lora_part part);
bool param_is_adapter(enum param_id id);

/* What a target adapts: `count` parameters from `first` on. */
struct lora_site {
    enum param_id first;
    int count;
};
struct lora_site param_lora_site(enum lora_target target);

/* Whether architecture a has adapters on a target. */
bool param_has_lora(const struct arch *a, enum lora_target target);

/* Whether a parameter is trained whole beside the adapters of a. */
bool param_is_also(const struct arch *a, enum param_id id);

/* Parameters of one id are told apart by their place: 0 of the model, the layer, or of expert e in layer l l + L e.
 * `places`: how many there may be; not all layers have all (param_is_at). */
int param_places(enum param_id id, const struct arch *a);
bool param_is_at(enum param_id id, const struct arch *a, int place);
int param_place(const struct arch *a, int layer, int expert);
int param_layer(const struct arch *a, int place);
int param_expert(const struct arch *a, int place);

/* The Hugging Face name of a parameter at a place (ignored for those of the model). */
enum { PARAM_NAME = 96 };
void param_name(char out[PARAM_NAME], const struct param *p, int place);

/* Parameters of the whole model, tied ones once: how many tensors of memory, how many numbers. */
int params_tensors(const struct arch *a);
int64_t params_count(const struct arch *a);
/* Those that a token meets: of the experts only k. */
int64_t params_active(const struct arch *a);

/* A stretch of a row of the whole parameter. */
struct param_stretch {
    int64_t row, col0, cols;
};

/* Initial values of a stretch into out [cols]. A value depends on the seed, the parameter, its place and its
 * index in the Hugging Face tensor, never on ranks or order. */
void param_init(real *out, enum param_id id, const struct arch *a, int place, uint64_t seed,
                struct param_stretch stretch);

#endif
