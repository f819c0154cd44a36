/* prompt_fields.h - a request's sample_prompts: {"prompts": [..], "max_tokens": 64, "temperature": 0}. */
#ifndef TRAINER_PROMPT_FIELDS_H
#define TRAINER_PROMPT_FIELDS_H

#include <jansson.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { PROMPTS_MAX = 8 };

/* Whether the object has these keys, types and sizes, and no others. Errors: BAD_SPEC (param sample_prompts). */
int prompt_fields_check(const json_t *object, struct err *err);

/* The numbers of one, with their defaults. Errors: BAD_SPEC. */
int prompt_fields_numbers(int64_t *max_tokens, double *temperature, const json_t *object,
                          struct err *err);

#endif
