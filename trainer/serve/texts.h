/* texts.h - texts side by side in one model, each going its own way.
 *
 * A step is one forward pass over rows of any of them: one row of each text that goes on, and pieces of
 * prompts that enter, so that a long prompt does not stop the others. What a text becomes is a function of
 * its request alone, bit for bit (kernels.h: gemm_rows, attention_decode): neither the others in the batch nor
 * the cutting of prompts into pieces nor the number of threads change it.
 *
 *   jobs wait in turn -> a choice of a job takes a free slot -> prompt -> token by token -> slot free
 *
 * Memory: keys and values of all slots lie in the layout; what a slot needs besides is made at the start.
 * One thread at a time.
 */
#ifndef TRAINER_SERVE_TEXTS_H
#define TRAINER_SERVE_TEXTS_H

#include "trainer/arch.h"
#include "trainer/serve/request.h"
#include "trainer/tokenizer/tokenizer.h"

struct texts;

struct texts_options {
    int threads;
    enum dtype type;     /* DTYPE_REAL or DTYPE_BF16                                           */
    int64_t positions;   /* tokens of prompt and text; 0: as the model allows, at most 2048    */
    int64_t slots;       /* texts side by side                                                 */
    int64_t piece;       /* rows of prompts in a step                                          */
    const char *isa;     /* as in HONE_ISA; "" for the best                                    */
    const char *adapter; /* a PEFT folder for the model, or NULL */
};

/* A token of a text, or with `echo` of its prompt. */
struct made {
    int32_t id;
    int64_t start;     /* characters of the choice's text before it                     */
    bool has_logprobs; /* not of the first token of a prompt, or where none were asked  */
    struct logprobs logprobs;
};

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };

/* What comes next of a choice: whole characters, and the tokens that begin in them. */
struct piece {
    int index; /* of the choice */
    const char *text;
    size_t bytes;
    const struct made *tokens;
    int count;
    enum finish finish;
    const char *stop; /* the stop string that ended it, or NULL */
};

/* A request on its way; read only for others. */
struct job {
    struct job *next; /* in the queue */
    struct serve_request request;
    struct token_list prompt;
    struct listener *listener;
    int64_t started, ended; /* choices    */
    int64_t tokens;         /* made so far */
};

/* Who asked; embedded in what hears. The calls come within texts_step and must not add or cancel. */
struct listener {
    void (*put)(struct listener *l, const struct job *j, const struct piece *p);
    void (*fail)(struct listener *l, const struct job *j, const struct err *err);
    bool (*may_go)(struct listener *l); /* false: its texts wait */
};

/* Load a Hugging Face folder. Errors: NO_MODEL, BAD_FILE, NOT_FOUND, IO, NO_MEMORY, BAD_SPEC. */
int texts_open(struct texts **out, const char *dir, const struct texts_options *o, struct err *err);
void texts_close(struct texts *x);

/* What was planned and taken, in bytes; longest text; texts side by side. */
size_t texts_bytes(const struct texts *x);
int64_t texts_positions(const struct texts *x);
int64_t texts_slots(const struct texts *x);
const struct arch *texts_arch(const struct texts *x);
const struct tokenizer *texts_tokenizer(const struct texts *x);

/* Queue a request with the tokens of its prompt; both are taken over, on failure freed. `*out` lives until
 * the listener heard the end of its last choice or a failure. Errors: BAD_REQUEST (param: no token, too long, not in the vocabulary),
 * NO_MEMORY. */
int texts_add(struct texts *x, const struct job **out, struct serve_request *r,
              struct token_list *prompt, struct listener *l, struct err *err);

/* End what is queued or runs for a listener, or one of its requests (id not NULL), without a word; how
 * many there were. */
int texts_cancel(struct texts *x, const struct listener *l, const char *id);

/* One forward pass; false when nothing can go on. */
bool texts_step(struct texts *x);

/* Requests that are queued or run. */
int texts_jobs(const struct texts *x);

/* Whether a listener has a request of that id. */
bool texts_has(const struct texts *x, const struct listener *l, const char *id);

#endif
