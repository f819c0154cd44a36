/* test_arch.c - config.json of real models: sizes, defaults, refusals. Parameter counts are those that the model
 * cards and files have. */
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/arch.h"
#include "trainer/base/json.h"
#include "trainer/params.h"

static int read_text(struct arch *out, const char *text, struct err *err)
{
    json_t *config = NULL;

    CHECK(json_parse_text(&config, text, strlen(text), "test", err) == 0, "%s", err->text);
    const int rc = arch_read(out, config, 0, err);
    json_decref(config);
    return rc;
}

static struct arch read_good(const char *text)
{
    struct arch a = {0};
    struct err err = {0};

    EXPECT(read_text(&a, text, &err) == 0);
    if (err.code != 0) {
        printf("# %s\n", err.text);
    }
    return a;
}

#define LLAMA_31_8B                                                                                \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":128000,"  \
    "\"eos_token_id\":[128001,128008,128009],\"hidden_act\":\"silu\",\"hidden_size\":4096,"        \
    "\"intermediate_size\":14336,\"max_position_embeddings\":131072,\"mlp_bias\":false,"           \
    "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"                \
    "\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,"                       \
    "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"           \
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0," \
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"vocab_size\":128256}"
#define QWEN25_05B                                                                               \
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"bos_token_id\":151643,\"eos_token_id\":151643," \
    "\"hidden_act\":\"silu\",\"hidden_size\":896,\"intermediate_size\":4864,"                    \
    "\"max_position_embeddings\":32768,\"max_window_layers\":24,\"model_type\":\"qwen2\","       \
    "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,"             \
    "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"sliding_window\":32768,"                  \
    "\"tie_word_embeddings\":true,\"use_sliding_window\":false,\"vocab_size\":151936}"
#define MISTRAL_7B                                                                             \
    "{\"architectures\":[\"MistralForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,"       \
    "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,"                \
    "\"max_position_embeddings\":32768,\"model_type\":\"mistral\",\"num_attention_heads\":32," \
    "\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"               \
    "\"rope_theta\":10000.0,\"sliding_window\":4096,\"tie_word_embeddings\":false,"            \
    "\"vocab_size\":32000}"

#define MIXTRAL_8X7B                                                                            \
    "{\"architectures\":[\"MixtralForCausalLM\"],\"hidden_act\":\"silu\",\"hidden_size\":4096," \
    "\"intermediate_size\":14336,\"max_position_embeddings\":32768,\"model_type\":\"mixtral\"," \
    "\"num_attention_heads\":32,\"num_experts_per_tok\":2,\"num_hidden_layers\":32,"            \
    "\"num_key_value_heads\":8,\"num_local_experts\":8,\"output_router_logits\":false,"         \
    "\"rms_norm_eps\":1e-05,\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.02,"            \
    "\"sliding_window\":null,\"tie_word_embeddings\":false,\"vocab_size\":32000}"
#define QWEN15_MOE                                                                               \
    "{\"architectures\":[\"Qwen2MoeForCausalLM\"],\"decoder_sparse_step\":1,\"hidden_act\":"     \
    "\"silu\",\"hidden_size\":2048,\"intermediate_size\":5632,\"max_position_embeddings\":8192," \
    "\"max_window_layers\":21,\"model_type\":\"qwen2_moe\",\"moe_intermediate_size\":1408,"      \
    "\"norm_topk_prob\":false,\"num_attention_heads\":16,\"num_experts\":60,"                    \
    "\"num_experts_per_tok\":4,\"num_hidden_layers\":24,\"num_key_value_heads\":16,"             \
    "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.001,"            \
    "\"shared_expert_intermediate_size\":5632,\"sliding_window\":32768,"                         \
    "\"tie_word_embeddings\":false,\"use_sliding_window\":false,\"vocab_size\":151936}"

