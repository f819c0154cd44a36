/* columns.h - sums over rows into a width, in an order that no number of threads changes.
 *
 * R rows are cut into at most COLUMN_BLOCKS blocks. Each block sums into its own row of the
 * workspace (workspace_columns), and the blocks are added to the result in order.
 */
#ifndef KERNELS_CPU_VEC_COLUMNS_H
#define KERNELS_CPU_VEC_COLUMNS_H

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/workspace.h"

struct columns {
    real *sums; /* [2][COLUMN_BLOCKS][stride], in the workspace */
    int64_t D, stride;
    int64_t blocks, rows; /* blocks in use, rows of each but the last */
};

static inline struct columns columns_begin(const struct queue *q, int64_t R, int64_t D)
{
    const int64_t rows = larger(1, blocks_of(R, COLUMN_BLOCKS));

    CHECK(q->workspace_bytes >= workspace_columns(R, D, 1), "workspace of %zu bytes for width %lld",
          q->workspace_bytes, (long long)D);
    return (struct columns){.sums = q->workspace,
                            .D = D,
                            .stride = blocks_of(D, CPU_LANES_MAX) * CPU_LANES_MAX,
                            .blocks = blocks_of(R, rows),
                            .rows = rows};
}

static inline real *columns_at(struct columns c, int which, int64_t block)
{
    return c.sums + ((int64_t)which * COLUMN_BLOCKS + block) * c.stride;
}

/* The zeroed sums of one block; `which` is 0 or 1. */
static inline real *columns_block(struct columns c, int which, int64_t block)
{
    real *sums = columns_at(c, which, block);

    memset(sums, 0, (size_t)c.D * sizeof(real));
    return sums;
}

/* y[d] += the blocks' sums, in order. */
static inline void columns_add(real *y, struct columns c, int which)
{
    const int64_t tiles = blocks_of(c.D, TILE);

#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t at = t * TILE, n = smaller(TILE, c.D - at);
        real total[TILE] = {0};
        for (int64_t block = 0; block < c.blocks; block++) {
            const real *sums = columns_at(c, which, block) + at;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                total[i] += sums[i];
            }
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[at + i] += total[i];
        }
    }
}

#endif
