/* micro.h - products of small blocks, the inner loops of GEMM and attention.
 *
 * c += a b by register tiles: an element of a is broadcast, a row of b is a run of vector lanes. So b
 * and c must be contiguous along n, while a may be read in either direction. The vectors have the
 * native width of the instruction set (wider ones spill).
 */
#ifndef KERNELS_CPU_VEC_MICRO_H
#define KERNELS_CPU_VEC_MICRO_H

#include "kernels/cpu/vec/vec.h"

#if defined(__AVX512F__)
    #define VEC_BYTES 64
#elif defined(__AVX__)
    #define VEC_BYTES 32
#else
    #define VEC_BYTES 16
#endif

/* A vector of reals, in registers, and at any address of an array of reals. */
typedef real vreal __attribute__((vector_size(VEC_BYTES)));
typedef real vreal_any __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));

enum { LANES = VEC_BYTES / (int)sizeof(real) };

/* Which elements of two vectors follow each other when their lower, or upper, halves interleave. */
#if VEC_BYTES == 64
    #define LOWER_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
    #define UPPER_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif VEC_BYTES == 32 && !defined(HONE_DOUBLE)
    #define LOWER_HALVES 0, 8, 1, 9, 2, 10, 3, 11
    #define UPPER_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#elif VEC_BYTES == 32 || !defined(HONE_DOUBLE)
    #define LOWER_HALVES 0, 4, 1, 5
    #define UPPER_HALVES 2, 6, 3, 7
#else
    #define LOWER_HALVES 0, 2
    #define UPPER_HALVES 1, 3
#endif

#ifdef __clang__
    #define UNROLL _Pragma("clang loop unroll(full)")
#else
    #define UNROLL _Pragma("GCC unroll 16")
#endif

/* Matrices: element (i, j) of a view lies at at[i row + j col]; of rows and of a grid, which is
 * written to, at at[i row + j]. */
struct view {
    const real *at;
    int64_t row, col;
};

struct rows {
    const real *at;
    int64_t row;
};

struct grid {
    real *at;
    int64_t row;
};

static ALWAYS_INLINE vreal vreal_load(const real *p)
{
    return *(const vreal_any *)p;
}

static ALWAYS_INLINE void vreal_store(real *p, vreal v)
{
    *(vreal_any *)p = v;
}

/* Transposes LANES x LANES elements: each round interleaves the first half of the rows with the second,
 * which rotates the bits of (row, column) by one place. */
static ALWAYS_INLINE void micro_transpose(vreal r[LANES])
{
    vreal t[LANES];

    UNROLL
    for (int round = 1; round < LANES; round *= 2) {
        UNROLL
        for (int64_t i = 0; i < LANES / 2; i++) {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + LANES / 2], LOWER_HALVES);
            t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + LANES / 2], UPPER_HALVES);
        }
        UNROLL
        for (int64_t i = 0; i < LANES; i++) {
            r[i] = t[i];
        }
    }
}

enum { MICRO_ROWS_MAX = 14, MICRO_VECTORS_MAX = 4 };

/* c[rows][vectors LANES] = or += a [rows][k] b [k][vectors LANES]; rows, vectors are constants. */
static ALWAYS_INLINE void micro_tile(const int rows, const int vectors, struct grid c,
                                     struct view a, struct rows b, int64_t k, bool add)
{
    vreal acc[MICRO_ROWS_MAX][MICRO_VECTORS_MAX];

    UNROLL
    for (int64_t i = 0; i < rows; i++) {
        UNROLL
        for (int64_t v = 0; v < vectors; v++) {
            acc[i][v] = (vreal){0};
        }
    }
    for (int64_t p = 0; p < k; p++) {
        const real *bp = b.at + p * b.row, *ap = a.at + p * a.col;
        vreal bv[MICRO_VECTORS_MAX];
        UNROLL
        for (int64_t v = 0; v < vectors; v++) {
            bv[v] = vreal_load(bp + v * LANES);
        }
        UNROLL
        for (int64_t i = 0; i < rows; i++) {
            UNROLL
            for (int64_t v = 0; v < vectors; v++) {
                acc[i][v] += ap[i * a.row] * bv[v];
            }
        }
    }
    UNROLL
    for (int64_t i = 0; i < rows; i++) {
        UNROLL
        for (int64_t v = 0; v < vectors; v++) {
            real *at = c.at + i * c.row + v * LANES;
            vreal_store(at, add ? vreal_load(at) + acc[i][v] : acc[i][v]);
        }
    }
}

/* Register tiles of micro_multiply: four rows, and vectors that leave room for the operands. */
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = VEC_BYTES == 64 ? 4 : 2 };

/* One column of tiles. */
static ALWAYS_INLINE void micro_column(const int vectors, struct grid c, struct view a,
                                       struct rows b, int64_t m, int64_t k, bool add)
{
    int64_t i = 0;

    for (; i + BLOCK_ROWS <= m; i += BLOCK_ROWS) {
        micro_tile(BLOCK_ROWS, vectors, (struct grid){c.at + i * c.row, c.row},
                   (struct view){a.at + i * a.row, a.row, a.col}, b, k, add);
    }
    for (; i < m; i++) {
        micro_tile(1, vectors, (struct grid){c.at + i * c.row, c.row},
                   (struct view){a.at + i * a.row, a.row, a.col}, b, k, add);
    }
}

/* c[m][n] = or += a [m][k] b [k][n]; n is a multiple of LANES. */
static inline void micro_multiply(struct grid c, struct view a, struct rows b, int64_t m, int64_t n,
                                  int64_t k, bool add)
{
    for (int64_t j = 0; j < n;) {
        const int64_t vectors = smaller(BLOCK_VECTORS, (n - j) / LANES);
        const struct grid part = {c.at + j, c.row};
        const struct rows here = {b.at + j, b.row};
        switch (vectors) {
        case 1: micro_column(1, part, a, here, m, k, add); break;
        case 2: micro_column(2, part, a, here, m, k, add); break;
        case 3: micro_column(3, part, a, here, m, k, add); break;
        default: micro_column(BLOCK_VECTORS, part, a, here, m, k, add); break;
        }
        j += vectors * LANES;
    }
}

#endif
