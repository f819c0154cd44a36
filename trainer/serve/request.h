/* request.h - a line that asks `hone-train serve` for text.
 *
 *   {"id": "r1", "prompt": "Once" | [1, 403], ...}   continue a text, or ids as they are
 *   {"id": "r1", "messages": [...], "tools": [...]}  the next turn of a chat, by the model's template
 *   {"cancel": "r1"}                                 end it; its last line comes all the same
 *
 * Fields besides: max_tokens (as many as there is room), temperature (1), top_p (1), top_k (0: all), min_p
 * (0), n (1), seed (random), stop (a string or up to 4), logprobs (0 to 20: how many of the most likely
 * tokens; absent: none), echo (false), repetition_penalty (1), frequency_penalty, presence_penalty (0),
 * logit_bias {"ID": -100 .. 100}, ignore_eos (false). What every line asks is checked before anything runs.
 * A message is {"role": system|user|assistant|tool, "content": text, ..}; content may be missing beside tool_calls.
 */
#ifndef TRAINER_SERVE_REQUEST_H
#define TRAINER_SERVE_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/sample.h"

enum {
    REQUEST_LINE = 4 << 20, /* bytes of a line            */
    REQUEST_ID = 64,        /* bytes of an id, NUL included */
    REQUEST_STOPS = 4,
    REQUEST_STOP_BYTES = 256, /* of one stop string       */
    REQUEST_CHOICES = 16,
    REQUEST_BIASES = 1024,
};

struct serve_request {
    char id[REQUEST_ID];
    bool cancel;                          /* `id` is to be ended; nothing else is filled in */
    json_t *json;                         /* owned; what is borrowed below is of it         */
    const char *prompt;                   /* NUL-terminated, or NULL                  */
    const json_t *ids, *messages, *tools; /* arrays or NULL         */
    int64_t max_tokens;                   /* -1: what there is room for */
    int64_t n;
    int64_t logprobs; /* -1: none */
    /* How a turn of a chat ends and what of it is no part of the answer; borrowed; set by prompter_make. */
    int32_t end;             /* a token that ends the text beside the model's own; -1: none */
    const char *end_text;    /* a text that does, where no token does; NULL: none           */
    const char *lead, *tail; /* in front of the answer, and behind it before `end`; or ""   */
    bool echo, ignore_eos, has_seed;
    struct sampling sampling;
    struct penalties penalties;
    struct logit_bias *bias; /* owned; penalties.bias */
    int stops;
    const char *stop[REQUEST_STOPS];
};

/* Check and take a line; leaves *out for request_fini also when it fails, with the id if there was one.
 * Errors: BAD_REQUEST (param), NO_MEMORY. */
int request_parse(struct serve_request *out, const char *line, size_t bytes, struct err *err);

/* The same from an object, of which a reference is taken. */
int request_read(struct serve_request *out, json_t *object, struct err *err);

void request_fini(struct serve_request *r);

#endif
