/* twins.c - tokens that a model cannot tell apart when it writes. */
#include "trainer/twins.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/ckpt/folder.h"
#include "trainer/ckpt/rectangle.h"
#include "trainer/ckpt/values.h"

/* Square of the distance at which rows are the same, of their size: 0.05. Rows of tokens that were trained are ten times
 * as far apart; with a hidden state of the usual size such rows give logits that differ by less than 1. */
static const double NEAR = 2.5e-3;

static double element(struct tensor t, int64_t i)
{
    const char *at = (const char *)t.data + (size_t)i * dtype_size(t.type);
    double x = 0.0;

    if (t.type == DTYPE_REAL) {
        return (double)((const real *)t.data)[i];
    }
    CHECK(values_convert(&x, ST_F64, 1, at, values_stored(t.type), 1, 1), "an element of type %s",
          dtype_name(t.type));
    return x;
}

/* Of this rank's rows of the vocabulary those near `one`, the row of `token`. */
static int64_t count_near(const struct model *m, const double *one, int64_t token)
{
    const struct tensor w = m->head.w;
    const int64_t D = tensor_cols(w), first = m->d.V0;
    int64_t twins = 0;

    for (int64_t row = 0; row < tensor_rows(w) && first + row < m->d.V; row++) {
        double apart = 0.0, size = 0.0;
        for (int64_t i = 0; i < D; i++) {
            const double d = one[i] - element(w, row * D + i);
            apart += d * d;
            size += one[i] * one[i];
        }
        twins += first + row != token && apart <= NEAR * size;
    }
    return twins;
}

int64_t twins_count(const struct model *m, struct comm *tp, struct queue *q, int64_t token)
{
    const struct tensor w = m->head.w;
    const int64_t D = tensor_cols(w), row = token - m->d.V0;

    CHECK(token >= 0 && token < m->d.V, "token %lld", (long long)token);
    if (tensor_count(w) == 0 || tensor_count(m->head.dw) > 0) {
        return 0;
    }
    double *one = calloc((size_t)D, sizeof *one);
    CHECK(one != NULL, "no memory for %lld numbers", (long long)D);
    for (int64_t i = 0; row >= 0 && row < tensor_rows(w) && i < D; i++) {
        one[i] = element(w, row * D + i);
    }
    comm_all_reduce(tp, q, tensor_make(one, DTYPE_F64, D, 1));
    double count = (double)count_near(m, one, token);
    comm_all_reduce(tp, q, tensor_make(&count, DTYPE_F64, 1, 1));
    free(one);
    return (int64_t)count;
}

/* The output weights in a model folder. */
struct rows {
    const struct st_tensor *t;
    int64_t count, D;
    double *one, *other; /* owned [D] */
};

enum { GLANCE = 16 }; /* numbers that tell most rows apart */

/* Numbers [0, n) of a row. */
static bool read_row(const struct rows *r, int64_t row, double *out, int64_t n)
{
    const int64_t size = (int64_t)st_dtype_size(r->t->dtype);
    const struct st_rect rect = {.row0 = row, .rows = 1, .cols = r->D};
    char raw[GLANCE * sizeof(double)];
    struct err ignored = {0};

    if (n > GLANCE) {
        return safetensors_read(r->t, rect, ST_AS_IS, out, DTYPE_F64, r->D, &ignored) == 0;
    }
    return safetensors_read_bytes(r->t, (uint64_t)(row * r->D * size), raw, (size_t)(n * size),
                                  &ignored) == 0 &&
           values_convert(out, ST_F64, 1, raw, r->t->dtype, 1, n);
}

static double distance(const struct rows *r, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        const double d = r->one[i] - r->other[i];
        sum += d * d;
    }
    return sum;
}

static int64_t count_twins(const struct rows *r, int64_t token)
{
    const int64_t glance = r->D < GLANCE ? r->D : GLANCE;
    int64_t twins = 0;
    double size = 0.0;

    if (!read_row(r, token, r->one, r->D)) {
        return 0;
    }
    for (int64_t i = 0; i < r->D; i++) {
        size += r->one[i] * r->one[i];
    }
    for (int64_t other = 0; other < r->count; other++) {
        twins += other != token && read_row(r, other, r->other, glance) &&
                 distance(r, glance) <= NEAR * size && read_row(r, other, r->other, r->D) &&
                 distance(r, r->D) <= NEAR * size;
    }
    return twins;
}

/* The head, or the embedding that is the head; with or without the part of its name before the first dot. */
static const struct st_tensor *find_head(const struct arch *a, const struct safetensors_folder *f)
{
    const char *name = param_get(a->tied ? PARAM_EMBED : PARAM_HEAD, a).format;
    const struct st_tensor *t = safetensors_folder_find(f, name);

    return t == NULL && a->tied ? safetensors_folder_find(f, strchr(name, '.') + 1) : t;
}

int64_t twins_in_folder(const struct arch *a, const char *dir, int64_t token)
{
    struct safetensors_folder *f = NULL;
    struct rows r = {.count = a->V, .D = a->D};
    struct err ignored = {0};
    int64_t twins = 0;

    if (safetensors_folder_open(&f, dir, &ignored) != 0) {
        return 0;
    }
    r.t = find_head(a, f);
    r.one = calloc((size_t)a->D, sizeof *r.one);
    r.other = calloc((size_t)a->D, sizeof *r.other);
    if (r.one != NULL && r.other != NULL && r.t != NULL && token >= 0 && token < a->V &&
        r.t->dims == 2 && st_rows(r.t) == a->V && st_cols(r.t) == a->D &&
        st_dtype_is_float(r.t->dtype) && values_can_convert(r.t->dtype, ST_F64)) {
        twins = count_twins(&r, token);
    }
    free(r.one);
    free(r.other);
    safetensors_folder_close(f);
    return twins;
}
