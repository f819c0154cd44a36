/* test_memory.c - planned bytes are the bytes that a rank uses, by the layout's own account and by the system's. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/comm/shm.h"
#include "trainer/plan.h"
#include "trainer/ranks.h"
#include "trainer/step.h"

/* A model of 20 million parameters: half of its bytes are activations and logits. */
static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":384,\"intermediate_size\":1024,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
    "\"vocab_size\":16000,\"max_position_embeddings\":256}";

struct job {
    struct arch arch;
    struct spec spec;
    struct plan plan;
    struct dims dims;
};

/* rank: of adapters on all layers; 0: the whole model is trained. */
static void job_make_adapted(struct job *j, const char *more, int64_t rank)
{
    char text[1024];
    struct err err = {0};

    (void)snprintf(text, sizeof text,
                   "{\"config\":%s,\"tokenizer\":\"t\",\"training_file\":\"f\","
                   "\"global_batch_size\":4,\"micro_batch_size\":4,\"max_steps\":10%s}",
                   config, more);
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "%s", text);
    CHECK(spec_parse(&j->spec, request, &err) == 0, "%s", err.text);
    json_decref(request);
    CHECK(plan_config_arch(&j->arch, &j->spec, 0, &err) == 0, "%s", err.text);
    if (rank > 0) {
        j->arch.lora =
            (struct lora_choice){.r = rank,
                                 .alpha = 16,
                                 .dropout = 0.1,
                                 .targets = (1U << LORA_TARGETS) - 1U - (1U << LORA_QKV)};
    }
    CHECK(plan_make(&j->plan, &j->arch, &j->spec, 2, &err) == 0, "%s", err.text);
    j->dims = dims_make(&j->arch, &j->spec, 4, 256, 2);
}

static void job_make(struct job *j, const char *more)
{
    job_make_adapted(j, more, 0);
}

/* Peak resident bytes of this process. */
static size_t peak_resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long kb = 0;

    CHECK(f != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "VmHWM: %lld kB", &kb) == 1) {
            break;
        }
    }
    (void)fclose(f);
    return (size_t)kb << 10;
}

static void run_steps(const struct job *j, struct engine *e, int steps)
{
    const int64_t n = j->spec.global_batch_size * j->dims.S_all;
    int32_t *memory = calloc((size_t)n, 4 * sizeof *memory);

    CHECK(memory != NULL, "out of memory");
    const struct data_rows rows = {memory, memory + n, memory + 2 * n, memory + 3 * n};
    for (int64_t i = 0; i < n; i++) {
        rows.ids[i] = (int32_t)(i * 7 % j->dims.V);
        rows.labels[i] = (int32_t)((i + 1) * 7 % j->dims.V);
        rows.positions[i] = (int32_t)(i % j->dims.S_all);
    }
    for (int step = 1; step <= steps; step++) {
        struct step_result result;
        const struct step_input in = {
            .rows = &rows,
            .trained = n,
            .step = step,
            .clip = 1.0,
            .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};
        step_run(e, &in, &result);
        CHECK(isfinite(result.loss), "step %d", step);
    }
    free(memory);
}

/* In a child, so that nothing else has touched its memory: 0 when the peak lies in [0.9, 1.0] of the plan. */
static int measure(const struct job *j, const char *what)
{
    struct engine e;
    struct err err = {0};

    CHECK(engine_open(&e, &j->dims, "", &err) == 0, "%s", err.text);
    CHECK(layout_bytes(&e.layout) == j->plan.arenas, "%zu bound, %zu planned",
          layout_bytes(&e.layout), j->plan.arenas);
    model_init(e.model, e.k, &e.q, 1);
    model_init_adapters(e.model, e.k, &e.q, 1);
    run_steps(j, &e, 10);
    const double ratio = (double)peak_resident() / (double)j->plan.total;
    printf("# %s: %.1f MB resident, %.1f MB planned (%.1f MB of it constants): %.3f\n", what,
           (double)peak_resident() / 1e6, (double)j->plan.total / 1e6,
           (double)j->plan.constants / 1e6, ratio);
    engine_close(&e);
    return ratio >= 0.9 && ratio <= 1.0 ? 0 : 1;
}

static void expect_plan_holds(const char *more, int64_t rank)
{
    struct job j;
    int status = -1;

    job_make_adapted(&j, more, rank);
    (void)fflush(stdout);
    const pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        const int bad = measure(&j, more);
        (void)fflush(stdout);
        _exit(bad);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    spec_free(&j.spec);
}

/* Sanitizers have memory of their own beside the program's. */
static bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void lose(void *context, const char *why)
{
    (void)context;
    (void)fprintf(stderr, "%s\n", why);
    _exit(9);
}

