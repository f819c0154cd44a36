/* plan.c - a dry run of the layout. */
#include "trainer/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/real.h"
#include "trainer/also.h"
#include "trainer/data/data.h"
#include "trainer/lora.h"
#include "trainer/model.h"
#include "trainer/model_folder.h"
#include "trainer/ranks.h"
#include "trainer/rules.h"
#include "trainer/trained.h"

enum { SEQUENCE_PRESET = 1024 };
static const uint64_t FINGERPRINT_STEP = 0x100000001b3;

/* Resident bytes of a rank before its arenas: program and libraries with oneDNN's generated code, and per
 * OpenMP thread its stack and buffers (probed; tests/test_memory.c holds them). */
static const size_t CONSTANT_BYTES = (size_t)40 << 20, THREAD_BYTES = (size_t)2 << 20;

int64_t plan_sequence(const struct arch *a)
{
    return a->positions < SEQUENCE_PRESET ? a->positions : SEQUENCE_PRESET;
}

int run_sizes_make(struct run_sizes *out, const struct arch *a, const struct spec *s,
                   struct err *err)
{
    struct recompute_choice again;

    TRY(recompute_read(&again, s, err));
    TRY(rules_check(s, a, err));
    out->sequence = s->sequence_length != 0 ? s->sequence_length : plan_sequence(a);
    out->micro_batch = rules_micro_batch(s);
    if (a->learned_positions && out->sequence > a->positions) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "sequence_length",
                          "sequence_length is %lld, but the model has learned only %lld positions",
                          (long long)out->sequence, (long long)a->positions);
    }
    return 0;
}

int plan_config_arch(struct arch *out, const struct spec *s, int64_t vocab, struct err *err)
{
    const int64_t known = vocab != 0 ? vocab : s->tokenizer_vocab_size;

    if (arch_read(out, s->config, known, err) != 0) {
        err->code = ERR_BAD_SPEC;
        err_about(err, "config");
        return ERR_BAD_SPEC;
    }
    return 0;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t plan_devices(const struct spec *s)
{
    const int64_t tp = s->tensor_model_parallel_size, cp = s->context_parallel_size;
    const int64_t parts = s->expert_tensor_parallel_size > 0 ? s->expert_tensor_parallel_size : tp;
    const int64_t experts = s->expert_model_parallel_size * parts;

    if (s->devices > 0) {
        return s->devices;
    }
    return tp * cp / common_divisor(tp * cp, experts) * experts * s->pipeline_model_parallel_size;
}

struct mesh_sizes plan_mesh(const struct spec *s)
{
    const int tp = (int)s->tensor_model_parallel_size, pp = (int)s->pipeline_model_parallel_size;
    const int cp = (int)s->context_parallel_size, model = tp * cp * pp;
    const int devices = (int)plan_devices(s), etp = (int)s->expert_tensor_parallel_size;

    CHECK(devices % model == 0, "%d devices for tp %d x cp %d x pp %d", devices, tp, cp, pp);
    return (struct mesh_sizes){.tp = tp,
                               .cp = cp,
                               .dp = devices / model,
                               .pp = pp,
                               .ep = (int)s->expert_model_parallel_size,
                               .etp = etp > 0 ? etp : tp};
}

void plan_layout(char out[PLAN_LAYOUT], const struct mesh_sizes *s)
{
    const struct {
        const char *name;
        int size;
    } axes[] = {{"tp", s->tp},
                {"cp", s->cp},
                {"pp", s->pp},
                {"ep", s->ep},
                {"etp", s->etp != s->tp && s->ep > 1 ? s->etp : 1},
                {"dp", s->dp}};
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (axes[i].size > 1) {
            n += (size_t)snprintf(out + n, PLAN_LAYOUT - n, "%s%s %d", n == 0 ? "" : " x ",
                                  axes[i].name, axes[i].size);
        }
    }
}

