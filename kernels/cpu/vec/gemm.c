/* gemm.c - the plain blocked GEMM: any types that kernels.h allows, computed in real.
 *
 * Blocks of op(b) and op(a) are packed into panels as wide as a register tile, widening smaller types on
 * the way (Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication"). The depth is
 * summed in blocks, in order, by one thread for each element of c, so that the result does not
 * depend on the number of threads.
 */
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/vec/micro.h"
#include "kernels/cpu/vec/ops.h"
#include "kernels/workspace.h"

/* The register tile: of 32 or 16 vector registers, all but a few hold sums. */
#if VEC_BYTES == 64
enum { TILE_ROWS = 12, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 3 };
#endif
enum { TILE_COLS = TILE_VECTORS * LANES, FEW_ROWS = 4 };

/* Elements of a workspace's parts; whole cache lines. */
#define PACKED_B ((int64_t)GEMM_DEPTH * GEMM_COLS)
#define PACKED_A ((int64_t)GEMM_DEPTH * GEMM_ROWS_THREAD)

_Static_assert(PACKED_A % 16 == 0 && PACKED_B % 16 == 0, "parts start on cache lines");
_Static_assert(GEMM_ROWS_THREAD % TILE_ROWS == 0 && GEMM_COLS % TILE_COLS == 0 &&
                   GEMM_ROWS % GEMM_ROWS_THREAD == 0,
               "blocks are whole numbers of register tiles");

/* A matrix operand as stored: element (line, step) of the packed order at [line ll + step ls]. */
struct operand {
    struct tensor t;
    int64_t line, step; /* strides; one of them is 1 */
};

struct product {
    struct tensor c;
    struct operand a, b;
    int64_t M, N, K;
    bool add;
    bool scaled; /* the sums are multiplied by `factor`                           */
    bool apart;  /* they are kept in `sums` and not in c: it is rounded, or they are scaled */
    real factor;
    real *packed_b, *packed_a, *sums; /* in the workspace; a slice of packed_a for each thread */
};

/* Packs steps [s0, s0 + steps) of lines [l0, l0 + lines) into one panel [steps][width]; lines that
 * are not there are 0. */
static void pack_panel(real *panel, int64_t width, struct operand o, int64_t l0, int64_t lines,
                       int64_t s0, int64_t steps)
{
    real tile[TILE];

    if (lines < width) {
        memset(panel, 0, (size_t)(steps * width) * sizeof(real));
    }
    if (o.line == 1) {
        for (int64_t s = 0; s < steps; s++) {
            const real *v = tile_read(o.t, (s0 + s) * o.step + l0, lines, tile);
            memcpy(panel + s * width, v, (size_t)lines * sizeof(real));
        }
        return;
    }
    for (int64_t l = 0; l < lines; l++) {
        const real *v = tile_read(o.t, (l0 + l) * o.line + s0, steps, tile);
        for (int64_t s = 0; s < steps; s++) {
            panel[s * width + l] = v[s];
        }
    }
}

_Static_assert((int)GEMM_DEPTH <= (int)TILE, "one line of a panel is one tile");

/* c [rows][cols] = or += the packed panels a and b. */
static void multiply_panels(struct grid c, const real *a, const real *b, int64_t rows, int64_t cols,
                            int64_t depth, bool add)
{
    real edge[TILE_ROWS * TILE_COLS] = {0};

    for (int64_t n = 0; n < cols; n += TILE_COLS) {
        for (int64_t m = 0; m < rows; m += TILE_ROWS) {
            const struct view av = {a + m * depth, 1, TILE_ROWS};
            const struct rows bv = {b + n * depth, TILE_COLS};
            const int64_t here = smaller(TILE_ROWS, rows - m), wide = smaller(TILE_COLS, cols - n);
            real *at = c.at + m * c.row + n;
            if (here == TILE_ROWS && wide == TILE_COLS) {
                micro_tile(TILE_ROWS, TILE_VECTORS, (struct grid){at, c.row}, av, bv, depth, add);
                continue;
            }
            micro_tile(TILE_ROWS, TILE_VECTORS, (struct grid){edge, TILE_COLS}, av, bv, depth,
                       false);
            for (int64_t i = 0; i < here; i++) {
                for (int64_t j = 0; j < wide; j++) {
                    const real old = add ? at[i * c.row + j] : REAL(0.0);
                    at[i * c.row + j] = old + edge[i * TILE_COLS + j];
                }
            }
        }
    }
}

