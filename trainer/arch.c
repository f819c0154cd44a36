/* arch.c - families of models and their config.json. */
#include "trainer/arch.h"

#include <math.h>
#include <string.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"

/* What a family is, and the defaults of its config class in Hugging Face transformers. Sizes that are 0
 * follow from others: kv heads = heads, head size = width / heads, MLP width of GPT-2 = 4 width. */
struct family_row {
    const char *type, *architecture;
    bool gpt2_names; /* n_embd, n_layer, ... instead of hidden_size, ... */
    int64_t D, F, L, H, G, V, positions;
    double eps;
    bool tied, qkv_bias, bias_choice; /* bias_choice: attention_bias, mlp_bias are read */
    int64_t window;
    struct moe_choice moe;
    const char *experts; /* the field that counts them; NULL: a family without */
};

static const struct family_row families[FAMILY_COUNT] = {
    [FAMILY_GPT2] = {.type = "gpt2",
                     .architecture = "GPT2LMHeadModel",
                     .gpt2_names = true,
                     .D = 768,
                     .L = 12,
                     .H = 12,
                     .V = 50257,
                     .positions = 1024,
                     .eps = 1e-5,
                     .tied = true,
                     .qkv_bias = true},
    [FAMILY_LLAMA] = {.type = "llama",
                      .architecture = "LlamaForCausalLM",
                      .D = 4096,
                      .F = 11008,
                      .L = 32,
                      .H = 32,
                      .V = 32000,
                      .positions = 2048,
                      .eps = 1e-6,
                      .bias_choice = true},
    [FAMILY_QWEN2] = {.type = "qwen2",
                      .architecture = "Qwen2ForCausalLM",
                      .D = 4096,
                      .F = 22016,
                      .L = 32,
                      .H = 32,
                      .G = 32,
                      .V = 151936,
                      .positions = 32768,
                      .eps = 1e-6,
                      .qkv_bias = true,
                      .window = 4096},
    [FAMILY_MISTRAL] = {.type = "mistral",
                        .architecture = "MistralForCausalLM",
                        .D = 4096,
                        .F = 14336,
                        .L = 32,
                        .H = 32,
                        .G = 8,
                        .V = 32000,
                        .positions = 131072,
                        .eps = 1e-6,
                        .window = 4096},
    [FAMILY_MIXTRAL] = {.type = "mixtral",
                        .architecture = "MixtralForCausalLM",
                        .D = 4096,
                        .F = 14336,
                        .L = 32,
                        .H = 32,
                        .G = 8,
                        .V = 32000,
                        .positions = 131072,
                        .eps = 1e-5,
                        .window = 4096,
                        .moe = {.E = 8, .k = 2, .renormalise = true, .aux_coef = 0.001, .step = 1},
                        .experts = "num_local_experts"},
    [FAMILY_QWEN2_MOE] =
        {.type = "qwen2_moe",
         .architecture = "Qwen2MoeForCausalLM",
         .D = 2048,
         .F = 5632,
         .L = 24,
         .H = 16,
         .G = 16,
         .V = 151936,
         .positions = 32768,
         .eps = 1e-6,
         .qkv_bias = true,
         .window = 4096,
         .moe = {.E = 60, .k = 4, .X = 1408, .Y = 5632, .aux_coef = 0.001, .step = 1},
         .experts = "num_experts"},
};

static const double NUMBER_MAX = 1e30;

enum { CONFIG_BYTES = 1 << 20 };
enum { EXPERTS_MAX = 1024 };
enum { WIDTH_MAX = 1 << 20, LAYERS_MAX = 10000, VOCABULARY_MAX = 1 << 24, POSITIONS_MAX = 1 << 30 };

const char *family_name(enum family f)
{
    return families[f].type;
}

int arch_read_config(json_t **config, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, dir, "config.json", err));
    const int rc = json_parse_file(config, path, CONFIG_BYTES, err);
    if (rc == ERR_NOT_FOUND) {
        return FAIL(err, ERR_NO_MODEL, "the model folder has no config.json");
    }
    if (rc == ERR_BAD_FILE) {
        err->code = ERR_NO_MODEL;
        return ERR_NO_MODEL;
    }
    return rc;
}

