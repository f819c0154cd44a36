/* layout_rows.h - rows of layouts.def: each is a request, run on its ranks and on one.
 *
 * Included by f64_layout_rows.c (double, where a precision is f32) and test_layout_rows.c. A row's request passes the rules
 * that a user's does, and is planned as a user's is. Rows of one model, samples and precision share the run on one rank.
 */
#ifndef TESTS_LAYOUT_ROWS_H
#define TESTS_LAYOUT_ROWS_H

#include "tests/layouts.h"
#include "trainer/rules.h"

enum { ROW_BATCH = 8, ROW_SEQUENCE = 16, ROW_DOCUMENT = 8 };

enum column {
    COLUMN_MODEL,
    COLUMN_TP,
    COLUMN_SP,
    COLUMN_CP,
    COLUMN_PP,
    COLUMN_CHUNKS,
    COLUMN_DP,
    COLUMN_EP,
    COLUMN_OVERLAP,
    COLUMN_DISTRIBUTED,
    COLUMN_PACKED,
    COLUMN_DROPOUT,
    COLUMN_AGAIN,
    COLUMN_LORA,
    COLUMN_PRECISION,
    COLUMN_COUNT
};
enum row_model { GPT2, LLAMA, TIED, MIXTRAL, MODEL_COUNT };
enum row_again { NONE, CORE, UNIFORM, BLOCK, AGAIN_COUNT };
enum row_precision { F32, BF16, FP16, PRECISION_COUNT };

/* Of the rows that run every time, and of all. */
enum row_set { PAIRS, MORE };

struct row {
    int at[COLUMN_COUNT];
    enum row_set set;
};

static const struct row rows[] = {
#define ROW(model, tp, sp, cp, pp, chunks, dp, ep, overlap, distributed, packed, dropout, again, \
            lora, precision, set)                                                                \
    {{model, tp, sp, cp, pp, chunks, dp, ep, overlap, distributed, packed, dropout, again, lora, \
      precision},                                                                                \
     set},
#include "tests/layouts.def"
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static const char *const models[MODEL_COUNT] = {
    [GPT2] = "\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_positions\":16,"
             "\"vocab_size\":97,\"n_inner\":64,\"n_layer\":",
    [LLAMA] = "\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
              "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,"
              "\"tie_word_embeddings\":false,\"num_hidden_layers\":",
    [TIED] = "\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":64,"
             "\"num_attention_heads\":8,\"num_key_value_heads\":1,\"vocab_size\":90,"
             "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,"
             "\"tie_word_embeddings\":true,\"num_hidden_layers\":",
    [MIXTRAL] = "\"model_type\":\"mixtral\",\"hidden_size\":32,\"intermediate_size\":24,"
                "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
                "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"num_local_experts\":4,"
                "\"router_aux_loss_coef\":0.02,\"tie_word_embeddings\":false,"
                "\"num_hidden_layers\":"};

/* A row as what it is run with. */
struct row_run {
    char name[160];
    char config[400];
    struct spec request;
    struct job_case c;
};

static int row_layers(const struct row *r)
{
    return r->at[COLUMN_PP] * r->at[COLUMN_CHUNKS] > 4 ? 8 : 4;
}

/* The words of a row: what of it is not as usual. */
static void name_row(char *out, size_t size, const struct row *r)
{
    static const char *const name[MODEL_COUNT] = {"GPT-2", "Llama", "Qwen 2, tied", "Mixtral"};
    static const char *const again[AGAIN_COUNT] = {"", ", core_attn again", ", uniform", ", block"};
    static const char *const precision[PRECISION_COUNT] = {"f32", "bf16", "fp16"};
    static const struct {
        enum column column;
        const char *word;
    } sizes[] = {{COLUMN_TP, "tp"},         {COLUMN_CP, "cp"}, {COLUMN_PP, "pp"},
                 {COLUMN_CHUNKS, "chunks"}, {COLUMN_DP, "dp"}, {COLUMN_EP, "ep"}},
      words[] = {{COLUMN_SP, "sequence parallel"},    {COLUMN_OVERLAP, "overlap"},
                 {COLUMN_DISTRIBUTED, "distributed"}, {COLUMN_PACKED, "packed"},
                 {COLUMN_DROPOUT, "dropout"},         {COLUMN_LORA, "LoRA"}};
    size_t n = (size_t)snprintf(out, size, "%s %s", name[r->at[COLUMN_MODEL]],
                                precision[r->at[COLUMN_PRECISION]]);

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (r->at[sizes[i].column] > 1) {
            n += (size_t)snprintf(out + n, size - n, ", %s %d", sizes[i].word,
                                  r->at[sizes[i].column]);
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (r->at[words[i].column] > 0) {
            n += (size_t)snprintf(out + n, size - n, ", %s", words[i].word);
        }
    }
    (void)snprintf(out + n, size - n, "%s", again[r->at[COLUMN_AGAIN]]);
}

