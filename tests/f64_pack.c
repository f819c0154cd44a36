/* f64_pack.c - in double: packed rows have the loss and the gradients of the examples one by one, and a batch
 * those of its parts. */
#include "tests/golden.h"
#include "tests/token_files.h"

enum { MOST = 8, LONG = 128 };

/* What one step says and leaves. */
struct outcome {
    struct step_result result;
    double evaluated;          /* loss of an evaluation before the step    */
    double gradients, weights; /* sums with signs and weights of their own */
    int64_t narrowest;         /* places of the narrowest microbatch       */
};

static double fingerprint(const struct engine *e, bool weights)
{
    double sum = 0.0;

    for (int i = 0; i < e->model->weight_count; i++) {
        const struct weight *w = &e->model->weights[i];
        const struct tensor t = weights ? w->master : w->dw;
        for (int64_t j = 0; j < tensor_count(t); j++) {
            sum += (double)((const real *)t.data)[j] * cos((double)(j * 7 + i));
        }
    }
    return sum;
}

/* One step on all rows of the pack, `way.micro_batch` of them at a time; their number is a multiple of it. */
static struct outcome step_on(const struct pack *p, const char *model, struct way way)
{
    struct golden g = {.spec = {.global_batch_size = p->rows,
                                .recompute = (int)way.recompute,
                                .dropout = way.dropout}};
    struct safetensors_folder *folder = NULL;
    struct outcome out;
    struct err err = {0};
    const struct data_set set = pack_set(p, 1);

    (void)snprintf(g.dir, sizeof g.dir, "tests/golden/%s", model);
    json_t *config = golden_json(&g, "config.json");
    CHECK(arch_read(&g.arch, config, 0, &err) == 0, "%s", err.text);
    json_decref(config);
    const struct dims d = dims_make(&g.arch, &g.spec, way.micro_batch, p->S, 1);
    CHECK(engine_open(&g.engine, &d, "", &err) == 0, "%s", err.text);
    CHECK(safetensors_folder_open(&folder, g.dir, &err) == 0, "%s", err.text);
    CHECK(state_load_weights(g.engine.model, folder, &err) == 0, "%s", err.text);
    safetensors_folder_close(folder);
    int32_t *memory = calloc((size_t)(4 * p->rows * p->S), sizeof *memory);
    CHECK(memory != NULL, "out of memory");
    g.rows = (struct data_rows){memory, memory + p->rows * p->S, memory + 2 * p->rows * p->S,
                                memory + 3 * p->rows * p->S};
    struct step_result evaluated;
    EXPECT(step_evaluate(&g.engine, &set, &g.rows, NULL, NULL, &evaluated));
    EXPECT(evaluated.tokens == p->trained);
    out.evaluated = evaluated.loss;
    struct step_input in = {
        .rows = &g.rows,
        .trained = data_batch_in_order(&set, &g.rows, 0, p->rows),
        .step = 1,
        .clip = 0.1,
        .adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1}};
    step_run(&g.engine, &in, &out.result);
    out.gradients = fingerprint(&g.engine, false);
    out.weights = fingerprint(&g.engine, true);
    out.narrowest = p->S;
    for (int64_t i = 0; i < d.micros; i++) {
        const int64_t width = g.engine.width[i];
        out.narrowest = width < out.narrowest ? width : out.narrowest;
    }
    golden_close(&g);
    return out;
}

static void expect_same(const struct outcome *a, const struct outcome *b)
{
    EXPECT(a->result.tokens == b->result.tokens && a->result.tokens > 0);
    EXPECT_NEAR(a->result.loss, b->result.loss, 1e-12);
    EXPECT_NEAR(a->result.grad_norm, b->result.grad_norm, 1e-12);
    EXPECT_NEAR(a->evaluated, b->evaluated, 1e-12);
    EXPECT_NEAR(a->gradients, b->gradients, 1e-12);
    EXPECT_NEAR(a->weights, b->weights, 1e-12);
}