/* As measure(), of one rank of several. */
static int measure_rank(const struct job *all, struct shm *shm, const struct mesh_sizes *sizes,
                        int rank)
{
    struct job j = *all;
    struct run_sizes run;
    struct shm_rank *r = NULL;
    struct mesh mesh;
    struct engine e;
    struct err err = {0};

    CHECK(mesh_make(&mesh, sizes, rank, &err) == 0, "%s", err.text);
    CHECK(run_sizes_make(&run, &j.arch, &j.spec, &err) == 0, "%s", err.text);
    CHECK(plan_dims(&j.dims, &j.arch, &j.spec, &run, &mesh, &err) == 0, "%s", err.text);
    CHECK(plan_rank(&j.plan, &j.arch, &j.spec, 1, rank, &err) == 0, "%s", err.text);
    CHECK(engine_open(&e, &j.dims, "", &err) == 0, "%s", err.text);
    CHECK(shm_join(&r, shm, rank, e.k, 60000, lose, NULL, &err) == 0, "%s", err.text);
    CHECK(ranks_join(&e, r, &mesh, &err) == 0, "%s", err.text);
    model_init(e.model, e.k, &e.q, 1);
    run_steps(&j, &e, 1); /* all is touched in the first */
    const double ratio = (double)peak_resident() / (double)j.plan.total;
    printf("# rank %d of tp %d, cp %d, pp %d, dp %d: %.1f MB resident, %.1f MB planned: %.3f\n",
           rank, sizes->tp, sizes->cp, sizes->pp, sizes->dp, (double)peak_resident() / 1e6,
           (double)j.plan.total / 1e6, ratio);
    ranks_leave(&e);
    shm_leave(r);
    engine_close(&e);
    return ratio >= 0.9 && ratio <= 1.0 ? 0 : 1;
}

static void expect_ranks_hold(const char *more)
{
    struct job j;
    struct shm *shm = NULL;
    struct err err = {0};
    pid_t pids[4] = {0};

    job_make(&j, more);
    const struct mesh_sizes sizes = plan_mesh(&j.spec);
    const struct shm_sizes room = ranks_shm(&sizes);
    CHECK(room.ranks <= 4 && shm_make(&shm, &room, &err) == 0, "%s", err.text);
    (void)fflush(stdout);
    for (int rank = 0; rank < room.ranks; rank++) {
        pids[rank] = fork();
        CHECK(pids[rank] >= 0, "fork");
        if (pids[rank] == 0) {
            const int bad = measure_rank(&j, shm, &sizes, rank);
            (void)fflush(stdout);
            _exit(bad);
        }
    }
    for (int i = 0; i < room.ranks; i++) {
        int status = -1;
        const pid_t ended = wait(&status);
        const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        for (int rank = 0; rank < room.ranks && !well; rank++) {
            if (pids[rank] == ended) {
                shm_mark_lost(shm, rank);
            }
        }
        EXPECT(well);
    }
    shm_free(shm);
    spec_free(&j.spec);
}

/* Each rank by its own plan: stages of a pipeline differ. */
static void the_system_agrees_with_the_plan_of_every_rank(void)
{
    if (is_sanitized()) {
        printf("# skipped: sanitizers have memory of their own\n");
        return;
    }
    expect_ranks_hold(",\"tensor_model_parallel_size\":2,\"sequence_parallel\":\"yes\"");
    expect_ranks_hold(",\"pipeline_model_parallel_size\":2,\"micro_batch_size\":2");
    expect_ranks_hold(",\"devices\":2,\"micro_batch_size\":2,\"use_distributed_optimizer\":"
                      "\"yes\",\"precision\":\"bf16\"");
    expect_ranks_hold(",\"context_parallel_size\":2,\"devices\":4,\"micro_batch_size\":2");
}

static void the_system_agrees_with_the_plan(void)
{
    if (is_sanitized()) {
        printf("# skipped: sanitizers have memory of their own\n");
        return;
    }
    expect_plan_holds("", 0);
    expect_plan_holds(",\"precision\":\"bf16\"", 0);
    expect_plan_holds(",\"recompute\":\"full\"", 0);
    expect_plan_holds("", 8);
    expect_plan_holds(",\"recompute\":\"full\"", 8);
    expect_plan_holds(",\"freeze\":\"model.embed_tokens,model.layers.0,model.layers.1\"", 0);
}

static void more_threads_layers_and_rows_need_more(void)
{
    struct job small, longer;
    struct err err = {0};
    struct plan more_threads;

    job_make(&small, ",\"sequence_length\":128");
    job_make(&longer, ",\"sequence_length\":256");
    EXPECT(longer.plan.total > small.plan.total);
    EXPECT(longer.plan.region[LIFE_WEIGHT] >= small.plan.region[LIFE_WEIGHT]);
    EXPECT(longer.plan.region[LIFE_OPTIMIZER] == small.plan.region[LIFE_OPTIMIZER]);
    EXPECT(longer.plan.region[LIFE_SAVED] > small.plan.region[LIFE_SAVED] * 19 / 10);
    EXPECT(plan_make(&more_threads, &small.arch, &small.spec, 16, &err) == 0);
    EXPECT(more_threads.total > small.plan.total);
    spec_free(&small.spec);
    spec_free(&longer.spec);
}

/* Weights 4, gradients 4, moments 8 bytes a parameter, and what alignment adds. */
static void static_bytes_are_sixteen_a_parameter(void)
{
    struct job j;

    job_make(&j, "");
    const double parameters = (double)j.plan.parameters;
    const size_t *r = j.plan.region;
    const double fixed = (double)(r[LIFE_WEIGHT] + r[LIFE_GRAD] + r[LIFE_OPTIMIZER]);
    EXPECT(fixed >= 16.0 * parameters && fixed < 16.1 * parameters);
    spec_free(&j.spec);
    job_make(&j, ",\"precision\":\"bf16\"");
    EXPECT((double)j.plan.region[LIFE_WEIGHT] < 2.1 * parameters);
    EXPECT((double)j.plan.region[LIFE_OPTIMIZER] >= 12.0 * parameters);
    spec_free(&j.spec);
}

int main(void)
{
    RUN(the_system_agrees_with_the_plan);
    RUN(the_system_agrees_with_the_plan_of_every_rank);
    RUN(more_threads_layers_and_rows_need_more);
    RUN(static_bytes_are_sixteen_a_parameter);
    return tap_done();
}