/* The request of a row, in the words of spec.def. */
static json_t *row_request(const struct row *r)
{
    static const char *const precision[PRECISION_COUNT] = {"f32", "bf16", "fp16"};
    static const char *const recompute[AGAIN_COUNT] = {"none", "selective", "full", "full"};
    const int *at = r->at;
    const bool is_double = sizeof(real) == sizeof(double);
    json_t *q = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:f, s:s, s:s, s:f, "
        "s:f}",
        "model", "models:tiny", "training_file", "t", "global_batch_size", ROW_BATCH,
        "micro_batch_size", 1, "sequence_length", ROW_SEQUENCE, "tensor_model_parallel_size",
        at[COLUMN_TP], "context_parallel_size", at[COLUMN_CP], "pipeline_model_parallel_size",
        at[COLUMN_PP], "num_virtual_stages_per_pipeline_rank", at[COLUMN_CHUNKS], "devices",
        at[COLUMN_TP] * at[COLUMN_CP] * at[COLUMN_PP] * at[COLUMN_DP], "sequence_parallel",
        at[COLUMN_SP] ? "yes" : "no", "use_distributed_optimizer",
        at[COLUMN_DISTRIBUTED] ? "yes" : "no", "dropout", at[COLUMN_DROPOUT] ? 0.1 : 0.0,
        "precision", precision[is_double ? F32 : at[COLUMN_PRECISION]], "recompute",
        recompute[at[COLUMN_AGAIN]], "initial_loss_scale", 1024.0, "loss_scale_window", 3.0);

    CHECK(q != NULL, "no memory");
    (void)json_object_set_new(q, "overlap_grad_reduce",
                              json_string(at[COLUMN_OVERLAP] ? "yes" : "no"));
    if (at[COLUMN_LORA] > 0) {
        (void)json_object_set_new(q, "lora_rank", json_integer(2));
        (void)json_object_set_new(q, "lora_dropout", json_real(at[COLUMN_DROPOUT] ? 0.2 : 0.0));
    }
    if (at[COLUMN_AGAIN] == BLOCK || at[COLUMN_AGAIN] == UNIFORM) {
        (void)json_object_set_new(q, "recompute_num_layers", json_integer(2));
        (void)json_object_set_new(q, "recompute_method",
                                  json_string(at[COLUMN_AGAIN] == BLOCK ? "block" : "uniform"));
    }
    if (at[COLUMN_MODEL] == MIXTRAL) {
        (void)json_object_set_new(q, "expert_model_parallel_size", json_integer(at[COLUMN_EP]));
        (void)json_object_set_new(q, "moe_z_loss_coeff", json_real(0.01));
        (void)json_object_set_new(q, "moe_aux_loss_scaling",
                                  json_string(at[COLUMN_PACKED] ? "huggingface" : "megatron"));
    }
    return q;
}

/* Valid until spec_free of its request; *out is not to be moved. Errors: BAD_SPEC, where the request breaks a rule. */
static int row_make(struct row_run *out, const struct row *r, int layers, struct err *err)
{
    *out = (struct row_run){0};
    name_row(out->name, sizeof out->name, r);
    (void)snprintf(out->config, sizeof out->config, "{%s%d}", models[r->at[COLUMN_MODEL]], layers);
    json_t *q = row_request(r);
    const int rc = spec_parse(&out->request, q, err);
    json_decref(q);
    TRY(rc);
    out->c = (struct job_case){.name = out->name,
                               .config = out->config,
                               .places = ROW_SEQUENCE,
                               .document = r->at[COLUMN_PACKED] ? ROW_DOCUMENT : 0,
                               .request = &out->request};
    return 0;
}

/* The same work on one rank that keeps everything. */
static struct row row_alone(const struct row *r)
{
    static const enum column ones[] = {COLUMN_TP,     COLUMN_CP, COLUMN_PP,
                                       COLUMN_CHUNKS, COLUMN_DP, COLUMN_EP},
                             noes[] = {COLUMN_SP, COLUMN_OVERLAP, COLUMN_DISTRIBUTED, COLUMN_AGAIN};
    struct row one = *r;

    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        one.at[ones[i]] = 1;
    }
    for (size_t i = 0; i < sizeof noes / sizeof noes[0]; i++) {
        one.at[noes[i]] = 0;
    }
    return one;
}

/* Runs on one rank, found once for all rows that are compared with it. */
struct alone {
    struct row row;
    int layers;
    struct found *found;
    size_t bytes;
};
static struct alone alones[ROW_COUNT];
static int alone_count;