static struct fields fields_of(const json_t *config)
{
    return (struct fields){config, "config.json", ERR_NO_MODEL};
}

/* A size; missing or null gives `preset`. */
static int read_size(const json_t *config, const char *field, int64_t preset, int64_t high,
                     int64_t *out, struct err *err)
{
    const struct fields f = fields_of(config);

    *out = preset;
    return fields_integer(&f, field, FIELD_OPTIONAL, 1, high, out, err);
}

/* A number of at least `low`; missing or null gives `preset`. */
static int read_number(const json_t *config, const char *field, double preset, double low,
                       double *out, struct err *err)
{
    const struct fields f = fields_of(config);

    *out = preset;
    return fields_number(&f, field, FIELD_OPTIONAL, low, NUMBER_MAX, out, err);
}

static int read_bool(const json_t *config, const char *field, bool preset, bool *out,
                     struct err *err)
{
    const struct fields f = fields_of(config);

    *out = preset;
    return fields_bool(&f, field, FIELD_OPTIONAL, out, err);
}

/* A token id; some configs hold a list of end tokens, of which the first is used. */
static int64_t read_token(const json_t *config, const char *field)
{
    const json_t *v = json_object_get(config, field);

    if (json_is_array(v)) {
        v = json_array_get(v, 0);
    }
    return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

static int find_family(const json_t *config, enum family *out, struct err *err)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *first =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));

    if (type == NULL && first == NULL) {
        return FAIL(err, ERR_NO_MODEL, "config.json has neither model_type nor architectures");
    }
    for (int i = 0; i < FAMILY_COUNT; i++) {
        if (type != NULL ? strcmp(type, families[i].type) == 0
                         : strcmp(first, families[i].architecture) == 0) {
            *out = (enum family)i;
            return 0;
        }
    }
    return FAIL(err, ERR_NO_MODEL,
                "config.json: model_type %.60s is not supported; supported are gpt2, llama, "
                "qwen2, mistral, mixtral and qwen2_moe",
                type != NULL ? type : first);
}

static int read_activation(const json_t *config, const char *field, bool gated,
                           enum activation *out, struct err *err)
{
    static const struct {
        const char *name;
        enum activation act;
    } known[] = {{"gelu_new", ACT_GELU_TANH},  {"gelu_pytorch_tanh", ACT_GELU_TANH},
                 {"gelu_fast", ACT_GELU_TANH}, {"gelu", ACT_GELU_ERF},
                 {"relu", ACT_RELU},           {"silu", ACT_SILU},
                 {"swish", ACT_SILU}};
    const json_t *v = json_object_get(config, field);
    const char *name = json_is_string(v) ? json_string_value(v) : gated ? "silu" : "gelu_new";

    if (v != NULL && !json_is_null(v) && !json_is_string(v)) {
        return FAIL(err, ERR_NO_MODEL, "config.json: %s must be a string", field);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0 && (!gated || known[i].act == ACT_SILU)) {
            *out = known[i].act;
            return 0;
        }
    }
    return FAIL(err, ERR_NO_MODEL, "config.json: %s %.60s is not supported for this model_type",
                field, name);
}

/* Fields whose presence changes the computation in a way that Hone does not do. */
static int refuse_unsupported(const json_t *config, const char *experts, struct err *err)
{
    static const char *const must_be_off[] = {
        "quantization_config", "add_cross_attention", "scale_attn_by_inverse_layer_idx",
        "num_local_experts",   "num_experts",         "residual_multiplier",
    };
    double partial = 1.0;

    for (size_t i = 0; i < sizeof must_be_off / sizeof must_be_off[0]; i++) {
        const json_t *v = json_object_get(config, must_be_off[i]);
        const bool is_read = experts != NULL && strcmp(must_be_off[i], experts) == 0;
        if (!is_read && v != NULL && !json_is_null(v) && !json_is_false(v)) {
            return FAIL(err, ERR_NO_MODEL, "config.json: %s is not supported", must_be_off[i]);
        }
    }
    TRY(read_number(config, "partial_rotary_factor", 1.0, 0.0, &partial, err));
    if (partial < 1.0 || partial > 1.0) {
        return FAIL(err, ERR_NO_MODEL, "config.json: partial_rotary_factor %g is not supported",
                    partial);
    }
    return 0;
}

