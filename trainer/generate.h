/* generate.h - text from a model folder, token by token, with a cache of keys and values. */
#ifndef TRAINER_GENERATE_H
#define TRAINER_GENERATE_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/base/err.h"
#include "trainer/sample.h"

struct generator;

struct generator_options {
    int threads;
    enum dtype type;     /* DTYPE_REAL or DTYPE_BF16                       */
    int64_t positions;   /* longest text in tokens; 0: as the model allows, at most 2048 */
    const char *isa;     /* as in HONE_ISA; "" for the best                */
    const char *adapter; /* a PEFT folder, or NULL */
};

/* Load a Hugging Face folder, or an adapter's, which names its base model. Errors: NO_MODEL, BAD_FILE, NOT_FOUND, IO, NO_MEMORY, BAD_SPEC. */
int generator_open(struct generator **out, const char *dir, const struct generator_options *o,
                   struct err *err);
void generator_close(struct generator *g);

struct generation {
    const char *prompt; /* UTF-8                                              */
    int64_t max_tokens; /* new tokens at most                                 */
    struct sampling sampling;
    /* Called with each piece of new text, whole characters; false ends the generation. */
    bool (*put)(void *context, const char *text, size_t bytes);
    void *context;
};

struct generated {
    int64_t prompt_tokens, tokens; /* tokens: new ones                         */
    bool stopped;                  /* at an end token, not for want of room    */
    double prompt_seconds, seconds;
};

/* Errors: BAD_REQUEST (the prompt is not UTF-8, is empty where the model has no start token, or too long), NO_MEMORY. */
int generator_run(struct generator *g, const struct generation *what, struct generated *out,
                  struct err *err);

#endif