static void count_parameters_of_real_models(void)
{
    static const struct {
        const char *name, *config;
        int64_t count;
    } models[] = {
        {"gpt2", "{\"model_type\":\"gpt2\",\"n_inner\":null}", 124439808},
        {"gpt2-xl", "{\"model_type\":\"gpt2\",\"n_embd\":1600,\"n_head\":25,\"n_layer\":48}",
         1557611200},
        {"Llama-2-7b", "{\"model_type\":\"llama\"}", 6738415616},
        {"Llama-3.1-8B", LLAMA_31_8B, 8030261248},
        {"Llama-3.2-1B",
         "{\"model_type\":\"llama\",\"head_dim\":64,\"hidden_size\":2048,\"intermediate_size\":"
         "8192,"
         "\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,"
         "\"tie_word_embeddings\":true,\"vocab_size\":128256}",
         1235814400},
        {"TinyLlama",
         "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":5632,"
         "\"num_hidden_layers\":22,\"num_attention_heads\":32,\"num_key_value_heads\":4}",
         1100048384},
        {"Qwen2.5-0.5B", QWEN25_05B, 494032768},
        {"Qwen2-7B",
         "{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"intermediate_size\":18944,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
         "\"vocab_size\":152064}",
         7615616512},
        {"Mistral-7B-v0.1", MISTRAL_7B, 7241732096},
        {"Mixtral-8x7B-v0.1", MIXTRAL_8X7B, 46702792704},
        {"Qwen1.5-MoE-A2.7B", QWEN15_MOE, 14315784192},
    };

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const struct arch a = read_good(models[i].config);
        EXPECT(params_count(&a) == models[i].count);
        if (params_count(&a) != models[i].count) {
            printf("# %s: %lld\n", models[i].name, (long long)params_count(&a));
        }
    }
}

static void reads_experts(void)
{
    const struct arch a = read_good(MIXTRAL_8X7B), b = read_good(QWEN15_MOE);
    const struct arch c =
        read_good("{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":6,\"decoder_sparse_step\":2,"
                  "\"mlp_only_layers\":[3],\"norm_topk_prob\":true}");
    char name[PARAM_NAME];

    EXPECT(a.moe.E == 8 && a.moe.k == 2 && a.moe.X == 14336 && a.moe.Y == 0);
    EXPECT(a.moe.renormalise && !b.moe.renormalise && a.window == 0);
    EXPECT_NEAR(a.moe.aux_coef, 0.02, 0.0);
    EXPECT(params_active(&a) == 12879925248);
    EXPECT(b.moe.E == 60 && b.moe.k == 4 && b.moe.X == 1408 && b.moe.Y == 5632 && b.qkv_bias);
    EXPECT(params_active(&b) == 2689173504);
    EXPECT(arch_sparse_layers(&c) == 2 && arch_is_sparse(&c, 1) && arch_is_sparse(&c, 5));
    EXPECT(!arch_is_sparse(&c, 0) && !arch_is_sparse(&c, 3) && c.moe.renormalise);

    struct param p = param_get(PARAM_EXPERT_UP_W, &a);
    param_name(name, &p, param_place(&a, 31, 7));
    EXPECT(strcmp(name, "model.layers.31.block_sparse_moe.experts.7.w3.weight") == 0);
    p = param_get(PARAM_EXPERT_DOWN_W, &b);
    param_name(name, &p, param_place(&b, 3, 59));
    EXPECT(strcmp(name, "model.layers.3.mlp.experts.59.down_proj.weight") == 0);
    EXPECT(!param_is_at(PARAM_GATE_W, &c, 1) && param_is_at(PARAM_GATE_W, &c, 3));
    EXPECT(param_is_at(PARAM_EXPERT_UP_W, &c, param_place(&c, 5, 59)));
    EXPECT(!param_is_at(PARAM_EXPERT_UP_W, &c, param_place(&c, 3, 1)));
}

static void reads_llama_3_1(void)
{
    const struct arch a = read_good(LLAMA_31_8B);

    EXPECT(a.family == FAMILY_LLAMA && a.K == 128 && a.H == 32 && a.G == 8);
    EXPECT(a.rope.kind == ROPE_LLAMA3 && a.rope.original_positions == 8192);
    EXPECT_NEAR(a.rope.theta, 500000.0, 0.0);
    EXPECT_NEAR(a.rope.factor, 8.0, 0.0);
    EXPECT(a.bos == 128000 && a.eos == 128001);
    EXPECT(!a.tied && !a.qkv_bias && !a.out_bias && !a.mlp_bias);
}