static void packed_rows_have_the_loss_of_the_examples_one_by_one(void)
{
    static const char *const models[] = {"gpt2_tied", "llama_gqa_tied_4L", "mistral_window"};
    const int64_t lengths[MOST] = {9, 17, 4, 2, 13, 6, 3, 11};

    for (int i = 0; i < 3; i++) {
        struct token_file *f = put_examples("packed", lengths, MOST, 90, 0);
        struct pack *together = pack_all(f, 19, PACK_TOGETHER, 1);
        struct pack *alone = pack_all(f, 19, PACK_ALONE, 1);
        EXPECT(together->rows <= 4 && alone->rows == MOST);
        const struct outcome a =
            step_on(together, models[i], (struct way){.micro_batch = together->rows});
        const struct outcome b =
            step_on(alone, models[i], (struct way){.micro_batch = 1, .recompute = RECOMPUTE_FULL});
        expect_same(&a, &b);
        pack_free(together);
        pack_free(alone);
        token_file_close(f);
    }
}

static void two_of_very_different_lengths_are_the_batch_of_both(void)
{
    const int64_t lengths[] = {11, 101}, short_lengths[] = {5, 29, 12, 7};
    struct token_file *f = put_examples("uneven", lengths, 2, 90, 0);
    struct pack *alone = pack_all(f, LONG, PACK_ALONE, 2);
    struct pack *together = pack_all(f, LONG, PACK_TOGETHER, 2);
    struct token_file *short_file = put_examples("short", short_lengths, 4, 90, 0);
    struct pack *short_ones = pack_all(short_file, LONG, PACK_ALONE, 4);
    const char *model = "llama_mha_untied";
    const struct outcome apart = step_on(alone, model, (struct way){.micro_batch = 1});
    const struct outcome at_once = step_on(alone, model, (struct way){.micro_batch = 2});
    const struct outcome packed = step_on(together, model, (struct way){.micro_batch = 1});

    const struct outcome at_a_time = step_on(short_ones, model, (struct way){.micro_batch = 4});
    const struct outcome one_by_one = step_on(short_ones, model, (struct way){.micro_batch = 1});

    EXPECT(at_a_time.narrowest == 32);
    expect_same(&at_a_time, &one_by_one);
    EXPECT(together->rows == 1);
    EXPECT(at_once.result.tokens == alone->trained);
    EXPECT(apart.narrowest == 32 && at_once.narrowest == LONG && packed.narrowest == LONG);
    expect_same(&apart, &at_once);
    expect_same(&apart, &packed);
    pack_free(alone);
    pack_free(together);
    pack_free(short_ones);
    token_file_close(short_file);
    token_file_close(f);
}

static void a_narrow_microbatch_drops_what_a_wide_one_drops(void)
{
    const int64_t lengths[] = {11, 101};
    struct token_file *f = put_examples("dropped", lengths, 2, 90, 0);
    struct pack *alone = pack_all(f, LONG, PACK_ALONE, 2);
    const struct way one = {.micro_batch = 1, .dropout = 0.3};
    const struct way two = {.micro_batch = 2, .dropout = 0.3};
    const struct outcome a = step_on(alone, "llama_gqa_tied_4L", one);
    const struct outcome b = step_on(alone, "llama_gqa_tied_4L", two);

    EXPECT(a.narrowest == 32 && b.narrowest == LONG);
    expect_same(&a, &b);
    pack_free(alone);
    token_file_close(f);
}

static void a_step_without_a_target_has_no_nan(void)
{
    struct golden g;
    struct step_result got;

    golden_open(&g, "llama_gqa_tied_4L", "batches.safetensors", (struct way){0});
    for (int64_t i = 0; i < g.B * g.S; i++) {
        g.rows.labels[i] = -100;
    }
    const struct step_input in = {
        .rows = &g.rows, .step = 1, .clip = 1.0, .adamw = {.lr = 1e-3, .eps = 1e-8}};
    const double before = fingerprint(&g.engine, true);
    step_run(&g.engine, &in, &got);
    EXPECT(got.loss == 0.0 && got.grad_norm == 0.0 && got.tokens == 0);
    EXPECT_NEAR(fingerprint(&g.engine, true), before, 1e-12);
    golden_close(&g);
}

int main(void)
{
    scratch_make();
    RUN(packed_rows_have_the_loss_of_the_examples_one_by_one);
    RUN(two_of_very_different_lengths_are_the_batch_of_both);
    RUN(a_narrow_microbatch_drops_what_a_wide_one_drops);
    RUN(a_step_without_a_target_has_no_nan);
    scratch_remove();
    return tap_done();
}
