/* trained.h - which parameters a run trains: all; or, where there are adapters, these
 * and what lora_also adds to them (also.h); and never what the request's
 * `freeze` names. The others have no gradient, no optimizer state and no master.
 *
 * `freeze` is a list of patterns with commas between them. A pattern matches the whole Hugging Face name of a parameter or
 * the name of a module around it; * stands for any characters: "model.embed_tokens, model.layers.0, *norm*".
 */
#ifndef TRAINER_TRAINED_H
#define TRAINER_TRAINED_H

#include "trainer/dims.h"
#include "trainer/params.h"

/* Whether a run of these sizes trains the parameter. False for all when d->training is false. */
bool trained_has(const struct dims *d, enum param_id id, int place);

/* The lowest block that has a trained parameter; -1 when the embeddings, which lie below all, are trained; L when only what
 * lies above the blocks is. No backward pass goes below it. */
int trained_lowest(const struct dims *d);

/* Numbers that are trained. */
int64_t trained_count(const struct dims *d);

/* Errors: BAD_SPEC (param freeze) when a pattern matches nothing, or nothing is left to train. */
int trained_check(const struct arch *a, const struct spec *s, struct err *err);

#endif
