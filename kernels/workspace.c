/* workspace.c - bounds of the workspace of every kernel; arithmetic only, no kernel library. */
#include "kernels/workspace.h"

#include "kernels/check.h"
#include "kernels/cpu/blocks.h"
#include "kernels/real.h"

/* Every part of a workspace starts on its own cache line. */
static size_t line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t reals(int64_t count)
{
    return line((size_t)count * dtype_size(DTYPE_REAL));
}

static int64_t rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static bool is_eighth(enum dtype type)
{
    return type == DTYPE_E4M3 || type == DTYPE_E5M2;
}

/* What the plain GEMM packs: one block of b for all, one slice of a for each thread, and the sums of
 * one block of c where c cannot hold them itself or they are scaled. */
static size_t plain_gemm(enum dtype type, enum dtype out, int threads)
{
    size_t bytes = reals((int64_t)GEMM_DEPTH * GEMM_COLS);

    bytes += (size_t)threads * reals((int64_t)GEMM_DEPTH * GEMM_ROWS_THREAD);
    if (out != DTYPE_REAL || is_eighth(type)) {
        bytes += reals((int64_t)GEMM_ROWS * GEMM_COLS);
    }
    return bytes;
}

/* oneDNN packs blocks of both operands for each thread; the sizes depend on caches and shapes. Where
 * a primitive wants more (it then splits the depth, with sums of all of c for each thread), it is not
 * used: see kernels/cpu/gemm.c. */
static size_t library_gemm(enum dtype type, int threads)
{
    const size_t kib = type == DTYPE_BF16 ? GEMM_LIBRARY_KIB_BF16 : GEMM_LIBRARY_KIB_F32;

    return (size_t)threads * (kib << 10);
}

size_t workspace_gemm(int64_t M, int64_t N, int64_t K, enum dtype type, enum dtype out, int threads)
{
    CHECK(M >= 0 && N >= 0 && K >= 0 && threads >= 1, "gemm %lld x %lld x %lld", (long long)M,
          (long long)N, (long long)K);
    const size_t library = is_eighth(type) ? 0 : library_gemm(type, threads);
    const size_t plain = plain_gemm(type, out, threads);
    return library > plain ? library : plain;
}

size_t workspace_rows(int64_t M, int64_t K, enum dtype type)
{
    return type == DTYPE_REAL ? 0 : reals(M * K);
}

size_t workspace_attention(const struct attention_shape *s, enum dtype type, int threads)
{
    const int64_t K = rounded_up(s->K, CPU_LANES_MAX);
    const int64_t tiles = (int64_t)(5 * ATTENTION_QUERIES + 2 * ATTENTION_KEYS) * K;
    const int64_t scores = (int64_t)2 * ATTENTION_QUERIES * ATTENTION_KEYS;
    const int64_t vectors = (int64_t)ATTENTION_VECTORS * ATTENTION_QUERIES;

    (void)type;
    CHECK(threads >= 1, "%d threads", threads);
    return (size_t)threads * (reals(tiles) + reals(scores) + reals(vectors) + reals(2 * s->S * K));
}

size_t workspace_columns(int64_t R, int64_t D, int threads)
{
    (void)R;
    (void)threads;
    return 2 * reals((int64_t)COLUMN_BLOCKS * rounded_up(D, CPU_LANES_MAX));
}