static void a_window_is_used_where_transformers_uses_it(void)
{
    EXPECT(read_good(MISTRAL_7B).window == 4096);
    EXPECT(read_good("{\"model_type\":\"mistral\"}").window == 4096);
    EXPECT(read_good("{\"model_type\":\"mistral\",\"sliding_window\":null}").window == 0);
    EXPECT(read_good(QWEN25_05B).window == 0);
    const struct arch a = read_good("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                                    "\"sliding_window\":128,\"max_window_layers\":5}");
    EXPECT(a.window == 128 && a.window_layer0 == 5);
    const struct arch b = read_good("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                                    "\"num_hidden_layers\":3,\"layer_types\":[\"full_attention\","
                                    "\"sliding_attention\",\"sliding_attention\"]}");
    EXPECT(b.window == 4096 && b.window_layer0 == 1);
}

static void reads_other_spellings(void)
{
    const struct arch newer =
        read_good("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":5e5,"
                  "\"rope_type\":\"linear\",\"factor\":4}}");
    EXPECT(newer.rope.kind == ROPE_LINEAR);
    EXPECT_NEAR(newer.rope.theta, 5e5, 0.0);
    EXPECT_NEAR(newer.rope.factor, 4.0, 0.0);
    const struct arch older = read_good(
        "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}");
    EXPECT(older.rope.kind == ROPE_LINEAR);
    EXPECT(read_good("{\"architectures\":[\"GPT2LMHeadModel\"]}").family == FAMILY_GPT2);
    EXPECT(read_good("{\"model_type\":\"gpt2\",\"activation_function\":\"gelu\"}").act ==
           ACT_GELU_ERF);
    EXPECT(read_good("{\"model_type\":\"llama\",\"attention_bias\":true}").out_bias);
    EXPECT(read_good("{\"model_type\":\"qwen2\"}").qkv_bias);
    EXPECT(!read_good("{\"model_type\":\"qwen2\"}").out_bias);
}

static void refuses_with_a_sentence(void)
{
    static const struct {
        const char *config, *says;
    } bad[] = {
        {"{}", "neither model_type nor architectures"},
        {"{\"model_type\":\"bert\"}", "bert is not supported"},
        {"{\"model_type\":\"llama\",\"hidden_size\":\"big\"}", "hidden_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":-4}", "hidden_size"},
        {"{\"model_type\":\"llama\",\"hidden_size\":1e99}", "hidden_size"},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":0}", "num_hidden_layers"},
        {"{\"model_type\":\"llama\",\"hidden_size\":100,\"num_attention_heads\":3}",
         "does not divide hidden_size"},
        {"{\"model_type\":\"llama\",\"num_key_value_heads\":5}", "does not divide"},
        {"{\"model_type\":\"llama\",\"head_dim\":7}", "must be even"},
        {"{\"model_type\":\"gpt2\",\"n_head\":5}", "does not divide n_embd"},
        {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act gelu"},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"mish\"}", "mish"},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", "yarn"},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}}", "no factor"},
        {"{\"model_type\":\"llama\",\"rope_scaling\":{\"factor\":2}}", "no rope_type"},
        {"{\"model_type\":\"llama\",\"rope_scaling\":7}", "rope_scaling must be"},
        {"{\"model_type\":\"llama\",\"quantization_config\":{\"bits\":4}}", "quantization_config"},
        {"{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
         "scale_attn_by_inverse_layer_idx"},
        {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"layer_types\":"
         "[\"sliding_attention\",\"full_attention\"]}",
         "layer_types"},
        {"{\"model_type\":\"llama\",\"tie_word_embeddings\":\"yes\"}", "tie_word_embeddings"},
        {"{\"model_type\":\"llama\",\"num_experts\":4}", "num_experts is not supported"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":2,\"num_experts_per_tok\":3}",
         "num_experts_per_tok 3 exceeds num_local_experts 2"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":0}", "num_local_experts"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":1025}", "num_local_experts"},
        {"{\"model_type\":\"mixtral\",\"router_aux_loss_coef\":-1}", "router_aux_loss_coef"},
        {"{\"model_type\":\"qwen2_moe\",\"moe_intermediate_size\":1.5}", "moe_intermediate_size"},
        {"{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":[24]}", "from 0 to 23"},
        {"{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":[\"x\"]}", "mlp_only_layers"},
        {"{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":{}}", "mlp_only_layers"},
        {"{\"model_type\":\"qwen2_moe\",\"decoder_sparse_step\":25}", "no layer with experts"},
        {"{\"model_type\":\"qwen2_moe\",\"norm_topk_prob\":1}", "norm_topk_prob"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct arch a;
        struct err err = {0};
        EXPECT(read_text(&a, bad[i].config, &err) == ERR_NO_MODEL);
        EXPECT(strstr(err.text, bad[i].says) != NULL);
        if (strstr(err.text, bad[i].says) == NULL) {
            printf("# %s says: %s\n", bad[i].config, err.text);
        }
    }
}

