/* golden.h - a training run of tests/golden/CASE (golden/README of the values: float64, plain PyTorch).
 *
 * Included by test_golden.c (float, bf16) and f64_golden.c (double): the same checks with other tolerances.
 * Error of a tensor: max|a-b| / max|b|.
 */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/state.h"
#include "trainer/lora.h"
#include "trainer/step.h"
#include "trainer/trained.h"

struct golden {
    char dir[256];
    struct arch arch;
    struct spec spec;
    struct engine engine;
    struct data_rows rows;
    int64_t B, S;
};

struct tolerance {
    double loss, norm, gradient, weight;
};

/* How a case is run. */
struct way {
    enum precision precision;
    enum recompute recompute;
    int64_t micro_batch; /* 0: all in one */
    int threads;
    double dropout;
    double lora_dropout;
    enum aux_scaling scaling; /* of the loss for the balance of experts */
    double z_coef;
    const char *freeze; /* NULL: what the case says */
};

static inline const struct st_tensor *golden_tensor(struct safetensors *st, const char *name)
{
    const struct st_tensor *t = safetensors_find(st, name);

    CHECK(t != NULL, "no %s", name);
    return t;
}

static inline struct safetensors *golden_file(const struct golden *g, const char *name)
{
    struct safetensors *st = NULL;
    struct err err = {0};
    char path[400];

    (void)snprintf(path, sizeof path, "%s/%s", g->dir, name);
    CHECK(safetensors_open(&st, path, &err) == 0, "%s", err.text);
    return st;
}

static inline json_t *golden_json(const struct golden *g, const char *name)
{
    json_t *out = NULL;
    struct err err = {0};
    char path[400];

    (void)snprintf(path, sizeof path, "%s/%s", g->dir, name);
    CHECK(json_parse_file(&out, path, 1 << 22, &err) == 0, "%s", err.text);
    return out;
}

/* Documents packed into rows have positions and borders of their own. */
static inline void golden_optional(const struct golden *g, struct safetensors *st, const char *name,
                                   struct st_rect rect, int32_t *out)
{
    const struct st_tensor *t = safetensors_find(st, name);
    struct err err = {0};

    if (t != NULL) {
        CHECK(safetensors_read(t, rect, ST_AS_IS, out, DTYPE_I32, g->S, &err) == 0, "%s", err.text);
    }
}

/* Batch `n` of the file: input rows, and labels shifted by one (the last of a row is not trained). */
static inline int64_t golden_batch(const struct golden *g, struct safetensors *st, int64_t n)
{
    const struct st_tensor *ids = golden_tensor(st, "input_ids");
    const struct st_tensor *labels = golden_tensor(st, "labels");
    const struct st_rect rect = {.row0 = n * g->B, .rows = g->B, .cols = g->S};
    int32_t *raw = calloc((size_t)(g->B * g->S), sizeof *raw);
    struct err err = {0};
    int64_t trained = 0;

    CHECK(raw != NULL, "out of memory");
    CHECK(safetensors_read(ids, rect, ST_AS_IS, g->rows.ids, DTYPE_I32, g->S, &err) == 0, "%s",
          err.text);
    CHECK(safetensors_read(labels, rect, ST_AS_IS, raw, DTYPE_I32, g->S, &err) == 0, "%s",
          err.text);
    for (int64_t i = 0; i < g->B * g->S; i++) {
        g->rows.labels[i] = i % g->S + 1 < g->S ? raw[i + 1] : -100;
        g->rows.positions[i] = (int32_t)(i % g->S);
        g->rows.first[i] = 0;
        trained += g->rows.labels[i] >= 0;
    }
    free(raw);
    golden_optional(g, st, "position_ids", rect, g->rows.positions);
    golden_optional(g, st, "first", rect, g->rows.first);
    return trained;
}

