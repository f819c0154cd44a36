/* spec.h - a job request, parsed and checked against spec.def.
 *
 * The server refuses a bad request with it at submit; the trainer reads the accepted one with it.
 * Nothing here looks at files: what depends on the model or the data is resolved later.
 */
#ifndef TRAINER_SPEC_H
#define TRAINER_SPEC_H

#include <jansson.h>
#include <stdint.h>

#include "trainer/base/err.h"

/* In the order of the CHOICE lists of spec.def. */
enum method_of_training { TRAIN_AUTO, TRAIN_PRETRAIN, TRAIN_SFT };
enum lr_schedule { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_INVERSE_SQRT, LR_WSD };
enum wsd_style { WSD_LINEAR, WSD_COSINE, WSD_EXPONENTIAL, WSD_MINUS_SQRT };
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_FP16 };
enum sequence_parallel { SEQUENCE_WHOLE, SEQUENCE_PARALLEL };
enum distributed_optimizer { DISTRIBUTED_NO, DISTRIBUTED_YES };
enum async_save { ASYNC_NO, ASYNC_YES };
enum overlap { OVERLAP_NO, OVERLAP_YES };
/* Fields of the queue; the trainer skips them. */
enum priority { PRIORITY_URGENT, PRIORITY_NORMAL, PRIORITY_LOW, PRIORITY_IDLE };
enum at_time_limit { LIMIT_STOP, LIMIT_REQUEUE };
enum preemptible { PREEMPTIBLE_AUTO, PREEMPTIBLE_NO, PREEMPTIBLE_YES };
enum visibility { VISIBLE_LAB, VISIBLE_PRIVATE };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum aux_scaling { AUX_HUGGINGFACE, AUX_MEGATRON };
enum pre_softmax { PRE_SOFTMAX_AUTO, PRE_SOFTMAX_NO, PRE_SOFTMAX_YES };
enum recompute_method { RECOMPUTE_UNIFORM, RECOMPUTE_BLOCK };

struct spec {
#define TEXT(field, longest, help)              char field[(longest) + 1]; /* "" when not given */
#define OBJECT(field, help)                     json_t *field; /* owned; NULL when not given    */
#define INTEGER(field, preset, low, high, help) int64_t field;
#define NUMBER(field, preset, low, high, help)  double field;
#define CHOICE(field, preset, list, help)       int field; /* index in the list */
#include "trainer/spec.def"
};

/* Read `request`, an object. Errors: BAD_SPEC with err.param naming the field. On failure *out
 * needs no spec_free. Fields not given have the default of their row. */
int spec_parse(struct spec *out, const json_t *request, struct err *err);
void spec_free(struct spec *s);

/* Every field with its value, as JSON; a new reference, NULL when out of memory. */
json_t *spec_json(const struct spec *s);

/* The table itself, for documents and forms: {field: {type, default, minimum, maximum, enum,
 * description}} in the order of the rows; a new reference. */
json_t *spec_schema(void);

#endif