static void a_saved_config_reads_back_the_same(void)
{
    static const char *const texts[] = {
        LLAMA_31_8B,
        QWEN25_05B,
        MISTRAL_7B,
        MIXTRAL_8X7B,
        QWEN15_MOE,
        "{\"model_type\":\"gpt2\"}",
        ("{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,"
         "\"head_dim\":32,\"my_own_key\":[1,2]}")};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct arch a = read_good(texts[i]);
        json_t *given = json_loads(texts[i], 0, NULL);
        for (int known = 0; known < 2; known++) { /* Mistral's window needs the original */
            json_t *saved = arch_config(&a, known != 0 ? given : NULL, DTYPE_BF16);
            struct arch b = {0};
            struct err err = {0};
            EXPECT(saved != NULL && arch_read(&b, saved, 0, &err) == 0);
            EXPECT(known == 0 || memcmp(&a, &b, sizeof a) == 0);
            EXPECT(memcmp(&a.moe, &b.moe, sizeof a.moe) == 0);
            EXPECT(a.D == b.D && a.V == b.V && a.G == b.G && a.tied == b.tied && a.F == b.F);
            EXPECT(strcmp(json_string_value(json_object_get(saved, "torch_dtype")), "bfloat16") ==
                   0);
            EXPECT(known == 0 || json_object_get(given, "my_own_key") == NULL ||
                   json_object_get(saved, "my_own_key") != NULL);
            json_decref(saved);
        }
        json_decref(given);
    }
}

static void fused_and_transposed_parts_cover_the_file_tensor_once(void)
{
    const struct arch a = read_good("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4}");
    const struct param q = param_get(PARAM_Q_W, &a), k = param_get(PARAM_K_W, &a);
    const struct param v = param_get(PARAM_V_W, &a), out = param_get(PARAM_OUT_W, &a);
    char name[PARAM_NAME];

    EXPECT(q.first == 0 && k.first == 64 && v.first == 128 && q.outputs == 192 && q.transposed);
    EXPECT(out.transposed && out.outputs == 64);
    EXPECT(!param_get(PARAM_EMBED, &a).transposed && !param_get(PARAM_Q_B, &a).transposed);
    param_name(name, &k, 3);
    EXPECT(strcmp(name, "transformer.h.3.attn.c_attn.weight") == 0);
}

int main(void)
{
    RUN(count_parameters_of_real_models);
    RUN(reads_experts);
    RUN(reads_llama_3_1);
    RUN(a_window_is_used_where_transformers_uses_it);
    RUN(reads_other_spellings);
    RUN(refuses_with_a_sentence);
    RUN(a_saved_config_reads_back_the_same);
    RUN(fused_and_transposed_parts_cover_the_file_tensor_once);
    return tap_done();
}
