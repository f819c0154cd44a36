/* bench_kernels.c - speed of the kernels as ratios to the multiply-add probe taken before and after.
 *
 * usage: bench_kernels [threads [milliseconds per case [g|a|r]]]     gemm, attention, rows
 * One thread is timed by its processor time, several by the clock on the wall.
 * Each line: what, time of one call, rate, ratio to the mean of the two probes (f32 flop/s), and the
 * ratio of the probes to each other: far from 1, the machine changed meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/check.h"
#include "kernels/kernels.h"
#include "kernels/workspace.h"

static const struct kernels *k;
static int threads = 2, case_ms = 200;
static struct queue queue;

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Huge pages, as the ranks' arenas have them. */
static void *map(size_t bytes)
{
    const size_t huge = (size_t)2 << 20, size = (bytes + huge - 1) / huge * huge + huge;
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED, "%zu bytes", size);
    (void)madvise(p, size, MADV_HUGEPAGE);
    return p + (huge - (uintptr_t)p % huge) % huge;
}

static struct tensor take(enum dtype type, int64_t rows, int64_t cols)
{
    struct tensor t = tensor_make(NULL, type, rows, cols);

    t.data = map(tensor_bytes(t));
    for (int64_t i = 0; i < rows * cols && type == DTYPE_F32; i++) {
        ((float *)t.data)[i] = (float)((i * 2654435761 >> 7) % 2001 - 1000) * 1e-3F;
    }
    return t;
}

static struct tensor take_as(enum dtype type, int64_t rows, int64_t cols)
{
    const struct tensor f = take(DTYPE_F32, rows, cols), t = take(type, rows, cols);

    k->cast(&queue, t, f);
    (void)munmap(f.data, tensor_bytes(f));
    return t;
}

/* Time of one call: the best of repetitions that fill the case's time. */
static double time_of(void (*call)(void *), void *arg)
{
    const double start = now();
    double best = 1e9;

    call(arg);
    do {
        const double t0 = now();
        call(arg);
        const double t = now() - t0;
        best = t < best ? t : best;
    } while ((now() - start) * 1e3 < case_ms);
    return best;
}

static void report(const char *what, void (*call)(void *), void *arg, double flop, double bytes)
{
    const double before = kernels_cpu_probe(threads, 20), t = time_of(call, arg);
    const double after = kernels_cpu_probe(threads, 20), probe = (before + after) / 2;

    printf("%-44s %9.3f ms", what, t * 1e3);
    if (flop > 0) {
        printf(" %7.1f Gflop/s %5.2f", flop / t * 1e-9, flop / t / probe);
    }
    if (bytes > 0) {
        printf(" %7.1f GB/s", bytes / t * 1e-9);
    }
    printf("  (%.2f)\n", after / before);
    fflush(stdout);
}

struct product {
    struct tensor c, a, b;
    enum trans ta, tb;
    float beta;
};

static void run_gemm(void *arg)
{
    const struct product *p = arg;

    k->gemm(&queue, p->c, p->a, p->ta, p->b, p->tb, p->beta);
}

/* Forward (NT), gradient of the input (NN), gradient of the weight (TN, added). */
static void bench_linear(int64_t R, int64_t N, int64_t K, enum dtype type)
{
    const struct tensor x = take_as(type, R, K), w = take_as(type, N, K), y = take_as(type, R, N);
    const struct tensor dw = take(DTYPE_F32, N, K);
    struct product forms[3] = {{y, x, w, AS_IS, TRANSPOSED, 0.0F},
                               {x, y, w, AS_IS, AS_IS, 0.0F},
                               {dw, y, x, TRANSPOSED, AS_IS, 1.0F}};
    static const char *const names[] = {"NT", "NN", "TN"};
    char what[80];

    for (int i = 0; i < 3; i++) {
        (void)snprintf(what, sizeof(what), "gemm %s %s %lld x %lld x %lld", dtype_name(type),
                       names[i], (long long)R, (long long)N, (long long)K);
        report(what, run_gemm, &forms[i], 2.0 * (double)R * (double)N * (double)K, 0);
    }
    (void)munmap(x.data, tensor_bytes(x));
    (void)munmap(w.data, tensor_bytes(w));
    (void)munmap(y.data, tensor_bytes(y));
    (void)munmap(dw.data, tensor_bytes(dw));
}