/* Adapters where the case has an adapter_config.json; `freeze` where its train.json has it. */
static inline void golden_choose(struct golden *g, struct way way)
{
    char path[400];
    struct err err = {0};

    if (lora_is_adapter(g->dir)) {
        CHECK(lora_read(&g->arch.lora, &g->arch, g->dir, &err) == 0, "%s", err.text);
        g->arch.lora.dropout = way.lora_dropout;
    }
    (void)snprintf(path, sizeof path, "%s/train.json", g->dir);
    if (access(path, R_OK) == 0) {
        json_t *train = golden_json(g, "train.json");
        const char *freeze = json_string_value(json_object_get(train, "freeze"));
        freeze = way.freeze != NULL ? way.freeze : freeze;
        (void)snprintf(g->spec.freeze, sizeof g->spec.freeze, "%s", freeze != NULL ? freeze : "");
        json_decref(train);
        CHECK(trained_check(&g->arch, &g->spec, &err) == 0, "%s", err.text);
    }
}

static inline void golden_open(struct golden *g, const char *name, const char *batches,
                               struct way way)
{
    struct safetensors_folder *folder = NULL;
    struct err err = {0};

    *g = (struct golden){.B = 0};
    (void)snprintf(g->dir, sizeof g->dir, "tests/golden/%s", name);
    json_t *config = golden_json(g, "config.json");
    CHECK(arch_read(&g->arch, config, 0, &err) == 0, "%s", err.text);
    json_decref(config);

    struct safetensors *st = golden_file(g, batches);
    const struct st_tensor *ids = golden_tensor(st, "input_ids");
    g->S = ids->shape[ids->dims - 1];
    g->B = ids->shape[ids->dims - 2];
    safetensors_close(st);
    int32_t *memory = calloc((size_t)(4 * g->B * g->S), sizeof *memory);
    CHECK(memory != NULL, "out of memory");
    g->rows = (struct data_rows){memory, memory + g->B * g->S, memory + 2 * g->B * g->S,
                                 memory + 3 * g->B * g->S};

    g->spec = (struct spec){.global_batch_size = g->B,
                            .precision = (int)way.precision,
                            .moe_aux_loss_coeff = -1.0,
                            .moe_aux_loss_scaling = (int)way.scaling,
                            .moe_z_loss_coeff = way.z_coef,
                            .initial_loss_scale = 1024.0,
                            .min_loss_scale = 1.0,
                            .loss_scale_window = 1000,
                            .hysteresis = 2,
                            .recompute = (int)way.recompute,
                            .dropout = way.dropout};
    golden_choose(g, way);
    const struct dims d =
        dims_make(&g->arch, &g->spec, way.micro_batch != 0 ? way.micro_batch : g->B, g->S,
                  way.threads != 0 ? way.threads : 1);
    CHECK(engine_open(&g->engine, &d, "", &err) == 0, "%s", err.text);
    CHECK(safetensors_folder_open(&folder, g->dir, &err) == 0, "%s", err.text);
    CHECK(state_load_weights(g->engine.model, folder, &err) == 0, "%s", err.text);
    safetensors_folder_close(folder);
    if (g->arch.lora.r > 0) {
        CHECK(state_load_adapter(g->engine.model, g->dir, &err) == 0, "%s", err.text);
    }
    model_round(g->engine.model, g->engine.k, &g->engine.q);
}

static inline void golden_close(struct golden *g)
{
    engine_close(&g->engine);
    free(g->rows.ids);
}

/* max|mine - theirs| / max|theirs| of a parameter (max|mine| where theirs is 0), and the largest |mine|; mine comes
 * times `scale`. */
static inline double golden_error(const struct golden *g, struct safetensors *st,
                                  const struct weight *w, struct tensor mine, double scale,
                                  double *most)
{
    const struct param p = param_get(w->id, &g->arch);
    const bool turned = p.transposed;
    const struct st_rect rect = turned ? (struct st_rect){0, p.cols, p.first, p.rows}
                                       : (struct st_rect){p.first, p.rows, 0, p.cols};
    double *theirs = calloc((size_t)(p.rows * p.cols), sizeof *theirs);
    double apart = 0.0, largest = 0.0;
    char name[PARAM_NAME], whole[LORA_NAME];
    struct err err = {0};

    CHECK(theirs != NULL, "out of memory");
    param_name(name, &p, w->place);
    lora_name(whole, &g->arch, w->id, w->place); /* in an adapter's folder */
    CHECK(safetensors_read(golden_tensor(st, safetensors_find(st, name) != NULL ? name : whole),
                           rect, turned ? ST_TRANSPOSED : ST_AS_IS, theirs, DTYPE_F64, p.cols,
                           &err) == 0,
          "%s", err.text);
    for (int64_t i = 0; i < p.rows * p.cols; i++) {
        const double x = (double)((const real *)mine.data)[i] / scale;
        apart = isfinite(x) ? fmax(apart, fabs(x - theirs[i])) : HUGE_VAL;
        largest = fmax(largest, fabs(theirs[i]));
        *most = fmax(*most, fabs(x));
    }
    free(theirs);
    return largest > 0.0 ? apart / largest : apart;
}

