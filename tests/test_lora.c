/* test_lora.c - the choice of what is trained: names of layers, PEFT folders of any kind, frozen parts. */
#include "trainer/lora.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/writer.h"
#include "trainer/params.h"
#include "trainer/trained.h"

static const char llama_config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":50,"
    "\"max_position_embeddings\":32}";
static const char gpt2_config[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":16,\"n_layer\":2,\"n_head\":4,\"vocab_size\":50,"
    "\"n_positions\":32}";

static struct arch arch_of(const char *config)
{
    struct arch a;
    struct err err = {0};
    json_t *json = json_loads(config, 0, NULL);

    CHECK(json != NULL && arch_read(&a, json, 0, &err) == 0, "%s", err.text);
    json_decref(json);
    return a;
}

static int parse(struct spec *s, const char *more, struct err *err)
{
    char text[1000];

    (void)snprintf(text, sizeof text, "{\"training_file\":\"t\",\"model\":\"m\"%s}", more);
    json_t *json = json_loads(text, 0, NULL);
    CHECK(json != NULL, "%s", text);
    const int rc = spec_parse(s, json, err);
    json_decref(json);
    return rc;
}

/* The adapters of a request. */
static struct lora_choice chosen(const struct arch *a, const char *more)
{
    struct lora_choice l = {.r = -1};
    struct spec s;
    struct err err = {0};

    CHECK(parse(&s, more, &err) == 0 && lora_choose(&l, a, &s, NULL, &err) == 0, "%s", err.text);
    spec_free(&s);
    return l;
}

static void expect_refused(const struct arch *a, const char *more, const char *param,
                           const char *text)
{
    struct lora_choice l;
    struct spec s;
    struct err err = {0};

    int rc = parse(&s, more, &err);
    if (rc == 0) {
        rc = lora_choose(&l, a, &s, NULL, &err);
        rc = rc != 0 ? rc : trained_check(a, &s, &err);
        spec_free(&s);
    }
    EXPECT(rc == ERR_BAD_SPEC && strcmp(err.param, param) == 0 && strstr(err.text, text) != NULL);
    if (strstr(err.text, text) == NULL) {
        printf("# %s\n", err.text);
    }
}

enum { Q = 1 << LORA_Q, V = 1 << LORA_V, OUT = 1 << LORA_OUT, DOWN = 1 << LORA_DOWN };

static void layers_are_chosen_by_name(void)
{
    const struct arch llama = arch_of(llama_config), gpt2 = arch_of(gpt2_config);
    const unsigned all = Q | 1 << LORA_K | V | OUT | 1 << LORA_GATE | 1 << LORA_UP | DOWN;

    EXPECT(chosen(&llama, "").r == 0);
    EXPECT(chosen(&llama, ",\"lora_rank\":4").targets == all);
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_targets\":\"all-linear\"").targets == all);
    EXPECT(
        chosen(&llama, ",\"lora_rank\":4,\"lora_targets\":\"q_proj, self_attn.v_proj \"").targets ==
        (Q | V));
    EXPECT(chosen(&gpt2, ",\"lora_rank\":4").targets ==
           (1 << LORA_QKV | OUT | 1 << LORA_UP | DOWN));
    EXPECT(chosen(&gpt2, ",\"lora_rank\":4,\"lora_targets\":\"c_proj\"").targets == (OUT | DOWN));
    EXPECT(chosen(&gpt2, ",\"lora_rank\":4,\"lora_targets\":\"mlp.c_proj\"").targets == DOWN);
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_targets\":\"q_proj,,v_proj\"", "lora_targets",
                   "\"\" is no linear layer");
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_targets\":\"c_attn\"", "lora_targets",
                   "there are: q_proj k_proj v_proj o_proj gate_proj up_proj down_proj");
    expect_refused(&gpt2, ",\"lora_rank\":4,\"lora_targets\":\"q_proj\"", "lora_targets", "c_attn");
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_targets\":\"proj\"", "lora_targets", "proj");
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_targets\":\"lm_head\"", "lora_targets",
                   "lm_head");
}

enum {
    EMBED = 1 << PARAM_EMBED,
    HEAD = 1 << PARAM_HEAD,
    LAST_NORM = 1 << PARAM_NORM_W,
    NORMS = 1 << PARAM_NORM1_W | 1 << PARAM_NORM2_W | LAST_NORM
};