struct attention {
    struct attention_shape s;
    struct tensor qkv, out, lse, first, dout, dqkv;
};

static void run_forward(void *arg)
{
    const struct attention *a = arg;

    k->attention_forward(&queue, a->out, a->lse, a->qkv, a->first, &a->s, NULL, NULL);
}

static void run_backward(void *arg)
{
    const struct attention *a = arg;
    const struct tensor saved[3] = {a->out, a->lse, a->qkv};

    k->attention_backward(&queue, a->dqkv, a->dout, saved, a->first, &a->s, NULL, NULL);
}

static void bench_attention(struct attention_shape s, enum dtype type)
{
    const int64_t R = s.B * s.S, row = (s.H + 2 * s.G) * s.K;
    struct attention a = {s,
                          take_as(type, R, row),
                          take_as(type, R, s.H * s.K),
                          take(DTYPE_F32, R, s.H),
                          take(DTYPE_I32, R, 1),
                          take_as(type, R, s.H * s.K),
                          take_as(type, R, row)};
    /* Causal: half of two products forward, of five backward. */
    const double flop = 2.0 * (double)(s.B * s.H * s.S * s.S * s.K);
    char what[80];

    (void)snprintf(what, sizeof(what), "attention %s B%lld S%lld H%lld/%lld K%lld",
                   dtype_name(type), (long long)s.B, (long long)s.S, (long long)s.H, (long long)s.G,
                   (long long)s.K);
    report(what, run_forward, &a, flop, 0);
    report("  backward", run_backward, &a, 2.5 * flop, 0);
}

struct rows {
    struct tensor y, x, z, w, b, s, t, labels;
};

static void run_layernorm(void *arg)
{
    const struct rows *a = arg;

    k->layernorm_forward(&queue, a->y, a->s, a->t, a->x, a->w, a->b, 1e-5);
}

static void run_layernorm_backward(void *arg)
{
    const struct rows *a = arg;
    const struct tensor stats[2] = {a->s, a->t};

    k->layernorm_backward(&queue, a->y, a->w, a->b, a->z, a->x, a->w, stats);
}

static void run_rmsnorm(void *arg)
{
    const struct rows *a = arg;

    k->rmsnorm_forward(&queue, a->y, a->t, a->x, a->w, 1e-5);
}

static void run_gelu(void *arg)
{
    const struct rows *a = arg;

    k->activation_forward(&queue, a->y, a->x, ACT_GELU_TANH);
}

static void run_gelu_backward(void *arg)
{
    const struct rows *a = arg;

    k->activation_backward(&queue, a->y, a->z, a->x, ACT_GELU_TANH);
}

static void run_gelu_erf(void *arg)
{
    const struct rows *a = arg;

    k->activation_forward(&queue, a->y, a->x, ACT_GELU_ERF);
}

static void run_add(void *arg)
{
    const struct rows *a = arg;

    k->add(&queue, a->y, a->x, a->z);
}

static void run_dropout(void *arg)
{
    const struct rows *a = arg;
    const struct dropout d = {.p = 0.1, .S = 256};

    k->dropout(&queue, a->y, a->x, &d);
}

static void run_bias_backward(void *arg)
{
    const struct rows *a = arg;

    k->bias_backward(&queue, a->b, a->x);
}

static void run_squares(void *arg)
{
    const struct rows *a = arg;
    double sum = 0;

    k->sum_squares(&queue, tensor_make(&sum, DTYPE_F64, 1, 1), a->x);
}

static void run_adamw(void *arg)
{
    const struct rows *a = arg;
    const struct adamw step = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 10};

    k->adamw(&queue, a->y, a->z, a->s, tensor_none(), a->x, &step);
}

static void run_loss(void *arg)
{
    const struct rows *a = arg;

    k->cross_entropy_stats(&queue, a->s, a->x, a->labels, 0, tensor_cols(a->x));
}

static void run_loss_backward(void *arg)
{
    const struct rows *a = arg;

    k->cross_entropy_backward(&queue, a->y, a->x, a->s, a->labels, 0, tensor_cols(a->x), 1e-3);
}

static void run_swiglu(void *arg)
{
    const struct rows *a = arg;
    struct tensor y = a->y, x = a->x;

    y.dim[1] /= 2;
    k->swiglu_forward(&queue, y, x);
}

