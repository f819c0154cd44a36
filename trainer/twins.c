/* twins.c - tokens that a model cannot tell apart when it writes. */
#include "trainer/twins.h"

#include <string.h>

#include "kernels/check.h"

static double element(struct tensor t, int64_t i)
{
    if (t.type == DTYPE_BF16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)t.data)[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
    return (double)((const real *)t.data)[i];
}

int64_t twins_count(const struct model *m, int64_t token)
{
    const struct tensor w = m->head.w;
    const int64_t D = tensor_cols(w);
    int64_t twins = 0;

    CHECK(token >= 0 && token < tensor_rows(w), "token %lld", (long long)token);
    if (tensor_count(m->head.dw) > 0) {
        return 0;
    }
    for (int64_t other = 0; other < tensor_rows(w); other++) {
        double apart = 0.0, size = 0.0;
        for (int64_t i = 0; i < D; i++) {
            const double x = element(w, token * D + i), d = x - element(w, other * D + i);
            apart += d * d;
            size += x * x;
        }
        twins += other != token && apart <= 1e-4 * size;
    }
    return twins;
}
