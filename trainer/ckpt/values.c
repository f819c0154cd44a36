/* values.c - conversion by blocks of f32 or i64.
 *
 * All float types but F64 are exactly representable in f32, so they go through it. F64 goes to the
  * 16-bit types
 * through f32 rounded to odd (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded
  * sums"): rounding
 * twice is then the same as rounding once, because f32 has more than two bits more than they have.
 */
#include "trainer/ckpt/values.h"

#include <math.h>
#include <string.h>

#include "kernels/check.h"

enum {
    BLOCK = 256, /* elements converted at a time */
    TILE = 32    /* rows and columns transposed at a time */
};

enum st_dtype values_stored(enum dtype type)
{
    static const enum st_dtype stored[DTYPE_COUNT] = {
        [DTYPE_F32] = ST_F32, [DTYPE_F64] = ST_F64, [DTYPE_BF16] = ST_BF16,
        [DTYPE_F16] = ST_F16, [DTYPE_I32] = ST_I32, [DTYPE_I64] = ST_I64,
    };

    return stored[type];
}

bool values_can_convert(enum st_dtype from, enum st_dtype to)
{
    const bool can_round = to != ST_F8_E4M3 && to != ST_F8_E5M2;

    return from == to || (st_dtype_is_float(from) == st_dtype_is_float(to) && can_round);
}

static float float_of(uint32_t bits)
{
    float x = 0.0F;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static uint16_t to_bf16(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40U; /* quiet, so that it can't become infinity */

    return (uint16_t)((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
}

static float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000U) << 16, size = h & 0x7FFFU;
    const uint32_t normal = (size << 13) + (112U << 23);
    const uint32_t special = size << 13 | 0x7F800000U;
    const uint32_t small = bits_of((float)size * 0x1p-24F);

    return float_of(sign | (size >= 0x7C00U ? special : size < 0x400U ? small : normal));
}

static uint16_t to_f16(float x)
{
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000U, size = bits & 0x7FFFFFFFU;
    const uint32_t nan = 0x7E00U | (size >> 13 & 0x1FFU);
    const uint32_t normal = (size - (112U << 23) + 0xFFFU + (size >> 13 & 1U)) >> 13;
    /* Adding 0.5 leaves the last bit of the sum at 2^-24, the step of small f16 numbers. */
    const uint32_t small = bits_of(float_of(size) + 0.5F) - (126U << 23);
    const uint32_t half = size > 0x7F800000U    ? nan
                          : size >= 0x47800000U ? 0x7C00U /* 2^16 and more */
                          : size < 0x38800000U  ? small   /* below 2^-14    */
                                                : normal;
    return (uint16_t)(sign | half);
}

/* 4 bits of exponent with bias 7, no infinity, one NaN (Micikevicius et al. 2022,
 * arXiv:2209.05433). */
static float from_f8_e4m3(uint8_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x80U) << 24, size = h & 0x7FU;
    const uint32_t normal = (size << 20) + (120U << 23);
    const uint32_t small = bits_of((float)size * 0x1p-9F);

    return float_of(sign | (size == 0x7FU ? 0x7FC00000U : size < 8U ? small : normal));
}

/* x to f32, rounded to odd: towards zero, and the last bit set when that changed it. */
static float to_f32_odd(double x)
{
    const float near = (float)x;
    uint32_t bits = bits_of(near);

    if (isnan(x) || (double)near == x) {
        return near;
    }
    if (fabs((double)near) > fabs(x)) {
        bits--;
    }
    return float_of(bits | 1U);
}

/* Loops over elements without alignment. With stride 1 the compiler sees neighbours and uses
 * vectors. */
#define FOR_EACH(statement)                   \
    if (stride == 1) {                        \
        for (int64_t i = 0; i < n; i++) {     \
            const int64_t place = i;          \
            statement                         \
        }                                     \
    } else {                                  \
        for (int64_t i = 0; i < n; i++) {     \
            const int64_t place = i * stride; \
            statement                         \
        }                                     \
    }

