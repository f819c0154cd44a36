/* f64_reports.c - what users of other trainers met with several ranks (reference/megatron.md, section 4, by its rows), in
 * double: here it is right. Row 11, numerical errors in combinations, is tests/layouts.def.
 */
#include "tests/layouts.h"

#define LLAMA(vocabulary, heads, groups)                                                          \
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,"                      \
    "\"num_hidden_layers\":4,\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #groups \
    ",\"vocab_size\":" #vocabulary                                                                \
    ",\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"tie_word_embeddings"                 \
    "\":false}"

#define GPT2(vocabulary)                                                                    \
    "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_layer\":4,\"n_head\":4,\"n_positions\":16," \
    "\"vocab_size\":" #vocabulary ",\"n_inner\":64}"

#define EXPERTS(family, chosen, more)                                                             \
    "{\"model_type\":\"" family "\",\"hidden_size\":32,\"intermediate_size\":24,"                 \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":" \
    "101,\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"router_aux_loss_coef\":0.02,"     \
    "\"num_experts_per_tok\":" #chosen ",\"tie_word_embeddings\":false," more "}"
#define MIXTRAL EXPERTS("mixtral", 2, "\"num_local_experts\":4")
/* One expert a token beside a shared one. */
#define SINGLE(experts)                                                                     \
    EXPERTS("qwen2_moe", 1,                                                                 \
            "\"num_experts\":" #experts ",\"moe_intermediate_size\":24,\"norm_topk_prob\":" \
            "false,\"shared_expert_intermediate_size\":16")

/* A request, and what was found when it ran. */
struct scene {
    struct spec spec;
    struct arch arch;
    struct job_case c;
    struct found *found;
    int ranks;
};

/* fields: of the request. */
static void scene_run(struct scene *s, const char *name, const char *config, const char *fields)
{
    char text[600];
    struct err err = {0};

    (void)snprintf(text, sizeof text,
                   "{\"model\":\"models:tiny\",\"training_file\":\"t\",\"micro_batch_size\":1%s%s}",
                   fields[0] != '\0' ? "," : "", fields);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL && spec_parse(&s->spec, request, &err) == 0, "%s: %s", text, err.text);
    json_decref(request);
    s->c = (struct job_case){.name = name,
                             .config = config,
                             .places = s->spec.sequence_length > 0 ? s->spec.sequence_length : 16,
                             .request = &s->spec};
    s->arch = case_arch(&s->c);
    const struct mesh_sizes mesh = plan_mesh(&s->spec);
    s->ranks = mesh.tp * mesh.cp * mesh.dp * mesh.pp;
    s->found = run_layout(&s->c, &mesh);
    EXPECT(s->found != NULL);
}

static void scene_end(struct scene *s)
{
    if (s->found != NULL) {
        (void)munmap(s->found, found_bytes(&s->arch));
    }
    spec_free(&s->spec);
}

static const real *before_of(const struct scene *s)
{
    return s->found->weights + weights_room(&s->arch);
}

static const real *gradients_of(const struct scene *s)
{
    return s->found->weights + 2 * weights_room(&s->arch);
}

/* The largest difference of numbers, of the largest. */
static double apart(const real *a, const real *b, int64_t n)
{
    double most = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return size > 0.0 ? most / size : HUGE_VAL;
}

/* Values of a parameter of the whole model; *count of them. */
static const real *part_of(const struct scene *s, const real *all, enum param_id id, int place,
                           int64_t *count)
{
    const struct dims d = dims_inference(&s->arch, DTYPE_REAL, 1, 16, 1);
    const struct param p = param_get(id, &s->arch);
    struct model *whole = NULL;
    struct err err = {0};

    CHECK(model_whole(&whole, &d, &err) == 0, "%s", err.text);
    const int64_t base = base_of(whole, &(struct weight){.id = id, .place = place});
    model_free(whole);
    *count = p.rows * p.cols;
    return all + base;
}

/* The same model and data on one rank and as `fields` say, in every number that a user sees. */
static void expect_same(const char *name, const char *config, const char *common,
                        const char *fields)
{
    char both[400];
    struct scene one, many;

    (void)snprintf(both, sizeof both, "%s%s%s", common, common[0] != '\0' ? "," : "", fields);
    scene_run(&one, name, config, common);
    scene_run(&many, name, config, both);
    if (one.found != NULL && many.found != NULL) {
        const struct found *a = many.found, *b = one.found;
        for (int i = 0; i < LAYOUT_STEPS; i++) {
            EXPECT_NEAR(a->loss[i], b->loss[i], 1e-9);
            EXPECT_NEAR(a->norm[i], b->norm[i], 1e-9);
            EXPECT_NEAR(a->hits[i], b->hits[i], 1e-12);
            EXPECT_NEAR(a->aux[i], b->aux[i], 1e-9);
            EXPECT_NEAR(a->z[i], b->z[i], 1e-9);
        }
        const double off = apart(gradients_of(&many), gradients_of(&one), params_count(&one.arch));
        EXPECT(off < 1e-10);
        printf("# %s, %s: loss %.6f, gradients differ by %.0e\n", name, fields, a->loss[0], off);
    }
    scene_end(&one);
    scene_end(&many);
}