/* The stretching of rotary frequencies: rope_scaling, or rope_parameters of newer configs. */
static int read_rope_scaling(struct rope_choice *r, const json_t *scaling, int64_t positions,
                             struct err *err)
{
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));

    if (type == NULL) {
        type = json_string_value(json_object_get(scaling, "type"));
    }
    if (type == NULL || strcmp(type, "default") == 0) {
        if (type == NULL && json_object_get(scaling, "factor") != NULL) {
            return FAIL(err, ERR_NO_MODEL, "config.json: rope_scaling has no rope_type");
        }
        return 0;
    }
    if (json_object_get(scaling, "factor") == NULL) {
        return FAIL(err, ERR_NO_MODEL, "config.json: rope_scaling has no factor");
    }
    TRY(read_number(scaling, "factor", 1.0, 1.0, &r->factor, err));
    if (strcmp(type, "linear") == 0) {
        r->kind = ROPE_LINEAR;
        return 0;
    }
    if (strcmp(type, "llama3") != 0) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: rope_scaling of type %.40s is not supported; supported are "
                    "default, linear and llama3",
                    type);
    }
    r->kind = ROPE_LLAMA3;
    TRY(read_number(scaling, "low_freq_factor", 1.0, 1e-6, &r->low_freq_factor, err));
    TRY(read_number(scaling, "high_freq_factor", 4.0, 1e-6, &r->high_freq_factor, err));
    TRY(read_size(scaling, "original_max_position_embeddings", positions, POSITIONS_MAX,
                  &r->original_positions, err));
    if (!(r->high_freq_factor > r->low_freq_factor)) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: rope_scaling: high_freq_factor %g must exceed low_freq_factor %g",
                    r->high_freq_factor, r->low_freq_factor);
    }
    return 0;
}

static int read_rope(struct arch *a, const json_t *config, struct err *err)
{
    const json_t *parameters = json_object_get(config, "rope_parameters");
    const json_t *scaling = json_object_get(config, "rope_scaling");
    const bool newer = json_is_object(parameters);

    a->rope.kind = ROPE_DEFAULT;
    TRY(read_number(newer && json_object_get(parameters, "rope_theta") != NULL ? parameters
                                                                               : config,
                    "rope_theta", 10000.0, 1.0, &a->rope.theta, err));
    if (newer) {
        return read_rope_scaling(&a->rope, parameters, a->positions, err);
    }
    if (scaling == NULL || json_is_null(scaling)) {
        return 0;
    }
    if (!json_is_object(scaling)) {
        return FAIL(err, ERR_NO_MODEL, "config.json: rope_scaling must be an object or null");
    }
    return read_rope_scaling(&a->rope, scaling, a->positions, err);
}

/* Which layers see a window: all of Mistral's, and Mixtral's, when sliding_window is a number; Qwen2's from
 * max_window_layers on when use_sliding_window; or as layer_types lists them. */
static int read_window(struct arch *a, const json_t *config, int64_t preset, struct err *err)
{
    const json_t *types = json_object_get(config, "layer_types");
    const json_t *window = json_object_get(config, "sliding_window");
    bool used =
        a->family == FAMILY_MISTRAL || (a->family == FAMILY_MIXTRAL && json_is_integer(window));

    a->window = 0;
    if (preset == 0 || (window != NULL && json_is_null(window))) {
        return 0;
    }
    if (a->family == FAMILY_QWEN2 || a->family == FAMILY_QWEN2_MOE) {
        TRY(read_bool(config, "use_sliding_window", false, &used, err));
        TRY(read_size(config, "max_window_layers", 28, LAYERS_MAX, &a->window_layer0, err));
    }
    if (!used) {
        return 0;
    }
    TRY(read_size(config, "sliding_window", preset, POSITIONS_MAX, &a->window, err));
    if (json_is_array(types)) {
        int64_t full = 0;
        const int64_t n = (int64_t)json_array_size(types);
        for (int64_t l = 0; l < n; l++) {
            const char *t = json_string_value(json_array_get(types, (size_t)l));
            const bool slides = t != NULL && strcmp(t, "sliding_attention") == 0;
            if (!slides && full != l) {
                return FAIL(err, ERR_NO_MODEL,
                            "config.json: layer_types mixes full and sliding attention in an order "
                            "that is not supported");
            }
            full += slides ? 0 : 1;
        }
        a->window_layer0 = full;
    }
    return 0;
}

