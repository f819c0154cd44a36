/* layouts.h - the same run on one rank and on several: ranks are forks, what they find lies in shared memory.
 *
 * Included by f64_layouts.c (double) and test_layouts.c (float), which differ in tolerances.
 */
#ifndef TESTS_LAYOUTS_H
#define TESTS_LAYOUTS_H

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/agree.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/snapshot.h"
#include "trainer/ckpt/state.h"
#include "trainer/comm/shm.h"
#include "trainer/data/token_file.h"
#include "trainer/exchange.h"
#include "trainer/lora.h"
#include "trainer/optim.h"
#include "trainer/pieces.h"
#include "trainer/plan.h"
#include "trainer/ranks.h"
#include "trainer/shares.h"
#include "trainer/step.h"

enum { LAYOUT_STEPS = 10, LAYOUT_BATCH = 4, LAYOUT_SEQUENCE = 24, LAYOUT_RANKS = 12 };

/* What is run, but for its layout. */
struct job_case {
    const char *name, *config;
    double dropout, lora_dropout;
    int lora_rank;
    enum precision precision;
    double loss_scale; /* the first one of fp16; 0: 1024 */
    enum recompute recompute;
    enum recompute_method method;
    const char *modules; /* made again; NULL: none */
    int again;           /* recompute_num_layers   */
    bool distributed;    /* the optimizer */
    bool overlaps;       /* sums of gradients with the backward pass */
    bool sequence;       /* parallel      */
    /* 0: 1 sample; LAYOUT_SEQUENCE places, all of which have labels */
    int64_t micro_batch, places, trained;
    int64_t document; /* places of each in a packed sample; 0: one document */
    int64_t bucket;   /* 0: the usual  */
    int first, steps; /* steps that are done before; of this run, 0: to LAYOUT_STEPS, -1: none */
    const char *from, *to; /* folders that it begins with and is saved to; NULL: none           */
    bool behind; /* what is saved are copies: all numbers have changed when they are written */
    int full;    /* a rank whose disk is full at the first try to save, from 1; 0: none */
    const char *freeze;
    int chunks, passes;  /* of a pipeline: 0: 1, and its ranks */
    const char *placing; /* layers_per_stage; NULL: even       */
    /* What is run, as a user asks for it: all above but the name, the configuration and what a sample holds is read from
     * it; gradients and how far weights moved are found too. NULL: not */
    const struct spec *request;
    bool dawdles; /* ranks sleep, each at other times */
};

/* In shared memory. `weights` are whole parameters one after the other, tied ones once; behind them the last stage's
 * copy of a tied one. Of a request also, each as long: what they were before the first step, and its gradients. */
struct found {
    bool skipped[LAYOUT_RANKS][LAYOUT_STEPS];
    double scale[LAYOUT_RANKS][LAYOUT_STEPS]; /* of the loss, after a step */
    double loss[LAYOUT_STEPS], norm[LAYOUT_STEPS], hits[LAYOUT_STEPS];
    double aux[LAYOUT_STEPS], z[LAYOUT_STEPS]; /* losses for the balance of experts */
    int64_t delays;                            /* of rank 0 */
    int64_t collectives[LAYOUT_RANKS], scatters[LAYOUT_RANKS], gathers[LAYOUT_RANKS];
    int64_t sends[LAYOUT_RANKS], receives[LAYOUT_RANKS];
    size_t saved[LAYOUT_RANKS]; /* bytes */
    double told[LAYOUT_RANKS],
        judged[LAYOUT_RANKS];              /* a number from logits; loss of an evaluation */
    uint64_t written[LAYOUT_RANKS], bytes; /* values of the checkpoint: by each rank, in all */
    struct exchange step[LAYOUT_RANKS];    /* what was exchanged in all of them */
    /* of a rank's arenas */
    size_t mapped[LAYOUT_RANKS];
    uint64_t fingerprint[LAYOUT_RANKS];
    real weights[];
};