/* The key bias moves all scores of a row alike: without rotary positions its gradient is exactly 0, with them it is
 * small, and Adam turns the rounding of either into steps. */
static inline bool golden_is_noise(const struct golden *g, const struct weight *w, bool trained)
{
    const bool rounded = trained && sizeof(real) < sizeof(double);

    return w->id == PARAM_K_B && (g->arch.family == FAMILY_GPT2 || rounded);
}

/* Every gradient (or, with `weights`, every weight) of what is trained against a file; the worst error. */
static inline double golden_compare(const struct golden *g, const char *file, bool weights,
                                    double limit)
{
    struct safetensors *st = golden_file(g, file);
    double worst = 0.0, most = 0.0;

    for (int i = 0; i < g->engine.model->weight_count; i++) {
        const struct weight *w = &g->engine.model->weights[i];
        if (tensor_count(w->dw) == 0 || golden_is_noise(g, w, weights)) {
            continue;
        }
        const double e = golden_error(g, st, w, weights ? w->master : w->dw,
                                      weights ? 1.0 : g->engine.scale.now, &most);
        if (!(e <= limit)) {
            printf("# parameter %d of layer %d is off by %.3g\n", (int)w->id, w->place, e);
        }
        worst = fmax(worst, e);
    }
    safetensors_close(st);
    EXPECT(most > 0.0);
    return worst;
}

/* The least change of a trained matrix since the file of initial weights: training must move them. What is not trained must
 * not move at all. */
static inline double golden_moved(const struct golden *g)
{
    struct safetensors *base = golden_file(g, "model.safetensors");
    struct safetensors *adapter = g->arch.lora.r > 0 ? golden_file(g, LORA_WEIGHTS) : NULL;
    const bool rounded = g->engine.model->d.masters;
    double least = HUGE_VAL, most = 0.0;

    for (int i = 0; i < g->engine.model->weight_count; i++) {
        const struct weight *w = &g->engine.model->weights[i];
        const bool trained = tensor_count(w->dw) > 0;
        if (golden_is_noise(g, w, true) || (trained && param_get(w->id, &g->arch).vector) ||
            (!trained && rounded)) {
            continue;
        }
        const double moved =
            golden_error(g, lora_holds(&g->arch, w->id) ? adapter : base, w, w->master, 1.0, &most);
        least = trained ? fmin(least, moved) : least;
        EXPECT(trained || moved <= 0.0);
    }
    safetensors_close(base);
    safetensors_close(adapter);
    return least;
}