/* #1754: the rows that fill the vocabulary up took part in the softmax. */
static void row_9_a_vocabulary_that_does_not_divide_has_the_loss_of_one_rank(void)
{
    expect_same("97 tokens, tied", GPT2(97), "", "\"tensor_model_parallel_size\":2");
    expect_same("97 tokens, tied", GPT2(97), "", "\"tensor_model_parallel_size\":4");
    expect_same("101 tokens", LLAMA(101, 4, 2), "",
                "\"tensor_model_parallel_size\":4,\"sequence_parallel\":\"yes\"");
    expect_same("5 tokens", LLAMA(5, 4, 4), "", "\"tensor_model_parallel_size\":4");
}

/* #1736, #1324, #445: initial values and data depended on the layout. */
static void row_10_all_layouts_begin_with_the_same_bits(void)
{
    static const char *const layouts[] = {
        "\"tensor_model_parallel_size\":4",
        "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2",
        "\"devices\":4,\"use_distributed_optimizer\":\"yes\"",
        ("\"tensor_model_parallel_size\":2,\"pipeline_model_parallel_size\":2,"
         "\"context_parallel_size\":2")};
    struct scene one;

    scene_run(&one, "one", LLAMA(101, 4, 2), "");
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0] && one.found != NULL; i++) {
        struct scene many;
        scene_run(&many, "many", LLAMA(101, 4, 2), layouts[i]);
        if (many.found != NULL) {
            EXPECT(memcmp(before_of(&many), before_of(&one),
                          (size_t)params_count(&one.arch) * sizeof(real)) == 0);
            EXPECT_NEAR(many.found->loss[0], one.found->loss[0], 1e-13);
        }
        scene_end(&many);
    }
    scene_end(&one);
}

/* #844, its example: 2 stages with 2 ranks each that divide the optimizer's state, and a tied embedding. */
static void row_12_both_copies_of_a_tied_embedding_are_summed_once(void)
{
    struct scene one, four;
    int64_t n = 0;

    scene_run(&one, "one", GPT2(97), "");
    scene_run(&four, "2 x 2", GPT2(97),
              "\"pipeline_model_parallel_size\":2,\"devices\":4,\"use_distributed_optimizer\":"
              "\"yes\"");
    if (one.found != NULL && four.found != NULL) {
        const real *want = part_of(&one, gradients_of(&one), PARAM_EMBED, 0, &n);
        const real *got = part_of(&four, gradients_of(&four), PARAM_EMBED, 0, &n);
        EXPECT(n == 97 * 32 && apart(got, want, n) < 1e-12);
        EXPECT_NEAR(four.found->norm[0], one.found->norm[0], 1e-12);
    }
    scene_end(&one);
    scene_end(&four);
}

/* #673, #906: the loss, or the gradient, was scaled by the ranks that share sequences. */
static void row_13_ranks_that_share_sequences_scale_nothing(void)
{
    expect_same("Llama", LLAMA(101, 4, 2), "", "\"context_parallel_size\":2");
    expect_same("Llama", LLAMA(101, 4, 2), "", "\"context_parallel_size\":4");
    expect_same("GPT-2", GPT2(97), "\"dropout\":0.1",
                "\"context_parallel_size\":2,\"devices\":4,\"use_distributed_optimizer\":\"yes\"");
}

/* PR #5047, #3672: losses for the balance of experts were scaled by the ranks that share tokens. */
static void row_14_losses_for_balance_do_not_depend_on_ranks(void)
{
    static const char *const scalings[] = {
        "\"moe_z_loss_coeff\":0.01,\"moe_aux_loss_scaling\":\"megatron\"",
        "\"moe_z_loss_coeff\":0.01,\"moe_aux_loss_scaling\":\"huggingface\""};

    for (int i = 0; i < 2; i++) {
        expect_same("experts", MIXTRAL, scalings[i], "\"context_parallel_size\":2");
        expect_same("experts", MIXTRAL, scalings[i], "\"devices\":4");
    }
    expect_same("experts", MIXTRAL, scalings[0],
                "\"pipeline_model_parallel_size\":2,\"context_parallel_size\":2");
}