int plan_dims(struct dims *out, const struct arch *a, const struct spec *s,
              const struct run_sizes *sizes, const struct mesh *m, struct err *err)
{
    struct placement place;

    TRY(placement_make(&place, a, m->size.pp, (int)s->num_virtual_stages_per_pipeline_rank,
                       s->layers_per_stage, sizes->sequence, err));
    *out = dims_make(a, s, sizes->micro_batch, sizes->sequence, 1);
    dims_divide_layers(out, &place, m->pp,
                       (int)s->microbatch_group_size_per_virtual_pipeline_stage);
    dims_divide_context(out, m->size.cp, m->cp);
    dims_divide_batch(out, m->size.dp, m->dp, s->use_distributed_optimizer == DISTRIBUTED_YES);
    out->sequence = s->sequence_parallel == SEQUENCE_PARALLEL;
    dims_divide(out, m->size.tp, m->tp);
    dims_divide_experts(out, m, s->use_distributed_optimizer == DISTRIBUTED_YES);
    return 0;
}

int plan_rank(struct plan *out, const struct arch *a, const struct spec *s, int threads, int rank,
              struct err *err)
{
    struct run_sizes sizes;
    struct mesh mesh;
    struct dims d;
    struct layout lo = {0};
    struct model *m = NULL;

    TRY(run_sizes_make(&sizes, a, s, err));
    const struct mesh_sizes shape = plan_mesh(s);
    TRY(mesh_make(&mesh, &shape, rank, err));
    TRY(plan_dims(&d, a, s, &sizes, &mesh, err));
    d.threads = threads;
    const struct data_set samples = {.S = sizes.sequence};
    const struct data_reader_options reader = {.count = s->global_batch_size,
                                               .workers = (int)s->data_workers};
    /* The rows of an evaluation: four arrays of i32 (data.h). */
    const size_t evaluation = (size_t)(s->global_batch_size * sizes.sequence) * 4 * sizeof(int32_t);
    struct exchange step;
    TRY(model_new(&m, &d, err));
    model_plan(m, &lo);
    exchange_plan(&step, m);
    model_free(m);

    *out = (struct plan){.arenas = layout_bytes(&lo),
                         .reader = data_reader_bytes(&samples, &reader) + evaluation,
                         .exchange = ranks_bytes(&shape),
                         .constants = CONSTANT_BYTES + (size_t)threads * THREAD_BYTES,
                         .parameters = params_count(a),
                         .active = params_active(a),
                         .trainable = trained_count(&d),
                         .fingerprint = lo.fingerprint,
                         .ranks = mesh.world,
                         .mesh = shape,
                         .step = step};
    for (int i = 0; i < LIFE_COUNT; i++) {
        out->region[i] = lo.region[i].peak;
    }
    out->total = out->arenas + out->reader + out->exchange + out->constants;
    return 0;
}

int plan_make(struct plan *out, const struct arch *a, const struct spec *s, int threads,
              struct err *err)
{
    uint64_t fingerprint = 0;
    struct plan one;

    TRY(plan_rank(out, a, s, threads, 0, err));
    fingerprint = out->fingerprint;
    for (int rank = 1; rank < out->ranks; rank++) {
        TRY(plan_rank(&one, a, s, threads, rank, err));
        fingerprint = fingerprint * FINGERPRINT_STEP + one.fingerprint;
        *out = one.total > out->total ? one : *out;
    }
    out->fingerprint = fingerprint;
    return 0;
}

struct dims plan_serve_dims(const struct arch *a, const struct serve_sizes *s, int threads)
{
    const int64_t positions = s->positions < a->positions ? s->positions : a->positions;
    const int64_t sizes[3] = {s->slots, positions, s->slots + s->piece};

    return dims_serving(a, s->bf16 ? DTYPE_BF16 : DTYPE_REAL, sizes, threads);
}

int plan_serve(struct plan *out, const struct arch *a, const struct serve_sizes *s, int threads,
               struct err *err)
{
    const struct dims d = plan_serve_dims(a, s, threads);
    struct layout lo = {0};
    struct model *m = NULL;

