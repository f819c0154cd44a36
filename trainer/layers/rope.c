/* rope.c - rotary positions (Su et al. 2021, arXiv:2104.09864), halves layout as in Hugging Face files.
 *
 * Pair i of a head turns by position * f_i, f_i = theta^(-2i/K), stretched for longer contexts:
 *   linear    f_i / factor
 *   llama3    wavelength w = 2 pi / f_i against the original context P:
 *             w < P / high: f_i;  w > P / low: f_i / factor;  between: a blend, by
 *             s = (P / w - low) / (high - low): (1 - s) f_i / factor + s f_i
 *             (transformers, modeling_rope_utils.py, _compute_llama3_parameters)
 * Angles are computed in double and stored as cos and sin.
 */
#include <math.h>

#include "trainer/layers/layer.h"

static double frequency(const struct rope_choice *r, int64_t i, int64_t K)
{
    const double pi = 3.14159265358979323846;
    const double f = pow(r->theta, -2.0 * (double)i / (double)K);

    if (r->kind == ROPE_LINEAR) {
        return f / r->factor;
    }
    if (r->kind != ROPE_LLAMA3) {
        return f;
    }
    const double original = (double)r->original_positions, wavelength = 2.0 * pi / f;
    if (wavelength < original / r->high_freq_factor) {
        return f;
    }
    if (wavelength > original / r->low_freq_factor) {
        return f / r->factor;
    }
    const double s =
        (original / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - s) * f / r->factor + s * f;
}

void rope_plan(struct rope *r, struct planner *p, int64_t positions)
{
    *r = (struct rope){tensor_none(), tensor_none()};
    if (p->d->arch.rope.kind != ROPE_NONE) {
        r->cos = layout_take(p->lo, LIFE_WEIGHT, DTYPE_REAL, positions, p->d->K / 2);
        r->sin = layout_take(p->lo, LIFE_WEIGHT, DTYPE_REAL, positions, p->d->K / 2);
    }
}

void rope_fill(const struct rope *r, const struct arch *a)
{
    real *c = r->cos.data, *s = r->sin.data;
    const int64_t half = tensor_cols(r->cos);

    for (int64_t i = 0; i < half; i++) {
        const double f = frequency(&a->rope, i, a->K);
        for (int64_t t = 0; t < tensor_rows(r->cos); t++) {
            c[t * half + i] = (real)cos((double)t * f);
            s[t * half + i] = (real)sin((double)t * f);
        }
    }
}

static void turn(const struct rope *r, const struct ctx *c, struct tensor qkv, bool inverse)
{
    if (tensor_count(r->cos) > 0) { /* queries and keys, not values */
        c->k->rope(c->q, qkv, c->d->H_tp + c->d->G_tp, c->batch.pos, r->cos, r->sin, inverse);
    }
}

void rope_forward(const struct rope *r, const struct ctx *c, struct tensor qkv)
{
    turn(r, c, qkv, false);
}

void rope_backward(const struct rope *r, const struct ctx *c, struct tensor dqkv)
{
    turn(r, c, dqkv, true);
}
