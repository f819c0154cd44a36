/* f64_pipeline.c - in double: a pipeline of ranks finds what one rank finds. */
#include "tests/layouts.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"n_embd\":16,\"n_layer\":4,\"n_head\":2,\"n_positions\":32,"
    "\"vocab_size\":97,\"n_inner\":32}";
static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";
static const char eight[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":8,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

/* A case, and a mesh that it is run on. */
struct row {
    struct job_case c;
    int tp, dp, pp;
};

static const struct row rows[] = {
    {{.name = "Llama", .config = llama}, 1, 1, 2},
    {{.name = "Llama", .config = llama}, 1, 1, 4},
    {{.name = "Llama, 2 chunks", .config = llama, .chunks = 2}, 1, 1, 2},
    {{.name = "Llama, tensor parallel", .config = llama, .chunks = 2}, 2, 1, 2},
    {{.name = "Llama, sequence parallel", .config = llama, .sequence = true, .chunks = 2}, 2, 1, 2},
    {{.name = "GPT-2, sequence parallel", .config = gpt2, .sequence = true, .dropout = 0.1},
     2,
     1,
     2},
    {{.name = "Llama on 8 ranks", .config = llama}, 2, 2, 2},
    {{.name = "Llama, 1 + 3 layers", .config = llama, .placing = "1,3"}, 1, 1, 2},
    {{.name = "Llama, head alone", .config = llama, .placing = "0, 2, 2, 0"}, 1, 1, 4},
    {{.name = "Llama, by cost", .config = llama, .placing = "auto"}, 1, 1, 3},
    {{.name = "Llama, recomputed",
      .config = llama,
      .chunks = 2,
      .recompute = RECOMPUTE_FULL,
      .dropout = 0.1},
     1,
     1,
     2},
    {{.name = "Llama, groups of 2 made again",
      .config = eight,
      .chunks = 2,
      .recompute = RECOMPUTE_FULL,
      .again = 2},
     1,
     1,
     2},
    {{.name = "adapters", .config = llama, .lora_rank = 2, .lora_dropout = 0.2}, 1, 1, 2},
    {{.name = "adapters, 2 chunks", .config = llama, .lora_rank = 2, .chunks = 2}, 2, 1, 2},
    {{.name = "frozen below",
      .config = llama,
      .freeze = "model.embed_tokens,model.layers.0,model.layers.1,model.layers.2"},
     1,
     1,
     4},
    {{.name = "frozen to a border",
      .config = llama,
      .chunks = 2,
      .freeze = "model.embed_tokens, model.layers.0"},
     1,
     1,
     2},
    {{.name = "head alone is trained", .config = llama, .freeze = "model.*"}, 1, 1, 2},
    {{.name = "GPT-2, tied", .config = gpt2, .dropout = 0.1}, 1, 1, 2},
    {{.name = "GPT-2, tied, 2 chunks", .config = gpt2, .dropout = 0.1, .chunks = 2}, 1, 1, 2},
    {{.name = "GPT-2, tied, tensor parallel", .config = gpt2}, 2, 1, 4},
    {{.name = "GPT-2, tied, distributed optimizer",
      .config = gpt2,
      .distributed = true,
      .bucket = 1000},
     1,
     2,
     2},
    /* Megatron-LM #844: the copies of a tied embedding are summed once, before the slices are. */
    {{.name = "GPT-2, tied, distributed optimizer on 8 ranks",
      .config = gpt2,
      .distributed = true,
      .chunks = 2,
      .bucket = 1000},
     2,
     2,
     2},
    {{.name = "GPT-2 with adapters", .config = gpt2, .lora_rank = 2}, 1, 1, 4},
    {{.name = "8 layers, tied, 4 ranks of 2 chunks", .config = eight, .chunks = 2}, 1, 1, 4},
    {{.name = "8 layers, tied, 2 ranks of 4 chunks", .config = eight, .chunks = 4}, 1, 1, 2},
    {{.name = "8 layers, 2 ranks, groups of 4", .config = eight, .chunks = 2, .passes = 4},
     1,
     1,
     2},
    {{.name = "8 layers, slots apart", .config = eight, .chunks = 2, .placing = "1,1,5,1"},
     1,
     1,
     2},
    {{.name = "8 layers, uneven chunks", .config = eight, .chunks = 2, .placing = "3,1,1,3"},
     1,
     1,
     2},
};

/* Every border of stages is crossed forward and backward once by every microbatch. */
static void count_messages(const struct row *r, const struct found *f)
{
    const int borders = r->pp * (r->c.chunks > 0 ? r->c.chunks : 1) - 1;
    int64_t sends = 0, receives = 0;

    for (int rank = 0; rank < r->tp * r->dp * r->pp; rank++) {
        sends += f->sends[rank];
        receives += f->receives[rank];
    }
    EXPECT(sends == (int64_t)2 * borders * LAYOUT_BATCH * r->tp * LAYOUT_STEPS);
    EXPECT(receives == sends);
}

static void compare(const struct row *r, const struct found *one, const struct found *many)
{
    const struct arch a = case_arch(&r->c);
    const int64_t n = params_count(&a);
    const int ranks = r->tp * r->dp * r->pp;

    for (int i = 0; i < LAYOUT_STEPS; i++) {
        EXPECT_NEAR(many->loss[i], one->loss[i], 1e-11);
        EXPECT_NEAR(many->norm[i], one->norm[i], 1e-9);
        EXPECT_NEAR(many->hits[i], one->hits[i], 1e-12);
    }
    const double off = weight_difference(many, one, n);
    printf("# %s, tp %d dp %d pp %d: loss %.6f to %.6f, weights differ by %.1e\n", r->c.name, r->tp,
           r->dp, r->pp, one->loss[0], one->loss[LAYOUT_STEPS - 1], off);
    EXPECT(off < 1e-9);
    EXPECT(one->loss[LAYOUT_STEPS - 1] < one->loss[0]);
    for (int rank = 0; rank < ranks; rank++) {
        EXPECT_NEAR(many->told[rank], one->told[0], 1e-7);
        EXPECT_NEAR(many->judged[rank], one->judged[0], 1e-11);
    }
    if (a.tied) { /* both copies are one */
        EXPECT(memcmp(many->weights, many->weights + n, (size_t)(a.V * a.D) * sizeof(real)) == 0);
    }
}

static void a_pipeline_is_one_rank(void)
{
    static const struct mesh_sizes alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};

    bool well = true;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && well; i++) {
        const struct row *r = &rows[i];
        const struct arch a = case_arch(&r->c);
        const struct mesh_sizes sizes = {.tp = r->tp, .cp = 1, .dp = r->dp, .pp = r->pp, .ep = 1};
        struct found *one = run_layout(&r->c, &alone), *many = run_layout(&r->c, &sizes);
        well = one != NULL && many != NULL;
        EXPECT(well);
        if (well) {
            compare(r, one, many);
            if (r->c.lora_rank + (r->c.freeze != NULL) == 0) {
                count_messages(r, many);
            }
            (void)munmap(one, found_bytes(&a));
            (void)munmap(many, found_bytes(&a));
        }
    }
}