/* Where rows from m0 and columns from n0 of c are summed. */
static struct grid target_of(const struct product *p, int64_t m0, int64_t n0)
{
    if (p->apart) {
        return (struct grid){p->sums, GEMM_COLS};
    }
    return (struct grid){(real *)p->c.data + m0 * p->N + n0, p->N};
}

/* The sums of a block apart from c: what they begin with, and what becomes of them. Where there is a factor,
 * c is added behind it. */
static void load_sums(const struct product *p, int64_t m0, int64_t n0, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t m = 0; m < rows; m++) {
        real *sums = p->sums + m * GEMM_COLS;
        if (p->add && !p->scaled) {
            tile_widen(sums, p->c, (m0 + m) * p->N + n0, cols);
        } else {
            memset(sums, 0, (size_t)cols * sizeof(real));
        }
    }
}

static void scale_sums(const struct product *p, const real *sums, int64_t at, int64_t cols)
{
    real tile[TILE];

    for (int64_t i = 0; i < cols; i += TILE) {
        const int64_t n = smaller(TILE, cols - i);
        real *v = tile_open(p->c, at + i, tile);
        if (p->add) {
            const real *old = tile_read(p->c, at + i, n, tile);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                v[k] = old[k] + p->factor * sums[i + k];
            }
        } else {
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                v[k] = p->factor * sums[i + k];
            }
        }
        tile_close(p->c, at + i, n, v);
    }
}

static void store_sums(const struct product *p, int64_t m0, int64_t n0, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t m = 0; m < rows; m++) {
        const int64_t at = (m0 + m) * p->N + n0;
        if (p->scaled) {
            scale_sums(p, p->sums + m * GEMM_COLS, at, cols);
        } else {
            tile_round(p->c, at, cols, p->sums + m * GEMM_COLS);
        }
    }
}

/* One block of c, one block of depth. */
static void multiply_block(const struct product *p, const int64_t at[3], int64_t rows, int64_t cols,
                           int64_t depth)
{
    const int64_t m0 = at[0], n0 = at[1], k0 = at[2];
    const struct grid c = target_of(p, m0, n0);
    const bool add = k0 > 0 || p->add || p->apart;

#pragma omp parallel num_threads(cpu_threads())
    {
        real *mine = p->packed_a + cpu_thread() * PACKED_A;
#pragma omp for schedule(static)
        for (int64_t n = 0; n < cols; n += TILE_COLS) {
            pack_panel(p->packed_b + n * depth, TILE_COLS, p->b, n0 + n,
                       smaller(TILE_COLS, cols - n), k0, depth);
        }
#pragma omp for schedule(dynamic)
        for (int64_t m = 0; m < rows; m += GEMM_ROWS_THREAD) {
            const int64_t here = smaller(GEMM_ROWS_THREAD, rows - m);
            const struct grid part = {c.at + m * c.row, c.row};
            for (int64_t i = 0; i < here; i += TILE_ROWS) {
                pack_panel(mine + i * depth, TILE_ROWS, p->a, m0 + m + i,
                           smaller(TILE_ROWS, here - i), k0, depth);
            }
            multiply_panels(part, mine, p->packed_b, here, cols, depth, add);
        }
    }
}

/* A product of few rows with a transposed b, one new token of some sequences: packing would cost more
 * than multiplying, so each line of b is read once and meets all rows of a. */
static bool is_few_rows(const struct product *p)
{
    return p->M <= FEW_ROWS && p->a.step == 1 && p->b.step == 1 && p->M * p->K <= PACKED_B;
}