static void modules_trained_whole_are_chosen_by_name(void)
{
    struct arch llama = arch_of(llama_config);
    const struct arch gpt2 = arch_of(gpt2_config);

    EXPECT(chosen(&llama, ",\"lora_rank\":4").also == 0);
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"none\"").also == 0);
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"embed_tokens, lm_head\"").also ==
           (EMBED | HEAD));
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"norm\"").also == LAST_NORM);
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"*norm\"").also == NORMS);
    EXPECT(
        chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"model.layers.*.input_layernorm\"").also ==
        1 << PARAM_NORM1_W);
    llama.tied = true; /* then either name stands for both */
    EXPECT(chosen(&llama, ",\"lora_rank\":4,\"lora_also\":\"lm_head\"").also == EMBED);
    EXPECT(chosen(&gpt2, ",\"lora_rank\":4,\"lora_also\":\"wte,ln_f\"").also ==
           (EMBED | LAST_NORM | 1 << PARAM_NORM_B));
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_also\":\"lm_head,\"", "lora_also", "\"\"");
    expect_refused(&llama, ",\"lora_rank\":4,\"lora_also\":\"q_proj\"", "lora_also", "there are:");
    expect_refused(&gpt2, ",\"lora_rank\":4,\"lora_also\":\"embed_tokens\"", "lora_also",
                   "there are: wte wpe ln_1 ln_2 ln_f lm_head");
    expect_refused(&llama, ",\"lora_also\":\"norm\"", "lora_also", "goes with lora_rank");
    expect_refused(&llama, ",\"lora_also\":\"norm\",\"adapter\":\"x\"", "lora_also",
                   "brings its own");
}

static void alpha_is_twice_the_rank_unless_given(void)
{
    const struct arch a = arch_of(llama_config);

    EXPECT_NEAR(chosen(&a, ",\"lora_rank\":4").alpha, 8.0, 0.0);
    EXPECT_NEAR(chosen(&a, ",\"lora_rank\":4,\"lora_alpha\":3").alpha, 3.0, 0.0);
    EXPECT_NEAR(chosen(&a, ",\"lora_rank\":4").dropout, 0.0, 0.0);
    EXPECT_NEAR(chosen(&a, ",\"lora_rank\":4,\"lora_dropout\":0.25").dropout, 0.25, 0.0);
    EXPECT(chosen(&a, ",\"lora_rank\":4,\"lora_rslora\":\"yes\"").rslora);
}

static void fields_of_adapters_go_together(void)
{
    const struct arch a = arch_of(llama_config);

    expect_refused(&a, ",\"lora_alpha\":3", "lora_alpha", "goes with lora_rank");
    expect_refused(&a, ",\"lora_dropout\":0.1", "lora_dropout", "goes with lora_rank");
    expect_refused(&a, ",\"lora_rslora\":\"yes\"", "lora_rslora", "goes with lora_rank");
    expect_refused(&a, ",\"lora_rank\":4,\"adapter\":\"x\"", "lora_rank", "brings its own rank");
    expect_refused(&a, ",\"lora_targets\":\"q_proj\",\"adapter\":\"x\"", "lora_targets",
                   "brings its own");
    expect_refused(&a, ",\"lora_rank\":4,\"model\":null,\"config\":{},\"tokenizer\":\"t\"",
                   "lora_rank", "random");
    expect_refused(&a, ",\"lora_rank\":0.5", "lora_rank", "lora_rank");
    expect_refused(&a, ",\"lora_rank\":1025", "lora_rank", "1024");
}

static void frozen_parts_are_chosen_by_name(void)
{
    struct dims d = {.arch = arch_of(llama_config), .L = 2, .training = true};

    EXPECT(trained_lowest(&d) == -1);
    d.freeze = "model.embed_tokens";
    EXPECT(!trained_has(&d, PARAM_EMBED, 0) && trained_has(&d, PARAM_HEAD, 0));
    EXPECT(trained_lowest(&d) == 0);
    d.freeze = "model.embed_tokens, model.layers.0";
    EXPECT(!trained_has(&d, PARAM_Q_W, 0) && trained_has(&d, PARAM_Q_W, 1));
    EXPECT(trained_lowest(&d) == 1);
    d.freeze = "*norm*";
    EXPECT(!trained_has(&d, PARAM_NORM1_W, 1) && !trained_has(&d, PARAM_NORM_W, 0));
    EXPECT(trained_has(&d, PARAM_Q_W, 1));
    d.freeze = "model";
    EXPECT(trained_lowest(&d) == 2 && trained_count(&d) == 50 * 16);
    d.freeze = "model.layers.*.q_proj";
    EXPECT(!trained_has(&d, PARAM_Q_W, 1) && trained_has(&d, PARAM_K_W, 1));
    d.freeze = "model.layers.1*.weight"; /* as a whole name */
    EXPECT(!trained_has(&d, PARAM_Q_W, 1) && trained_has(&d, PARAM_Q_W, 0));
    d.freeze = "q_proj"; /* no part of a name */
    EXPECT(trained_has(&d, PARAM_Q_W, 1));
    d.training = false;
    EXPECT(!trained_has(&d, PARAM_Q_W, 1));
}