static int read_llama_like(struct arch *a, const json_t *config, const struct family_row *row,
                           struct err *err)
{
    TRY(read_size(config, "hidden_size", row->D, WIDTH_MAX, &a->D, err));
    TRY(read_size(config, "intermediate_size", row->F, WIDTH_MAX, &a->F, err));
    TRY(read_size(config, "num_hidden_layers", row->L, LAYERS_MAX, &a->L, err));
    TRY(read_size(config, "num_attention_heads", row->H, WIDTH_MAX, &a->H, err));
    TRY(read_size(config, "num_key_value_heads", row->G == 0 ? a->H : row->G, WIDTH_MAX, &a->G,
                  err));
    TRY(read_size(config, "head_dim", a->D / a->H, WIDTH_MAX, &a->K, err));
    if (!json_is_integer(json_object_get(config, "head_dim")) && a->D % a->H != 0) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: num_attention_heads %lld does not divide hidden_size %lld",
                    (long long)a->H, (long long)a->D);
    }
    TRY(read_size(config, "max_position_embeddings", row->positions, POSITIONS_MAX, &a->positions,
                  err));
    TRY(read_number(config, "rms_norm_eps", row->eps, 0.0, &a->norm_eps, err));
    TRY(read_activation(config, "hidden_act", true, &a->act, err));
    if (row->bias_choice) {
        TRY(read_bool(config, "attention_bias", false, &a->qkv_bias, err));
        TRY(read_bool(config, "mlp_bias", false, &a->mlp_bias, err));
        a->out_bias = a->qkv_bias;
    }
    a->norm = NORM_RMS;
    a->gated = true;
    a->attention_scale = 1.0 / sqrt((double)a->K);
    if (a->K % 2 != 0) {
        return FAIL(err, ERR_NO_MODEL, "config.json: head_dim %lld must be even", (long long)a->K);
    }
    TRY(read_rope(a, config, err));
    return read_window(a, config, row->window, err);
}

bool arch_is_sparse(const struct arch *a, int64_t layer)
{
    if (a->moe.E == 0 || (layer + 1) % a->moe.step != 0) {
        return false;
    }
    for (int i = 0; i < a->moe.dense_count; i++) {
        if (a->moe.dense[i] == layer) {
            return false;
        }
    }
    return true;
}

int64_t arch_sparse_layers(const struct arch *a)
{
    int64_t n = 0;

    for (int64_t l = 0; l < a->L && a->moe.E > 0; l++) {
        n += arch_is_sparse(a, l);
    }
    return n;
}

static int read_dense_layers(struct arch *a, const json_t *config, struct err *err)
{
    const json_t *list = json_object_get(config, "mlp_only_layers");
    const size_t n = json_array_size(list);

    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list) || n > DENSE_LISTED) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: mlp_only_layers must be a list of at most %d layers",
                    (int)DENSE_LISTED);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= a->L) {
            return FAIL(err, ERR_NO_MODEL,
                        "config.json: mlp_only_layers must be numbers of layers, from 0 to %lld",
                        (long long)a->L - 1);
        }
        a->moe.dense[a->moe.dense_count++] = (int16_t)json_integer_value(v);
    }
    return 0;
}

/* The fields of experts, of which Mixtral has few. */
static int read_experts(struct arch *a, const json_t *config, const struct family_row *row,
                        struct err *err)
{
    struct moe_choice *m = &a->moe;

