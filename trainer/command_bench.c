/* command_bench.c - `hone-train bench`: how fast a training step is, as a ratio to this machine's peak.
 *
 * Useful work of a step, in floating point operations: 6 for each token and each number of a matrix that a
 * token is multiplied with (embedding look-ups are none), and 6 S H K for each token and layer of causal
 * attention. Peak: fused multiply-adds on the widest vectors (kernels_cpu_probe), measured with the same threads
 * right before and after each step; their mean is used.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/clock.h"
#include "trainer/base/json.h"
#include "trainer/commands.h"
#include "trainer/step.h"

static const char usage[] = "usage: hone-train bench [options]\n"
                            "  --config FILE       config.json of the model (default: Llama 35M)\n"
                            "  --batch B --sequence S --steps N    default 4, 256, 7\n"
                            "  --precision f32|bf16 --recompute none|selective|full --threads N\n"
                            "  --json              one object instead of a line\n";

/* 6 layers, width 384, MLP 1024, vocabulary 32000. */
static const char preset[] =
    "{\"model_type\":\"llama\",\"hidden_size\":384,\"intermediate_size\":1024,"
    "\"num_hidden_layers\":6,\"num_attention_heads\":6,\"vocab_size\":32000,"
    "\"max_position_embeddings\":4096}";

struct bench {
    json_t *config; /* owned */
    struct spec spec;
    struct arch arch;
    struct dims dims;
    struct engine engine;
    struct data_rows rows; /* ids owns the memory of all four */
    int64_t steps;
    int threads;
    bool json;
};

static double step_flop(const struct dims *d)
{
    const double tokens = (double)(d->micros * d->R);
    const double matrices = (double)params_active(&d->arch) -
                            (d->arch.tied ? 0.0 : (double)(d->V * d->D)) -
                            (d->arch.learned_positions ? (double)(d->arch.positions * d->D) : 0.0);

    return tokens * (6.0 * matrices + 6.0 * (double)(d->S * d->H * d->K * d->L));
}

/* Random tokens, fixed by their place. */
static int fill_rows(struct bench *b, struct err *err)
{
    const int64_t n = b->dims.micros * b->dims.R;
    int32_t *memory = calloc((size_t)n, 4 * sizeof *memory);
    uint32_t x = 1;

    if (memory == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld tokens", (long long)n);
    }
    b->rows = (struct data_rows){memory, memory + n, memory + 2 * n, memory + 3 * n};
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U;
        b->rows.ids[i] = (int32_t)((x >> 8) % (uint32_t)b->dims.V);
        b->rows.positions[i] = (int32_t)(i % b->dims.S);
    }
    for (int64_t i = 0; i < n; i++) {
        b->rows.labels[i] = b->rows.ids[(i + 1) % n];
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *list, int64_t n)
{
    qsort(list, (size_t)n, sizeof *list, by_size);
    return n % 2 != 0 ? list[n / 2] : 0.5 * (list[n / 2 - 1] + list[n / 2]);
}

static void report(const struct bench *b, double seconds, double ratio, double peak, double loss)
{
    const double tokens = (double)(b->dims.micros * b->dims.R);

    if (b->json) {
        json_t *out = json_pack("{s:I, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:I}", "parameters",
                                (json_int_t)params_count(&b->arch), "precision",
                                dtype_name(b->dims.act), "isa", b->engine.k->isa, "threads",
                                b->threads, "seconds", seconds, "tokens_per_s", tokens / seconds,
                                "of_fma_peak", ratio, "fma_peak_flops", peak, "loss", loss,
                                "arena_bytes", (json_int_t)layout_bytes(&b->engine.layout));
        (void)json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        (void)putchar('\n');
        json_decref(out);
        return;
    }
    printf("%.1f M parameters, %lld x %lld tokens, %s, %s, %d threads: %.3f s a step, %.0f "
           "tokens/s, %.3f of the FMA peak (%.0f GF/s), %.2f GiB\n",
           (double)params_count(&b->arch) / 1e6, (long long)b->dims.micros * (long long)b->dims.B,
           (long long)b->dims.S, dtype_name(b->dims.act), b->engine.k->isa, b->threads, seconds,
           tokens / seconds, ratio, peak / 1e9, (double)layout_bytes(&b->engine.layout) / 0x1p30);
}