static inline int64_t weights_room(const struct arch *a)
{
    return params_count(a) + a->V * a->D;
}

static inline struct arch case_arch(const struct job_case *c)
{
    struct arch a;
    struct err err = {0};
    json_t *config = json_loads(c->config, 0, NULL);

    CHECK(config != NULL, "%s", c->name);
    CHECK(arch_read(&a, config, 0, &err) == 0, "%s: %s", c->name, err.text);
    json_decref(config);
    if (c->request != NULL) {
        CHECK(lora_choose(&a.lora, &a, c->request, NULL, &err) == 0, "%s: %s", c->name, err.text);
        return a;
    }
    if (c->lora_rank > 0) {
        a.lora = (struct lora_choice){
            .r = c->lora_rank, .alpha = 2 * c->lora_rank, .dropout = c->lora_dropout};
        for (int t = 0; t < LORA_TARGETS; t++) {
            const bool fused = t == (int)LORA_QKV, apart = t <= (int)LORA_V;
            const bool gpt2 = a.family == FAMILY_GPT2;
            if (gpt2 ? !apart && t != (int)LORA_GATE : !fused) {
                a.lora.targets |= 1U << t;
            }
        }
    }
    return a;
}

static inline int64_t case_places(const struct job_case *c)
{
    return c->places > 0 ? c->places : LAYOUT_SEQUENCE;
}

/* Samples of a step. */
static inline int64_t case_batch(const struct job_case *c)
{
    return c->request != NULL ? c->request->global_batch_size : LAYOUT_BATCH;
}

static inline struct dims request_dims(const struct job_case *c, const struct arch *a,
                                       const struct mesh *m)
{
    struct run_sizes sizes;
    struct dims d;
    struct err err = {0};

    CHECK(run_sizes_make(&sizes, a, c->request, &err) == 0, "%s: %s", c->name, err.text);
    CHECK(plan_dims(&d, a, c->request, &sizes, m, &err) == 0, "%s: %s", c->name, err.text);
    return d;
}

static inline struct dims case_dims(const struct job_case *c, const struct arch *a,
                                    const struct mesh *m)
{
    if (c->request != NULL) {
        return request_dims(c, a, m);
    }
    struct spec s = {.global_batch_size = c->steps < 0 ? m->size.dp : LAYOUT_BATCH,
                     .precision = (int)c->precision,
                     .initial_loss_scale = c->loss_scale > 0.0 ? c->loss_scale : 1024.0,
                     .min_loss_scale = 1.0,
                     .loss_scale_window = 3,
                     .hysteresis = 2,
                     .recompute = (int)c->recompute,
                     .recompute_method = (int)c->method,
                     .recompute_num_layers = c->again,
                     .dropout = c->dropout,
                     .async_save = c->behind ? ASYNC_YES : ASYNC_NO};
    if (c->modules != NULL) {
        (void)snprintf(s.recompute_modules, sizeof s.recompute_modules, "%s", c->modules);
    }
    const int64_t B = c->micro_batch > 0 ? c->micro_batch : 1;
    struct dims d = dims_make(a, &s, B, case_places(c), 1);
    struct placement place;
    struct err err = {0};
    const bool divides = m->size.pp > 1;

    CHECK(placement_make(&place, a, m->size.pp, divides && c->chunks > 0 ? c->chunks : 1,
                         divides && c->placing != NULL ? c->placing : "", LAYOUT_SEQUENCE,
                         &err) == 0,
          "%s", err.text);
    dims_divide_layers(&d, &place, m->pp, c->passes);
    d.freeze = c->freeze;
    d.overlaps = c->overlaps;
    d.bucket = c->bucket > 0 ? c->bucket : d.bucket;
    dims_divide_context(&d, m->size.cp, m->cp);
    dims_divide_batch(&d, m->size.dp, m->dp, c->distributed);
    d.sequence = c->sequence;
    dims_divide(&d, m->size.tp, m->tp);
    dims_divide_experts(&d, m, c->distributed);
    return d;
}

