/* f64_layouts.c - in double: the layout does not change the result. */
#include "tests/layouts.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_positions\":32,"
    "\"vocab_size\":97,\"n_inner\":64}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";
static const char tied[] =
    "{\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":1,\"vocab_size\":90,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

static const struct job_case cases[] = {
    {.name = "GPT-2 with dropout", .config = gpt2, .dropout = 0.1},
    {.name = "GPT-2, recomputed", .config = gpt2, .dropout = 0.1, .recompute = RECOMPUTE_FULL},
    {.name = "Llama with 2 groups", .config = llama},
    {.name = "Llama with adapters and dropout",
     .config = llama,
     .lora_rank = 3,
     .dropout = 0.1,
     .lora_dropout = 0.2},
    {.name = "GPT-2 with adapters", .config = gpt2, .lora_rank = 2},
    {.name = "Qwen 2, tied, 1 group, biases", .config = tied},
    {.name = "Qwen 2, distributed optimizer", .config = tied, .distributed = true},
    {.name = "GPT-2, small buckets",
     .config = gpt2,
     .dropout = 0.1,
     .distributed = true,
     .bucket = 1000},
    {.name = "adapters, distributed optimizer",
     .config = llama,
     .lora_rank = 3,
     .distributed = true},
};

static void compare(const struct job_case *c, const struct found *one, const struct found *many)
{
    const struct arch a = case_arch(c);

    for (int i = 0; i < LAYOUT_STEPS; i++) {
        EXPECT_NEAR(many->loss[i], one->loss[i], 1e-11);
        EXPECT_NEAR(many->norm[i], one->norm[i], 1e-9);
        EXPECT_NEAR(many->hits[i], one->hits[i], 1e-12);
    }
    const double off = weight_difference(many, one, params_count(&a));
    printf("# %s: loss %.6f to %.6f, weights differ by %.1e\n", c->name, one->loss[0],
           one->loss[LAYOUT_STEPS - 1], off);
    EXPECT(off < 1e-9);
    EXPECT(one->loss[LAYOUT_STEPS - 1] < one->loss[0]);
}

static void many_ranks_are_one_rank(void)
{
    static const struct mesh_sizes meshes[] = {
        {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1},
        {.tp = 4, .cp = 1, .dp = 1, .pp = 1, .ep = 1},
        {.tp = 1, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
        {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .ep = 1},
        {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
        {.tp = 4, .cp = 1, .dp = 2, .pp = 1, .ep = 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct arch a = case_arch(&cases[i]);
        const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
        struct found *one = run_layout(&cases[i], &alone);
        for (size_t k = 0; k < sizeof meshes / sizeof meshes[0] && one != NULL; k++) {
            struct found *many = run_layout(&cases[i], &meshes[k]);
            EXPECT(many != NULL);
            if (many != NULL) {
                compare(&cases[i], one, many);
                (void)munmap(many, found_bytes(&a));
            }
        }
        EXPECT(one != NULL);
        if (one != NULL) {
            (void)munmap(one, found_bytes(&a));
        }
    }
}

/* 2 forward and 2 backward in a layer and a microbatch; the embedding's one, the head's one, the norm's. */
static void collectives_are_as_many_as_megatrons(void)
{
    const struct arch a = case_arch(&cases[2]);
    const struct mesh_sizes two = {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
    struct found *f = run_layout(&cases[2], &two);

    EXPECT(f != NULL);
    if (f != NULL) {
        const int64_t micros = LAYOUT_BATCH * LAYOUT_STEPS;
        EXPECT(f->collectives[0] == micros * (4 * a.L + 2) + LAYOUT_STEPS);
        EXPECT(f->collectives[1] == f->collectives[0]);
        (void)munmap(f, found_bytes(&a));
    }
}

int main(void)
{
    RUN(many_ranks_are_one_rank);
    RUN(collectives_are_as_many_as_megatrons);
    return tap_done();
}
