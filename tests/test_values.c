/* test_values.c - conversions are exact or correctly rounded, for every 16-bit pattern and at
 * every border. */
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/values.h"

static uint32_t bits_of(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint16_t round_f64(double x, enum st_dtype to)
{
    uint16_t h = 0;

    EXPECT(values_convert(&h, to, 1, &x, ST_F64, 1, 1));
    return h;
}

static uint16_t round_f32(float x, enum st_dtype to)
{
    uint16_t h = 0;

    EXPECT(values_convert(&h, to, 1, &x, ST_F32, 1, 1));
    return h;
}

static double value_of(uint16_t h, enum st_dtype from)
{
    double x = 0;

    EXPECT(values_convert(&x, ST_F64, 1, &h, from, 1, 1));
    return x;
}

/* The value of a 16-bit float by its definition. */
static double defined(uint16_t h, int exponent_bits, int mantissa_bits)
{
    const int exponent = h >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = h & ((1 << mantissa_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = h >> 15 ? -1.0 : 1.0;

    if (exponent == (1 << exponent_bits) - 1) {
        return mantissa == 0 ? sign * HUGE_VAL : nan("");
    }
    return exponent == 0
               ? sign * ldexp(mantissa, 1 - bias - mantissa_bits)
               : sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void all_16_bit_patterns_come_and_go_unchanged(void)
{
    static const struct {
        enum st_dtype type;
        int exponent, mantissa;
    } kinds[] = {{ST_BF16, 8, 7}, {ST_F16, 5, 10}};
    int wrong = 0;

    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= UINT16_MAX; i++) {
            const uint16_t h = (uint16_t)i;
            const double want = defined(h, kinds[k].exponent, kinds[k].mantissa);
            const double is = value_of(h, kinds[k].type);
            if (isnan(want)) {
                wrong +=
                    !isnan(is) || !isnan(value_of(round_f64(is, kinds[k].type), kinds[k].type));
                continue;
            }
            wrong += is != want || signbit(is) != signbit(want);
            wrong +=
                round_f64(want, kinds[k].type) != h || round_f32((float)want, kinds[k].type) != h;
        }
    }
    EXPECT(wrong == 0);
}

/* Between every two neighbours: the half goes to the even one, anything beside the half to the
 * nearer. */
static void rounds_to_nearest_with_ties_to_even(void)
{
    static const struct {
        enum st_dtype type;
        uint16_t infinity;
    } kinds[] = {{ST_BF16, 0x7F80}, {ST_F16, 0x7C00}};
    int wrong = 0;

    for (int k = 0; k < 2; k++) {
        const enum st_dtype type = kinds[k].type;
        for (uint16_t h = 0; h + 1 < kinds[k].infinity; h++) {
            const double low = value_of(h, type), high = value_of((uint16_t)(h + 1), type);
            const double half = low + (high - low) / 2;
            const uint16_t even = h % 2 == 0 ? h : (uint16_t)(h + 1);
            wrong += round_f64(half, type) != even || round_f64(-half, type) != (even | 0x8000);
            /* One unit of f64 beside the half: rounding twice would take it for the half. */
            wrong += round_f64(nextafter(half, 0.0), type) != h;
            wrong += round_f64(nextafter(half, HUGE_VAL), type) != h + 1;
            wrong += round_f32((float)half, type) != even;
            wrong += round_f32(nextafterf((float)half, 0.0F), type) != h;
            wrong += round_f32(nextafterf((float)half, INFINITY), type) != h + 1;
        }
    }
    EXPECT(wrong == 0);
    EXPECT(round_f32(65519.996F, ST_F16) == 0x7BFF && round_f32(65520.0F, ST_F16) == 0x7C00);
    EXPECT(round_f64(65519.999999, ST_F16) == 0x7BFF && round_f64(1e300, ST_F16) == 0x7C00);
    EXPECT(round_f32(3.3961775e38F, ST_BF16) == 0x7F80 && round_f32(3.38e38F, ST_BF16) == 0x7F7E);
    EXPECT(round_f64(-1e300, ST_BF16) == 0xFF80 && round_f64(1e-300, ST_BF16) == 0);
    EXPECT(round_f64(HUGE_VAL, ST_BF16) == 0x7F80 && round_f64(-HUGE_VAL, ST_F16) == 0xFC00);
}

static void a_nan_with_small_payload_stays_a_nan(void)
{
    const uint32_t bits = 0x7F800001U;
    float nan = 0;

    memcpy(&nan, &bits, sizeof nan);
    EXPECT(isnan(value_of(round_f32(nan, ST_BF16), ST_BF16)));
    EXPECT(isnan(value_of(round_f32(nan, ST_F16), ST_F16)));
}

static void f64_becomes_the_nearest_f32(void)
{
    static const double some[] = {0.1, 1.0 / 3, 1e39, -1e-46, 16777217.0, 1.00000006};

    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        float x = 0;
        EXPECT(values_convert(&x, ST_F32, 1, &some[i], ST_F64, 1, 1));
        EXPECT(bits_of(x) == bits_of((float)some[i]));
    }
}

/* One table of ../shared/golden/tables/number_formats.json. */
static void compare_fp8(const json_t *formats, const char *name, enum st_dtype type)
{
    const json_t *decode = json_object_get(json_object_get(formats, name), "decode");
    size_t i = 0;
    json_t *want = NULL;

    EXPECT(json_array_size(decode) == 256);
    json_array_foreach(decode, i, want)
    {
        const uint8_t h = (uint8_t)i;
        float x = 0;
        EXPECT(values_convert(&x, ST_F32, 1, &h, type, 1, 1));
        if (json_is_number(want)) {
            EXPECT((double)x == json_number_value(want) && !signbit(x) == (i < 128));
        } else if (strstr(json_string_value(want), "inf") != NULL) {
            EXPECT(isinf(x) && !signbit(x) == (i < 128));
        } else {
            EXPECT(isnan(x));
        }
    }
}

static void fp8_values_are_those_of_the_golden_table(void)
{
    json_t *formats = NULL;
    struct err err;

    if (json_parse_file(&formats, "../shared/golden/tables/number_formats.json", 1 << 22, &err) !=
        0) {
        printf("# skip: ../shared is absent\n");
        return;
    }
    compare_fp8(formats, "e4m3", ST_F8_E4M3);
    compare_fp8(formats, "e5m2", ST_F8_E5M2);
    json_decref(formats);
}

static bool convert_one(enum st_dtype to, enum st_dtype from, int64_t value, int64_t *out)
{
    char source[8], target[8];
    const enum st_dtype wide = ST_I64;

    return values_convert(source, from, 1, &value, wide, 1, 1) &&
           values_convert(target, to, 1, source, from, 1, 1) &&
           values_convert(out, wide, 1, target, to, 1, 1);
}

static void integers_keep_their_value_or_are_refused(void)
{
    static const struct {
        enum st_dtype type;
        int64_t low, high;
    } kinds[] = {
        {ST_U8, 0, 255},
        {ST_I8, -128, 127},
        {ST_U16, 0, 65535},
        {ST_I16, -32768, 32767},
        {ST_I32, INT32_MIN, INT32_MAX},
        {ST_U32, 0, UINT32_MAX},
        {ST_I64, INT64_MIN, INT64_MAX},
        {ST_U64, 0, INT64_MAX},
        {ST_BOOL, 0, 1},
    };
    int64_t out = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        EXPECT(convert_one(kinds[i].type, ST_I64, kinds[i].low, &out) && out == kinds[i].low);
        EXPECT(convert_one(kinds[i].type, ST_I64, kinds[i].high, &out) && out == kinds[i].high);
        if (kinds[i].high < INT64_MAX) {
            EXPECT(!convert_one(kinds[i].type, ST_I64, kinds[i].high + 1, &out));
        }
        if (kinds[i].low > INT64_MIN) {
            EXPECT(!convert_one(kinds[i].type, ST_I64, kinds[i].low - 1, &out));
        }
    }
    const uint64_t big = UINT64_C(1) << 63;
    EXPECT(!values_convert(&out, ST_I64, 1, &big, ST_U64, 1, 1));
    EXPECT(!values_can_convert(ST_F32, ST_I32) && !values_can_convert(ST_I64, ST_F64));
    EXPECT(!values_can_convert(ST_F32, ST_F8_E4M3) && values_can_convert(ST_F8_E4M3, ST_F32));
}

static void strides_pick_and_place_elements(void)
{
    enum { N = 1000 };
    static float from[3 * N];
    static uint16_t to[2 * N];

    for (int i = 0; i < 3 * N; i++) {
        from[i] = (float)(i % 256);
    }
    EXPECT(values_convert(to, ST_BF16, 2, from, ST_F32, 3, N));
    for (int i = 0; i < N; i++) {
        EXPECT(value_of(to[(int64_t)2 * i], ST_BF16) == (double)(3 * i % 256) &&
               to[(int64_t)2 * i + 1] == 0);
    }
    static float same[2 * N];
    EXPECT(values_convert(same, ST_F32, 2, from + 1, ST_F32, 3, N));
    EXPECT(same[0] == 1.0F && same[2] == 4.0F && same[3] == 0.0F);
}

int main(void)
{
    RUN(all_16_bit_patterns_come_and_go_unchanged);
    RUN(rounds_to_nearest_with_ties_to_even);
    RUN(a_nan_with_small_payload_stays_a_nan);
    RUN(f64_becomes_the_nearest_f32);
    RUN(fp8_values_are_those_of_the_golden_table);
    RUN(integers_keep_their_value_or_are_refused);
    RUN(strides_pick_and_place_elements);
    return tap_done();
}
