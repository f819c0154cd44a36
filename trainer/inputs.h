/* inputs.h - what a run works on: architecture, tokenizer, token files, and the sizes that follow.
 *
 * inputs_prepare runs before any rank exists: it checks everything that can be wrong with the model, the
 * tokenizer and the texts, learns a tokenizer where one is asked for, tokenises, and leaves
 *
 *   JOBDIR/prepared.json   {"tokenizer": folder, "training": token file, "validation": token file or null,
 *                           "chat_template": Jinja text or null, "end_of_turn": token id or -1}
 *   JOBDIR/tokenizer/      a learned tokenizer; later attempts find it
 *
 * inputs_open is what a rank does with them.
 */
#ifndef TRAINER_INPUTS_H
#define TRAINER_INPUTS_H

#include "trainer/also.h"
#include "trainer/arch.h"
#include "trainer/data/pack.h"
#include "trainer/events.h"
#include "trainer/plan.h"
#include "trainer/protocol.h"
#include "trainer/ramp.h"

struct inputs {
    struct arch arch;
    json_t *config;     /* owned; config.json as it was read, or the request's        */
    json_t *generation; /* owned; generation_config.json of the model; NULL: it has none */
    struct tokenizer *tokenizer;
    struct token_file *training_file, *validation_file; /* owned; validation may be NULL */
    struct pack *training_rows, *validation_rows;       /* owned; of examples, else NULL */
    struct data_set training, validation;               /* validation may be empty       */
    char *
        chat_template; /* owned; Jinja text that chats were rendered with, else the model's; may be NULL */
    int64_t
        end_of_turn; /* the token that ends what the assistant says; -1: none                      */
    struct also_reason also; /* why embeddings are trained beside adapters, where Hone decided it */
    struct run_sizes sizes;
    struct ramp ramp; /* samples of each step */
    int64_t total_steps;
    int64_t total_samples; /* of the whole training; the last step may be padded */
};

/* Errors: NO_MODEL, BAD_SPEC, BAD_FILE, BAD_TRAINING_FILE, BAD_VALIDATION_FILE, WRONG_FORMAT, NO_TOKENS, IO,
 * DISK_FULL, NO_MEMORY. */
int inputs_prepare(const struct job_folder *job, struct events *events, struct err *err);

/* On failure *out needs no inputs_close. Errors: the same. */
int inputs_open(struct inputs *out, const struct job_folder *job, struct err *err);
void inputs_close(struct inputs *in);

#endif
