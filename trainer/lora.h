/* lora.h - low-rank adapters: what a request asks for, and a PEFT folder.
 *
 *   adapter_config.json         rank, alpha, which linear layers, the folder of the base model
 *   adapter_model.safetensors   A and B of every adapted layer of every block (params.def has the names), and what is
 *                               trained whole beside them (also.h); of a tied model the embedding twice, as its head too:
 *                               PEFT unties what it is not given twice
 *
 * Rows of the parameter table hold the adapters' shapes and names, layers/lora.c computes with them.
 */
#ifndef TRAINER_LORA_H
#define TRAINER_LORA_H

#include "trainer/arch.h"
#include "trainer/base/io.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/params.h"
#include "trainer/spec.h"

#define LORA_CONFIG  "adapter_config.json"
#define LORA_WEIGHTS "adapter_model.safetensors"

enum { LORA_RANK_MAX = 1024 };

/* The adapters of a request; out->r is 0 when it asks for none. adapter_dir: the folder behind its field `adapter`, NULL or ""
 * without one; rank, alpha and layers then are that adapter's. a->lora is not looked at. Errors: BAD_SPEC naming the field,
 * and those of lora_read. */
int lora_choose(struct lora_choice *out, const struct arch *a, const struct spec *s,
                const char *adapter_dir, struct err *err);

/* The adapter_config.json of a PEFT folder, for a base of architecture `a`. Errors: NO_MODEL (there is none, or it
 * asks for something that Hone does not do; the text names it), IO, NO_MEMORY. */
int lora_read(struct lora_choice *out, const struct arch *a, const char *dir, struct err *err);

/* The same of a config that was read already. */
int lora_parse(struct lora_choice *out, const struct arch *a, const json_t *config,
               struct err *err);

/* Whether a folder holds an adapter. */
bool lora_is_adapter(const char *dir);

/* base = the folder that adapter_config.json names as the base model. Errors: NO_MODEL (it is no folder here), IO,
 * NO_MEMORY. */
int lora_base(char base[IO_PATH_MAX], const char *dir, struct err *err);

/* Open the weights of a PEFT folder; they are exactly the tensors that a->lora asks for. The caller closes. Errors:
 * NO_MODEL (a tensor is missing, unknown, of another shape or not of floats), and those of safetensors_open. */
int lora_open(struct safetensors **out, const struct arch *a, const char *dir, struct err *err);

/* Whether the weights of a PEFT folder for a->lora hold a parameter, and its name there. */
enum { LORA_NAME = PARAM_NAME + 20 };
bool lora_holds(const struct arch *a, enum param_id id);
void lora_name(char out[LORA_NAME], const struct arch *a, enum param_id id, int layer);

/* The adapter_config.json to save with the adapters a->lora of the model in the folder `base`. A new reference; NULL: no
 * memory. */
json_t *lora_config(const struct arch *a, const char *base);

#endif
