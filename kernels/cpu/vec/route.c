/* route.c - the router of experts, and rows of tokens sent to them and back. Formulas: kernels/kernels.h.
 *
 * Sums over rows go down the rows in order, one thread a column or none, so that results do not depend on threads.
 */
#include "kernels/cpu/vec/ops.h"

/* p = softmax(x) over n, all of them at once; the log of the sum of exponentials. */
static real softmax(real *p, const real *x, int64_t n)
{
    real max = x[0];

    for (int64_t i = 1; i < n; i++) {
        max = r_fmax(max, x[i]);
    }
    real sum = p[0] = r_exp(x[0] - max);
    for (int64_t i = 1; i < n; i++) {
        p[i] = r_exp(x[i] - max);
        sum += p[i];
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] /= sum;
    }
    return max + r_log(sum);
}

/* The k largest of x, the largest first; of equals, and where there is no order, the lower index first. */
static void choose(int32_t *best, const real *x, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = smaller(i, k);
        while (at > 0 && x[i] > x[best[at - 1]]) {
            if (at < k) {
                best[at] = best[at - 1];
            }
            at--;
        }
        if (at < k) {
            best[at] = (int32_t)i;
        }
    }
}

static void check_route(const struct routing *o, int64_t R, int64_t E, int64_t k)
{
    CHECK(k >= 1 && k <= E, "%lld of %lld experts", (long long)k, (long long)E);
    check_i32(o->choice, R * k);
    check_real(o->weight, R * k);
    check_real(o->probability, R * E);
    check_real(o->lse, R);
}

void VEC(route_forward)(struct queue *q, const struct routing *o, struct tensor logits,
                        bool renormalise)
{
    const int64_t R = tensor_rows(logits), E = tensor_cols(logits), k = tensor_cols(o->choice);

    (void)q;
    check_route(o, R, E, k);
    check_real(logits, R * E);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const real *x = (const real *)logits.data + r * E;
        real *p = (real *)o->probability.data + r * E, *w = (real *)o->weight.data + r * k;
        int32_t *best = (int32_t *)o->choice.data + r * k;
        real all = renormalise ? REAL(0.0) : REAL(1.0);
        ((real *)o->lse.data)[r] = softmax(p, x, E);
        choose(best, x, E, k);
        for (int64_t i = 0; i < k && renormalise; i++) { /* not of p: it may be all 0 */
            all += r_exp(x[best[i]] - x[best[0]]);
        }
        for (int64_t i = 0; i < k; i++) {
            w[i] = renormalise ? r_exp(x[best[i]] - x[best[0]]) / all : p[best[i]];
        }
    }
}

void VEC(route_backward)(struct queue *q, struct tensor dlogits, struct tensor dweight,
                         const struct routing *o, struct tensor pull, double z, bool renormalise)
{
    const int64_t R = tensor_rows(dlogits), E = tensor_cols(dlogits), k = tensor_cols(o->choice);

    (void)q;
    check_route(o, R, E, k);
    check_any(dlogits, R * E);
    CHECK(E <= TILE, "%lld experts", (long long)E);
    check_real(dweight, R * k);
    check_real(pull, E);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const real *p = (const real *)o->probability.data + r * E, *g = pull.data;
        const real *w = (const real *)o->weight.data + r * k;
        const real *dw = (const real *)dweight.data + r * k;
        const int32_t *best = (const int32_t *)o->choice.data + r * k;
        const real lse = ((const real *)o->lse.data)[r];
        real mean = 0, mean_w = 0, tile[TILE];
        for (int64_t e = 0; e < E; e++) {
            mean += p[e] * g[e];
        }
        for (int64_t i = 0; i < k; i++) {
            mean_w += w[i] * dw[i];
        }
        mean += renormalise ? REAL(0.0) : mean_w;
        real *dx = tile_open(dlogits, r * E, tile);
        for (int64_t e = 0; e < E; e++) {
            dx[e] = p[e] * (g[e] - mean + (real)z * lse);
        }
        for (int64_t i = 0; i < k; i++) {
            dx[best[i]] += w[i] * (renormalise ? dw[i] - mean_w : dw[i]);
        }
        tile_close(dlogits, r * E, E, dx);
    }
}

void VEC(route_stats)(struct queue *q, struct tensor stats, const struct routing *o)
{
    const int64_t R = tensor_rows(o->choice), k = tensor_cols(o->choice);
    const int64_t E = tensor_cols(o->probability);
    real *count = stats.data, *sum = count + E, *square = sum + E;

    (void)q;
    check_route(o, R, E, k);
    check_real(stats, 2 * E + 1);
    memset(stats.data, 0, tensor_bytes(stats));
    for (int64_t r = 0; r < R; r++) {
        const real *p = (const real *)o->probability.data + r * E;
        const int32_t *best = (const int32_t *)o->choice.data + r * k;
        const real lse = ((const real *)o->lse.data)[r];
        for (int64_t e = 0; e < E; e++) {
            sum[e] += p[e];
        }
        for (int64_t i = 0; i < k; i++) {
            count[best[i]] += REAL(1.0);
        }
        *square += lse * lse;
    }
}

