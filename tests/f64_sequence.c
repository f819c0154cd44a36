/* f64_sequence.c - in double: sequence and context parallel change no result, keep less, and exchange what they must. */
#include "tests/layouts.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_positions\":64,"
    "\"vocab_size\":97,\"n_inner\":64}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";
static const char tied[] =
    "{\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":1,\"vocab_size\":90,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";
static const char six[] =
    "{\"model_type\":\"llama\",\"hidden_size\":24,\"intermediate_size\":48,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"vocab_size\":50,"
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

static const char slides[] =
    "{\"model_type\":\"mistral\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":"
    "2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,\"sliding_window\":9,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

static const struct mesh_sizes two = {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes three = {.tp = 3, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes four = {.tp = 4, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes two_of_two = {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1};

static const struct mesh_sizes shared = {.tp = 1, .cp = 2, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes shared_by_three = {.tp = 1, .cp = 3, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes shared_by_four = {.tp = 1, .cp = 4, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes copies_shared = {.tp = 4, .cp = 2, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes shared_and_divided = {.tp = 2, .cp = 2, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes shared_and_staged = {.tp = 1, .cp = 2, .dp = 2, .pp = 2, .ep = 1};

static void compare(const struct job_case *c, const struct mesh_sizes *sizes)
{
    static const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
    const struct arch a = case_arch(c);
    struct found *one = run_layout(c, &alone), *many = run_layout(c, sizes);

    EXPECT(one != NULL && many != NULL);
    if (one == NULL || many == NULL) {
        return;
    }
    for (int i = 0; i < LAYOUT_STEPS; i++) {
        EXPECT_NEAR(many->loss[i], one->loss[i], 1e-11);
        EXPECT_NEAR(many->norm[i], one->norm[i], 1e-9);
        EXPECT_NEAR(many->hits[i], one->hits[i], 1e-12);
    }
    for (int rank = 0; rank < sizes->tp * sizes->cp * sizes->dp * sizes->pp; rank++) {
        EXPECT_NEAR(many->told[rank], one->told[0], 1e-9);
        EXPECT_NEAR(many->judged[rank], one->judged[0], 1e-9);
    }
    const double off = weight_difference(many, one, params_count(&a));
    printf("# %s on tp %d cp %d: loss %.6f to %.6f, weights differ by %.1e\n", c->name, sizes->tp,
           sizes->cp, one->loss[0], one->loss[LAYOUT_STEPS - 1], off);
    EXPECT(off < 1e-9);
    EXPECT(one->loss[LAYOUT_STEPS - 1] < one->loss[0]);
    (void)munmap(one, found_bytes(&a));
    (void)munmap(many, found_bytes(&a));
}

static void ranks_with_some_of_the_rows_are_one_rank(void)
{
    static const struct job_case gpt = {
        .name = "GPT-2 with dropout", .config = gpt2, .dropout = 0.1, .sequence = true};
    static const struct job_case adapters = {.name = "Llama with adapters and dropout",
                                             .config = llama,
                                             .lora_rank = 3,
                                             .dropout = 0.1,
                                             .lora_dropout = 0.2,
                                             .sequence = true};
    static const struct job_case grouped = {
        .name = "Llama with 2 groups", .config = llama, .sequence = true};
    static const struct job_case one_group = {.name = "Qwen 2, recomputed, distributed optimizer",
                                              .config = tied,
                                              .recompute = RECOMPUTE_FULL,
                                              .distributed = true,
                                              .bucket = 1000,
                                              .sequence = true};

    compare(&gpt, &two);
    compare(&gpt, &four);
    compare(&adapters, &two);
    compare(&adapters, &four);
    compare(&grouped, &four);
    compare(&one_group, &four);
    compare(&one_group, &two_of_two);
}

/* Ranks' rows begin inside samples; microbatches are as wide as ranks can share: 32 of 60 places with 20 labels, 96 of
 * 126 with 40. */
static void rows_of_narrow_microbatches_are_shared(void)
{
    static const struct job_case narrow = {.name = "narrow",
                                           .config = gpt2,
                                           .dropout = 0.1,
                                           .micro_batch = 2,
                                           .places = 60,
                                           .trained = 20,
                                           .sequence = true};
    static const struct job_case odd = {.name = "three ranks",
                                        .config = six,
                                        .dropout = 0.1,
                                        .micro_batch = 4,
                                        .places = 126,
                                        .trained = 40,
                                        .sequence = true};

    compare(&narrow, &four);
    compare(&odd, &three);
}

/* Gathers: 2 forward and 4 backward in a layer, whose inputs are gathered again; of the head's input and its
 * statistics; of the embedding's gradient. Sums: 2 and 2; the embedding's and the head's. */
static void collectives_are_as_many_as_megatrons(void)
{
    static const struct job_case c = {.name = "Llama", .config = llama, .sequence = true};
    const struct arch a = case_arch(&c);
    struct found *f = run_layout(&c, &two);

    EXPECT(f != NULL);
    if (f == NULL) {
        return;
    }
    const int64_t micros = LAYOUT_BATCH * LAYOUT_STEPS, norms = 2 * a.L + 1;
    for (int rank = 0; rank < 2; rank++) {
        EXPECT(f->gathers[rank] == micros * (6 * a.L + 3));
        EXPECT(f->scatters[rank] == micros * (4 * a.L + 2));
        EXPECT(f->collectives[rank] == LAYOUT_STEPS * (norms + 1)); /* and the gradients' norm */
    }
    (void)munmap(f, found_bytes(&a));
}

/* Bytes that a microbatch keeps for its backward pass. */
static size_t saved_bytes(const struct job_case *c, const struct mesh_sizes *sizes)
{
    const struct arch a = case_arch(c);
    struct layout lo = {0};
    struct model *m = NULL;
    struct mesh mesh;
    struct err err = {0};

    CHECK(mesh_make(&mesh, sizes, 0, &err) == 0, "%s", err.text);
    const struct dims d = case_dims(c, &a, &mesh);
    CHECK(model_new(&m, &d, &err) == 0, "%s", err.text);
    model_plan(m, &lo);
    model_free(m);
    return lo.region[LIFE_SAVED].peak;
}

/* All that a layer keeps is divided, by sequence parallel: 4 times D of its rows and 2 statistics, beside what is in divided layers. */
static void all_that_is_kept_is_divided(void)
{
    static const struct job_case c = {
        .name = "kept", .config = gpt2, .micro_batch = 4, .places = 64, .sequence = true};
    struct job_case whole = c;
    const struct arch a = case_arch(&c);
    const size_t R = 256, D = 32, F = 64, real_bytes = sizeof(real);
    const size_t layer = R * (4 * D + 4 + 3 * D + D + 4 + F), outside = R * (4 * D + 4);
    const size_t L = (size_t)a.L;

    whole.sequence = false;
    EXPECT(saved_bytes(&c, &four) == (L * layer + R * D) / 4 * real_bytes);
    EXPECT(saved_bytes(&whole, &four) ==
           (L * ((layer - outside) / 4 + outside) + R * D) * real_bytes);
    EXPECT(saved_bytes(&whole, &shared) == (L * layer + R * D) / 2 * real_bytes);
    EXPECT(saved_bytes(&c, &shared_and_divided) == (L * layer + R * D) / 4 * real_bytes);
}

static void ranks_that_share_sequences_are_one_rank(void)
{
    static const struct job_case gpt = {
        .name = "GPT-2 with dropout", .config = gpt2, .dropout = 0.1, .micro_batch = 2};
    static const struct job_case packed = {.name = "packed, recomputed, distributed optimizer",
                                           .config = llama,
                                           .document = 7,
                                           .recompute = RECOMPUTE_SELECTIVE,
                                           .distributed = true,
                                           .bucket = 1000};
    static const struct job_case window = {
        .name = "a sliding window", .config = slides, .places = 60, .document = 17};
    static const struct job_case adapters = {.name = "adapters, dropout, sequence parallel",
                                             .config = llama,
                                             .lora_rank = 3,
                                             .dropout = 0.1,
                                             .lora_dropout = 0.2,
                                             .sequence = true};
    static const struct job_case narrow = {.name = "narrow",
                                           .config = gpt2,
                                           .dropout = 0.1,
                                           .micro_batch = 2,
                                           .places = 60,
                                           .trained = 20,
                                           .document = 11,
                                           .sequence = true};

    compare(&gpt, &shared);
    compare(&gpt, &shared_by_three);
    compare(&packed, &shared);
    compare(&packed, &shared_by_three);
    compare(&packed, &shared_by_four);
    compare(&packed, &copies_shared);
    compare(&window, &shared);
    compare(&adapters, &shared_and_divided);
    compare(&narrow, &shared_and_divided);
    compare(&packed, &shared_and_staged);
}

int main(void)
{
    RUN(ranks_with_some_of_the_rows_are_one_rank);
    RUN(rows_of_narrow_microbatches_are_shared);
    RUN(ranks_that_share_sequences_are_one_rank);
    RUN(collectives_are_as_many_as_megatrons);
    RUN(all_that_is_kept_is_divided);
    return tap_done();
}