static void only_adapters_are_trained_where_there_are_any(void)
{
    struct dims d = {.arch = arch_of(llama_config), .L = 2, .training = true};

    d.arch.lora = (struct lora_choice){.r = 3, .alpha = 6, .targets = Q | DOWN};
    EXPECT(!trained_has(&d, PARAM_Q_W, 0) && trained_has(&d, PARAM_LORA_Q_A, 0));
    EXPECT(!trained_has(&d, PARAM_LORA_V_A, 0));
    EXPECT(trained_count(&d) == 2 * (3 * (16 + 16) + 3 * (24 + 16)));
    d.arch.lora.also = EMBED | LAST_NORM;
    EXPECT(trained_has(&d, PARAM_EMBED, 0) && trained_has(&d, PARAM_NORM_W, 0));
    EXPECT(!trained_has(&d, PARAM_HEAD, 0) && !trained_has(&d, PARAM_NORM1_W, 0));
    EXPECT(trained_lowest(&d) == -1);
    EXPECT(trained_count(&d) == 2 * (3 * (16 + 16) + 3 * (24 + 16)) + 50 * 16 + 16);
    d.arch.lora.also = 0;
    d.freeze = "*lora_A*, *.0.mlp.*";
    /* B of q in two layers, of down in one */
    EXPECT(trained_count(&d) == 3 * (16 + 16 + 16));
}

static void patterns_that_mean_nothing_are_refused(void)
{
    const struct arch a = arch_of(llama_config);

    expect_refused(&a, ",\"freeze\":\"model.embed_tokens, wte\"", "freeze", "pattern 2, \"wte\"");
    expect_refused(&a, ",\"freeze\":\",model\"", "freeze", "pattern 1");
    expect_refused(&a, ",\"freeze\":\"*\"", "freeze", "nothing to train");
}

/* A PEFT folder of rank 2 on q_proj and v_proj, with one thing about it changed. */
struct folder {
    const char *config; /* "key": value, that replaces what is there  */
    int missing;        /* number of a tensor that is left out; -1    */
    int wrong;          /* number of one that is a row too long; -1   */
    const char *extra;  /* name of one more; NULL                     */
};

static void write_weights(const char *dir, const struct folder *f)
{
    struct writer *w = NULL;
    struct err err = {0};

    CHECK(writer_new(&w, dir, "adapter_model", UINT64_MAX, &err) == 0, "%s", err.text);
    for (int i = 0; i < 8; i++) {
        const int64_t out = i / 2 % 2 == 0 ? 16 : 8;
        int64_t shape[2] = {i % 2 == 0 ? 2 : out, i % 2 == 0 ? 16 : 2};
        char name[PARAM_NAME];
        (void)snprintf(name, sizeof name,
                       "base_model.model.model.layers.%d.self_attn.%c_proj.lora_%c.weight", i / 4,
                       i / 2 % 2 == 0 ? 'q' : 'v', i % 2 == 0 ? 'A' : 'B');
        shape[0] += i == f->wrong;
        if (i != f->missing) {
            CHECK(writer_declare(w, name, ST_F32, 2, shape, &err) == 0, "%s", err.text);
        }
    }
    if (f->extra != NULL) {
        const int64_t shape[2] = {2, 16};
        CHECK(writer_declare(w, f->extra, ST_F32, 2, shape, &err) == 0, "%s", err.text);
    }
    CHECK(writer_start(w, &err) == 0, "%s", err.text);
    float values[64] = {0};
    while (writer_next(w) >= 0) {
        const size_t step = sizeof values[0] * 2;
        CHECK(writer_put_bytes(w, values, step, &err) == 0, "%s", err.text);
    }
    CHECK(writer_finish(w, &err) == 0, "%s", err.text);
    writer_free(w);
}

