/* f64_recompute.c - what is made again has the same bits, and is not kept. */
#include "tests/layouts.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_layer\":5,\"n_head\":4,\"n_positions\":64,"
    "\"vocab_size\":97,\"n_inner\":64}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":5,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

static const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
static const struct mesh_sizes two = {.tp = 2, .cp = 1, .dp = 1, .pp = 1, .ep = 1};

/* Ways to make again. */
static const struct job_case ways[] = {
    {.name = "core_attn", .recompute = RECOMPUTE_SELECTIVE},
    {.name = "mlp", .recompute = RECOMPUTE_SELECTIVE, .modules = "mlp"},
    {.name = "layernorm", .recompute = RECOMPUTE_SELECTIVE, .modules = "layernorm"},
    {.name = "three", .recompute = RECOMPUTE_SELECTIVE, .modules = "mlp, layernorm,core_attn"},
    {.name = "uniform 1", .recompute = RECOMPUTE_FULL},
    {.name = "uniform 2", .recompute = RECOMPUTE_FULL, .again = 2},
    {.name = "uniform 3", .recompute = RECOMPUTE_FULL, .again = 3},
    {.name = "uniform 9", .recompute = RECOMPUTE_FULL, .again = 9},
    {.name = "block 2", .recompute = RECOMPUTE_FULL, .again = 2, .method = RECOMPUTE_BLOCK},
};

/* The bits of a run must not change with the way it makes activations again. */
static void expect_same(const struct job_case *c, const struct mesh_sizes *sizes)
{
    const struct arch a = case_arch(c);
    struct found *all = run_layout(c, sizes);

    EXPECT(all != NULL);
    for (size_t i = 0; all != NULL && i < sizeof ways / sizeof ways[0]; i++) {
        struct job_case again = *c;
        again.recompute = ways[i].recompute;
        again.modules = ways[i].modules;
        again.again = ways[i].again;
        again.method = ways[i].method;
        struct found *some = run_layout(&again, sizes);
        EXPECT(some != NULL);
        if (some != NULL) {
            printf("# %s, %s, on %d\n", c->name, ways[i].name, sizes->tp);
            EXPECT(memcmp(some->loss, all->loss, sizeof all->loss) == 0);
            EXPECT(memcmp(some->norm, all->norm, sizeof all->norm) == 0);
            EXPECT(memcmp(some->weights, all->weights, (size_t)params_count(&a) * sizeof(real)) ==
                   0);
            (void)munmap(some, found_bytes(&a));
        }
    }
    if (all != NULL) {
        (void)munmap(all, found_bytes(&a));
    }
}

static void what_is_made_again_has_the_same_bits(void)
{
    const struct job_case gpt = {.name = "GPT-2 with dropout", .config = gpt2, .dropout = 0.1};
    const struct job_case adapters = {.name = "Llama with adapters",
                                      .config = llama,
                                      .lora_rank = 3,
                                      .dropout = 0.1,
                                      .lora_dropout = 0.2,
                                      .sequence = true};

    expect_same(&gpt, &alone);
    expect_same(&adapters, &two);
}

/* Bytes of regions of a run on one rank, of R = 256 rows; all tensors are multiples of 256 bytes. */
static size_t bytes_of(const struct job_case *way, enum life life)
{
    struct job_case c = *way;
    struct mesh mesh;
    struct layout lo = {0};
    struct model *m = NULL;
    struct err err = {0};

    c.config = gpt2;
    c.micro_batch = 4;
    c.places = 64;
    const struct arch a = case_arch(&c);
    CHECK(mesh_make(&mesh, &alone, 0, &err) == 0, "%s", err.text);
    const struct dims d = case_dims(&c, &a, &mesh);
    CHECK(model_new(&m, &d, &err) == 0, "%s", err.text);
    model_plan(m, &lo);
    model_free(m);
    return lo.region[life].peak;
}