static int measure(struct bench *b, struct err *err)
{
    double *seconds = calloc(3 * (size_t)b->steps, sizeof *seconds);
    struct step_result result = {0};
    struct step_input in = {.rows = &b->rows,
                            .trained = b->dims.micros * b->dims.R,
                            .clip = 1.0,
                            .adamw = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}};

    if (seconds == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld steps", (long long)b->steps);
    }
    double *ratio = seconds + b->steps, *peak = ratio + b->steps;
    in.step = 1;
    step_run(&b->engine, &in, &result); /* makes oneDNN's code */
    for (int64_t i = 0; i < b->steps; i++) {
        const double before = kernels_cpu_probe(b->threads, 30);
        const double start = clock_seconds();
        in.step++;
        step_run(&b->engine, &in, &result);
        seconds[i] = clock_seconds() - start;
        peak[i] = 0.5 * (before + kernels_cpu_probe(b->threads, 30));
        ratio[i] = step_flop(&b->dims) / seconds[i] / peak[i];
    }
    report(b, median(seconds, b->steps), median(ratio, b->steps), median(peak, b->steps),
           result.loss);
    free(seconds);
    return 0;
}

static int read_recompute(struct bench *b, const char *text, struct err *err)
{
    static const char *const words[] = {"none", "selective", "full"};

    for (int i = 0; i <= (int)RECOMPUTE_FULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            b->spec.recompute = i;
            return 0;
        }
    }
    return FAIL(err, ERR_BAD_REQUEST, "--recompute must be none, selective or full, not %s", text);
}

static int read_option(struct bench *b, int option, const char *text, struct err *err)
{
    long long n = 0;

    switch (option) {
    case 'c': json_decref(b->config); return json_parse_file(&b->config, text, 1 << 20, err);
    case 'b':
        TRY(command_integer("batch", text, 1, 65536, &n, err));
        b->spec.global_batch_size = n;
        return 0;
    case 's':
        TRY(command_integer("sequence", text, 2, 1 << 20, &n, err));
        b->spec.sequence_length = n;
        return 0;
    case 'n':
        TRY(command_integer("steps", text, 1, 100000, &n, err));
        b->steps = n;
        return 0;
    case 't':
        TRY(command_integer("threads", text, 1, 1024, &n, err));
        b->threads = (int)n;
        return 0;
    case 'p':
        if (strcmp(text, "f32") != 0 && strcmp(text, "bf16") != 0) {
            return FAIL(err, ERR_BAD_REQUEST, "--precision must be f32 or bf16, not %s", text);
        }
        b->spec.precision = strcmp(text, "bf16") == 0 ? PRECISION_BF16 : PRECISION_F32;
        return 0;
    case 'r': return read_recompute(b, text, err);
    case 'j': b->json = true; return 0;
    default: fputs(usage, stderr); return FAIL(err, ERR_BAD_REQUEST, "no such option");
    }
}

static int bench(struct bench *b, int argc, char **argv, struct err *err)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"batch", required_argument, NULL, 'b'},
                                            {"sequence", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"precision", required_argument, NULL, 'p'},
                                            {"recompute", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};

    TRY(json_parse_text(&b->config, preset, strlen(preset), "preset", err));
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        TRY(read_option(b, o, optarg, err));
    }
    TRY(arch_read(&b->arch, b->config, 0, err));
    b->dims = dims_make(&b->arch, &b->spec, b->spec.global_batch_size, b->spec.sequence_length,
                        b->threads);
    TRY(engine_open(&b->engine, &b->dims, "", err));
    model_init(b->engine.model, b->engine.k, &b->engine.q, 1);
    TRY(fill_rows(b, err));
    return measure(b, err);
}

int command_bench(int argc, char **argv)
{
    struct err err = {0};
    struct bench b = {.spec = {.global_batch_size = 4, .sequence_length = 256},
                      .steps = 7,
                      .threads = command_threads()};
    const int rc = bench(&b, argc, argv, &err);

    free(b.rows.ids);
    engine_close(&b.engine);
    json_decref(b.config);
    return rc != 0 ? command_failed(&err) : 0;
}
