/* test_overlap.c - sums of gradients that overlap with the backward pass: when they start and are awaited, as a trace of operations
 * and kernels tells; and that the numbers are those of sums behind it, bit for bit.
 */
#include "tests/layouts.h"

enum { TRACE = 4000, BLOCKS = 4 };

/* What happened, in order: 'S' an operation of the data-parallel group on gradients was started, 'W' awaited, 'B' a kernel of
 * the backward pass of a block ran. */
static char trace[TRACE + 1];
static int traced;
static const struct kernels *real_kernels;

static void note(char what)
{
    CHECK(traced < TRACE, "a long trace");
    trace[traced++] = what;
}

/* A peer that has the same gradients as this rank: nothing moves. Sums of losses and norms are single elements. */
static comm_ticket pretend_start(struct comm *c, struct queue *q, const struct comm_order *o)
{
    (void)c;
    (void)q;
    const bool of_gradients = tensor_count(o->in) > 2 && o->kind != COMM_ALL_GATHER;
    if (of_gradients) {
        note('S');
    }
    return of_gradients ? 1 : 2;
}

static void pretend_wait(struct comm *c, struct queue *q, comm_ticket ticket)
{
    (void)c;
    (void)q;
    if (ticket == 1) {
        note('W');
    }
}

static const struct comm_ops pretend = {
    .name = "pretend", .start = pretend_start, .wait = pretend_wait};

static void traced_backward(struct queue *q, struct tensor dh, struct tensor da, struct tensor h)
{
    note('B');
    real_kernels->swiglu_backward(q, dh, da, h);
}

static const char llama[] =
    "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":101,"
    "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";
static const char gpt2[] = "{\"model_type\":\"gpt2\",\"n_embd\":16,\"n_layer\":4,\"n_head\":4,"
                           "\"vocab_size\":97,\"n_positions\":32}";
static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"vocab_size\":101,\"max_position_embeddings\":32,\"num_local_experts\":4,"
    "\"tie_word_embeddings\":false}";

/* The trace of one step of a rank with a pretended peer; valid until the next. */
static const char *trace_step(struct job_case c)
{
    const struct mesh_sizes sizes = {.tp = 1, .cp = 1, .dp = 2, .pp = 1, .ep = 1};
    const struct arch a = case_arch(&c);
    struct kernels table;
    struct mesh mesh;
    struct engine e;
    struct step_result r;
    struct err err = {0};
    int32_t *memory = NULL;

    CHECK(mesh_make(&mesh, &sizes, 0, &err) == 0, "%s", err.text);
    const struct dims d = case_dims(&c, &a, &mesh);
    CHECK(engine_open(&e, &d, "", &err) == 0, "%s", err.text);
    real_kernels = e.k;
    table = *e.k;
    table.swiglu_backward = traced_backward;
    e.k = &table;
    e.dp = (struct comm){.ops = &pretend, .rank = 0, .size = 2};
    e.edp = e.dp;
    model_init(e.model, e.k, &e.q, 1);
    const struct data_rows rows = rows_new(&c, &memory);
    const struct step_input in = input_of(&c, &rows, a.V, 1);
    traced = 0;
    step_gradients(&e, &in, &r);
    trace[traced] = '\0';
    EXPECT(r.grad_norm > 0.0);
    free(memory);
    e.dp = comm_self();
    e.edp = comm_self();
    engine_close(&e);
    return trace;
}

static int count(const char *text, char what)
{
    int n = 0;

    for (; *text != '\0'; text++) {
        n += *text == what;
    }
    return n;
}

/* Operations that had started, and those that were awaited, when the last block's backward pass began. */
static void see(const char *text, int *started, int *awaited)
{
    const char *last = strrchr(text, 'B');

    *started = *awaited = 0;
    for (const char *at = text; at < last; at++) {
        *started += *at == 'S';
        *awaited += *at == 'W';
    }
}