static real dot(const real *a, const real *b, int64_t n)
{
    real sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Column n of c. rows: a, widened, [M][K]. */
static void multiply_column(const struct product *p, const real *rows, int64_t n)
{
    real tile[TILE], sums[FEW_ROWS] = {0};

    for (int64_t k = 0; k < p->K; k += TILE) {
        const int64_t here = smaller(TILE, p->K - k);
        const real *line = tile_read(p->b.t, n * p->b.line + k, here, tile);
        for (int64_t m = 0; m < p->M; m++) {
            sums[m] += dot(rows + m * p->K + k, line, here);
        }
    }
    for (int64_t m = 0; m < p->M; m++) {
        real old[1], *c = tile_open(p->c, m * p->N + n, old);
        *c = sums[m] + (p->add ? *tile_read(p->c, m * p->N + n, 1, old) : REAL(0.0));
        tile_close(p->c, m * p->N + n, 1, c);
    }
}

static void multiply_few_rows(const struct product *p)
{
    real *rows = p->packed_b;

    for (int64_t at = 0; at < p->M * p->K; at += TILE) {
        const int64_t n = smaller(TILE, p->M * p->K - at);
        real tile[TILE];
        memcpy(rows + at, tile_read(p->a.t, at, n, tile), (size_t)n * sizeof(real));
    }
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t n = 0; n < p->N; n++) {
        multiply_column(p, rows, n);
    }
}

static struct product product_of(const struct queue *q, struct tensor c, struct tensor a,
                                 enum trans ta, struct tensor b, enum trans tb)
{
    const int64_t a_cols = tensor_cols(a), b_cols = tensor_cols(b);
    struct product p = {.c = c, .M = tensor_rows(c), .N = tensor_cols(c)};

    p.K = ta == AS_IS ? a_cols : tensor_rows(a);
    p.a = ta == AS_IS ? (struct operand){a, a_cols, 1} : (struct operand){a, 1, a_cols};
    p.b = tb == AS_IS ? (struct operand){b, 1, b_cols} : (struct operand){b, b_cols, 1};
    CHECK(q->workspace_bytes >= workspace_gemm(p.M, p.N, p.K, a.type, c.type, cpu_threads()),
          "workspace of %zu bytes for %lld x %lld x %lld", q->workspace_bytes, (long long)p.M,
          (long long)p.N, (long long)p.K);
    p.packed_b = q->workspace;
    p.packed_a = p.packed_b + PACKED_B;
    p.sums = p.packed_a + cpu_threads() * PACKED_A;
    return p;
}

static void multiply(struct product *p)
{
    const int64_t depth = p->M * p->N * p->K <= GEMM_SMALL ? GEMM_SMALL_DEPTH : GEMM_DEPTH;

    p->apart = p->scaled || p->c.type != DTYPE_REAL;
    if (p->K == 0 && !p->add) {
        memset(p->c.data, 0, tensor_bytes(p->c));
        return;
    }
    for (int64_t n = 0; n < p->N; n += GEMM_COLS) {
        for (int64_t m = 0; m < p->M; m += GEMM_ROWS) {
            const int64_t rows = smaller(GEMM_ROWS, p->M - m), cols = smaller(GEMM_COLS, p->N - n);
            if (p->apart) {
                load_sums(p, m, n, rows, cols);
            }
            for (int64_t k = 0; k < p->K; k += depth) {
                const int64_t at[3] = {m, n, k};
                multiply_block(p, at, rows, cols, smaller(depth, p->K - k));
            }
            if (p->apart) {
                store_sums(p, m, n, rows, cols);
            }
        }
    }
}

void VEC(gemm_plain)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                     struct tensor b, enum trans tb, float beta)
{
    struct product p = product_of(q, c, a, ta, b, tb);

    p.add = beta != 0.0F;
    check_any(c, p.M * p.N);
    check_any(a, p.M * p.K);
    check_any(b, p.K * p.N);
    if (p.K > 0 && is_few_rows(&p)) {
        multiply_few_rows(&p);
    } else {
        multiply(&p);
    }
}

static void check_eighth(struct tensor t, int64_t count)
{
    CHECK(t.type == DTYPE_E4M3 || t.type == DTYPE_E5M2, "a scaled product of %s",
          dtype_name(t.type));
    CHECK(tensor_count(t) == count, "%lld elements, want %lld", (long long)tensor_count(t),
          (long long)count);
}

void VEC(gemm_scaled)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                      struct tensor b, enum trans tb, float beta, double factor)
{
    struct product p = product_of(q, c, a, ta, b, tb);

    p.add = beta != 0.0F;
    p.scaled = true;
    p.factor = (real)factor;
    check_any(c, p.M * p.N);
    check_eighth(a, p.M * p.K);
    check_eighth(b, p.K * p.N);
    multiply(&p);
}
