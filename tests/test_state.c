/* test_state.c - weights in the forms that people have them: shards, bare names, other types, leftovers; what is
 * saved reads back bit for bit.
 */
#include "tests/golden.h"
#include "tests/scratch.h"
#include "trainer/ckpt/writer.h"

/* Copy the tensors of a golden model into a new folder, with `rename` applied to names and some more on top. */
struct copy {
    const char *strip; /* prefix taken off names, or ""         */
    enum st_dtype type;
    uint64_t shard_bytes;
    const char *extra[3]; /* names of further tensors           */
    const char *without;  /* a name that is left out            */
};

static const char *renamed(const char *name, const char *strip)
{
    return strncmp(name, strip, strlen(strip)) == 0 ? name + strlen(strip) : name;
}

static void declare_all(struct writer *w, struct safetensors *st, const struct copy *c,
                        struct err *err)
{
    const int64_t one = 1;

    for (int64_t i = 0; i < safetensors_count(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        if (c->without == NULL || strcmp(t->name, c->without) != 0) {
            CHECK(writer_declare(w, renamed(t->name, c->strip), c->type, t->dims, t->shape, err) ==
                      0,
                  "%s", err->text);
        }
    }
    for (int i = 0; i < 3 && c->extra[i] != NULL; i++) {
        CHECK(writer_declare(w, c->extra[i], c->type, 1, &one, err) == 0, "%s", err->text);
    }
}

static void put_all(struct writer *w, struct safetensors *st, const struct copy *c, struct err *err)
{
    static float values[1 << 16];

    for (int64_t n = writer_next(w); n >= 0; n = writer_next(w)) {
        int64_t at = -1;
        const struct st_tensor *t = NULL;
        for (int64_t i = 0; i < safetensors_count(st) && at < n; i++) {
            t = safetensors_at(st, i);
            at += c->without == NULL || strcmp(t->name, c->without) != 0;
        }
        values[0] = 1.0F;
        if (at == n) {
            CHECK(st_count(t) <= 1 << 16, "%s is large", t->name);
            CHECK(safetensors_read(t, st_rect_all(t), ST_AS_IS, values, DTYPE_F32, st_cols(t),
                                   err) == 0,
                  "%s", err->text);
        }
        const int64_t count = at == n ? st_count(t) : 1;
        CHECK(writer_put(w, tensor_make(values, DTYPE_F32, count, 1), ST_AS_IS, err) == 0, "%s",
              err->text);
    }
}

static const char *make_folder(const char *golden, const char *name, const struct copy *c)
{
    const char *dir = in_scratch(name);
    struct safetensors *st = NULL;
    struct writer *w = NULL;
    struct err err = {0};
    char path[300];

    (void)snprintf(path, sizeof path, "tests/golden/%s/model.safetensors", golden);
    CHECK(io_make_dir(dir, &err) == 0, "%s", err.text);
    CHECK(safetensors_open(&st, path, &err) == 0, "%s", err.text);
    CHECK(writer_new(&w, dir, "model", c->shard_bytes, &err) == 0, "%s", err.text);
    declare_all(w, st, c, &err);
    CHECK(writer_start(w, &err) == 0, "%s", err.text);
    put_all(w, st, c, &err);
    CHECK(writer_finish(w, &err) == 0, "%s", err.text);
    writer_free(w);
    safetensors_close(st);
    return dir;
}

/* Load a folder into the model of a golden case; the largest difference to its own weights, relative. */
static double load(struct golden *g, const char *dir, struct err *err, int64_t *unused)
{
    struct safetensors_folder *f = NULL;
    const char *first = NULL;
    double worst = 0.0, most = 0.0;

    for (int i = 0; i < g->engine.model->weight_count; i++) {
        const struct tensor t = g->engine.model->weights[i].master;
        memset(t.data, 0, tensor_bytes(t));
    }
    CHECK(safetensors_folder_open(&f, dir, err) == 0, "%s", err->text);
    if (state_load_weights(g->engine.model, f, err) != 0) {
        safetensors_folder_close(f);
        return HUGE_VAL;
    }
    CHECK(state_unused(g->engine.model, f, unused, &first, err) == 0, "%s", err->text);
    EXPECT((*unused > 0) == (first != NULL));
    safetensors_folder_close(f);
    struct safetensors *st = golden_file(g, "model.safetensors");
    for (int i = 0; i < g->engine.model->weight_count; i++) {
        const struct weight *w = &g->engine.model->weights[i];
        worst = fmax(worst, golden_error(g, st, w, w->master, 1.0, &most));
    }
    safetensors_close(st);
    return worst;
}

static void expect_loads(const char *golden, const char *name, struct copy c, double limit,
                         int64_t want_unused)
{
    struct golden g;
    struct err err = {0};
    int64_t unused = -1;

    golden_open(&g, golden, "batches.safetensors", (struct way){0});
    const double e = load(&g, make_folder(golden, name, &c), &err, &unused);
    EXPECT(e <= limit);
    EXPECT(unused == want_unused);
    if (err.code != 0 || !(e <= limit)) {
        printf("# %s: %g %s\n", name, e, err.text);
    }
    golden_close(&g);
}

static void one_file_or_many_shards(void)
{
    expect_loads("gpt2_tied", "one", (struct copy){"", ST_F32, UINT64_MAX, {NULL}, NULL}, 0.0, 0);
    expect_loads("gpt2_tied", "shards", (struct copy){"", ST_F32, 20000, {NULL}, NULL}, 0.0, 0);
    expect_loads("llama_gqa_tied_4L", "more-shards", (struct copy){"", ST_F32, 9000, {NULL}, NULL},
                 0.0, 0);
}

static void names_without_their_prefix(void)
{
    expect_loads("gpt2_tied", "bare",
                 (struct copy){"transformer.", ST_F32, UINT64_MAX, {NULL}, NULL}, 0.0, 0);
    expect_loads("qwen2_bias", "bare-qwen2",
                 (struct copy){"model.", ST_F32, UINT64_MAX, {NULL}, NULL}, 0.0, 0);
}

static void other_element_types(void)
{
    expect_loads("llama_mha_untied", "bf16", (struct copy){"", ST_BF16, UINT64_MAX, {NULL}, NULL},
                 0.004, 0);
    expect_loads("gpt2_tied", "f16", (struct copy){"", ST_F16, UINT64_MAX, {NULL}, NULL}, 0.0005,
                 0);
    expect_loads("gpt2_tied", "f64", (struct copy){"", ST_F64, UINT64_MAX, {NULL}, NULL}, 0.0, 0);
}

static void leftovers_are_told_and_buffers_are_not(void)
{
    expect_loads("gpt2_tied", "buffers",
                 (struct copy){"",
                               ST_F32,
                               UINT64_MAX,
                               {"transformer.h.0.attn.bias", "lm_head.weight",
                                "transformer.h.1.attn.masked_bias"},
                               NULL},
                 0.0, 0);
    expect_loads("llama_mha_untied", "leftover",
                 (struct copy){"",
                               ST_F32,
                               UINT64_MAX,
                               {"model.layers.7.mlp.up_proj.weight", "vision.patch",
                                "model.layers.0.self_attn.rotary_emb.inv_freq"},
                               NULL},
                 0.0, 2);
}

static void expect_refused(const char *golden, const char *name, const char *without,
                           const char *says)
{
    const struct copy c = {"", ST_F32, UINT64_MAX, {NULL}, without};
    struct golden g;
    struct err err = {0};
    int64_t unused = 0;

    golden_open(&g, golden, "batches.safetensors", (struct way){0});
    EXPECT(load(&g, make_folder(golden, name, &c), &err, &unused) > 1e300);
    EXPECT(err.code == ERR_NO_MODEL && strstr(err.text, says) != NULL);
    golden_close(&g);
}

static void a_missing_tensor_is_named(void)
{
    expect_refused("llama_mha_untied", "headless", "lm_head.weight", "tie_word_embeddings");
    expect_refused("llama_mha_untied", "hole", "model.layers.1.self_attn.k_proj.weight",
                   "model.layers.1.self_attn.k_proj.weight");
    expect_refused("gpt2_tied", "hole-gpt2", "transformer.h.0.attn.c_attn.weight",
                   "transformer.h.0.attn.c_attn.weight");
}

/* Row 37 of reference/megatron.md, section 4 (#5844): a model with experts loaded, and none of their weights was. */
static void row_37_every_weight_of_experts_is_loaded_and_a_missing_one_is_named(void)
{
    static const char *const holes[] = {"model.layers.0.block_sparse_moe.experts.0.w1.weight",
                                        "model.layers.1.block_sparse_moe.experts.7.w2.weight",
                                        "model.layers.1.block_sparse_moe.gate.weight"};

    expect_loads("mixtral_top2of8", "experts", (struct copy){"", ST_F32, UINT64_MAX, {NULL}, NULL},
                 0.0, 0);
    expect_loads(
        "mixtral_top2of8", "more experts",
        (struct copy){
            "", ST_F32, UINT64_MAX, {"model.layers.1.block_sparse_moe.experts.8.w2.weight"}, NULL},
        0.0, 1);
    for (size_t i = 0; i < sizeof holes / sizeof holes[0]; i++) {
        char name[20];
        (void)snprintf(name, sizeof name, "hole-experts-%zu", i);
        expect_refused("mixtral_top2of8", name, holes[i], holes[i]);
    }
}

/* By one rank; all that is planned to be written is written. */
static int save_alone(struct engine *e, const char *dir, uint64_t *bytes)
{
    uint64_t written = 0;
    const struct state_ranks alone = {.world = &e->world, .q = &e->q, .written = &written};
    struct err err = {0};

    CHECK(state_bytes(e->model, bytes, &err) == 0, "%s", err.text);
    const int rc = state_save(e->model, dir, &alone, &err);
    EXPECT(written == *bytes);
    return rc;
}

/* Save through a checkpoint, load into a second model: all parts the same. */
static void round_trip(const char *name, enum precision precision)
{
    struct golden a, b;
    struct step_result result;
    struct checkpoint_save *save = NULL;
    struct checkpoint done;
    uint64_t bytes = 0;
    struct err err = {0};
    char job[64], dir[IO_PATH_MAX];

    (void)snprintf(job, sizeof job, "job-%s-%d", name, (int)precision);
    CHECK(io_make_dir(in_scratch(job), &err) == 0, "%s", err.text);
    golden_open(&a, name, "batches.safetensors", (struct way){.precision = precision});
    golden_open(&b, name, "batches.safetensors", (struct way){.precision = precision});
    struct safetensors *batches = golden_file(&a, "batches.safetensors");
    const struct step_input in = {.rows = &a.rows,
                                  .trained = golden_batch(&a, batches, 0),
                                  .step = 1,
                                  .adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};
    step_run(&a.engine, &in, &result);
    CHECK(checkpoint_begin(&save, in_scratch(job), 1, &err) == 0, "%s", err.text);
    EXPECT(save_alone(&a.engine, checkpoint_save_dir(save), &bytes) == 0);
    EXPECT(checkpoint_commit(save, true, &done, &err) == 0);
    EXPECT(done.bytes >= bytes);
    CHECK(io_join(dir, sizeof dir, in_scratch(job), done.dir, &err) == 0, "%s", err.text);
    struct safetensors_folder *f = NULL;
    CHECK(safetensors_folder_open(&f, dir, &err) == 0, "%s", err.text);
    EXPECT(state_load_weights(b.engine.model, f, &err) == 0);
    EXPECT(state_load_optimizer(b.engine.model, dir, &err) == 0);
    safetensors_folder_close(f);
    model_round(b.engine.model, b.engine.k, &b.engine.q);
    for (int i = 0; i < a.engine.model->weight_count; i++) {
        const struct weight *x = &a.engine.model->weights[i], *y = &b.engine.model->weights[i];
        EXPECT(memcmp(x->w.data, y->w.data, tensor_bytes(x->w)) == 0);
        EXPECT(memcmp(x->master.data, y->master.data, tensor_bytes(x->master)) == 0);
        EXPECT(memcmp(x->m.data, y->m.data, tensor_bytes(x->m)) == 0);
        EXPECT(memcmp(x->v.data, y->v.data, tensor_bytes(x->v)) == 0);
    }
    safetensors_close(batches);
    golden_close(&a);
    golden_close(&b);
}

static void what_is_saved_reads_back_bit_for_bit(void)
{
    for (int i = 0; i < GOLDEN_CASES; i++) {
        round_trip(golden_cases[i], PRECISION_F32);
    }
    round_trip("gpt2_tied", PRECISION_BF16);
    round_trip("qwen2_bias", PRECISION_BF16);
    round_trip("qwen2_bias", PRECISION_FP16);
}

int main(void)
{
    scratch_make();
    RUN(one_file_or_many_shards);
    RUN(names_without_their_prefix);
    RUN(other_element_types);
    RUN(leftovers_are_told_and_buffers_are_not);
    RUN(a_missing_tensor_is_named);
    RUN(row_37_every_weight_of_experts_is_loaded_and_a_missing_one_is_named);
    RUN(what_is_saved_reads_back_bit_for_bit);
    scratch_remove();
    return tap_done();
}