static void run_widen(void *arg)
{
    const struct rows *a = arg;

    k->cast(&queue, a->z, a->x);
}

static void bench_rows(void)
{
    const int64_t R = 4096, D = 1024;
    const double size = (double)(R * D) * 4;
    struct rows a = {.y = take(DTYPE_F32, R, D),
                     .x = take(DTYPE_F32, R, D),
                     .z = take(DTYPE_F32, R, D),
                     .w = take(DTYPE_F32, D, 1),
                     .b = take(DTYPE_F32, D, 1),
                     .s = take(DTYPE_F32, R, 1),
                     .t = take(DTYPE_F32, R, 1)};

    report("layernorm", run_layernorm, &a, 0, 2 * size);
    report("layernorm backward", run_layernorm_backward, &a, 0, 3 * size);
    report("rmsnorm", run_rmsnorm, &a, 0, 2 * size);
    report("gelu tanh", run_gelu, &a, 0, 2 * size);
    report("gelu tanh backward", run_gelu_backward, &a, 0, 3 * size);
    report("gelu erf", run_gelu_erf, &a, 0, 2 * size);
    report("swiglu", run_swiglu, &a, 0, 1.5 * size);
    report("add", run_add, &a, 0, 3 * size);
    report("dropout", run_dropout, &a, 0, 2 * size);
    report("bias backward", run_bias_backward, &a, 0, size);
    report("sum of squares", run_squares, &a, 0, size);
    a.s = take(DTYPE_F32, R, D);
    k->zero(&queue, a.s);
    report("adamw", run_adamw, &a, 0, 7 * size);
    a.s = take(DTYPE_F32, R, 1);
    a.x = take_as(DTYPE_BF16, R, D);
    a.y = take_as(DTYPE_BF16, R, D);
    report("cast bf16 to f32", run_widen, &a, 0, 1.5 * size);
    report("gelu tanh bf16", run_gelu, &a, 0, size);
    report("layernorm bf16", run_layernorm, &a, 0, size);
}

static void bench_loss(void)
{
    const int64_t R = 256, V = 32000;
    struct rows a = {.y = take(DTYPE_F32, R, V),
                     .x = take(DTYPE_F32, R, V),
                     .s = take(DTYPE_F32, R, 3),
                     .labels = take(DTYPE_I32, R, 1)};
    const double size = (double)(R * V) * 4;

    report("cross entropy 256 x 32000", run_loss, &a, 0, size);
    report("cross entropy backward", run_loss_backward, &a, 0, 2 * size);
}

int main(int argc, char **argv)
{
    static const int64_t linears[][3] = {{1024, 1152, 384}, {1024, 384, 384},   {1024, 2048, 384},
                                         {1024, 384, 1024}, {1024, 32000, 384}, {1024, 768, 768},
                                         {4096, 3072, 768}, {4096, 768, 3072},  {256, 256, 256}};
    static const struct attention_shape shapes[] = {
        {4, 256, 6, 6, 64, 0.125}, {4, 1024, 12, 12, 64, 0.125}, {1, 4096, 8, 2, 128, 0.0884}};
    const char *only = argc > 3 ? argv[3] : "";

    threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : threads;
    case_ms = argc > 2 ? (int)strtol(argv[2], NULL, 10) : case_ms;
    k = kernels_cpu();
    CHECK(k != NULL && threads >= 1, "%s", kernels_cpu_why());
    kernels_cpu_threads(threads);
    queue.workspace_bytes = (size_t)512 << 20;
    queue.workspace = map(queue.workspace_bytes);
    printf("%s, %d threads, probe %.1f Gflop/s\n", k->isa, threads,
           kernels_cpu_probe(threads, 100) * 1e-9);
    for (int type = 0; type < 2; type++) {
        const enum dtype t = type == 0 ? DTYPE_F32 : DTYPE_BF16;
        for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]) && strchr("g", *only); i++) {
            bench_linear(linears[i][0], linears[i][1], linears[i][2], t);
        }
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && strchr("a", *only); i++) {
            bench_attention(shapes[i], t);
        }
    }
    if (strchr("r", *only) != NULL) {
        bench_rows();
        bench_loss();
    }
    return 0;
}