static void write_config(const char *dir, const char *change)
{
    char path[400], text[400];
    struct err err = {0};
    json_t *config =
        json_loads("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"bias\":\"none\","
                   "\"target_modules\":[\"q_proj\",\"v_proj\"]}",
                   0, NULL);

    (void)snprintf(text, sizeof text, "{%s}", change);
    json_t *changes = json_loads(text, 0, NULL);
    CHECK(config != NULL && changes != NULL, "%s", text);
    (void)json_object_update(config, changes);
    (void)snprintf(path, sizeof path, "%s/%s", dir, LORA_CONFIG);
    CHECK(json_write_file(path, config, &err) == 0, "%s", err.text);
    json_decref(config);
    json_decref(changes);
}

/* What reading such a folder says; "" when it is good. */
static const char *reading(struct folder f)
{
    static struct err err;
    struct arch a = arch_of(llama_config);
    struct safetensors *st = NULL;
    const char *dir = in_scratch("adapter");

    err = (struct err){0};
    CHECK(io_remove_tree(dir, &err) == 0 && io_make_dir(dir, &err) == 0, "%s", err.text);
    write_config(dir, f.config);
    write_weights(dir, &f);
    int rc = lora_read(&a.lora, &a, dir, &err);
    if (rc == 0) {
        rc = lora_open(&st, &a, dir, &err);
    }
    safetensors_close(rc == 0 ? st : NULL);
    EXPECT(rc == 0 || rc == ERR_NO_MODEL);
    return rc == 0 ? "" : err.text;
}

static void expect_reading(struct folder f, const char *text)
{
    const char *got = reading(f);

    EXPECT(text[0] == '\0' ? got[0] == '\0' : strstr(got, text) != NULL);
    if (text[0] == '\0' ? got[0] != '\0' : strstr(got, text) == NULL) {
        printf("# wanted \"%s\", got \"%s\"\n", text, got);
    }
}

static void config_says(const char *change, const char *text)
{
    expect_reading((struct folder){change, -1, -1, NULL}, text);
}

static void peft_folders_are_read(void)
{
    struct arch a = arch_of(llama_config);
    struct err err = {0};

    config_says("", "");
    CHECK(lora_read(&a.lora, &a, in_scratch("adapter"), &err) == 0, "%s", err.text);
    EXPECT(a.lora.r == 2 && a.lora.targets == (Q | V) && !a.lora.rslora);
    EXPECT_NEAR(a.lora.alpha, 4.0, 0.0);
    config_says("\"use_dora\":false,\"modules_to_save\":null,\"rank_pattern\":{},\"bias\":null",
                "");
    config_says("\"target_modules\":[\"self_attn.q_proj\",\"v_proj\",\"q_proj\"]", "");
    config_says("\"use_rslora\":true,\"lora_dropout\":0.1,\"init_lora_weights\":\"gaussian\"", "");
}

static void what_hone_does_not_do_is_refused(void)
{
    config_says("\"peft_type\":\"IA3\"", "peft_type must be LORA");
    config_says("\"peft_type\":null", "peft_type");
    config_says("\"r\":0", "r must be");
    config_says("\"r\":-3", "r must be");
    config_says("\"r\":1e9", "r must be");
    config_says("\"r\":\"2\"", "r must be");
    config_says("\"lora_alpha\":0", "lora_alpha");
    config_says("\"lora_alpha\":\"x\"", "lora_alpha");
    config_says("\"use_dora\":true", "use_dora is not supported");
    config_says("\"bias\":\"all\"", "only bias");
    config_says("\"bias\":true", "only bias");
    config_says("\"lora_bias\":true", "lora_bias is not supported");
    config_says("\"modules_to_save\":[\"q_proj\"]",
                "\"q_proj\" is no module that can be trained whole beside adapters in this model; "
                "there are: embed_tokens input_layernorm post_attention_layernorm norm lm_head");
    config_says("\"modules_to_save\":[\"\"]", "modules_to_save: \"\"");
    config_says("\"modules_to_save\":[1]", "only names");
    config_says("\"modules_to_save\":\"lm_head\"", "must be a list");
    config_says("\"rank_pattern\":{\"q_proj\":8}", "rank_pattern is not supported");
    config_says("\"layers_to_transform\":[0]", "layers_to_transform is not supported");
    config_says("\"init_lora_weights\":\"pissa_niter_4\"", "pissa changes the base model");
    config_says("\"target_modules\":[\"lm_head\"]", "\"lm_head\" is no linear layer");
    config_says("\"target_modules\":[\"q\\nproj\"]", "no linear layer");
    config_says("\"target_modules\":[]", "target_modules must be a list");
    config_says("\"target_modules\":\".*proj\"", "target_modules must be a list");
    config_says("\"target_modules\":[1]", "only names");
}