/* Elements that a row of a block has: its input and what lies in it. */
static void what_is_made_again_is_not_kept(void)
{
    const size_t D = 32, F = 64, H = 4, L = 5, row = 256 * sizeof(real);
    const size_t core = D + H, mlp = F, norms = 2 * D, input = D;
    const size_t inner = norms + 4 /* statistics */ + 3 * D + core + D /* x2 */ + mlp;
    const size_t all = L * (input + inner) + D /* the head's input */;
    const size_t none = bytes_of(&(struct job_case){0}, LIFE_SAVED);

    EXPECT(none == all * row);
    EXPECT(bytes_of(&ways[0], LIFE_SAVED) == (all - L * core) * row);
    EXPECT(bytes_of(&ways[1], LIFE_SAVED) == (all - L * mlp) * row);
    EXPECT(bytes_of(&ways[2], LIFE_SAVED) == (all - L * norms) * row);
    EXPECT(bytes_of(&ways[3], LIFE_SAVED) == (all - L * (core + mlp + norms)) * row);
    EXPECT(bytes_of(&ways[4], LIFE_SAVED) == (L * input + D) * row);
    EXPECT(bytes_of(&ways[5], LIFE_SAVED) == (3 * input + D) * row);
    EXPECT(bytes_of(&ways[6], LIFE_SAVED) == (2 * input + D) * row);
    EXPECT(bytes_of(&ways[7], LIFE_SAVED) == (input + D) * row);
    EXPECT(bytes_of(&ways[8], LIFE_SAVED) == (all - 2 * inner) * row);
    /* the scratch of a group of three: three blocks, of which two have their inputs there */
    EXPECT(bytes_of(&ways[6], LIFE_SCRATCH) - bytes_of(&ways[4], LIFE_SCRATCH) ==
           2 * (input + inner) * row);
    EXPECT(bytes_of(&ways[5], LIFE_SCRATCH) - bytes_of(&ways[4], LIFE_SCRATCH) ==
           (input + inner) * row);
}

static int read_choice(const char *text, struct err *err)
{
    struct recompute_choice choice;
    struct spec s;
    json_t *request = json_loads(text, 0, NULL);

    CHECK(request != NULL && spec_parse(&s, request, err) == 0, "%s", text);
    json_decref(request);
    const int rc = recompute_read(&choice, &s, err);
    spec_free(&s);
    return rc;
}

static void fields_that_do_not_go_together_are_refused(void)
{
    static const struct {
        const char *more, *param;
    } bad[] = {
        {"\"recompute\":\"selective\",\"recompute_modules\":\"mpl\"", "recompute_modules"},
        {"\"recompute\":\"selective\",\"recompute_modules\":\"mlp,,mlp\"", "recompute_modules"},
        {"\"recompute\":\"selective\",\"recompute_modules\":\"mlp layernorm\"",
         "recompute_modules"},
        {"\"recompute\":\"selective\",\"recompute_modules\":\",\"", "recompute_modules"},
        {"\"recompute\":\"selective\",\"recompute_modules\":\"mlp,\"", "recompute_modules"},
        {"\"recompute\":\"full\",\"recompute_modules\":\"mlp\"", "recompute_modules"},
        {"\"recompute_num_layers\":2", "recompute_num_layers"},
        {"\"recompute\":\"selective\",\"recompute_method\":\"block\"", "recompute_method"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        struct err err = {0};
        (void)snprintf(text, sizeof text, "{\"model\":\"models:x\",\"training_file\":\"f\",%s}",
                       bad[i].more);
        EXPECT(read_choice(text, &err) == ERR_BAD_SPEC);
        EXPECT(strcmp(err.param, bad[i].param) == 0);
    }
}

int main(void)
{
    RUN(what_is_made_again_has_the_same_bits);
    RUN(what_is_made_again_is_not_kept);
    RUN(fields_that_do_not_go_together_are_refused);
    return tap_done();
}
