/* vec.h - what every vector kernel shares: names, tiles, and the split of work.
 *
 * The files of this folder are compiled once per instruction set, with -DISA=v2|v3|v4|v4bf16 and the
 * matching -march. VEC(name) gives each build's symbols their own names; everything else is static.
 *
 * Tiles: a kernel computes on arrays of real. A tensor of reals is its own array; one of a smaller type
 * is widened into, and rounded from, a tile on the stack, at most TILE elements at a time.
 *
 * Work is split by rows or by tiles, never by the number of threads, so that results do not depend
 * on it.
 */
#ifndef KERNELS_CPU_VEC_VEC_H
#define KERNELS_CPU_VEC_VEC_H

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec/eighth.h"
#include "kernels/real.h"

#ifndef ISA
    #error "vector kernels are built with -DISA=..., see the Makefile"
#endif

#define VEC_PASTE_(name, isa) name##_##isa
#define VEC_PASTE(name, isa)  VEC_PASTE_(name, isa)
#define VEC(name)             VEC_PASTE(name, ISA)

#define ALWAYS_INLINE inline __attribute__((always_inline))

enum { TILE = 1024 };

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t blocks_of(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

static inline void check_real(struct tensor t, int64_t count)
{
    CHECK(t.type == DTYPE_REAL, "a %s tensor where reals belong", dtype_name(t.type));
    CHECK(tensor_count(t) == count, "%lld elements, want %lld", (long long)tensor_count(t),
          (long long)count);
}

static inline void check_any(struct tensor t, int64_t count)
{
    CHECK(t.type == DTYPE_REAL || t.type == DTYPE_BF16 || t.type == DTYPE_F16,
          "elements of type %s", dtype_name(t.type));
    CHECK(tensor_count(t) == count, "%lld elements, want %lld", (long long)tensor_count(t),
          (long long)count);
}

static inline void check_i32(struct tensor t, int64_t count)
{
    CHECK(t.type == DTYPE_I32, "a %s tensor where i32 belong", dtype_name(t.type));
    CHECK(tensor_count(t) == count, "%lld elements, want %lld", (long long)tensor_count(t),
          (long long)count);
}

/* Elements [at, at + n) of t, of a smaller type than real, as reals. */
#define WIDEN(type, value)                                  \
    do {                                                    \
        const type *x = (const type *)t.data + at;          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
        {                                                   \
            y[i] = (real)value(x[i]);                       \
        }                                                   \
    } while (0)

static inline void tile_widen(real *y, struct tensor t, int64_t at, int64_t n)
{
    if (t.type == DTYPE_BF16) {
        WIDEN(uint16_t, bf16_float);
    } else if (t.type == DTYPE_F16) {
        WIDEN(uint16_t, f16_float);
    } else if (t.type == DTYPE_E4M3) {
        WIDEN(uint8_t, e4m3_float);
    } else {
        WIDEN(uint8_t, e5m2_float);
    }
}

#undef WIDEN

/* x [n] rounded to elements [at, at + n) of t, of a half type. */
static inline void tile_round(struct tensor t, int64_t at, int64_t n, const real *x)
{
    uint16_t *y = (uint16_t *)t.data + at;

    if (t.type == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = real_bf16(x[i]);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = real_f16(x[i]);
        }
    }
}

/* Elements [at, at + n) of t as reals: its own memory, or `tile` filled with n <= TILE values. */
static inline const real *tile_read(struct tensor t, int64_t at, int64_t n, real *tile)
{
    if (t.type == DTYPE_REAL) {
        return (const real *)t.data + at;
    }
    tile_widen(tile, t, at, n);
    return tile;
}

/* Where to put elements [at, ..) of t: its own memory, or `tile`, which tile_close() rounds into t. */
static inline real *tile_open(struct tensor t, int64_t at, real *tile)
{
    return t.type == DTYPE_REAL ? (real *)t.data + at : tile;
}

static inline void tile_close(struct tensor t, int64_t at, int64_t n, const real *tile)
{
    if (t.type != DTYPE_REAL) {
        tile_round(t, at, n, tile);
    }
}

#endif