/* PR #5916: squares of a gradient that several ranks hold parts or copies of counted too little or too often. */
static void row_15_the_norm_of_gradients_is_that_of_one_rank(void)
{
    expect_same("one group of keys", LLAMA(101, 4, 1), "", "\"tensor_model_parallel_size\":4");
    expect_same("two groups of keys", LLAMA(101, 4, 2), "",
                "\"tensor_model_parallel_size\":4,\"sequence_parallel\":\"yes\",\"devices\":8,"
                "\"use_distributed_optimizer\":\"yes\"");
    expect_same("experts", MIXTRAL, "\"moe_aux_loss_scaling\":\"megatron\"",
                "\"pipeline_model_parallel_size\":2,\"devices\":4,\"use_distributed_optimizer\":"
                "\"yes\"");
}

/* #1586: buffers of messages were used again before the messages had gone. Here ranks are slow at other times, and the
 * bits are the same. */
static void row_16_slow_ranks_change_no_bit(void)
{
    static const char *const pipelines[] = {
        "\"pipeline_model_parallel_size\":2,\"num_virtual_stages_per_pipeline_rank\":2",
        "\"pipeline_model_parallel_size\":4"};

    for (int i = 0; i < 2; i++) {
        struct scene s;
        scene_run(&s, "in time", LLAMA(101, 4, 2), pipelines[i]);
        const struct mesh_sizes mesh = plan_mesh(&s.spec);
        struct job_case slow = s.c;
        slow.dawdles = true;
        struct found *f = run_layout(&slow, &mesh);
        EXPECT(f != NULL);
        if (f != NULL && s.found != NULL) {
            EXPECT(memcmp(f->loss, s.found->loss, sizeof f->loss) == 0);
            EXPECT(memcmp(f->weights, s.found->weights,
                          (size_t)weights_room(&s.arch) * sizeof(real)) == 0);
            EXPECT(f->delays > 20);
            (void)munmap(f, found_bytes(&s.arch));
        }
        scene_end(&s);
    }
}

/* #894: with one expert a token the router learned nothing from the loss. */
static void row_17_the_router_learns_with_one_expert_a_token(void)
{
    struct scene s;
    int64_t n = 0;

    scene_run(&s, "one of 8", SINGLE(8), "\"moe_aux_loss_coeff\":0");
    if (s.found != NULL) {
        const real *g = part_of(&s, gradients_of(&s), PARAM_ROUTER_W, 0, &n);
        double most = 0.0, all = 0.0;
        for (int64_t i = 0; i < n; i++) {
            most = fmax(most, fabs((double)g[i]));
        }
        for (int64_t i = 0; i < params_count(&s.arch); i++) {
            all = fmax(all, fabs((double)gradients_of(&s)[i]));
        }
        printf("# the router's largest gradient is %.1e, the largest of all %.1e\n", most, all);
        EXPECT(most > 1e-4 * all);
    }
    scene_end(&s);
}

/* #437: 2 groups of keys and values on 8 ranks crashed. Here 4 ranks hold each. */
static void row_24_fewer_groups_than_ranks_are_held_by_several(void)
{
    expect_same("2 groups", LLAMA(101, 8, 2), "", "\"tensor_model_parallel_size\":8");
}

/* #1150, #1292, #558: a parameter that a step did not use kept its bucket from being summed. Here at least 16 of 32
 * experts get no token of the microbatches of a step. */
static void row_26_parameters_without_a_gradient_hold_up_nothing(void)
{
    static const char few[] = "\"global_batch_size\":2,\"sequence_length\":8,"
                              "\"moe_aux_loss_scaling\":\"megatron\"";
    static const char config[] = SINGLE(32);

    expect_same("32 experts", config, few, "\"devices\":2");
    expect_same("32 experts", config, few, "\"devices\":2,\"use_distributed_optimizer\":\"yes\"");
}

int main(void)
{
    RUN(row_9_a_vocabulary_that_does_not_divide_has_the_loss_of_one_rank);
    RUN(row_10_all_layouts_begin_with_the_same_bits);
    RUN(row_12_both_copies_of_a_tied_embedding_are_summed_once);
    RUN(row_13_ranks_that_share_sequences_scale_nothing);
    RUN(row_14_losses_for_balance_do_not_depend_on_ranks);
    RUN(row_15_the_norm_of_gradients_is_that_of_one_rank);
    RUN(row_16_slow_ranks_change_no_bit);
    RUN(row_17_the_router_learns_with_one_expert_a_token);
    RUN(row_24_fewer_groups_than_ranks_are_held_by_several);
    RUN(row_26_parameters_without_a_gradient_hold_up_nothing);
    return tap_done();
}