static void weights_must_be_what_the_config_says(void)
{
    expect_reading((struct folder){"", 2, -1, NULL},
                   "has no tensor base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight");
    expect_reading((struct folder){"", -1, 5, NULL}, "is not a matrix of 16 x 2 floats");
    expect_reading((struct folder){"", -1, -1, "base_model.model.lm_head.lora_A.weight"},
                   "lm_head.lora_A.weight, which is no adapter");
    config_says("\"modules_to_save\":[\"lm_head\"]",
                "has no tensor base_model.model.lm_head.weight");
    config_says("\"r\":3", "is not a matrix of 3 x 16 floats");
    config_says("\"target_modules\":[\"q_proj\"]", "v_proj.lora_");
    config_says("\"target_modules\":[\"q_proj\",\"v_proj\",\"o_proj\"]", "has no tensor");
    config_says("\"target_modules\":\"all-linear\"", "has no tensor");
}

static void a_folder_without_files_is_refused(void)
{
    struct arch a = arch_of(llama_config);
    struct safetensors *st = NULL;
    struct err err = {0};
    char base[IO_PATH_MAX], path[400];

    CHECK(io_remove_tree(in_scratch("adapter"), &err) == 0, "%s", err.text);
    CHECK(io_make_dir(in_scratch("adapter"), &err) == 0, "%s", err.text);
    EXPECT(lora_read(&a.lora, &a, in_scratch("adapter"), &err) == ERR_NO_MODEL);
    EXPECT(strstr(err.text, "no adapter_config.json") != NULL);
    EXPECT(!lora_is_adapter(in_scratch("adapter")));
    write_config(in_scratch("adapter"), "\"base_model_name_or_path\":\"nowhere/to\\u0007be\"");
    EXPECT(lora_is_adapter(in_scratch("adapter")));
    EXPECT(lora_open(&st, &a, in_scratch("adapter"), &err) == ERR_NO_MODEL);
    EXPECT(strstr(err.text, "no adapter_model.safetensors") != NULL);
    EXPECT(lora_base(base, in_scratch("adapter"), &err) == ERR_NO_MODEL);
    EXPECT(strstr(err.text, "\"nowhere/to?be\", is not a model folder") != NULL);
    (void)snprintf(path, sizeof path, "%s/%s", in_scratch("adapter"), LORA_CONFIG);
    CHECK(io_write_file(path, "{\"r\":", 5, &err) == 0, "%s", err.text);
    EXPECT(lora_read(&a.lora, &a, in_scratch("adapter"), &err) == ERR_NO_MODEL);
    CHECK(io_write_file(path, "[]", 2, &err) == 0, "%s", err.text);
    EXPECT(lora_read(&a.lora, &a, in_scratch("adapter"), &err) == ERR_NO_MODEL);
}

/* What is written is read as it was; names stay unmistakable. */
static void a_config_comes_back_as_it_was_written(void)
{
    static const unsigned sets[] = {OUT, DOWN, OUT | DOWN, 1 << LORA_QKV | DOWN};
    struct err err = {0};

    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct arch a = arch_of(gpt2_config);
        struct lora_choice back;
        char path[400];
        a.lora = (struct lora_choice){
            .r = 7, .alpha = 2.5, .dropout = 0.25, .rslora = i % 2 != 0, .targets = sets[i]};
        json_t *config = lora_config(&a, "/a/model");
        (void)snprintf(path, sizeof path, "%s/%s", in_scratch("adapter"), LORA_CONFIG);
        CHECK(config != NULL && json_write_file(path, config, &err) == 0, "%s", err.text);
        EXPECT(lora_read(&back, &a, in_scratch("adapter"), &err) == 0);
        EXPECT(back.r == 7 && back.targets == sets[i] && back.rslora == a.lora.rslora);
        EXPECT_NEAR(back.alpha, 2.5, 0.0);
        EXPECT_NEAR(back.dropout, 0.25, 0.0);
        EXPECT(json_is_true(json_object_get(config, "fan_in_fan_out")));
        json_decref(config);
    }
}

