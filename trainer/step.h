/* step.h - one optimizer step, one evaluation. */
#ifndef TRAINER_STEP_H
#define TRAINER_STEP_H

#include "trainer/data/data.h"
#include "trainer/grads.h"
#include "trainer/memory.h"
#include "trainer/model.h"
#include "trainer/scale.h"

/* A model with memory and the machinery to run it. Not to be moved once open. */
struct engine {
    struct model *model;
    struct layout layout;
    struct memory memory;
    const struct kernels *k;
    struct queue q;
    /* groups of one when opened; of ranks: set before the first step. dp: of ranks with other tokens, context parallel
     * ones too. embedding: first and last stage, which share a tied one */
    struct comm world, tp, kv, dp, cp, pp, embedding;
    struct comm ep,
        edp; /* ranks that experts are divided over, etp of each; those with the same experts */
    struct traffic passing; /* of forward passes alone */
    struct grad_sums sums;  /* when training           */
    struct scale scale;     /* of the loss; 1 in precisions that need none             */
    int64_t *width;         /* owned [micros]: places of its rows that a step works on */
    int64_t batch;          /* samples in each of them                                 */
    int64_t micros;         /* planned for a step; model->d has those of the present one */
    struct dims narrow;     /* the model's, at the width of the present microbatch     */
};

/* Plan, allocate and bind a model; weights are zero until loaded. isa: as in HONE_ISA, "" for the best.
 * Errors: BAD_SPEC (no such instruction set), NO_MEMORY. */
int engine_open(struct engine *e, const struct dims *d, const char *isa, struct err *err);
void engine_close(struct engine *e);

struct step_result {
    double loss;      /* mean over trained tokens; 0 when there were none  */
    double accuracy;  /* part of the trained tokens that had the largest logit */
    double grad_norm; /* before clipping                                    */
    int64_t tokens;   /* trained tokens                                     */
    /* Means over the microbatches that trained any, before they are multiplied by their coefficients: of the losses for the
     * balance of experts, of all layers, and of the routers' logits, summed over layers. */
    double aux_loss, z_loss;
    bool skipped; /* for the loss scale: nothing was learned            */
};

struct step_input {
    const struct data_rows *rows; /* `samples` of them              */
    int64_t
        samples; /* of all data-parallel ranks, whole microbatches, at most those planned; 0: these */
    int64_t trained;  /* labels >= 0 in them            */
    int64_t consumed; /* number of their first sample   */
    int64_t step;     /* from 1                         */
    uint64_t seed;    /* of dropout                     */
    double clip;
    struct adamw adamw; /* lr, betas, eps, decay; scale and t are filled in */
};

/* Gradients of the whole global batch, times the loss scale, left in the weights' dw; result->grad_norm, without
 * it, is filled in. */
void step_gradients(struct engine *e, const struct step_input *in, struct step_result *result);

/* step_gradients, then AdamW, unless loss or norm are not finite; the loss scale sees which. Skipped steps do not
 * count in AdamW's t. */
void step_run(struct engine *e, const struct step_input *in, struct step_result *result);

/* Logits of the token behind `n` tokens, at most dims.S_all, by a forward pass over them: real [V], on all
 * ranks, valid until the next call. All ranks call it. */
const real *step_logits(struct engine *e, const int32_t *ids, int64_t n);

/* Asked from time to time during long work, by all ranks at once, which get the same answer: true ends it early. */
typedef bool step_stop(void *context);

/* Mean loss over a set, in order, and the number of its tokens in result. `rows` is memory for the samples of a
 * step, those of all ranks. `stop` may be NULL; when it returns true the evaluation ends early and
 * returns false. */
bool step_evaluate(struct engine *e, const struct data_set *set, const struct data_rows *rows,
                   step_stop *stop, void *context, struct step_result *result);

#endif