/* widen_NAME: stored values to f32. `value` is an expression in x. */
#define WIDEN(name, T, value)                                                                   \
    static void widen_##name(float *to, const char *from, int64_t stride, int64_t n)            \
    {                                                                                           \
        FOR_EACH(T x; memcpy(&x, from + place * (int64_t)sizeof x, sizeof x); to[i] = (value);) \
    }

/* narrow_NAME: f32 to stored values. */
#define NARROW(name, T, value)                                                        \
    static void narrow_##name(char *to, int64_t stride, const float *from, int64_t n) \
    {                                                                                 \
        FOR_EACH(const float x = from[i]; const T y = (value);                        \
                 memcpy(to + place * (int64_t)sizeof y, &y, sizeof y);)               \
    }

/* load_NAME, store_NAME: stored integers to and from i64; false when one does not fit. */
#define INTEGER(name, T, low, high)                                                               \
    static bool load_##name(int64_t *to, const char *from, int64_t stride, int64_t n)             \
    {                                                                                             \
        bool fits = true;                                                                         \
        FOR_EACH(T x; memcpy(&x, from + place * (int64_t)sizeof x, sizeof x); to[i] = (int64_t)x; \
                 fits &= (T)-1 < (T)1 || to[i] >= 0;)                                             \
        return fits;                                                                              \
    }                                                                                             \
    static bool store_##name(char *to, int64_t stride, const int64_t *from, int64_t n)            \
    {                                                                                             \
        bool fits = true;                                                                         \
        FOR_EACH(const T y = (T)from[i]; fits &= from[i] >= (low) && from[i] <= (high);           \
                 memcpy(to + place * (int64_t)sizeof y, &y, sizeof y);)                           \
        return fits;                                                                              \
    }

WIDEN(f32, float, x)
WIDEN(bf16, uint16_t, from_bf16(x))
WIDEN(f16, uint16_t, from_f16(x))
WIDEN(f8_e4m3, uint8_t, from_f8_e4m3(x))
WIDEN(f8_e5m2, uint8_t, from_f16((uint16_t)(x << 8)))
WIDEN(f64, double, (float)x)
WIDEN(f64_odd, double, to_f32_odd(x))
NARROW(f32, float, x)
NARROW(bf16, uint16_t, to_bf16(x))
NARROW(f16, uint16_t, to_f16(x))
NARROW(f64, double, (double)x)
INTEGER(bool, uint8_t, 0, 1)
INTEGER(u8, uint8_t, 0, UINT8_MAX)
INTEGER(i8, int8_t, INT8_MIN, INT8_MAX)
INTEGER(i16, int16_t, INT16_MIN, INT16_MAX)
INTEGER(u16, uint16_t, 0, UINT16_MAX)
INTEGER(i32, int32_t, INT32_MIN, INT32_MAX)
INTEGER(u32, uint32_t, 0, (int64_t)UINT32_MAX)
INTEGER(i64, int64_t, INT64_MIN, INT64_MAX)
INTEGER(u64, uint64_t, 0, INT64_MAX)

typedef void (*widen_fn)(float *to, const char *from, int64_t stride, int64_t n);
typedef void (*narrow_fn)(char *to, int64_t stride, const float *from, int64_t n);
typedef bool (*load_fn)(int64_t *to, const char *from, int64_t stride, int64_t n);
typedef bool (*store_fn)(char *to, int64_t stride, const int64_t *from, int64_t n);

static const widen_fn wideners[ST_COUNT] = {
    [ST_F8_E5M2] = widen_f8_e5m2, [ST_F8_E4M3] = widen_f8_e4m3, [ST_F16] = widen_f16,
    [ST_BF16] = widen_bf16,       [ST_F32] = widen_f32,         [ST_F64] = widen_f64,
};

static const narrow_fn narrowers[ST_COUNT] = {
    [ST_F16] = narrow_f16,
    [ST_BF16] = narrow_bf16,
    [ST_F32] = narrow_f32,
    [ST_F64] = narrow_f64,
};

