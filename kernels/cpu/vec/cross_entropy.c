/* cross_entropy.c - softmax and cross entropy over a slice of the vocabulary.
 *
 * The sum of exponentials is kept relative to a running maximum, tile by tile, so that a row of
 * logits is read from memory once (Milakov & Gimelshein 2018, arXiv:1805.02867).
 */
#include "kernels/cpu/vec/lanes.h"
#include "kernels/cpu/vec/ops.h"
#include "kernels/cpu/vec/wide.h"

struct softmax {
    real max, sum;
};

/* An empty row has max = -infinity and sum = 0. */
static struct softmax row_softmax(const real *x, int64_t n)
{
    struct softmax s = {.max = -(real)INFINITY};

    for (int64_t at = 0; at < n; at += TILE) {
        const int64_t here = smaller(TILE, n - at);
        const real max = r_fmax(s.max, lanes_max(x + at, here));
        if (!(max > -(real)INFINITY)) {
            continue;
        }
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < here; i++) {
            sum += wide_exp(x[at + i] - max);
        }
        s.sum = s.sum * (s.max > -(real)INFINITY ? r_exp(s.max - max) : REAL(0.0)) + sum;
        s.max = max;
    }
    return s;
}

/* Columns of the slice that are no padding. */
static int64_t real_columns(int64_t V, int64_t vocab0, int64_t valid)
{
    return larger(0, smaller(V, valid - vocab0));
}

static void check_label(int32_t label, int64_t valid)
{
    CHECK(label < valid, "label %d of a vocabulary of %lld", label, (long long)valid);
}

void VEC(cross_entropy_stats)(struct queue *q, struct tensor stats, struct tensor logits,
                              struct tensor labels, int64_t vocab0, int64_t valid)
{
    const int64_t R = tensor_rows(logits), V = tensor_cols(logits);
    const int64_t columns = real_columns(V, vocab0, valid);
    const int32_t *label = labels.data;

    (void)q;
    check_real(logits, R * V);
    check_real(stats, R * 3);
    check_i32(labels, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const real *x = (const real *)logits.data + r * V;
        const struct softmax s = row_softmax(x, columns);
        const int64_t column = label[r] - vocab0;
        real *out = (real *)stats.data + r * 3;
        check_label(label[r], valid);
        out[0] = s.max;
        out[1] = s.sum;
        out[2] = label[r] >= 0 && column >= 0 && column < columns ? x[column] : REAL(0.0);
    }
}

void VEC(cross_entropy_merge)(struct queue *q, struct tensor stats, struct tensor parts)
{
    const int64_t R = tensor_rows(stats), n = tensor_rows(parts) / larger(R, 1);

    (void)q;
    check_real(stats, R * 3);
    check_real(parts, n * R * 3);
    for (int64_t r = 0; r < R; r++) {
        const real *part = (const real *)parts.data + r * 3;
        real *out = (real *)stats.data + r * 3;
        real max = -(real)INFINITY, sum = 0, label = 0;
        for (int64_t i = 0; i < n; i++) {
            max = r_fmax(max, part[i * R * 3]);
        }
        for (int64_t i = 0; i < n; i++) {
            const real *one = part + i * R * 3; /* a slice of padding alone has the sum 0 */
            sum += one[1] > 0 ? one[1] * r_exp(one[0] - max) : REAL(0.0);
            label += one[2];
        }
        out[0] = max;
        out[1] = sum;
        out[2] = label;
    }
}

void VEC(cross_entropy_loss)(struct queue *q, struct tensor loss, struct tensor stats,
                             struct tensor labels)
{
    const int64_t R = tensor_rows(labels);
    const int32_t *label = labels.data;
    real *out = loss.data;

    (void)q;
    check_real(loss, R);
    check_real(stats, R * 3);
    check_i32(labels, R);
    for (int64_t r = 0; r < R; r++) {
        const real *s = (const real *)stats.data + r * 3;
        out[r] = label[r] < 0 ? REAL(0.0) : s[0] + r_log(s[1]) - s[2];
    }
}

void VEC(cross_entropy_hits)(struct queue *q, struct tensor hits, struct tensor stats,
                             struct tensor labels)
{
    const int64_t R = tensor_rows(labels);
    const int32_t *label = labels.data;
    int64_t count = 0;

    (void)q;
    CHECK(hits.type == DTYPE_F64 && tensor_count(hits) == 1, "hits are %s", dtype_name(hits.type));
    check_real(stats, R * 3);
    check_i32(labels, R);
    for (int64_t r = 0; r < R; r++) {
        const real *s = (const real *)stats.data + r * 3;
        count += label[r] >= 0 && s[2] >= s[0];
    }
    *(double *)hits.data += (double)count;
}

/* y[i] = factor exp(x[i] - max) */
static void scaled_exp(real *y, const real *x, int64_t n, real max, real factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = factor * wide_exp(x[i] - max);
    }
}

/* One row of dlogits; `columns` of them are no padding. */
static void row_backward(struct tensor dlogits, int64_t at, const real *x, const real *stats,
                         int64_t column, int64_t columns, real scale)
{
    const int64_t V = tensor_cols(dlogits);
    const real factor = scale / stats[1];
    real tile[TILE];

    for (int64_t v = 0; v < V; v += TILE) {
        const int64_t n = smaller(TILE, V - v);
        const int64_t here = larger(0, smaller(n, columns - v));
        real *y = tile_open(dlogits, at + v, tile);
        scaled_exp(y, x + v, here, stats[0], factor);
        memset(y + here, 0, (size_t)(n - here) * sizeof(real));
        if (column >= v && column < v + n) {
            y[column - v] -= scale;
        }
        tile_close(dlogits, at + v, n, y);
    }
}

static void zero_row(struct tensor t, int64_t row)
{
    const size_t bytes = (size_t)tensor_cols(t) * dtype_size(t.type);

    memset((char *)t.data + (size_t)row * bytes, 0, bytes);
}

void VEC(cross_entropy_backward)(struct queue *q, struct tensor dlogits, struct tensor logits,
                                 struct tensor stats, struct tensor labels, int64_t vocab0,
                                 int64_t valid, double scale)
{
    const int64_t R = tensor_rows(logits), V = tensor_cols(logits);
    const int64_t columns = real_columns(V, vocab0, valid);
    const int32_t *label = labels.data;

    (void)q;
    check_any(dlogits, R * V);
    check_real(logits, R * V);
    check_real(stats, R * 3);
    check_i32(labels, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        check_label(label[r], valid);
        if (label[r] < 0) {
            zero_row(dlogits, r);
        } else {
            row_backward(dlogits, r * V, (const real *)logits.data + r * V,
                         (const real *)stats.data + r * 3, label[r] - vocab0, columns, (real)scale);
        }
    }
}
