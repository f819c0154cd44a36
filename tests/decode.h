/* decode.h - generating with a cache gives the logits of a forward pass over the whole text. */
#ifndef TESTS_DECODE_H
#define TESTS_DECODE_H

#include "tests/golden.h"

/* An engine that generates, with the weights of a golden case. */
static inline void decode_open(struct engine *e, const struct golden *g)
{
    struct safetensors_folder *folder = NULL;
    struct err err = {0};
    const struct dims d = dims_inference(&g->arch, DTYPE_REAL, 1, g->S, 1);

    CHECK(engine_open(e, &d, "", &err) == 0, "%s", err.text);
    CHECK(safetensors_folder_open(&folder, g->dir, &err) == 0, "%s", err.text);
    CHECK(state_load_weights(e->model, folder, &err) == 0, "%s", err.text);
    safetensors_folder_close(folder);
    if (g->arch.lora.r > 0) {
        CHECK(state_load_adapter(e->model, g->dir, &err) == 0, "%s", err.text);
    }
}

/* Logits after `n` further tokens that start at `place` of the first row of the batch. */
static const real *decode_feed(struct engine *e, const struct golden *g, int64_t place, int64_t n)
{
    struct model *m = e->model;

    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)m->ids.data)[i] = g->rows.ids[place + i];
        ((int32_t *)m->pos.data)[i] = (int32_t)(place + i);
    }
    const struct ctx c = model_ctx(m, e->k, &e->q, &e->tp, 0, n);
    model_forward(m, &c);
    return head_logits(&m->head, &c, tensor_slice(here(&c, m->out), n - 1, 1)).data;
}

static inline double decode_apart(const real *a, const real *b, int64_t n)
{
    double apart = 0.0, most = 0.0;

    for (int64_t i = 0; i < n; i++) {
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
        most = fmax(most, fabs((double)b[i]));
    }
    return apart / most;
}

/* The first row of batch 0: all at once in training form, against `prefill` tokens at once and the rest
 * one by one through the cache. */
static inline void decode_case(const char *name, int64_t prefill, double limit)
{
    struct golden g;
    struct engine e;
    double worst = 0.0;

    golden_open(&g, name, "batches.safetensors", (struct way){.micro_batch = 1});
    struct safetensors *st = golden_file(&g, "batches.safetensors");
    (void)golden_batch(&g, st, 0);
    safetensors_close(st);
    decode_open(&e, &g);

    struct step_result result;
    const struct step_input in = {.rows = &g.rows, .trained = 1, .step = 1};
    step_gradients(&g.engine, &in, &result); /* fills the batch region */
    const struct ctx c = model_ctx(g.engine.model, g.engine.k, &g.engine.q, &g.engine.tp, 0, g.S);
    model_forward(g.engine.model, &c);
    for (int64_t t = 0; t < g.S; t++) {
        const int64_t n = t == 0 ? prefill : 1;
        const real *got = decode_feed(&e, &g, t, n);
        t += n - 1;
        const struct tensor row = tensor_slice(here(&c, g.engine.model->out), t, 1);
        const real *want = head_logits(&g.engine.model->head, &c, row).data;
        worst = fmax(worst, decode_apart(got, want, g.arch.V));
    }
    printf("# %s, %lld at once: logits apart by %.2g\n", name, (long long)prefill, worst);
    EXPECT(worst <= limit);
    engine_close(&e);
    golden_close(&g);
}

static inline void decode_all(double limit)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        decode_case(golden_cases[i], 1, limit);
        decode_case(golden_cases[i], 7, limit);
    }
    decode_case("lora_all_linear_r3", 5, limit);
    decode_case("lora_gpt2_conv1d", 5, limit);
}

#endif