/* NULL when it did not end well. */
static const struct found *run_alone(const struct row *r)
{
    static const struct mesh_sizes one_rank = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};
    const struct row one = row_alone(r);
    const int layers = row_layers(r);
    struct row_run run;
    struct err err = {0};

    for (int i = 0; i < alone_count; i++) {
        if (alones[i].layers == layers && memcmp(alones[i].row.at, one.at, sizeof one.at) == 0) {
            return alones[i].found;
        }
    }
    CHECK(row_make(&run, &one, layers, &err) == 0, "%s: %s", run.name, err.text);
    const struct arch a = case_arch(&run.c);
    alones[alone_count] = (struct alone){.row = one,
                                         .layers = layers,
                                         .found = run_layout(&run.c, &one_rank),
                                         .bytes = found_bytes(&a)};
    spec_free(&run.request);
    return alones[alone_count++].found;
}

static void free_alones(void)
{
    for (int i = 0; i < alone_count; i++) {
        if (alones[i].found != NULL) {
            (void)munmap(alones[i].found, alones[i].bytes);
        }
    }
    alone_count = 0;
}

/* How far a row may be from one rank. Gradients: as a part of the largest of their parameter, or of a thousandth of the
 * largest of all where that is more. Weights: likewise, but at least of `least` of the largest of all: Adam makes steps of
 * gradients that are but rounding, such as that of a key's bias. 0: not compared. */
struct tolerance {
    double loss, norm, gradient, weight, least;
};

static struct tolerance tolerance_of(const struct row *r)
{
    static const struct tolerance by[PRECISION_COUNT] = {
        [F32] = {1e-5, 1e-5, 1e-4, 1e-3, 1.0}, [BF16] = {.loss = 2e-2}, [FP16] = {.loss = 2e-2}};

    return sizeof(real) == sizeof(double) ? (struct tolerance){1e-9, 1e-9, 1e-9, 1e-9, 1e-3}
                                          : by[r->at[COLUMN_PRECISION]];
}

/* The largest difference of parameters, as in struct tolerance. */
static double off_by(const struct model *whole, const real *a, const real *b, double least)
{
    const int64_t n = params_count(&whole->d.arch);
    double largest = 0.0, worst = 0.0;

    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
    }
    for (int k = 0; k < whole->weight_count; k++) {
        const struct weight *w = &whole->weights[k];
        const struct param p = param_get(w->id, &whole->d.arch);
        const int64_t base = base_of(whole, w);
        double most = 0.0, size = least * largest;
        for (int64_t i = base; i < base + p.rows * p.cols; i++) {
            most = fmax(most, fabs((double)a[i] - (double)b[i]));
            size = fmax(size, fabs((double)b[i]));
        }
        worst = fmax(worst, most / size);
    }
    return worst;
}

/* What is trained has moved, each parameter of it; nothing else has. */
static void expect_moved(const struct model *whole, const struct found *f)
{
    const struct arch *a = &whole->d.arch;
    const real *after = f->weights, *before = f->weights + weights_room(a);

    for (int k = 0; k < whole->weight_count; k++) {
        const struct weight *w = &whole->weights[k];
        const struct param p = param_get(w->id, a);
        const int64_t base = base_of(whole, w);
        double most = 0.0;
        for (int64_t i = base; i < base + p.rows * p.cols; i++) {
            most = fmax(most, fabs((double)after[i] - (double)before[i]));
        }
        if (a->lora.r > 0 && !param_is_adapter(w->id)) {
            EXPECT(most <= 0.0);
        } else {
            EXPECT(most > (p.vector ? 0.0 : 1e-3));
        }
    }
}

/* Planned operations and bytes are those that were counted; rows to experts are no more than planned. */
static void expect_exchanged(const struct exchange *planned, const struct exchange *counted,
                             int rank)
{
    for (int g = 0; g < EXCHANGE_GROUPS; g++) {
        for (int kind = 0; kind < COMM_KIND_COUNT; kind++) {
            const int64_t count = LAYOUT_STEPS * planned->count[g][kind];
            const int64_t bytes = LAYOUT_STEPS * planned->bytes[g][kind];
            const bool to_experts = kind == (int)COMM_ALL_TO_ALL;
            if (counted->count[g][kind] != count || counted->bytes[g][kind] > bytes ||
                (counted->bytes[g][kind] < bytes && !to_experts)) {
                tap_bad_here++;
                printf("# rank %d, group %d, %s: %lld of %lld bytes, planned %lld of %lld\n", rank,
                       g, comm_kind_name((enum comm_kind)kind), (long long)counted->count[g][kind],
                       (long long)counted->bytes[g][kind], (long long)count, (long long)bytes);
            }
        }
    }
}