/* Tokens of a step: not random, so that the loss falls; a few are not trained. */
static inline int64_t fill_rows(const struct data_rows *rows, const struct job_case *c, int64_t V,
                                int step)
{
    const int64_t S = case_places(c), last = c->trained > 0 ? c->trained : S;
    int64_t trained = 0;

    for (int64_t i = 0; i < case_batch(c) * S; i++) {
        const int64_t at = i % S, row = i / S + step * case_batch(c);
        rows->ids[i] = (int32_t)((row * 7 + at * (row % 3 + 1)) % V);
        rows->labels[i] = (int32_t)((row * 7 + (at + 1) * (row % 3 + 1)) % V);
        if (at + 1 >= last || (row + at) % 11 == 0) {
            rows->labels[i] = -100;
        }
        if (c->document > 0 && (at + 1) % c->document == 0) {
            rows->labels[i] = -100;
        }
        rows->first[i] = c->document > 0 ? (int32_t)(at / c->document * c->document) : 0;
        rows->positions[i] = (int32_t)at - rows->first[i];
        trained += rows->labels[i] >= 0;
    }
    return trained;
}

/* Room for the batch of a step, of which *memory is to be freed. */
static inline struct data_rows rows_new(const struct job_case *c, int32_t **memory)
{
    const int64_t n = case_batch(c) * case_places(c);
    int32_t *m = calloc((size_t)(4 * n), sizeof *m);

    CHECK(m != NULL, "no memory");
    *memory = m;
    return (struct data_rows){m, m + n, m + 2 * n, m + 3 * n};
}

static inline struct step_input input_of(const struct job_case *c, const struct data_rows *rows,
                                         int64_t V, int step)
{
    return (struct step_input){
        .rows = rows,
        .trained = fill_rows(rows, c, V, step),
        .step = step,
        .seed = 7,
        .consumed = (step - 1) * case_batch(c),
        .clip = 0.5,
        .adamw = {.lr = c->request != NULL && c->request->lora_rank == 0 ? 3e-3 : 1e-2,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1}};
}

static inline void run_steps(const struct job_case *c, struct engine *e, struct found *f,
                             bool tells)
{
    const int last = c->steps == 0 ? LAYOUT_STEPS : c->first + c->steps;
    int32_t *memory = NULL;
    const struct data_rows rows = rows_new(c, &memory);

    for (int step = c->first + 1; step <= last; step++) {
        struct step_result r;
        const struct step_input in = input_of(c, &rows, e->model->d.V, step);
        step_run(e, &in, &r);
        f->skipped[e->world.rank][step - 1] = r.skipped;
        f->scale[e->world.rank][step - 1] = e->scale.now;
        if (tells) {
            f->loss[step - 1] = r.loss;
            f->norm[step - 1] = r.grad_norm;
            f->hits[step - 1] = r.accuracy;
            f->aux[step - 1] = r.aux_loss;
            f->z[step - 1] = r.z_loss;
        }
    }
    free(memory);
}

/* Where a parameter begins in the whole model. */
static inline int64_t base_of(const struct model *whole, const struct weight *w)
{
    int64_t base = 0;

    for (int i = 0; i < whole->weight_count; i++) {
        const struct weight *x = &whole->weights[i];
        if (x->id == w->id && x->place == w->place) {
            return base;
        }
        const struct param p = param_get(x->id, &whole->d.arch);
        base += p.rows * p.cols;
    }
    CHECK(false, "parameter %d of layer %d is not one of the model", (int)w->id, w->place);
    return 0;
}

