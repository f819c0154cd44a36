/* norm.c - LayerNorm and RMSNorm, forward and backward. Formulas and shapes: kernels/kernels.h.
 *
 * A row is walked in tiles. Gradients of weights are summed per group of rows; the groups, whose
 * number does not depend on the threads, are added up in order at the end.
 */
#include "kernels/cpu/vec/columns.h"
#include "kernels/cpu/vec/ops.h"

/* The sum of one row, and that of the squares of its distances from the mean. */
static real row_sum(struct tensor x, int64_t at, int64_t D)
{
    real tile[TILE], sum = 0;

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *v = tile_read(x, at + d, n, tile);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            sum += v[i];
        }
    }
    return sum;
}

static real row_squares(struct tensor x, int64_t at, int64_t D, real mean)
{
    real tile[TILE], sum = 0;

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *v = tile_read(x, at + d, n, tile);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            sum += (v[i] - mean) * (v[i] - mean);
        }
    }
    return sum;
}

void VEC(layernorm_forward)(struct queue *q, struct tensor y, struct tensor mean,
                            struct tensor rstd, struct tensor x, struct tensor w, struct tensor b,
                            double eps)
{
    const int64_t R = tensor_rows(x), D = tensor_cols(x);
    real *means = mean.data, *rstds = rstd.data;

    (void)q;
    check_any(y, R * D);
    check_any(x, R * D);
    check_any(w, D);
    check_any(b, D);
    check_real(mean, R);
    check_real(rstd, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real xt[TILE], wt[TILE], bt[TILE], yt[TILE];
        const real m = row_sum(x, r * D, D) / (real)D;
        const real s = REAL(1.0) / r_sqrt(row_squares(x, r * D, D, m) / (real)D + (real)eps);
        for (int64_t d = 0; d < D; d += TILE) {
            const int64_t n = smaller(TILE, D - d);
            const real *xv = tile_read(x, r * D + d, n, xt);
            const real *wv = tile_read(w, d, n, wt), *bv = tile_read(b, d, n, bt);
            real *yv = tile_open(y, r * D + d, yt);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                yv[i] = (xv[i] - m) * s * wv[i] + bv[i];
            }
            tile_close(y, r * D + d, n, yv);
        }
        means[r] = m;
        rstds[r] = s;
    }
}

/* What both backward passes need of one row. With h[d] = (x[d] - mean) rstd and g[d] = dy[d] w[d]:
 * the means over d of g and of g h. */
struct pull {
    real mean, rstd;
    real g, gh;
};

static struct pull row_pull(struct tensor dy, struct tensor x, struct tensor w, int64_t row,
                            real mean, real rstd)
{
    const int64_t D = tensor_cols(x);
    real dyt[TILE], xt[TILE], wt[TILE];
    real g = 0, gh = 0;

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *dyv = tile_read(dy, row * D + d, n, dyt);
        const real *xv = tile_read(x, row * D + d, n, xt), *wv = tile_read(w, d, n, wt);
#pragma omp simd reduction(+ : g, gh)
        for (int64_t i = 0; i < n; i++) {
            g += dyv[i] * wv[i];
            gh += dyv[i] * wv[i] * (xv[i] - mean);
        }
    }
    return (struct pull){mean, rstd, g / (real)D, gh * rstd / (real)D};
}

/* dx[d] = rstd (g[d] - p.g - h[d] p.gh);  dw[d] += dy[d] h[d];  db[d] += dy[d] where db is given. */
static void row_backward(struct tensor dx, real *dw, real *db, struct tensor dy, struct tensor x,
                         struct tensor w, int64_t row, struct pull p)
{
    const int64_t D = tensor_cols(x);
    real dxt[TILE], dyt[TILE], xt[TILE], wt[TILE];

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *dyv = tile_read(dy, row * D + d, n, dyt);
        const real *xv = tile_read(x, row * D + d, n, xt), *wv = tile_read(w, d, n, wt);
        real *dxv = tile_open(dx, row * D + d, dxt), *dwv = dw + d;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const real h = (xv[i] - p.mean) * p.rstd;
            dwv[i] += dyv[i] * h;
            dxv[i] = p.rstd * (dyv[i] * wv[i] - p.g - h * p.gh);
        }
        tile_close(dx, row * D + d, n, dxv);
        if (db != NULL) {
            real *dbv = db + d;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dbv[i] += dyv[i];
            }
        }
    }
}

