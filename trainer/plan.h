/* plan.h - what a job needs, before anything is allocated.
 *
 * The server calls this at submit, a rank at its start; both run model_plan in a layout without memory, so
 * the bytes are the same by construction and the fingerprint proves it.
 */
#ifndef TRAINER_PLAN_H
#define TRAINER_PLAN_H

#include "trainer/arch.h"
#include "trainer/dims.h"
#include "trainer/exchange.h"
#include "trainer/layout.h"
#include "trainer/mesh.h"
#include "trainer/spec.h"

/* Sizes of a run that the request may leave open and the model decides. */
struct run_sizes {
    int64_t sequence;    /* tokens in a sample          */
    int64_t micro_batch; /* samples in a forward pass   */
};

/* Tokens in a sample where the request does not say. */
int64_t plan_sequence(const struct arch *a);

/* Errors: those of rules_check; BAD_SPEC (param sequence_length) when the model has fewer learned positions than asked. */
int run_sizes_make(struct run_sizes *out, const struct arch *a, const struct spec *s,
                   struct err *err);

/* Devices of a run: as many as it asks for, else the fewest that its parallel sizes need. */
int64_t plan_devices(const struct spec *s);

/* The ranks of a run, one on each of its devices: what parallel sizes leave of them is data parallel. The request breaks no
 * rule (rules.h). */
struct mesh_sizes plan_mesh(const struct spec *s);

/* The sizes of the rank with this place in the mesh, with one thread. Errors: those of placement_make. */
int plan_dims(struct dims *out, const struct arch *a, const struct spec *s,
              const struct run_sizes *sizes, const struct mesh *m, struct err *err);

/* "tp 2 x dp 4"; "" for one rank. */
enum { PLAN_LAYOUT = 80 };
void plan_layout(char out[PLAN_LAYOUT], const struct mesh_sizes *s);

/* The architecture that a request without `model` asks for. Errors: BAD_SPEC (param config). */
int plan_config_arch(struct arch *out, const struct spec *s, int64_t vocab, struct err *err);

/* The folders that a request's names stand for; each may be NULL. */
struct plan_folders {
    const char *model, *tokenizer, *adapter;
};

/* The architecture of a request: of the model's folder, else of its config, whose vocab_size may be missing and
 * then is that of the tokenizer; with the adapters that it asks for, and what is trained beside them
 * (also.h): the weights are looked at where Hone decides. Errors: NO_MODEL, BAD_SPEC,
 * and those of tokenizer_open. */
int plan_request_arch(struct arch *out, const struct spec *s, const struct plan_folders *f,
                      struct err *err);

/* Of one rank; all bytes are its own. */
struct plan {
    size_t region[LIFE_COUNT]; /* bytes of the rank's arenas                              */
    size_t arenas;             /* their sum                                               */
    size_t reader;             /* batches prepared ahead (data.h)                         */
    size_t exchange;           /* its part of what ranks of a host share (ranks.h)        */
    size_t constants;          /* what arenas do not cover: code, libraries, thread stacks */
    size_t total;
    int64_t parameters,
        trainable;        /* of the whole model: adapters included; those that are trained */
    int64_t active;       /* those that a token meets: of experts only some               */
    uint64_t fingerprint; /* of the layout; of a whole run: of those of all ranks         */
    int ranks;            /* of the run                                                   */
    struct mesh_sizes mesh;
    struct exchange step; /* with other ranks, in a training step                         */
};

/* What one rank of the mesh takes. Errors: those of run_sizes_make, NO_MEMORY. */
int plan_rank(struct plan *out, const struct arch *a, const struct spec *s, int threads, int rank,
              struct err *err);

/* What every device of the run must have: the plan of the rank that takes most. Errors: as plan_rank. */
int plan_make(struct plan *out, const struct arch *a, const struct spec *s, int threads,
              struct err *err);

/* What serving a model takes (trainer/serve/texts.h, which runs the same plan). */
enum { SERVE_PIECE = 64 }; /* rows of prompts in a step, unless told otherwise */

struct serve_sizes {
    int64_t slots, positions, piece; /* positions: as far as the model allows */
    bool bf16;
};

/* The sizes that are served with, and what they take. Errors: NO_MEMORY. */
struct dims plan_serve_dims(const struct arch *a, const struct serve_sizes *s, int threads);
/* Of the model, or the adapter that names its base, in a folder. Errors: those of model_folder_find, NO_MODEL. */
int plan_serve_folder(struct plan *out, const char *dir, const struct serve_sizes *s, int threads,
                      struct err *err);
int plan_serve(struct plan *out, const struct arch *a, const struct serve_sizes *s, int threads,
               struct err *err);

/* The largest term, in words: "optimizer", "constants". */
const char *plan_largest(const struct plan *p);
size_t plan_largest_bytes(const struct plan *p);

/* {memory_bytes, memory: {region: bytes, .., "reader", "exchange", "constants"}, ranks, layout (only with several),
 * parameters, active, trainable, largest, fingerprint}: memory_bytes of all ranks, the regions of one; a new reference, NULL: no memory. */
json_t *plan_json(const struct plan *p);

enum { PLAN_FINGERPRINT = 17 };
void plan_fingerprint(char out[PLAN_FINGERPRINT], uint64_t fingerprint);

#endif
