/* arch.h - the architecture of a model: what config.json says, in Hone's words.
 *
 * A family is a row of choices (arch.c); layers ask only for the choice that concerns them. Fields that
 * config.json lacks get the default that Hugging Face transformers gives that model type.
 */
#ifndef TRAINER_ARCH_H
#define TRAINER_ARCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "trainer/base/err.h"

enum family {
    FAMILY_GPT2,
    FAMILY_LLAMA,
    FAMILY_QWEN2,
    FAMILY_MISTRAL,
    FAMILY_MIXTRAL,
    FAMILY_QWEN2_MOE,
    FAMILY_COUNT
};

enum norm_kind { NORM_LAYER, NORM_RMS };

enum rope_kind { ROPE_NONE, ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };

/* Rotary positions: frequencies theta^(-2i/K), stretched as `kind` says. */
struct rope_choice {
    enum rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    int64_t original_positions;               /* llama3 */
};

/* Linear layers that adapters may act on, in the order of their rows in params.def. QKV: the three as one, in GPT-2. */
enum lora_target {
    LORA_Q,
    LORA_K,
    LORA_V,
    LORA_QKV,
    LORA_OUT,
    LORA_GATE,
    LORA_UP,
    LORA_DOWN,
    LORA_TARGETS
};

/* Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): y = W x + scale B A x; scale is alpha / r, with rslora
 * (Kalajdzievski 2023, arXiv:2312.03732) alpha / sqrt(r). config.json knows nothing of them: see lora.h. */
struct lora_choice {
    int64_t r; /* rank of A [r,in] and B [out,r]; 0: there are no adapters */
    double alpha, dropout;
    bool rslora;
    unsigned targets; /* bit 1 << t for lora_target t */
    uint32_t also; /* trained whole beside them: bit 1 << id for a parameter of params.h (also.h) */
};

/* Mixture of experts (Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961): a router sends every
 * token to k of E gated MLPs. */
enum { DENSE_LISTED = 64 };

struct moe_choice {
    int64_t E, k;     /* 0: there are no experts                                        */
    int64_t X;        /* width of an expert                                             */
    int64_t Y;        /* width of the MLP that all tokens go through beside them; 0: none */
    bool renormalise; /* weights of the k chosen add up to 1: a softmax over them alone */
    double aux_coef;  /* router_aux_loss_coef                                           */
    int64_t step;     /* layers step - 1, 2 step - 1, .. have experts, but ..           */
    int dense_count;  /* .. not these                                                   */
    int16_t dense[DENSE_LISTED];
};

struct arch {
    enum family family;
    int64_t D, F, L, H, G, K, V; /* the glossary of dims.h, whole model          */
    int64_t positions;           /* longest sequence                             */
    enum norm_kind norm;
    double norm_eps;
    enum activation act; /* of a plain MLP                               */
    bool gated;          /* SwiGLU instead                               */
    bool learned_positions;
    bool qkv_bias, out_bias, mlp_bias;
    bool tied; /* the head is the embedding                    */
    double attention_scale;
    struct rope_choice rope;
    int64_t window;        /* sliding window of attention; 0: none         */
    int64_t window_layer0; /* the first layer that has it                  */
    double init_std;
    int64_t bos, eos; /* token ids; -1: none                          */
    struct moe_choice moe;
    struct lora_choice lora;
};

/* Read a config.json object. vocab_size may be missing when `vocab` is not 0 (it then is `vocab`).
 * Errors: NO_MODEL naming the field; its text starts with "config.json". */
int arch_read(struct arch *out, const json_t *config, int64_t vocab, struct err *err);

/* The config.json of a model folder, as it is; a new reference. Errors: NO_MODEL, IO, NO_MEMORY. */
int arch_read_config(json_t **config, const char *dir, struct err *err);

/* The config.json to save with a model: `config` as it was read (may be NULL: built from arch), with
 * architectures, model_type, vocab_size and torch_dtype made true. A new reference; NULL: no memory. */
json_t *arch_config(const struct arch *a, const json_t *config, enum dtype type);

/* Whether a layer has experts instead of one MLP, and how many layers have. */
bool arch_is_sparse(const struct arch *a, int64_t layer);
int64_t arch_sparse_layers(const struct arch *a);

const char *family_name(enum family f); /* "llama" */

#endif
