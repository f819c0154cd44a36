/* also.h - what is trained whole beside low-rank adapters: embeddings, the head, norms. PEFT calls it modules_to_save.
 *
 * An adapter leaves embeddings as they are. A model that has never met a token keeps for it the values that it began with,
 * the same for all such tokens; an answer that has to end in one of them then never ends. So embeddings are trained too
 * where the request does not say otherwise and the token that ends answers has the output weights of another.
 *
 * In a tied model the head is the embedding: either name stands for both.
 */
#ifndef TRAINER_ALSO_H
#define TRAINER_ALSO_H

#include "trainer/arch.h"
#include "trainer/plan.h"
#include "trainer/spec.h"

/* The modules of a request's list: names, or the module paths, with stars as in `freeze`. Errors: BAD_SPEC. */
int also_choose(uint32_t *out, const struct arch *a, const char *list, struct err *err);

/* modules_to_save of an adapter_config.json; a name means every module whose path ends in it. Errors: NO_MODEL. */
int also_read(uint32_t *out, const struct arch *a, const json_t *config, struct err *err);

/* a->lora.also as modules_to_save; null for none. A new reference; NULL: no memory. */
json_t *also_names(const struct arch *a);

/* A token that ends answers, and how many others have its output weights; 0: no reason to train embeddings. */
struct also_reason {
    int64_t token, twins;
};

/* Add the embeddings to a->lora.also when the request leaves the choice to Hone and there is a reason: the end of turn of
 * the chat template (the tokenizer's EOS where that has none) is looked up in the weights. The same request and folders
 * give the same answer, whatever the training file holds; what can't be read is no reason. */
void also_decide(struct arch *a, struct also_reason *why, const struct spec *s,
                 const struct plan_folders *f);

#endif
