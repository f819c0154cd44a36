/* test_kernels_cpu.c - choosing an instruction set, the probe, and the bounds of workspaces. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"
#include "tests/kernels.h"

static const struct kernels *k;

/* Asks for an instruction set in a child of its own, as the choice is made once; its verdict. */
static bool in_child(const char *isa, bool (*verdict)(const struct kernels *chosen))
{
    int status;
    const pid_t child = fork();

    CHECK(child >= 0, "fork for %s", isa);
    if (child == 0) {
        (void)setenv("HONE_ISA", isa, 1);
        _exit(verdict(kernels_cpu()) ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child, "child for %s", isa);
    return status == 0;
}

static bool is_refused_with_its_name(const struct kernels *chosen)
{
    const char *isa = getenv("HONE_ISA");

    return chosen == NULL && isa != NULL && strstr(kernels_cpu_why(), isa) != NULL &&
           kernels_cpu() == NULL;
}

static bool is_the_plainest(const struct kernels *chosen)
{
    return chosen != NULL && strcmp(chosen->isa, "x86-64-v2") == 0;
}

static bool is_any(const struct kernels *chosen)
{
    return chosen != NULL && strcmp(chosen->name, "cpu") == 0 && kernels_cpu() == chosen &&
           kernels_cpu_why()[0] == '\0';
}

static void refuses_an_unknown_instruction_set_by_name(void)
{
    EXPECT(in_child("v5", is_refused_with_its_name));
    EXPECT(in_child("avx2", is_refused_with_its_name));
    EXPECT(in_child("v4bf", is_refused_with_its_name));
}

static void takes_the_named_or_the_best_instruction_set(void)
{
    EXPECT(in_child("v2", is_the_plainest));
    EXPECT(in_child("", is_any));
}

static void every_operation_is_there(void)
{
    /* The table is two names, then function pointers only. */
    void (*entries[sizeof(struct kernels) / sizeof(void (*)(void))])(void);

    memcpy(entries, k, sizeof(*k));
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        EXPECT(entries[i] != NULL);
    }
}

static void the_probe_measures_multiply_adds(void)
{
    /* A loaded machine may give little, but no machine gives this much to so few threads. */
    for (int threads = 1; threads <= 2; threads++) {
        const double rate = kernels_cpu_probe(threads, 30);
        EXPECT(rate > 1e8 && rate < 1e12 * threads);
    }
}

/* Sizes of models from tiny to large in the three forms of a linear layer, where gemm.c asks oneDNN for
 * a matmul. A primitive that wants more than planned is passed over: none of these does. */
static void products_need_no_more_workspace_than_planned(void)
{
    static const int64_t sizes[] = {1, 17, 64, 129, 384, 1000, 1152, 4096, 11008};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    const bool half = cpu_chosen() == &cpu_isa_v4bf16; /* others multiply bf16 by themselves */

    for (int i = 0; i < N * N * N; i++) {
        struct onednn_product p = {
            .M = sizes[i % N], .N = sizes[i / N % N], .K = sizes[i / N / N], .threads = 1 + i % 4};
        for (int form = 0; form < 6 && p.M * p.N * p.K < (int64_t)1 << 36; form++) {
            p.ta = form % 3 == 2 ? TRANSPOSED : AS_IS;
            p.tb = form % 3 == 0 ? TRANSPOSED : AS_IS;
            p.add = form >= 3;
            p.type = half && (i + form) % 4 != 0 ? DTYPE_BF16 : DTYPE_F32;
            p.out = half && (i + form) % 4 == 1 ? DTYPE_BF16 : DTYPE_F32;
            if (p.type == DTYPE_F32 && (p.ta == TRANSPOSED || p.tb == AS_IS)) {
                continue;
            }
            const size_t need = onednn_scratch(&p);
            const size_t bound = workspace_gemm(p.M, p.N, p.K, p.type, p.out, p.threads);
            EXPECT(need <= bound);
            if (need > bound) {
                printf("# %lld x %lld x %lld form %d %s to %s %d threads: %zu of %zu\n",
                       (long long)p.M, (long long)p.N, (long long)p.K, form, dtype_name(p.type),
                       dtype_name(p.out), p.threads, need, bound);
            }
        }
    }
}

/* The plain GEMM, which the double build uses, and oneDNN are each other's check. */
static void the_plain_product_is_the_librarys(void)
{
    const int64_t M = 300, N = 1300, K = 500;
    const struct tensor a = take_random(DTYPE_F32, M, K, 1), b = take_random(DTYPE_F32, N, K, 1);
    const struct tensor c = take(DTYPE_F32, M, N), d = take(DTYPE_F32, M, N);
    struct queue q = take_queue(workspace_gemm(M, N, K, DTYPE_F32, DTYPE_F32, 4));

    k->gemm(&q, c, a, AS_IS, b, TRANSPOSED, 0.0F);
    cpu_chosen()->gemm_plain(&q, d, a, AS_IS, b, TRANSPOSED, 0.0F);
    EXPECT_CLOSE(c, doubles_of(d), EXACT);
    for (int threads = 2; threads <= 4; threads++) {
        const struct tensor e = take(DTYPE_F32, M, N);
        kernels_cpu_threads(threads);
        cpu_chosen()->gemm_plain(&q, e, a, AS_IS, b, TRANSPOSED, 0.0F);
        EXPECT(same_bytes(d, e));
    }
    kernels_cpu_threads(1);
    free_all();
}

/* More products than the table of primitives holds. */
static void forgets_the_oldest_products_without_harm(void)
{
    struct queue q = take_queue(workspace_gemm(700, 8, 8, DTYPE_F32, DTYPE_F32, 1));
    const struct tensor a = take_random(DTYPE_F32, 700, 8, 1), b = take_random(DTYPE_F32, 8, 8, 1);
    const struct tensor c = take(DTYPE_F32, 700, 8), d = take(DTYPE_F32, 700, 8);

    k->gemm(&q, c, a, AS_IS, b, AS_IS, 0.0F);
    for (int round = 0; round < 2; round++) {
        for (int64_t rows = 1; rows <= 700; rows++) {
            k->gemm(&q, tensor_slice(d, 0, rows), tensor_slice(a, 0, rows), AS_IS, b, AS_IS, 0.0F);
            EXPECT_NEAR(value_at(d, rows * 8 - 1), value_at(c, rows * 8 - 1), EXACT);
        }
    }
    free_all();
}

static void run_tests(const struct kernels *table)
{
    k = table;
    RUN(every_operation_is_there);
    RUN(the_probe_measures_multiply_adds);
    RUN(products_need_no_more_workspace_than_planned);
    RUN(the_plain_product_is_the_librarys);
    RUN(forgets_the_oldest_products_without_harm);
}

int main(void)
{
    RUN(refuses_an_unknown_instruction_set_by_name);
    RUN(takes_the_named_or_the_best_instruction_set);
    return run_on_every_isa(run_tests);
}