void VEC(route_losses)(struct queue *q, struct tensor sums, struct tensor stats, double aux,
                       double z)
{
    const int64_t E = tensor_count(stats) / 2;
    const real *count = stats.data, *sum = count + E;
    double *out = sums.data, product = 0.0;

    (void)q;
    check_real(stats, 2 * E + 1);
    CHECK(sums.type == DTYPE_F64 && tensor_count(sums) == 2, "sums of another shape");
    for (int64_t e = 0; e < E; e++) {
        product += (double)count[e] * (double)sum[e];
    }
    out[0] += aux * product;
    out[1] += z * (double)count[2 * E];
}

/* Whether choice a, a row and a place in it, goes before b of the same expert. */
static bool goes_before(const real *w, int64_t a, int64_t b)
{
    return w[a] > w[b] || (!(w[b] > w[a]) && a < b);
}

/* list: indices of `to` that are each expert's, one expert's after the other's; begin[e] is where e's begin. */
static void list_by_expert(int32_t *list, int64_t begin[TILE + 1], const int32_t *to, int64_t n)
{
    memset(begin, 0, (TILE + 1) * sizeof *begin);
    for (int64_t i = 0; i < n; i++) {
        CHECK(to[i] >= 0 && to[i] < TILE, "expert %d", to[i]);
        begin[to[i] + 1]++;
    }
    for (int64_t e = 0; e < TILE; e++) {
        begin[e + 1] += begin[e];
    }
    for (int64_t i = 0; i < n; i++) {
        list[begin[to[i]]++] = (int32_t)i;
    }
    for (int64_t e = TILE; e > 0; e--) {
        begin[e] = begin[e - 1];
    }
    begin[0] = 0;
}

void VEC(route_drop)(struct queue *q, struct tensor kept, struct tensor list, struct tensor choice,
                     struct tensor weight, int64_t row0, int64_t most)
{
    const int64_t R = tensor_rows(kept), k = tensor_cols(kept), n = tensor_count(choice);
    const int32_t *to = choice.data, *all = list.data;
    int32_t *out = kept.data;
    int64_t begin[TILE + 1];

    (void)q;
    check_i32(kept, R * k);
    check_i32(list, n);
    check_i32(choice, n);
    check_real(weight, n);
    CHECK(row0 >= 0 && (row0 + R) * k <= n, "rows %lld of %lld", (long long)row0, (long long)n);
    list_by_expert(list.data, begin, to, n);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t i = 0; i < R * k; i++) {
        const int64_t mine = row0 * k + i, end = begin[to[mine] + 1];
        int64_t before = 0;
        for (int64_t j = begin[to[mine]]; j < end && end - begin[to[mine]] > most; j++) {
            before += all[j] != mine && goes_before(weight.data, all[j], mine);
        }
        out[i] = before < most ? to[mine] : -1;
    }
}

/* The place of an expert's part in the order in which rows are sent. */
static int64_t place_of(const struct route_grid *g, int64_t expert, int64_t part)
{
    const int64_t each = g->E / g->ep;

    return (expert / each * g->etp + part) * each + expert % each;
}

void VEC(route_order)(struct queue *q, struct tensor slot, struct tensor source,
                      struct tensor counts, struct tensor kept, const struct route_grid *g)
{
    const int64_t R = tensor_rows(kept), k = tensor_cols(kept), places = g->E * g->etp;
    const int32_t *to = kept.data;
    int32_t *n = counts.data, *out = slot.data, *from = source.data, sum = 0;

    (void)q;
    check_i32(kept, R * k);
    check_i32(slot, R * k * g->etp);
    check_i32(source, R * k * g->etp);
    check_i32(counts, places);
    memset(n, 0, tensor_bytes(counts));
    for (int64_t i = 0; i < R * k * g->etp; i++) {
        from[i] = -1;
        n[to[i / g->etp] < 0 ? 0 : place_of(g, to[i / g->etp], i % g->etp)] +=
            to[i / g->etp] < 0 ? 0 : 1;
    }
    for (int64_t v = 0; v < places; v++) { /* counts become beginnings .. */
        sum += n[v];
        n[v] = sum - n[v];
    }
    for (int64_t i = 0; i < R * k * g->etp; i++) {
        const int32_t expert = to[i / g->etp];
        out[i] = expert < 0 ? -1 : n[place_of(g, expert, i % g->etp)]++;
        if (expert >= 0) {
            from[out[i]] = (int32_t)(i / g->etp / k);
        }
    }
    for (int64_t v = places - 1; v > 0; v--) { /* .. then ends, and counts again */
        n[v] -= n[v - 1];
    }
}

void VEC(combine_forward)(struct queue *q, struct tensor y, struct tensor e, struct tensor slot,
                          struct tensor weight)
{
    const int64_t R = tensor_rows(y), D = tensor_cols(y), j = tensor_cols(slot);
    const int64_t copies = weight.data != NULL ? j / tensor_cols(weight) : 1;
    const int32_t *at = slot.data;
    const real *w = weight.data;