/* Names of modules mean the same when they come back, to PEFT too: it takes "norm" for all norms. */
static void modules_trained_whole_come_back_as_they_were_written(void)
{
    static const struct {
        unsigned also;
        const char *names;
    } sets[] = {{EMBED | HEAD, "[\"embed_tokens\",\"lm_head\"]"},
                {LAST_NORM, "[\"model.norm\"]"},
                {1 << PARAM_NORM1_W, "[\"input_layernorm\"]"},
                {NORMS, "[\"input_layernorm\",\"post_attention_layernorm\",\"norm\"]"},
                {0, "null"}};
    struct arch a = arch_of(llama_config);
    struct lora_choice back;
    struct err err = {0};
    char path[400];

    (void)snprintf(path, sizeof path, "%s/%s", in_scratch("adapter"), LORA_CONFIG);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        a.lora = (struct lora_choice){.r = 2, .alpha = 2, .targets = Q, .also = sets[i].also};
        json_t *config = lora_config(&a, "/a/model");
        CHECK(config != NULL && json_write_file(path, config, &err) == 0, "%s", err.text);
        char *names =
            json_dumps(json_object_get(config, "modules_to_save"), JSON_COMPACT | JSON_ENCODE_ANY);
        EXPECT(strcmp(names, sets[i].names) == 0);
        EXPECT(lora_read(&back, &a, in_scratch("adapter"), &err) == 0 && back.also == sets[i].also);
        free(names);
        json_decref(config);
    }
    a.tied = true;
    write_config(in_scratch("adapter"), "\"modules_to_save\":[\"embed_tokens\"]");
    EXPECT(lora_read(&back, &a, in_scratch("adapter"), &err) == ERR_NO_MODEL);
    EXPECT(strstr(err.text, "without lm_head") != NULL);
    write_config(in_scratch("adapter"),
                 "\"modules_to_save\":[\"embed_tokens\"],\"ensure_weight_tying\":true");
    EXPECT(lora_read(&back, &a, in_scratch("adapter"), &err) == 0 && back.also == EMBED);
}

static void init_row(real *out, enum param_id id, const struct arch *a, int layer, uint64_t seed,
                     int64_t row)
{
    param_init(out, id, a, layer, seed, (struct param_stretch){row, 0, param_get(id, a).cols});
}

/* A: uniform within 1 / sqrt(inputs), a function of seed, layer and place; B: 0. */
static void new_adapters_are_as_peft_makes_them(void)
{
    enum { WIDTH = 1024 };
    struct arch a = arch_of(llama_config);
    static real row[WIDTH], again[WIDTH];
    double sum = 0.0, squares = 0.0, most = 0.0;

    a.D = WIDTH;
    a.lora = (struct lora_choice){.r = 4, .alpha = 4, .targets = Q};
    for (int64_t r = 0; r < 4; r++) {
        init_row(row, PARAM_LORA_Q_A, &a, 1, 5, r);
        for (int i = 0; i < WIDTH; i++) {
            const double x = (double)row[i] * sqrt((double)WIDTH);
            sum += x;
            squares += x * x;
            most = fmax(most, fabs(x));
        }
    }
    EXPECT(most <= 1.0 && most > 0.99);
    EXPECT_NEAR(sum / (4 * WIDTH), 0.0, 0.05);
    EXPECT_NEAR(squares / (4 * WIDTH), 1.0 / 3.0, 0.02);
    init_row(again, PARAM_LORA_Q_A, &a, 0, 5, 3);
    EXPECT(memcmp(row, again, sizeof row) != 0);
    init_row(again, PARAM_LORA_Q_A, &a, 1, 6, 3);
    EXPECT(memcmp(row, again, sizeof row) != 0);
    init_row(again, PARAM_LORA_Q_A, &a, 1, 5, 3);
    EXPECT(memcmp(row, again, sizeof row) == 0);
    init_row(row, PARAM_LORA_Q_B, &a, 1, 5, 3);
    EXPECT(row[0] <= 0 && row[0] >= 0 && row[3] <= 0 && row[3] >= 0);
}

int main(void)
{
    scratch_make();
    RUN(layers_are_chosen_by_name);
    RUN(modules_trained_whole_are_chosen_by_name);
    RUN(alpha_is_twice_the_rank_unless_given);
    RUN(fields_of_adapters_go_together);
    RUN(frozen_parts_are_chosen_by_name);
    RUN(only_adapters_are_trained_where_there_are_any);
    RUN(patterns_that_mean_nothing_are_refused);
    RUN(peft_folders_are_read);
    RUN(what_hone_does_not_do_is_refused);
    RUN(weights_must_be_what_the_config_says);
    RUN(a_folder_without_files_is_refused);
    RUN(a_config_comes_back_as_it_was_written);
    RUN(modules_trained_whole_come_back_as_they_were_written);
    RUN(new_adapters_are_as_peft_makes_them);
    scratch_remove();
    return tap_done();
}