/* Whether the chunks of rank 0 of 2 have slots of their own. */
static bool has_own_slots(const char *placing)
{
    const struct job_case c = {.name = "chunks", .config = eight, .chunks = 2, .placing = placing};
    const struct arch a = case_arch(&c);
    const struct mesh_sizes sizes = {.tp = 1, .cp = 1, .dp = 1, .pp = 2, .ep = 1};
    struct model *m = NULL;
    struct mesh mesh;
    struct err err = {0};

    CHECK(mesh_make(&mesh, &sizes, 0, &err) == 0, "%s", err.text);
    const struct dims d = case_dims(&c, &a, &mesh);
    CHECK(model_new(&m, &d, &err) == 0, "%s", err.text);
    const bool apart = m->apart;
    model_free(m);
    return apart;
}

/* 5 slots of 5 layers, or 4 of 1 and 2 of 5. */
static void slots_are_shared_or_not_whichever_takes_less(void)
{
    EXPECT(!has_own_slots("2,2,2,2"));
    EXPECT(has_own_slots("1,1,5,1"));
}

/* The message buffers of too large a group are refused, not missed later. */
static void groups_too_large_for_the_rings_are_refused(void)
{
    const struct arch a = case_arch(&(struct job_case){.name = "chunks", .config = eight});
    const struct spec s = {.global_batch_size = 256};
    struct dims d = dims_make(&a, &s, 1, LAYOUT_SEQUENCE, 1);
    struct placement place;
    struct model *m = NULL;
    struct err err = {0};

    EXPECT(placement_make(&place, &a, 2, 2, "", LAYOUT_SEQUENCE, &err) == 0);
    dims_divide_layers(&d, &place, 0, 128);
    EXPECT(model_new(&m, &d, &err) == ERR_BAD_SPEC);
    EXPECT(strstr(err.text, "groups of 128 microbatches") != NULL);
}

int main(void)
{
    RUN(slots_are_shared_or_not_whichever_takes_less);
    RUN(groups_too_large_for_the_rings_are_refused);
    RUN(a_pipeline_is_one_rank);
    return tap_done();
}