    *m = row->moe;
    TRY(read_size(config, row->experts, row->moe.E, EXPERTS_MAX, &m->E, err));
    TRY(read_size(config, "num_experts_per_tok", row->moe.k, EXPERTS_MAX, &m->k, err));
    TRY(read_number(config, "router_aux_loss_coef", row->moe.aux_coef, 0.0, &m->aux_coef, err));
    m->X = a->F;
    if (a->family != FAMILY_MIXTRAL) {
        TRY(read_size(config, "moe_intermediate_size", row->moe.X, WIDTH_MAX, &m->X, err));
        TRY(read_size(config, "decoder_sparse_step", 1, LAYERS_MAX, &m->step, err));
        TRY(read_bool(config, "norm_topk_prob", row->moe.renormalise, &m->renormalise, err));
        TRY(read_dense_layers(a, config, err));
    }
    if (row->moe.Y > 0) {
        TRY(read_size(config, "shared_expert_intermediate_size", row->moe.Y, WIDTH_MAX, &m->Y,
                      err));
    }
    if (m->k > m->E) {
        return FAIL(err, ERR_NO_MODEL, "config.json: num_experts_per_tok %lld exceeds %s %lld",
                    (long long)m->k, row->experts, (long long)m->E);
    }
    if (arch_sparse_layers(a) == 0) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: decoder_sparse_step and mlp_only_layers leave no layer with "
                    "experts");
    }
    return 0;
}

static int read_gpt2(struct arch *a, const json_t *config, const struct family_row *row,
                     struct err *err)
{
    bool scaled = true;

    TRY(read_size(config, "n_embd", row->D, WIDTH_MAX, &a->D, err));
    TRY(read_size(config, "n_inner", 4 * a->D, WIDTH_MAX, &a->F, err));
    TRY(read_size(config, "n_layer", row->L, LAYERS_MAX, &a->L, err));
    TRY(read_size(config, "n_head", row->H, WIDTH_MAX, &a->H, err));
    TRY(read_size(config, "n_positions", row->positions, POSITIONS_MAX, &a->positions, err));
    TRY(read_number(config, "layer_norm_epsilon", row->eps, 0.0, &a->norm_eps, err));
    TRY(read_activation(config, "activation_function", false, &a->act, err));
    TRY(read_bool(config, "scale_attn_weights", true, &scaled, err));
    if (a->D % a->H != 0) {
        return FAIL(err, ERR_NO_MODEL, "config.json: n_head %lld does not divide n_embd %lld",
                    (long long)a->H, (long long)a->D);
    }
    a->G = a->H;
    a->K = a->D / a->H;
    a->norm = NORM_LAYER;
    a->learned_positions = true;
    a->out_bias = true;
    a->mlp_bias = true;
    a->attention_scale = scaled ? 1.0 / sqrt((double)a->K) : 1.0;
    return 0;
}

int arch_read(struct arch *out, const json_t *config, int64_t vocab, struct err *err)
{
    struct arch a = {.window_layer0 = 0};

    if (!json_is_object(config)) {
        return FAIL(err, ERR_NO_MODEL, "config.json is not a JSON object");
    }
    TRY(find_family(config, &a.family, err));
    const struct family_row *row = &families[a.family];
    a.qkv_bias = row->qkv_bias;
    TRY(refuse_unsupported(config, row->experts, err));
    TRY(read_size(config, "vocab_size", vocab != 0 ? vocab : row->V, VOCABULARY_MAX, &a.V, err));
    TRY(read_number(config, "initializer_range", 0.02, 0.0, &a.init_std, err));
    TRY(read_bool(config, "tie_word_embeddings", row->tied, &a.tied, err));
    TRY(row->gpt2_names ? read_gpt2(&a, config, row, err) : read_llama_like(&a, config, row, err));
    if (row->experts != NULL) {
        TRY(read_experts(&a, config, row, err));
    }
    if (a.H % a.G != 0) {
        return FAIL(err, ERR_NO_MODEL,
                    "config.json: num_key_value_heads %lld does not divide num_attention_heads "
                    "%lld",
                    (long long)a.G, (long long)a.H);
    }
    a.bos = read_token(config, "bos_token_id");
    a.eos = read_token(config, "eos_token_id");
    *out = a;
    return 0;
}