/* Values [share] of a parameter into their places of the whole one. */
static inline void put_values(const struct model *m, const struct weight *w, const real *values,
                              real *to)
{
    const struct param p = param_get(w->id, &m->d.arch);
    const struct share s = share_of(w->id, &m->d);

    for (int64_t row = 0; row < s.rows; row++) {
        const int64_t whole = share_row(&s, row);
        const real *from = values + row * s.cols;
        for (int64_t col = 0; col < s.cols; col++) {
            if (whole >= 0) {
                to[whole * p.cols + s.col0 + col] = from[col];
            } else {
                CHECK(from[col] <= 0 && from[col] >= 0, "padding is not 0");
            }
        }
    }
}

/* The masters of this rank, or where their state is divided what kernels read, into their places of the whole model. */
static inline void put_weights(struct engine *e, real *to)
{
    const struct model *m = e->model;
    struct model *whole = NULL;
    struct err err = {0};

    CHECK(model_whole(&whole, &m->d, &err) == 0, "%s", err.text);
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const bool is_copy = share_of(w->id, &m->d).on_two_stages && m->d.pp_rank > 0;
        const int64_t rows = w->w.dim[0], cols = tensor_cols(w->w);
        real *values = calloc((size_t)(rows * cols), sizeof *values);
        CHECK(values != NULL, "no memory");
        e->k->cast(&e->q, tensor_make(values, DTYPE_REAL, rows, cols), w->master);
        put_values(m, w, values, to + (is_copy ? params_count(&m->d.arch) : base_of(whole, w)));
        free(values);
    }
    model_free(whole);
}

/* Where pieces of gradients go. */
struct gradients {
    const struct model *whole;
    double scale;
    real *to;
};

static inline void put_gradient(const struct model *m, const struct weight *w, struct stretch piece,
                                void *context)
{
    const struct gradients *g = context;
    const struct param p = param_get(w->id, &m->d.arch);
    const struct share s = share_of(w->id, &m->d);
    const real *from = piece_tensor(m->vectors[w->vector].grads, piece.at, piece.count).data;
    real *to = g->to + base_of(g->whole, w);

    for (int64_t i = 0; i < piece.count; i++) {
        const int64_t at = piece.at - w->flat + i, row = share_row(&s, at / s.cols);
        if (row >= 0) {
            to[row * p.cols + s.col0 + at % s.cols] = (real)((double)from[i] / g->scale);
        }
    }
}

/* Gradients of the first step, whole, each piece from a rank that has its sum. */
static inline void find_gradients(const struct job_case *c, struct engine *e, real *to)
{
    const struct model *m = e->model;
    int32_t *memory = NULL;
    const struct data_rows rows = rows_new(c, &memory);
    const struct step_input in = input_of(c, &rows, m->d.V, 1);
    struct gradients g = {.scale = e->scale.now};
    struct model *whole = NULL;
    struct step_result r;
    struct err err = {0};

    CHECK(model_whole(&whole, &m->d, &err) == 0, "%s", err.text);
    g.whole = whole;
    g.to = to;
    step_gradients(e, &in, &r);
    for (enum vector_id v = VECTOR_DENSE; v < VECTORS; v++) {
        const struct flat *flat = &m->vectors[v].flat;
        for (int b = 0; b < flat_buckets(flat); b++) {
            pieces_each(m, v, flat_slice(flat, b), put_gradient, &g);
        }
    }
    model_free(whole);
    free(memory);
}

static inline void lose(void *context, const char *why)
{
    (void)context;
    (void)fprintf(stderr, "%s\n", why);
    _exit(9);
}

static inline void load_folder(struct engine *e, const char *dir)
{
    struct safetensors_folder *folder = NULL;
    struct err err = {0};

    if (e->model->d.arch.lora.r > 0) {
        CHECK(state_load_adapter(e->model, dir, &err) == 0, "%s", err.text);
    } else {
        CHECK(safetensors_folder_open(&folder, dir, &err) == 0, "%s", err.text);
        CHECK(state_load_weights(e->model, folder, &err) == 0, "%s", err.text);
    }
    CHECK(state_load_optimizer(e->model, dir, &err) == 0, "%s", err.text);
    model_round(e->model, e->k, &e->q);
    safetensors_folder_close(folder);
}