/* What the planner said of every rank, before any was started, is what each mapped and exchanged. */
static void expect_planned(const struct row_run *run, const struct arch *a, const struct found *f,
                           int ranks)
{
    struct err err = {0};

    for (int rank = 0; rank < ranks; rank++) {
        struct plan p;
        CHECK(plan_rank(&p, a, &run->request, 1, rank, &err) == 0, "%s", err.text);
        EXPECT(p.arenas == f->mapped[rank]);
        EXPECT(p.fingerprint == f->fingerprint[rank]);
        expect_exchanged(&p.step, &f->step[rank], rank);
    }
}

static void compare(const struct row *r, const struct row_run *run, const struct found *one,
                    const struct found *many, int ranks)
{
    const struct tolerance t = tolerance_of(r);
    const struct arch a = case_arch(&run->c);
    const int64_t room = weights_room(&a), n = params_count(&a);
    const struct dims d = dims_inference(&a, DTYPE_REAL, 1, ROW_SEQUENCE, 1);
    struct model *whole = NULL;
    struct err err = {0};
    double loss = 0.0, gradients = 0.0, weights = 0.0;

    CHECK(model_whole(&whole, &d, &err) == 0, "%s", err.text);
    for (int i = 0; i < LAYOUT_STEPS; i++) {
        EXPECT_NEAR(many->loss[i], one->loss[i], t.loss);
        EXPECT_NEAR(many->aux[i], one->aux[i], t.loss);
        EXPECT_NEAR(many->z[i], one->z[i], t.loss);
        loss = fmax(loss, fabs(many->loss[i] - one->loss[i]));
        if (t.norm > 0.0) {
            EXPECT_NEAR(many->norm[i], one->norm[i], t.norm);
        }
        for (int rank = 0; rank < ranks; rank++) {
            EXPECT(many->skipped[rank][i] == one->skipped[0][i]);
            EXPECT(many->scale[rank][i] == one->scale[0][i]);
        }
        EXPECT(!one->skipped[0][i]);
    }
    EXPECT(one->loss[LAYOUT_STEPS - 1] < one->loss[0]);
    gradients = off_by(whole, many->weights + 2 * room, one->weights + 2 * room, 1e-3);
    weights = off_by(whole, many->weights, one->weights, t.least);
    EXPECT(!(t.gradient > 0.0) || gradients < t.gradient);
    EXPECT(!(t.weight > 0.0) || weights < t.weight);
    if (a.tied && r->at[COLUMN_PP] > 1) { /* both copies are one */
        EXPECT(memcmp(many->weights, many->weights + n, (size_t)(a.V * a.D) * sizeof(real)) == 0);
    }
    expect_moved(whole, many);
    expect_planned(run, &a, many, ranks);
    printf("# %s: loss %.4f to %.4f; off by %.0e, gradients %.0e, weights %.0e\n", run->name,
           one->loss[0], one->loss[LAYOUT_STEPS - 1], loss, gradients, weights);
    model_free(whole);
}

static void run_row(const struct row *r)
{
    const struct found *one = run_alone(r);
    struct row_run run;
    struct err err = {0};

    CHECK(row_make(&run, r, row_layers(r), &err) == 0, "%s: %s", run.name, err.text);
    const struct mesh_sizes mesh = plan_mesh(&run.request);
    const struct arch a = case_arch(&run.c);
    struct found *many = run_layout(&run.c, &mesh);
    EXPECT(one != NULL && many != NULL);
    if (one != NULL && many != NULL) {
        compare(r, &run, one, many, mesh.tp * mesh.cp * mesh.dp * mesh.pp);
    } else {
        printf("# %s: a rank ended\n", run.name);
    }
    if (many != NULL) {
        (void)munmap(many, found_bytes(&a));
    }
    spec_free(&run.request);
}

/* Those that are run every time, or with HONE_LAYOUTS=all in the environment all; with a number that row alone. */
static void rows_are_one_rank(void)
{
    const char *which = getenv("HONE_LAYOUTS");
    const bool all = which != NULL && strcmp(which, "all") == 0;
    const int only = which != NULL && !all ? atoi(which) : 0;
    int count = 0;

    for (int i = 0; i < (int)ROW_COUNT; i++) {
        if (only > 0 ? only == i + 1 : all || rows[i].set == PAIRS) {
            const int bad = tap_bad_here;
            run_row(&rows[i]);
            count++;
            printf("%s", tap_bad_here > bad ? "# the row above fails\n" : "");
            (void)fflush(stdout);
        }
    }
    free_alones();
    printf("# %d of %d rows\n", count, (int)ROW_COUNT);
    EXPECT(count > 0);
}

#endif
