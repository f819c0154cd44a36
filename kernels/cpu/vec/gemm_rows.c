/* gemm_rows.c - rows times a transposed weight, each row by itself.
 *
 * Generating texts side by side, a text must not change with what else is in the batch. The products of
 * gemm may: libraries choose another order of sums for another number of rows. Here each element is the
 * sum over k of LANES partial sums in order, added up from the first lane to the last, whatever else the
 * call computes. Both operands lie along k, so nothing is packed.
 */
#include "kernels/cpu/vec/micro.h"
#include "kernels/cpu/vec/ops.h"
#include "kernels/workspace.h"

/* The register tile: sums of all but a few of the 32 or 16 vector registers. */
#if VEC_BYTES == 64
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 3 };
#endif
enum { TILE_COLS = 4 };

typedef uint16_t vhalf_any
    __attribute__((vector_size(LANES * 2), aligned(sizeof(uint16_t)), may_alias));
typedef uint32_t vbits __attribute__((vector_size(LANES * 4)));
typedef float vfloat __attribute__((vector_size(LANES * 4)));

struct product {
    struct tensor c, b;
    const real *a; /* [M,K] */
    int64_t M, N, K;
};

/* LANES elements of b from element `at` on. */
static ALWAYS_INLINE vreal load_b(const void *b, int64_t at, bool half)
{
    if (!half) {
        return vreal_load((const real *)b + at);
    }
    /* Times 2^16 is a shift, which gcc 12's analyser takes for one of 16-bit numbers. */
    const vbits bits =
        __builtin_convertvector(*(const vhalf_any *)((const uint16_t *)b + at), vbits) * 65536U;
    return __builtin_convertvector((vfloat)bits, vreal);
}

static ALWAYS_INLINE real load_one(const void *b, int64_t at, bool half)
{
    return half ? (real)bf16_float(((const uint16_t *)b)[at]) : ((const real *)b)[at];
}

static ALWAYS_INLINE real sum_lanes(vreal v)
{
    real sum = v[0];

    for (int i = 1; i < LANES; i++) {
        sum += v[i];
    }
    return sum;
}

/* out = rows [m0, m0 + count) of a times the lines of b that begin at `lines`. */
static ALWAYS_INLINE void multiply_tile(real out[TILE_ROWS][TILE_COLS], const struct product *p,
                                        int64_t m0, const int64_t lines[TILE_COLS], int count,
                                        bool half)
{
    const int64_t K = p->K, whole = K - K % LANES;
    const real *a = p->a + m0 * K;
    vreal sums[TILE_ROWS][TILE_COLS] = {{{0}}};

    for (int64_t k = 0; k < whole; k += LANES) {
        vreal b[TILE_COLS];
        UNROLL
        for (int j = 0; j < TILE_COLS; j++) {
            b[j] = load_b(p->b.data, lines[j] + k, half);
        }
        UNROLL
        for (int i = 0; i < count; i++) {
            const vreal row = vreal_load(a + i * K + k);
            UNROLL
            for (int j = 0; j < TILE_COLS; j++) {
                sums[i][j] += row * b[j];
            }
        }
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < TILE_COLS; j++) {
            real rest = 0;
            for (int64_t k = whole; k < K; k++) {
                rest += a[i * K + k] * load_one(p->b.data, lines[j] + k, half);
            }
            out[i][j] = sum_lanes(sums[i][j]) + rest;
        }
    }
}

static ALWAYS_INLINE void multiply_some(real out[TILE_ROWS][TILE_COLS], const struct product *p,
                                        int64_t m0, const int64_t lines[TILE_COLS], bool half)
{
    switch (smaller(TILE_ROWS, p->M - m0)) {
    case 1: multiply_tile(out, p, m0, lines, 1, half); break;
    case 2: multiply_tile(out, p, m0, lines, 2, half); break;
#if VEC_BYTES == 64
    case 3: multiply_tile(out, p, m0, lines, 3, half); break;
    case 4: multiply_tile(out, p, m0, lines, 4, half); break;
    case 5: multiply_tile(out, p, m0, lines, 5, half); break;
#endif
    default: multiply_tile(out, p, m0, lines, TILE_ROWS, half); break;
    }
}

static void store_tile(const struct product *p, real out[TILE_ROWS][TILE_COLS], int64_t m0,
                       int64_t n0)
{
    const int64_t rows = smaller(TILE_ROWS, p->M - m0), cols = smaller(TILE_COLS, p->N - n0);

    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (m0 + i) * p->N + n0;
        real tile[TILE], *c = tile_open(p->c, at, tile);
        memcpy(c, out[i], (size_t)cols * sizeof(real));
        tile_close(p->c, at, cols, c);
    }
}

/* Columns [n0, n0 + TILE_COLS) of c; those beyond the last repeat it and are not stored. */
static void multiply_columns(const struct product *p, int64_t n0)
{
    real out[TILE_ROWS][TILE_COLS];
    int64_t lines[TILE_COLS];

    for (int j = 0; j < TILE_COLS; j++) {
        lines[j] = smaller(n0 + j, p->N - 1) * p->K;
    }
    for (int64_t m = 0; m < p->M; m += TILE_ROWS) {
        if (p->b.type == DTYPE_BF16) {
            multiply_some(out, p, m, lines, true);
        } else {
            multiply_some(out, p, m, lines, false);
        }
        store_tile(p, out, m, n0);
    }
}

static const real *widen_rows(const struct queue *q, struct tensor a)
{
    const int64_t count = tensor_count(a), tiles = blocks_of(count, TILE);
    real *rows = q->workspace;

    if (a.type == DTYPE_REAL) {
        return a.data;
    }
    CHECK(q->workspace_bytes >= workspace_rows(tensor_rows(a), tensor_cols(a), a.type),
          "workspace of %zu bytes for %lld elements", q->workspace_bytes, (long long)count);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        tile_widen(rows + t * TILE, a, t * TILE, smaller(TILE, count - t * TILE));
    }
    return rows;
}

void VEC(gemm_rows)(struct queue *q, struct tensor c, struct tensor a, struct tensor b)
{
    const struct product p = {.c = c,
                              .b = b,
                              .a = widen_rows(q, a),
                              .M = tensor_rows(c),
                              .N = tensor_cols(c),
                              .K = tensor_cols(a)};

    check_any(c, p.M * p.N);
    check_any(a, p.M * p.K);
    check_any(b, p.N * p.K);
    CHECK(a.type == b.type && a.type != DTYPE_F16, "%s times %s", dtype_name(a.type),
          dtype_name(b.type));
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t n = 0; n < p.N; n += TILE_COLS) {
        multiply_columns(&p, n);
    }
}