    (void)q;
    check_any(y, R * D);
    check_any(e, tensor_rows(e) * D);
    check_i32(slot, R * j);
    CHECK(w == NULL || tensor_count(weight) * copies == R * j, "%lld weights",
          (long long)tensor_count(weight));
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        for (int64_t d = 0; d < D; d += TILE) {
            const int64_t n = smaller(TILE, D - d);
            real tile[TILE], sum[TILE] = {0};
            for (int64_t i = r * j; i < (r + 1) * j; i++) {
                const real by = w != NULL ? w[i / copies] : REAL(1.0);
                const real *x = at[i] < 0 ? NULL : tile_read(e, at[i] * D + d, n, tile);
                for (int64_t c = 0; c < n && x != NULL; c++) {
                    sum[c] += by * x[c];
                }
            }
            real *out = tile_open(y, r * D + d, tile);
            memcpy(out, sum, (size_t)n * sizeof(real));
            tile_close(y, r * D + d, n, out);
        }
    }
}

/* de = w dy, and the product of dy and e as it was: both of one row. */
static real pull_row(struct tensor e, int64_t at, struct tensor dy, int64_t from, real w)
{
    const int64_t D = tensor_cols(dy);
    real product = 0;

    for (int64_t d = 0; d < D; d += TILE) {
        const int64_t n = smaller(TILE, D - d);
        real xt[TILE], gt[TILE];
        const real *x = tile_read(e, at * D + d, n, xt), *g = tile_read(dy, from * D + d, n, gt);
        real *to = tile_open(e, at * D + d, xt); /* may be x */
        for (int64_t c = 0; c < n; c++) {
            product += x[c] * g[c];
            to[c] = w * g[c];
        }
        tile_close(e, at * D + d, n, to);
    }
    return product;
}

void VEC(combine_backward)(struct queue *q, struct tensor e, struct tensor dweight,
                           struct tensor dy, struct tensor slot, struct tensor weight)
{
    const int64_t R = tensor_rows(dy), D = tensor_cols(dy), j = tensor_cols(slot);
    const int64_t k = tensor_cols(weight), copies = j / k;
    const int32_t *at = slot.data;
    const real *w = weight.data;
    real *dw = dweight.data;

    (void)q;
    check_any(dy, R * D);
    check_any(e, tensor_rows(e) * D);
    check_i32(slot, R * j);
    check_real(weight, R * k);
    check_real(dweight, R * k);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t i = 0; i < R * k; i++) {
        dw[i] = REAL(0.0);
        for (int64_t c = i * copies; c < (i + 1) * copies; c++) {
            dw[i] += at[c] < 0 ? REAL(0.0) : pull_row(e, at[c], dy, i / k, w[i]);
        }
    }
}

void VEC(gate_rows_forward)(struct queue *q, struct tensor y, struct tensor x, struct tensor gate)
{
    const int64_t R = tensor_rows(y), D = tensor_cols(y);

    (void)q;
    check_any(y, R * D);
    check_any(x, R * D);
    check_real(gate, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const real s = REAL(1.0) / (REAL(1.0) + r_exp(-((const real *)gate.data)[r]));
        for (int64_t d = 0; d < D; d += TILE) {
            const int64_t n = smaller(TILE, D - d);
            real xt[TILE], yt[TILE];
            const real *a = tile_read(x, r * D + d, n, xt), *b = tile_read(y, r * D + d, n, yt);
            real *out = tile_open(y, r * D + d, yt); /* may be b */
            for (int64_t c = 0; c < n; c++) {
                out[c] = b[c] + s * a[c];
            }
            tile_close(y, r * D + d, n, out);
        }
    }
}

void VEC(gate_rows_backward)(struct queue *q, struct tensor dx, struct tensor dgate,
                             struct tensor dy, struct tensor x, struct tensor gate)
{
    const int64_t R = tensor_rows(dy), D = tensor_cols(dy);

    (void)q;
    check_any(dx, R * D);
    check_any(dy, R * D);
    check_any(x, R * D);
    check_real(gate, R);
    check_any(dgate, R);
#pragma omp parallel for num_threads(cpu_threads()) schedule(static)
    for (int64_t r = 0; r < R; r++) {
        const real s = REAL(1.0) / (REAL(1.0) + r_exp(-((const real *)gate.data)[r]));
        real product = 0, one[1];
        for (int64_t d = 0; d < D; d += TILE) {
            const int64_t n = smaller(TILE, D - d);
            real xt[TILE], gt[TILE], ot[TILE];
            const real *a = tile_read(x, r * D + d, n, xt), *g = tile_read(dy, r * D + d, n, gt);
            real *out = tile_open(dx, r * D + d, ot);
            for (int64_t c = 0; c < n; c++) {
                product += a[c] * g[c];
                out[c] = s * g[c];
            }
            tile_close(dx, r * D + d, n, out);
        }
        real *to = tile_open(dgate, r, one);
        to[0] = product * s * (REAL(1.0) - s);
        tile_close(dgate, r, 1, to);
    }
}
