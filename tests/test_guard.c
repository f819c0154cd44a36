/* test_guard.c - a gradient that is not a number is named. */
#include "tests/golden.h"
#include "trainer/guard.h"

static struct tensor gradient_of(const struct golden *g, enum param_id id, int layer)
{
    const struct model *m = g->engine.model;

    for (int i = 0; i < m->weight_count; i++) {
        if (m->weights[i].id == id && m->weights[i].place == layer) {
            return m->weights[i].dw;
        }
    }
    CHECK(false, "no parameter %d in layer %d", (int)id, layer);
}

static void poison(const struct golden *g, enum param_id id, int layer, double value)
{
    const struct tensor t = gradient_of(g, id, layer);

    ((real *)t.data)[tensor_count(t) / 2] = (real)value;
}

static const struct step_result bad = {.loss = 2.0, .grad_norm = (double)NAN, .skipped = true};

/* Of several the one that the backward pass comes to first. */
static void the_first_gradient_that_is_not_a_number_is_named(void)
{
    struct golden g;
    struct err err = {0};

    golden_open(&g, "llama_mha_untied", "batches.safetensors", (struct way){0});
    poison(&g, PARAM_EMBED, 0, (double)NAN);
    EXPECT(guard_step(&g.engine, &bad, 17, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "model.embed_tokens.weight on rank 0") != NULL);
    EXPECT(strstr(err.text, "step 17") != NULL);
    poison(&g, PARAM_Q_W, 0, (double)INFINITY);
    EXPECT(guard_step(&g.engine, &bad, 17, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "model.layers.0.self_attn.q_proj.weight") != NULL);
    poison(&g, PARAM_NORM1_W, 1, -(double)INFINITY);
    EXPECT(guard_step(&g.engine, &bad, 17, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "model.layers.1.input_layernorm.weight") != NULL);
    poison(&g, PARAM_DOWN_W, 1, (double)NAN);
    EXPECT(guard_step(&g.engine, &bad, 17, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "model.layers.1.mlp.down_proj.weight") != NULL);
    poison(&g, PARAM_HEAD, 0, (double)NAN);
    EXPECT(guard_step(&g.engine, &bad, 17, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "lm_head.weight") != NULL);
    golden_close(&g);
}

static void good_steps_and_skipped_ones_go_on(void)
{
    const struct step_result good = {.loss = 2.0, .grad_norm = 1.0};
    struct golden g;
    struct err err = {0};

    golden_open(&g, "llama_mha_untied", "batches.safetensors",
                (struct way){.precision = PRECISION_FP16});
    EXPECT(guard_step(&g.engine, &good, 1, &g.spec, &err) == 0);
    EXPECT(guard_step(&g.engine, &bad, 2, &g.spec, &err) == 0);
    for (int i = 0; i < 12; i++) {
        scale_see(&g.engine.scale, true);
    }
    EXPECT(guard_step(&g.engine, &bad, 14, &g.spec, &err) == ERR_DIVERGED);
    EXPECT(strstr(err.text, "12 skipped steps in a row") != NULL);
    EXPECT(strstr(err.text, "loss scale 1,") != NULL);
    golden_close(&g);
}

int main(void)
{
    RUN(the_first_gradient_that_is_not_a_number_is_named);
    RUN(good_steps_and_skipped_ones_go_on);
    return tap_done();
}
