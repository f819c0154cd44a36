/* rates.c - constant, linear, cosine, inverse square root, WSD; all after a linear warmup. */
#include "trainer/rates.h"

#include <math.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct rates rates_make(const struct spec *s, int64_t total)
{
    struct rates r = {.schedule = (enum lr_schedule)s->lr_schedule,
                      .style = (enum wsd_style)s->wsd_decay_style,
                      .highest = s->learning_rate,
                      .lowest = s->min_learning_rate,
                      .warmup = s->warmup_steps,
                      .decay = s->wsd_decay_steps,
                      .total = total};

    if (r.lowest < 0.0) {
        r.lowest = r.highest / 10.0;
    }
    if (r.warmup < 0) {
        r.warmup = smaller(total / 100, 2000);
    }
    if (r.decay < 0) {
        r.decay = total / 10;
    }
    r.warmup = smaller(r.warmup, total);
    r.decay = smaller(r.decay, total - r.warmup);
    return r;
}

/* The WSD decay from 1 to 0 while q goes from 0 to 1. */
static double wsd_factor(enum wsd_style style, double q)
{
    const double pi = 3.14159265358979323846;

    switch (style) {
    case WSD_LINEAR: return 1.0 - q;
    case WSD_COSINE: return 0.5 * (cos(pi * q) + 1.0);
    case WSD_EXPONENTIAL: return 2.0 * pow(0.5, q) - 1.0;
    case WSD_MINUS_SQRT: return 1.0 - sqrt(q);
    }
    return 0.0;
}

double rates_at(const struct rates *r, int64_t t)
{
    const double pi = 3.14159265358979323846;
    const double progress =
        r->total > r->warmup ? (double)(t - r->warmup) / (double)(r->total - r->warmup) : 1.0;
    double factor = 1.0;

    if (r->warmup > 0 && t <= r->warmup) {
        return r->start + (r->highest - r->start) * (double)t / (double)r->warmup;
    }
    if (r->schedule == LR_CONSTANT) {
        return r->highest;
    }
    if (t > r->total) {
        return r->lowest;
    }
    switch (r->schedule) {
    case LR_CONSTANT: break;
    case LR_LINEAR: factor = 1.0 - progress; break;
    case LR_COSINE: factor = 0.5 * (cos(pi * progress) + 1.0); break;
    case LR_INVERSE_SQRT: {
        const double first = r->warmup > 1 ? (double)r->warmup : 1.0;
        return fmax(r->lowest, r->highest * sqrt(first) / sqrt(t > 1 ? (double)t : 1.0));
    }
    case LR_WSD:
        if (r->decay > 0 && t > r->total - r->decay) {
            factor = wsd_factor(r->style, (double)(t - (r->total - r->decay)) / (double)r->decay);
        }
        break;
    }
    return r->lowest + factor * (r->highest - r->lowest);
}
