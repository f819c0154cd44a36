/* embedding.c - rows of a table by index, the sums back into it, and biases.
 *
 * Sums into a table are split by columns: each thread walks all rows in order over its own columns,
 * so a row of the table adds its tokens in row order whatever the number of threads.
 */
#include "kernels/cpu/vec/columns.h"
#include "kernels/cpu/vec/ops.h"

enum { COLUMNS = 64 }; /* of one task of the backward pass */

void VEC(bias_forward)(struct queue *q, struct tensor y, struct tensor b)
{
    const int64_t R = tensor_rows(y), N = tensor_cols(y);

    (void)q;
    check_any(y, R * N);
    check_any(b, N);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        real inputs[TILE], outputs[TILE], biases[TILE];
        for (int64_t at = 0; at < N; at += TILE) {
            const int64_t n = smaller(TILE, N - at);
            const real *x = tile_read(y, r * N + at, n, inputs), *bv = tile_read(b, at, n, biases);
            real *yv = tile_open(y, r * N + at, outputs);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                yv[i] = x[i] + bv[i];
            }
            tile_close(y, r * N + at, n, yv);
        }
    }
}

void VEC(bias_backward)(struct queue *q, struct tensor db, struct tensor dy)
{
    const int64_t R = tensor_rows(dy), N = tensor_cols(dy);
    const struct columns c = columns_begin(q, R, N);

    check_real(db, N);
    check_any(dy, R * N);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t block = 0; block < c.blocks; block++) {
        real tile[TILE], *sums = columns_block(c, 0, block);
        for (int64_t r = block * c.rows; r < smaller(R, (block + 1) * c.rows); r++) {
            for (int64_t at = 0; at < N; at += TILE) {
                const int64_t n = smaller(TILE, N - at);
                const real *v = tile_read(dy, r * N + at, n, tile);
#pragma omp simd
                for (int64_t i = 0; i < n; i++) {
                    sums[at + i] += v[i];
                }
            }
        }
    }
    columns_add(db.data, c, 0);
}

/* y[0..D) = row `row` of w, or 0 where w has no such row. */
static void take_row(struct tensor y, int64_t at, struct tensor w, int64_t row)
{
    const int64_t D = tensor_cols(w);
    const bool here = row >= 0 && row < tensor_rows(w);
    real wt[TILE], yt[TILE];

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *wv = here ? tile_read(w, row * D + d, n, wt) : NULL;
        real *yv = tile_open(y, at + d, yt);
        if (here) {
            memcpy(yv, wv, (size_t)n * sizeof(real));
        } else {
            memset(yv, 0, (size_t)n * sizeof(real));
        }
        tile_close(y, at + d, n, yv);
    }
}

/* y[0..D) = row `row` of w, or 0, plus row `place` of p: rounded once. */
static void take_rows(struct tensor y, int64_t at, struct tensor w, int64_t row, struct tensor p,
                      int64_t place)
{
    const int64_t D = tensor_cols(w);
    const bool here = row >= 0 && row < tensor_rows(w);
    real wt[TILE], pt[TILE], yt[TILE];

    CHECK(place >= 0 && place < tensor_rows(p), "position %lld of %lld", (long long)place,
          (long long)tensor_rows(p));
    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        const real *wv = here ? tile_read(w, row * D + d, n, wt) : memset(wt, 0, sizeof(wt));
        const real *pv = tile_read(p, place * D + d, n, pt);
        real *yv = tile_open(y, at + d, yt);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            yv[i] = wv[i] + pv[i];
        }
        tile_close(y, at + d, n, yv);
    }
}

void VEC(embedding_forward)(struct queue *q, struct tensor y, struct tensor ids, struct tensor w,
                            int64_t row0, struct tensor pos, struct tensor p)
{
    const int64_t R = tensor_rows(y), D = tensor_cols(y);
    const int32_t *id = ids.data, *place = pos.data;

    (void)q;
    check_any(y, R * D);
    check_any(w, tensor_rows(w) * D);
    check_i32(ids, R);
    CHECK(p.data == NULL || (tensor_cols(p) == D && place != NULL), "positions without a table");
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        if (p.data == NULL) {
            take_row(y, r * D, w, id[r] - row0);
        } else {
            take_rows(y, r * D, w, id[r] - row0, p, place[r]);
        }
    }
}

/* dw[id[r] - row0, from..from+n) += dy[r, ..) for all r in order; other rows are left out. */
static void add_rows(struct tensor dw, struct tensor dy, const int32_t *id, int64_t row0,
                     int64_t from, int64_t n)
{
    const int64_t R = tensor_rows(dy), D = tensor_cols(dy);
    real tile[COLUMNS];

    for (int64_t r = 0; r < R; r++) {
        const int64_t row = id[r] - row0;
        if (row < 0 || row >= tensor_rows(dw)) {
            continue;
        }
        const real *v = tile_read(dy, r * D + from, n, tile);
        real *sum = (real *)dw.data + row * D + from;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            sum[i] += v[i];
        }
    }
}

void VEC(embedding_backward)(struct queue *q, struct tensor dw, struct tensor dp, struct tensor dy,
                             struct tensor ids, int64_t row0, struct tensor pos)
{
    const int64_t R = tensor_rows(dy), D = tensor_cols(dy), tasks = blocks_of(D, COLUMNS);

    (void)q;
    check_any(dy, R * D);
    CHECK(dw.data == NULL || (tensor_cols(dw) == D && dw.type == DTYPE_REAL),
          "a gradient of %lld columns", (long long)tensor_cols(dw));
    check_i32(ids, R);
    CHECK(dp.data == NULL || (tensor_cols(dp) == D && dp.type == DTYPE_REAL && pos.data != NULL),
          "gradients of positions without positions");
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tasks; t++) {
        const int64_t from = t * COLUMNS, n = smaller(COLUMNS, D - from);
        if (dw.data != NULL) {
            add_rows(dw, dy, ids.data, row0, from, n);
        }
        if (dp.data != NULL) {
            add_rows(dp, dy, pos.data, 0, from, n);
        }
    }
}