/* One rank can't write; all learn it, and nothing stays behind. RLIMIT_FSIZE stands for a full disk. */
static inline void expect_full(struct engine *e, const char *dir, const struct state_ranks *ranks,
                               int full)
{
    struct rlimit before, small;
    struct err err = {0};

    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    small = before;
    small.rlim_cur = 4096;
    CHECK(e->world.rank + 1 != full || setrlimit(RLIMIT_FSIZE, &small) == 0, "limit");
    CHECK(state_save(e->model, dir, ranks, &err) == ERR_DISK_FULL, "%s", err.text);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    comm_barrier(&e->world, &e->q);
    if (e->world.rank == 0) {
        CHECK(rmdir(dir) == 0 && mkdir(dir, 0700) == 0, "%s is not empty", dir);
    }
    comm_barrier(&e->world, &e->q);
}

/* Everything that training changes: put aside, overwritten, put back. */
enum spoil { PUT_ASIDE, OVERWRITE, PUT_BACK };

static inline size_t spoil_tensor(struct tensor t, char *kept, enum spoil what)
{
    const size_t bytes = tensor_bytes(t);

    if (bytes > 0 && what == OVERWRITE) {
        memset(t.data, 0x3b, bytes);
    } else if (bytes > 0 && kept != NULL) {
        memcpy(what == PUT_ASIDE ? kept : t.data, what == PUT_ASIDE ? t.data : kept, bytes);
    }
    return bytes;
}

/* Returns how many bytes that are; kept NULL: nothing else. */
static inline size_t spoil_model(const struct model *m, char *kept, enum spoil what)
{
    size_t n = 0;

    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct tensor all[] = {w->w, w->master, w->m, w->v};
        for (int k = 0; k < 4; k++) {
            n += spoil_tensor(all[k], kept != NULL ? kept + n : NULL, what);
        }
    }
    for (int i = 0; i < VECTORS * 3; i++) {
        n += spoil_tensor(m->vectors[i / 3].state[i % 3], kept != NULL ? kept + n : NULL, what);
    }
    return n;
}

/* From copies, while all that training works on is something else. */
static inline void save_copies(struct engine *e, const char *dir, const struct state_ranks *ranks)
{
    const struct model copies = snapshot_model(e->model);
    struct state_save *s = NULL;
    char *kept = malloc(spoil_model(e->model, NULL, PUT_ASIDE) + 1);
    struct err err = {0};

    CHECK(kept != NULL, "no memory");
    CHECK(state_save_open(&s, &copies, dir, ranks, &err) == 0, "%s", err.text);
    snapshot_take(e->model);
    (void)spoil_model(e->model, kept, PUT_ASIDE);
    (void)spoil_model(e->model, kept, OVERWRITE);
    int rc = agree(&e->world, &e->q, state_save_write(s, &err), &err);
    rc = rc == 0 && e->world.rank == 0 ? state_save_finish(s, &err) : rc;
    CHECK(agree(&e->world, &e->q, rc, &err) == 0, "%s", err.text);
    (void)spoil_model(e->model, kept, PUT_BACK);
    free(kept);
    *ranks->written = state_save_written(s);
    state_save_free(s);
}

static inline void save_folder(const struct job_case *c, struct engine *e, struct found *f)
{
    const char *dir = c->to;
    const struct state_ranks ranks = {
        .world = &e->world, .q = &e->q, .written = &f->written[e->world.rank]};
    uint64_t bytes = 0;
    struct err err = {0};

    if (c->full > 0) {
        expect_full(e, dir, &ranks, c->full);
    }
    f->written[e->world.rank] = 0;
    if (c->behind) {
        save_copies(e, dir, &ranks);
    } else {
        CHECK(state_save(e->model, dir, &ranks, &err) == 0, "%s", err.text);
    }
    CHECK(state_bytes(e->model, &bytes, &err) == 0, "%s", err.text);
    f->bytes = bytes; /* all ranks write the same */
}