    TRY(model_new(&m, &d, err));
    model_plan(m, &lo);
    model_free(m);
    *out = (struct plan){.arenas = layout_bytes(&lo),
                         .constants = CONSTANT_BYTES + (size_t)threads * THREAD_BYTES,
                         .parameters = params_count(a),
                         .active = params_active(a),
                         .fingerprint = lo.fingerprint};
    for (int i = 0; i < LIFE_COUNT; i++) {
        out->region[i] = lo.region[i].peak;
    }
    out->total = out->arenas + out->constants;
    return 0;
}

int plan_serve_folder(struct plan *out, const char *dir, const struct serve_sizes *s, int threads,
                      struct err *err)
{
    struct model_folder folder;
    struct arch a;

    TRY(model_folder_find(&folder, dir, NULL, NULL, err));
    TRY(model_folder_arch(&a, &folder, err));
    return plan_serve(out, &a, s, threads, err);
}

/* The region that has most bytes; LIFE_COUNT: the constants. */
static int largest_term(const struct plan *p)
{
    int most = LIFE_COUNT;
    size_t bytes = p->constants;

    for (int i = 0; i < LIFE_COUNT; i++) {
        if (p->region[i] > bytes) {
            bytes = p->region[i];
            most = i;
        }
    }
    return most;
}

const char *plan_largest(const struct plan *p)
{
    const int most = largest_term(p);

    return most == LIFE_COUNT ? "constants" : life_name((enum life)most);
}

size_t plan_largest_bytes(const struct plan *p)
{
    const int most = largest_term(p);

    return most == LIFE_COUNT ? p->constants : p->region[most];
}

void plan_fingerprint(char out[PLAN_FINGERPRINT], uint64_t fingerprint)
{
    (void)snprintf(out, PLAN_FINGERPRINT, "%016" PRIx64, fingerprint);
}

static int base_arch(struct arch *out, const struct spec *s, const struct plan_folders *f,
                     struct err *err)
{
    struct tokenizer *t = NULL;
    json_t *config = NULL;
    int64_t vocab = 0;

    if (f->model != NULL) {
        TRY(arch_read_config(&config, f->model, err));
        const int rc = arch_read(out, config, 0, err);
        json_decref(config);
        return rc;
    }
    if (f->tokenizer != NULL && json_object_get(s->config, "vocab_size") == NULL) {
        TRY(tokenizer_open(&t, f->tokenizer, err));
        vocab = tokenizer_size(t);
        tokenizer_close(t);
    }
    return plan_config_arch(out, s, vocab, err);
}

int plan_request_arch(struct arch *out, const struct spec *s, const struct plan_folders *f,
                      struct err *err)
{
    struct also_reason why;

    TRY(base_arch(out, s, f, err));
    TRY(lora_choose(&out->lora, out, s, f->adapter, err));
    also_decide(out, &why, s, f);
    return trained_check(out, s, err);
}

json_t *plan_json(const struct plan *p)
{
    char fingerprint[PLAN_FINGERPRINT], layout[PLAN_LAYOUT];
    json_t *regions = json_object();

    plan_layout(layout, &p->mesh);
    plan_fingerprint(fingerprint, p->fingerprint);
    for (int i = 0; i < LIFE_COUNT; i++) {
        (void)json_object_set_new(regions, life_name((enum life)i),
                                  json_integer((json_int_t)p->region[i]));
    }
    (void)json_object_set_new(regions, "reader", json_integer((json_int_t)p->reader));
    (void)json_object_set_new(regions, "constants", json_integer((json_int_t)p->constants));
    (void)json_object_set_new(regions, "exchange", json_integer((json_int_t)p->exchange));
    return json_pack("{s:I, s:o, s:i, s:s*, s:I, s:I, s:I, s:s, s:s}", "memory_bytes",
                     (json_int_t)p->total * p->ranks, "memory", regions, "ranks", p->ranks,
                     "layout", p->ranks > 1 ? layout : NULL, "parameters",
                     (json_int_t)p->parameters, "active", (json_int_t)p->active, "trainable",
                     (json_int_t)p->trainable, "largest", plan_largest(p), "fingerprint",
                     fingerprint);
}
