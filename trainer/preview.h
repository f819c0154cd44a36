/* preview.h - the first examples of a request as the trainer will see them. */
#ifndef TRAINER_PREVIEW_H
#define TRAINER_PREVIEW_H

#include <jansson.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { PREVIEW_MOST = 20, PREVIEW_TOKENS = 2048 }; /* examples; tokens that are shown of one */

/* `file`: {"request": {fields of spec.def}, "paths"?: {"model", "tokenizer", "adapter", "training", "cache"}}, or the request alone; paths
 * that are missing are those that the request spells. *out is a new reference:
 *
 *   {"object": "preview", "format", "kind", "method": "pretrain" | "sft", "chat_template": where it comes from or null,
 *    "sequence_length", "examples": [{"line", "tokens": whole, "kept": after cutting, "trained", "cut": bool, "reason"?,
 *    "skipped"?: bool, "error"?, "ids": [], "texts": [], "labels": [id or -100], "special": [bool]}],
 *    "report": of what was read for it,
 *    "totals": {"documents", "tokens", "trained_tokens", "report"} or null (not prepared yet), "problem": why a job would refuse
 *    the file, as far as it was read, or null}
 *
 * ids, texts, labels and special belong to each other; at most PREVIEW_TOKENS of an example. A text's samples stand for examples.
 * Errors: those of spec_parse, plan_request_arch, recipe_prepare; BAD_SPEC for a tokenizer that is still to be learned. */
int preview_make(json_t **out, const json_t *file, int64_t n, struct err *err);

#endif