/* Mean loss over a text that ends in the midst of a batch and of a sample. */
static inline double judge(struct engine *e)
{
    const struct dims *d = &e->model->d;
    const int64_t n = d->micros * d->B * d->dp * d->S_all;
    struct token_file file = {.header.tokens = 5 * d->S_all + 8};
    uint16_t *text = calloc((size_t)file.header.tokens, sizeof *text);
    int32_t *memory = calloc((size_t)(4 * n), sizeof *memory);
    struct step_result r;

    CHECK(memory != NULL && text != NULL, "no memory");
    for (int64_t i = 0; i < file.header.tokens; i++) {
        text[i] = (uint16_t)(i * i % d->V);
    }
    file.u16 = text;
    const struct data_set set = {.file = &file, .end = file.header.tokens, .S = d->S_all};
    const struct data_rows rows = {memory, memory + n, memory + 2 * n, memory + 3 * n};
    CHECK(step_evaluate(e, &set, &rows, NULL, NULL, &r), "an evaluation ended early");
    CHECK(r.tokens == file.header.tokens - 1, "%lld tokens", (long long)r.tokens);
    free(text);
    free(memory);
    return r.loss;
}

/* What does not train: logits behind a few tokens, an evaluation. */
static inline void look(struct engine *e, struct found *f, int rank)
{
    static const int32_t ids[5] = {1, 8, 15, 22, 29};
    const int64_t V = e->model->d.V;
    const real *logits = step_logits(e, ids, 5);

    for (int64_t i = 0; i < V; i++) {
        f->told[rank] += (double)logits[i] * (double)(i % 7 + 1);
    }
    f->judged[rank] = judge(e);
}

/* What a rank has exchanged so far is added to, or with sign -1 taken from, *x. */
static inline void count_exchange(struct exchange *x, const struct engine *e, int sign)
{
    const struct comm *const groups[EXCHANGE_GROUPS] = {
        [EXCHANGE_TP] = &e->tp, [EXCHANGE_KV] = &e->kv,
        [EXCHANGE_CP] = &e->cp, [EXCHANGE_DP] = &e->dp,
        [EXCHANGE_PP] = &e->pp, [EXCHANGE_EMBEDDING] = &e->embedding,
        [EXCHANGE_EP] = &e->ep, &e->edp};

    for (int g = 0; g < EXCHANGE_GROUPS; g++) {
        for (int kind = 0; kind < COMM_KIND_COUNT && groups[g]->size > 1; kind++) {
            x->count[g][kind] += sign * groups[g]->count[kind];
            x->bytes[g][kind] += sign * groups[g]->bytes[kind];
        }
    }
}

/* Products of a rank that dawdles, some of them late. A rank is a process. */
static const struct kernels *punctual;
static int64_t delays;

static inline void late_gemm(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                             struct tensor b, enum trans tb, float beta)
{
    static unsigned seed;

    seed = seed * 1664525U + 1013904223U + (unsigned)getpid();
    if (seed >> 28U == 0) {
        (void)usleep(seed >> 16U & 1023U);
        delays++;
    }
    punctual->gemm(q, c, a, ta, b, tb, beta);
}

static inline void make_late(struct engine *e, struct kernels *late)
{
    punctual = e->k;
    *late = *e->k;
    late->gemm = late_gemm;
    e->k = late;
}