static const load_fn loaders[ST_COUNT] = {
    [ST_BOOL] = load_bool, [ST_U8] = load_u8,   [ST_I8] = load_i8,
    [ST_I16] = load_i16,   [ST_U16] = load_u16, [ST_I32] = load_i32,
    [ST_U32] = load_u32,   [ST_I64] = load_i64, [ST_U64] = load_u64,
};

static const store_fn storers[ST_COUNT] = {
    [ST_BOOL] = store_bool, [ST_U8] = store_u8,   [ST_I8] = store_i8,
    [ST_I16] = store_i16,   [ST_U16] = store_u16, [ST_I32] = store_i32,
    [ST_U32] = store_u32,   [ST_I64] = store_i64, [ST_U64] = store_u64,
};

/* The same type: every bit as it is. */
static void copy(char *to, int64_t to_stride, const char *from, int64_t from_stride, size_t size,
                 int64_t n)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * to_stride * (int64_t)size, from + i * from_stride * (int64_t)size, size);
    }
}

bool values_convert(void *to, enum st_dtype to_type, int64_t to_stride, const void *from,
                    enum st_dtype from_type, int64_t from_stride, int64_t n)
{
    const int64_t to_step = to_stride * (int64_t)st_dtype_size(to_type);
    const int64_t from_step = from_stride * (int64_t)st_dtype_size(from_type);
    float reals[BLOCK];
    int64_t integers[BLOCK];

    CHECK(values_can_convert(from_type, to_type), "%s to %s", st_dtype_name(from_type),
          st_dtype_name(to_type));
    if (from_type == to_type && n > 0) {
        copy(to, to_stride, from, from_stride, st_dtype_size(to_type), n);
        return true;
    }
    const bool odd = from_type == ST_F64 && st_dtype_size(to_type) < sizeof(float);
    const widen_fn widen = odd ? widen_f64_odd : wideners[from_type];
    const narrow_fn narrow = narrowers[to_type];
    const load_fn load = loaders[from_type];
    const store_fn store = storers[to_type];
    CHECK((widen != NULL && narrow != NULL) || (load != NULL && store != NULL), "%s to %s",
          st_dtype_name(from_type), st_dtype_name(to_type));
    for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t part = n - done < BLOCK ? n - done : BLOCK;
        char *target = (char *)to + done * to_step;
        const char *source = (const char *)from + done * from_step;
        if (widen != NULL && narrow != NULL) {
            widen(reals, source, from_stride, part);
            narrow(target, to_stride, reals, part);
        } else if (!load(integers, source, from_stride, part) ||
                   !store(target, to_stride, integers, part)) {
            return false;
        }
    }
    return true;
}

/* Through a tile on the stack, so that a line of `to` is written once and whole. */
bool values_transpose(struct values_grid to, struct values_grid from, int64_t rows, int64_t cols)
{
    const int64_t to_size = (int64_t)st_dtype_size(to.type);
    const int64_t from_size = (int64_t)st_dtype_size(from.type);
    char tile[sizeof(double) * TILE * TILE];
    bool fits = true;

    for (int64_t r = 0; r < rows; r += TILE) {
        const int64_t high = rows - r < TILE ? rows - r : TILE;
        for (int64_t c = 0; c < cols; c += TILE) {
            const int64_t wide = cols - c < TILE ? cols - c : TILE;
            for (int64_t i = 0; i < high; i++) {
                const char *row = (const char *)from.at + ((r + i) * from.stride + c) * from_size;
                fits &= values_convert(tile + i * to_size, to.type, TILE, row, from.type, 1, wide);
            }
            for (int64_t i = 0; i < wide; i++) {
                char *row = (char *)to.at + ((c + i) * to.stride + r) * to_size;
                memcpy(row, tile + i * TILE * to_size, (size_t)(high * to_size));
            }
        }
    }
    return fits;
}