/* The fields of a config.json that has to be written from nothing. */
static json_t *config_from_arch(const struct arch *a)
{
    json_t *out = NULL;

    if (families[a->family].gpt2_names) {
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "n_embd", (json_int_t)a->D,
                         "n_inner", (json_int_t)a->F, "n_layer", (json_int_t)a->L, "n_head",
                         (json_int_t)a->H, "n_positions", (json_int_t)a->positions,
                         "layer_norm_epsilon", a->norm_eps, "activation_function",
                         a->act == ACT_GELU_ERF ? "gelu" : "gelu_new");
    }
    out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s}", "hidden_size",
                    (json_int_t)a->D, "intermediate_size", (json_int_t)a->F, "num_hidden_layers",
                    (json_int_t)a->L, "num_attention_heads", (json_int_t)a->H,
                    "num_key_value_heads", (json_int_t)a->G, "head_dim", (json_int_t)a->K,
                    "max_position_embeddings", (json_int_t)a->positions, "rms_norm_eps",
                    a->norm_eps, "rope_theta", a->rope.theta, "hidden_act", "silu");
    if (out != NULL && a->moe.E > 0) {
        (void)json_object_update_new(out, json_pack("{s:I, s:I, s:f}", families[a->family].experts,
                                                    (json_int_t)a->moe.E, "num_experts_per_tok",
                                                    (json_int_t)a->moe.k, "router_aux_loss_coef",
                                                    a->moe.aux_coef));
    }
    if (out != NULL && a->moe.E > 0 && a->family != FAMILY_MIXTRAL) {
        json_t *dense = json_array();
        for (int i = 0; i < a->moe.dense_count; i++) {
            (void)json_array_append_new(dense, json_integer(a->moe.dense[i]));
        }
        (void)json_object_update_new(
            out, json_pack("{s:I, s:I, s:I, s:b, s:o}", "moe_intermediate_size",
                           (json_int_t)a->moe.X, "shared_expert_intermediate_size",
                           (json_int_t)a->moe.Y, "decoder_sparse_step", (json_int_t)a->moe.step,
                           "norm_topk_prob", (int)a->moe.renormalise, "mlp_only_layers", dense));
    }
    return out;
}

json_t *arch_config(const struct arch *a, const json_t *config, enum dtype type)
{
    static const char *const torch_dtype[DTYPE_COUNT] = {
        [DTYPE_F32] = "float32", [DTYPE_F64] = "float64", [DTYPE_BF16] = "bfloat16",
        [DTYPE_F16] = "float16", [DTYPE_I32] = "int32",   [DTYPE_I64] = "int64"};
    const struct family_row *row = &families[a->family];
    json_t *out = config != NULL ? json_deep_copy(config) : config_from_arch(a);
    json_t *true_fields =
        json_pack("{s:s, s:[s], s:I, s:s, s:b}", "model_type", row->type, "architectures",
                  row->architecture, "vocab_size", (json_int_t)a->V, "torch_dtype",
                  torch_dtype[type], "tie_word_embeddings", (int)a->tied);

    if (out == NULL || true_fields == NULL || json_object_update(out, true_fields) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(true_fields);
    if (out != NULL && json_object_get(out, "dtype") != NULL) { /* the name in newer configs */
        (void)json_object_set_new(out, "dtype", json_string(torch_dtype[type]));
    }
    for (int i = 0; out != NULL && i < 2; i++) {
        static const char *const field[2] = {"bos_token_id", "eos_token_id"};
        const int64_t id = i == 0 ? a->bos : a->eos;
        const json_t *has = json_object_get(out, field[i]);
        const bool other = json_is_integer(has) && json_integer_value(has) != id;
        if (id >= 0 && (has == NULL || json_is_null(has) || other)) { /* a list is kept */
            (void)json_object_set_new(out, field[i], json_integer(id));
        }
    }
    return out;
}