static inline void be_rank(const struct job_case *c, struct shm *shm,
                           const struct mesh_sizes *sizes, int rank, struct found *f)
{
    const struct arch a = case_arch(c);
    struct shm_rank *r = NULL;
    struct kernels late;
    struct engine e;
    struct mesh m;
    struct err err = {0};

    CHECK(mesh_make(&m, sizes, rank, &err) == 0, "%s", err.text);
    const struct dims d = case_dims(c, &a, &m);
    CHECK(engine_open(&e, &d, "", &err) == 0, "%s", err.text);
    CHECK(shm_join(&r, shm, rank, e.k, 60000, lose, NULL, &err) == 0, "%s", err.text);
    CHECK(ranks_join(&e, r, &m, &err) == 0, "%s", err.text);
    if (c->dawdles) {
        make_late(&e, &late);
    }
    model_init(e.model, e.k, &e.q, 11);
    model_init_adapters(e.model, e.k, &e.q, 11);
    optim_init_masters(e.model, 11);
    if (c->from != NULL) {
        load_folder(&e, c->from);
    }
    for (int i = 0; i < LIFE_COUNT; i++) {
        f->mapped[rank] += e.memory.base[i] != NULL ? e.layout.region[i].peak : 0;
    }
    f->fingerprint[rank] = e.layout.fingerprint;
    if (c->request != NULL) {
        put_weights(&e, f->weights + weights_room(&a));
        find_gradients(c, &e, f->weights + 2 * weights_room(&a));
    }
    count_exchange(&f->step[rank], &e, -1);
    run_steps(c, &e, f, rank == 0);
    count_exchange(&f->step[rank], &e, 1);
    put_weights(&e, f->weights);
    if (c->to != NULL) {
        save_folder(c, &e, f);
    }
    f->collectives[rank] = e.tp.count[COMM_ALL_REDUCE];
    f->scatters[rank] = e.tp.count[COMM_REDUCE_SCATTER];
    f->gathers[rank] = e.tp.count[COMM_ALL_GATHER];
    f->sends[rank] = e.pp.count[COMM_SEND];
    f->receives[rank] = e.pp.count[COMM_RECV];
    f->saved[rank] = e.layout.region[LIFE_SAVED].peak;
    look(&e, f, rank);
    f->delays = rank == 0 ? delays : f->delays;
    ranks_leave(&e);
    shm_leave(r);
    engine_close(&e);
}

static inline size_t found_bytes(const struct arch *a)
{
    return sizeof(struct found) + (size_t)(3 * weights_room(a)) * sizeof(real);
}

/* Run a case on a mesh; NULL when a rank did not end well. For munmap of found_bytes. */
static inline struct found *run_layout(const struct job_case *c, const struct mesh_sizes *sizes)
{
    const struct arch a = case_arch(c);
    const int ranks = sizes->tp * sizes->cp * sizes->dp * sizes->pp;
    struct shm_sizes room = ranks_shm(sizes);
    struct found *f =
        mmap(NULL, found_bytes(&a), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shm *shm = NULL;
    struct err err = {0};
    bool well = true;

    room.slab = c->dawdles ? 1024 : 16384; /* several rounds for larger tensors */
    CHECK(f != MAP_FAILED && shm_make(&shm, &room, &err) == 0, "%s", err.text);
    (void)fflush(NULL);
    pid_t pids[LAYOUT_RANKS] = {0};
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            (void)alarm(300);
            be_rank(c, shm, sizes, rank, f);
            (void)fflush(NULL);
            _exit(0);
        }
    }
    for (int i = 0; i < ranks; i++) {
        int status = 0;
        const pid_t ended = wait(&status);
        for (int rank = 0; rank < ranks && status != 0; rank++) {
            if (pids[rank] == ended) {
                well = false;
                shm_mark_lost(shm, rank);
            }
        }
    }
    shm_free(shm);
    if (!well) {
        (void)munmap(f, found_bytes(&a));
        return NULL;
    }
    return f;
}

/* The largest difference of weights, of the largest weight. */
static inline double weight_difference(const struct found *a, const struct found *b, int64_t n)
{
    double most = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a->weights[i] - (double)b->weights[i]));
        size = fmax(size, fabs((double)b->weights[i]));
    }
    return most / size;
}

#endif