static void check_gradient(struct tensor t, int64_t count)
{
    if (tensor_count(t) > 0) {
        check_real(t, count);
    }
}

/* A parameter that is not trained has no gradient. */
static void add_gradient(struct tensor to, struct columns c, int which)
{
    if (tensor_count(to) > 0) {
        columns_add(to.data, c, which);
    }
}

void VEC(layernorm_backward)(struct queue *q, struct tensor dx, struct tensor dw, struct tensor db,
                             struct tensor dy, struct tensor x, struct tensor w,
                             const struct tensor stats[2])
{
    const int64_t R = tensor_rows(x), D = tensor_cols(x);
    const real *means = stats[0].data, *rstds = stats[1].data;
    const struct columns c = columns_begin(q, R, D);

    check_any(dx, R * D);
    check_any(dy, R * D);
    check_any(x, R * D);
    check_any(w, D);
    check_gradient(dw, D);
    check_gradient(db, D);
    check_real(stats[0], R);
    check_real(stats[1], R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t block = 0; block < c.blocks; block++) {
        real *dw_block = columns_block(c, 0, block), *db_block = columns_block(c, 1, block);
        for (int64_t r = block * c.rows; r < smaller(R, (block + 1) * c.rows); r++) {
            const struct pull p = row_pull(dy, x, w, r, means[r], rstds[r]);
            row_backward(dx, dw_block, db_block, dy, x, w, r, p);
        }
    }
    add_gradient(dw, c, 0);
    add_gradient(db, c, 1);
}

void VEC(rmsnorm_forward)(struct queue *q, struct tensor y, struct tensor rstd, struct tensor x,
                          struct tensor w, double eps)
{
    const int64_t R = tensor_rows(x), D = tensor_cols(x);
    real *rstds = rstd.data;

    (void)q;
    check_any(y, R * D);
    check_any(x, R * D);
    check_any(w, D);
    check_real(rstd, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real xt[TILE], wt[TILE], yt[TILE];
        const real s = REAL(1.0) / r_sqrt(row_squares(x, r * D, D, 0) / (real)D + (real)eps);
        for (int64_t d = 0; d < D; d += TILE) {
            const int64_t n = smaller(TILE, D - d);
            const real *xv = tile_read(x, r * D + d, n, xt), *wv = tile_read(w, d, n, wt);
            real *yv = tile_open(y, r * D + d, yt);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                yv[i] = xv[i] * s * wv[i];
            }
            tile_close(y, r * D + d, n, yv);
        }
        rstds[r] = s;
    }
}

/* LayerNorm's backward pass without a mean: p.mean = p.g = 0. */
void VEC(rmsnorm_backward)(struct queue *q, struct tensor dx, struct tensor dw, struct tensor dy,
                           struct tensor x, struct tensor w, struct tensor rstd)
{
    const int64_t R = tensor_rows(x), D = tensor_cols(x);
    const real *rstds = rstd.data;
    const struct columns c = columns_begin(q, R, D);

    check_any(dx, R * D);
    check_any(dy, R * D);
    check_any(x, R * D);
    check_any(w, D);
    check_gradient(dw, D);
    check_real(rstd, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t block = 0; block < c.blocks; block++) {
        real *dw_block = columns_block(c, 0, block);
        for (int64_t r = block * c.rows; r < smaller(R, (block + 1) * c.rows); r++) {
            struct pull p = row_pull(dy, x, w, r, 0, rstds[r]);
            p.g = 0;
            row_backward(dx, dw_block, NULL, dy, x, w, r, p);
        }
    }
    add_gradient(dw, c, 0);
}