static void sums_start_before_the_backward_pass_is_over(void)
{
    /* whole gradients: an operation for each parameter; slices: for each bucket, some of which lie in several blocks */
    const struct job_case cases[] = {
        {.name = "whole", .config = llama, .micro_batch = 1},
        {.name = "slices", .config = llama, .micro_batch = 1, .distributed = true, .bucket = 3000},
        {.name = "frozen",
         .config = llama,
         .micro_batch = 1,
         .distributed = true,
         .bucket = 3000,
         .freeze = "*.layers.2.*,*norm*"}};

    for (int i = 0; i < 3; i++) {
        struct job_case c = cases[i];
        int started = 0, awaited = 0;
        see(trace_step(c), &started, &awaited);
        EXPECT(started == 0 && awaited == 0);
        const int all = count(trace, 'S'), blocks = count(trace, 'B');
        EXPECT(all > BLOCKS && count(trace, 'W') == all);

        c.overlaps = true;
        see(trace_step(c), &started, &awaited);
        printf("# %s: %d of %d operations started before the last of %d passes of blocks\n", c.name,
               started, all, blocks);
        EXPECT(count(trace, 'S') == all && count(trace, 'W') == all);
        EXPECT(count(trace, 'B') == blocks && blocks == 2 * BLOCKS); /* two microbatches */
        EXPECT(started >= all / 2);
        EXPECT(awaited == 0 || all > GRADS_PENDING);
        /* none in the first microbatch: gradients are final in the last */
        const char *first = strchr(trace, 'S');
        EXPECT(first != NULL && first - trace >= BLOCKS);
    }
}

static void drop(const struct job_case *c, struct found *f)
{
    const struct arch a = case_arch(c);

    if (f != NULL) {
        (void)munmap(f, found_bytes(&a));
    }
}

static void overlap_changes_no_bit(void)
{
    static const struct {
        struct job_case c;
        struct mesh_sizes mesh;
    } cases[] = {
        {{.name = "Llama, dp 4", .config = llama}, {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .ep = 1}},
        {{.name = "Llama, slices, tp 2 dp 2",
          .config = llama,
          .distributed = true,
          .bucket = 1000,
          .sequence = true},
         {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1}},
        {{.name = "GPT-2, tied, slices, pp 2 dp 2",
          .config = gpt2,
          .distributed = true,
          .bucket = 500,
          .chunks = 2},
         {.tp = 1, .cp = 1, .dp = 2, .pp = 2, .ep = 1}},
        {{.name = "GPT-2, tied, bf16, tp 2 pp 2 dp 2",
          .config = gpt2,
          .precision = PRECISION_BF16,
          .recompute = RECOMPUTE_FULL},
         {.tp = 2, .cp = 1, .dp = 2, .pp = 2, .ep = 1}},
        {{.name = "Mixtral, slices, ep 2 dp 4",
          .config = mixtral,
          .distributed = true,
          .bucket = 500},
         {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .ep = 2}},
        {{.name = "adapters, cp 2 dp 2", .config = llama, .lora_rank = 2, .distributed = true},
         {.tp = 1, .cp = 2, .dp = 2, .pp = 1, .ep = 1}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_case c = cases[i].c;
        const struct arch a = case_arch(&c);
        struct found *behind = run_layout(&c, &cases[i].mesh);
        c.overlaps = true;
        struct found *over = run_layout(&c, &cases[i].mesh);
        EXPECT(behind != NULL && over != NULL);
        if (behind != NULL && over != NULL) {
            const bool same = memcmp(behind->loss, over->loss, sizeof over->loss) == 0 &&
                              memcmp(behind->norm, over->norm, sizeof over->norm) == 0 &&
                              memcmp(behind->weights, over->weights,
                                     (size_t)params_count(&a) * sizeof(real)) == 0;
            EXPECT(same && over->loss[LAYOUT_STEPS - 1] < over->loss[0]);
            printf("# %s: %s\n", c.name, same ? "same bits" : "other bits");
        }
        drop(&c, behind);
        drop(&c, over);
    }
}

int main(void)
{
    RUN(sums_start_before_the_backward_pass_is_over);
    RUN(overlap_changes_no_bit);
    return tap_done();
}
