/* load_steps.h - the components of a tokenizer.json, for load*.c only. */
#ifndef TRAINER_TOKENIZER_LOAD_STEPS_H
#define TRAINER_TOKENIZER_LOAD_STEPS_H

#include <jansson.h>

#include "trainer/tokenizer/parts.h"

/* Append what the component does to the tokenizer; null does nothing. depth counts Sequences around it. Errors:
 * BAD_FILE naming what is unknown or has the wrong type; NO_MEMORY. */
typedef int load_component(struct tokenizer *t, const json_t *component, int depth,
                           struct err *err);
load_component load_normalizer, load_pre_tokenizer, load_post_processor, load_decoder;

/* Fill a model, {0}, which stays where it is. Errors as above (load_model.c). */
int load_model(struct token_model *m, const json_t *object, struct err *err);

/* A new step, its members 0. Errors: BAD_FILE (too many), NO_MEMORY. */
int load_add_step(struct step_list *l, enum step_kind kind, struct step **s, struct err *err);
/* `pattern` of a component: {"String": s} or {"Regex": s}, or a plain string. An empty string matches nothing. */
int load_pattern(const json_t *object, struct step *s, struct err *err);
/* `pattern` and `content`, of a normalizer and of a decoder. */
int load_replace(const json_t *object, struct step *s, struct err *err);

/* Members of a JSON object, checked. role is "normalizer", ... for messages. */
int load_string(const json_t *object, const char *key, const char **s, size_t *n, struct err *err);
int load_flag(const json_t *object, const char *key, bool preset, bool *out, struct err *err);
int load_type(const json_t *component, const char *role, const char **type, struct err *err);
int load_sequence(const json_t *component, const char *key, const char *role, int depth,
                  load_component *each, struct tokenizer *t, struct err *err);
/* BAD_FILE: "the normalizer 'X' is not supported". */
int load_unknown(const char *role, const char *type, struct err *err);

#endif