/* Ten optimizer steps: loss and norm of each, gradients of the first, weights after the last. */
static inline void golden_train(const char *name, struct way way, struct tolerance tol)
{
    struct golden g;

    golden_open(&g, name, "batches.safetensors", way);
    json_t *train = golden_json(&g, "train.json");
    const json_t *trace = json_object_get(json_object_get(train, "trace"), "f64");
    struct safetensors *batches = golden_file(&g, "batches.safetensors");
    double worst_loss = 0.0, worst_norm = 0.0, worst_gradient = 0.0;

    for (size_t t = 0; t < json_array_size(trace); t++) {
        const json_t *want = json_array_get(trace, t);
        struct step_result got;
        struct step_input in = {
            .rows = &g.rows,
            .trained = golden_batch(&g, batches, (int64_t)t),
            .step = (int64_t)t + 1,
            .clip = 1.0,
            .adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
        in.adamw.lr = json_real_value(json_object_get(want, "lr"));
        EXPECT(json_object_get(want, "tokens") == NULL ||
               in.trained == json_integer_value(json_object_get(want, "tokens")));
        step_run(&g.engine, &in, &got);
        const double loss = json_real_value(json_object_get(want, "loss"));
        const double norm = json_real_value(json_object_get(want, "grad_norm"));
        worst_loss = fmax(worst_loss,
                          fabs(got.loss + g.engine.model->d.aux_coef * got.aux_loss - loss) / loss);
        worst_norm = fmax(worst_norm, fabs(got.grad_norm - norm) / norm);
        EXPECT(isfinite(got.loss) && isfinite(got.grad_norm) && !got.skipped);
        if (t == 0) {
            worst_gradient = golden_compare(&g, "grads_f64.safetensors", false, tol.gradient);
        }
    }
    const bool renamed = strcmp(name, "lora_qv_r4") == 0; /* as the reference values come */
    const double worst_weight =
        golden_compare(&g, renamed ? "adapter_after10_f64.safetensors" : "after10_f64.safetensors",
                       true, tol.weight);
    printf("# %s: loss %.2g, norm %.2g, gradients %.2g, weights %.2g, moved %.2g\n", name,
           worst_loss, worst_norm, worst_gradient, worst_weight, golden_moved(&g));
    EXPECT(worst_loss <= tol.loss);
    EXPECT(worst_norm <= tol.norm);
    EXPECT(worst_gradient <= tol.gradient);
    EXPECT(worst_weight <= tol.weight);
    EXPECT(golden_moved(&g) > 1e-3);
    safetensors_close(batches);
    json_decref(train);
    golden_close(&g);
}

/* One batch with masked labels, padding, or packed documents: loss over all trained tokens, gradients. */
static inline void golden_batch_case(const char *name, struct way way, struct tolerance tol)
{
    struct golden g;

    golden_open(&g, name, "batch.safetensors", way);
    json_t *expected = golden_json(&g, "expected.json");
    const json_t *want = json_object_get(expected, "f64");
    struct safetensors *batch = golden_file(&g, "batch.safetensors");
    struct step_result got;
    struct step_input in = {.rows = &g.rows, .trained = golden_batch(&g, batch, 0), .step = 1};

    EXPECT(in.trained == json_integer_value(json_object_get(want, "tokens")));
    step_gradients(&g.engine, &in, &got);
    const double loss = json_real_value(json_object_get(want, "loss"));
    printf("# %s: loss %.2g\n", name, fabs(got.loss - loss) / loss);
    EXPECT(fabs(got.loss - loss) / loss <= tol.loss);
    EXPECT(golden_compare(&g, "grads_f64.safetensors", false, tol.gradient) <= tol.gradient);
    safetensors_close(batch);
    json_decref(expected);
    golden_close(&g);
}

/* Every case that trains ten steps. */
static const char *const golden_cases[] = {
    "gpt2_tied",      "gpt2_erf_inner", "llama_mha_untied", "llama_gqa_tied_4L",
    "llama_all_bias", "llama3_rope",    "qwen2_bias",       "mistral_window"};
enum { GOLDEN_CASES = sizeof golden_cases / sizeof golden_cases[0] };

/* Those with experts, whose loss for balance is that of a microbatch: all samples are in one. */
static const char *const expert_cases[] = {"mixtral_top2of8", "qwen2_moe_shared"};
enum { EXPERT_CASES = sizeof expert_cases / sizeof expert_cases[0] };

/* Those that train a part: adapters, or what `freeze` leaves. */
static const char *const partial_cases[] = {
    "lora_qv_r4",     "lora_all_linear_r3", "lora_gpt2_conv1d", "lora_rslora_qwen2",
    "lora_also_tied", "lora_also_untied",   "lora_also_gpt2",   "freeze_below",
    "freeze_gpt2",    "freeze_all_but_head"};
enum { PARTIAL_CASES = sizeof partial_cases / sizeof partial_cases[0] };

#endif
