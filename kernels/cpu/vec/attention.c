/* attention.c - causal attention, forward pass and decoding. Shapes: kernels/kernels.h.
 *
 * For a block of queries the keys are walked block by block; each block's probabilities are taken
 * relative to the maximum so far, and what is summed already is scaled down when the maximum grows
 * (Dao et al. 2022, arXiv:2205.14135, algorithm 1).
 */
#include "kernels/cpu/vec/attention.h"
#include "kernels/cpu/vec/ops.h"
#include "kernels/cpu/vec/wide.h"

/* Below every score that occurs, and finite: its difference to -infinity is no NaN. */
#define LOWEST REAL(-1e30)

/* One thread's scratch. */
struct forward {
    real *packed;              /* [width][QUERIES] queries, scaled           */
    real *queries;             /* [QUERIES][width] tile                  */
    real *keys, *values;       /* [KEYS][width] tiles                    */
    real *scores;              /* [KEYS][QUERIES]                        */
    real *sums;                /* [QUERIES][width] sums of the output    */
    real *max, *total, *decay; /* [QUERIES] running maximum, sum; factor */
};

static struct forward forward_scratch(struct scratch s, const struct attention *a)
{
    struct forward f;

    f.packed = scratch_take(&s, QUERIES * a->width);
    f.queries = scratch_take(&s, QUERIES * a->width);
    f.keys = scratch_take(&s, KEYS * a->width);
    f.values = scratch_take(&s, KEYS * a->width);
    f.scores = scratch_take(&s, (int64_t)KEYS * QUERIES);
    f.sums = scratch_take(&s, QUERIES * a->width);
    f.max = scratch_take(&s, QUERIES);
    f.total = scratch_take(&s, QUERIES);
    f.decay = scratch_take(&s, QUERIES);
    return f;
}

/* Scores to probabilities relative to the new maximum; the factor for what was summed before. */
static void soften(const struct forward *f, int64_t lane, int64_t n)
{
    real *restrict max = f->max, *restrict total = f->total, *restrict decay = f->decay;
    real before[QUERIES];

    memcpy(before, max, sizeof(before));
    for (int64_t j = 0; j < n; j++) {
        const real *row = f->scores + j * QUERIES;
#pragma omp simd
        for (int64_t i = lane; i < QUERIES; i++) {
            max[i] = row[i] > max[i] ? row[i] : max[i];
        }
    }
#pragma omp simd
    for (int64_t i = lane; i < QUERIES; i++) {
        decay[i] = wide_exp(before[i] - max[i]);
        total[i] *= decay[i];
    }
    for (int64_t j = 0; j < n; j++) {
        real *row = f->scores + j * QUERIES;
#pragma omp simd
        for (int64_t i = lane; i < QUERIES; i++) {
            row[i] = wide_exp(row[i] - max[i]);
            total[i] += row[i];
        }
    }
}

static void drop_scores(const struct forward *f, const struct attention *a,
                        const struct lane_keys *keys, int64_t k0, int64_t n, int64_t lane)
{
    for (int64_t j = 0; j < n; j++) {
        const uint32_t key = (uint32_t)(a->drop->pos0 + k0 + j);
        real *row = f->scores + j * QUERIES;
#pragma omp simd
        for (int64_t i = lane; i < QUERIES; i++) {
            row[i] *= lane_factor(a, keys, key, i);
        }
    }
}

/* The sums of the block's queries, scaled down where the maximum grew. */
static void decay_sums(const struct forward *f, struct block q, int64_t lane, int64_t width)
{
    for (int64_t i = lane; i < q.n; i++) {
        const real factor = f->decay[i];
        real *sums = f->sums + i * width;
        if (factor == REAL(1.0)) {
            continue;
        }
#pragma omp simd
        for (int64_t d = 0; d < width; d++) {
            sums[d] *= factor;
        }
    }
}

/* out = sums / total, lse = max + log(total). */
static void write_output(struct tensor out, real *lse, const struct forward *f,
                         const struct attention *a, struct block q)
{
    for (int64_t i = 0; i < q.n; i++) {
        const int64_t row = (q.b * a->S + q.q0 + i) * a->H + q.h;
        const real *sums = f->sums + i * a->width;
        const real factor = REAL(1.0) / f->total[i];
        real tile[TILE], *y = tile_open(out, row * a->K, tile);
#pragma omp simd
        for (int64_t d = 0; d < a->K; d++) {
            y[d] = sums[d] * factor;
        }
        tile_close(out, row * a->K, a->K, y);
        lse[row] = f->max[i] + r_log(f->total[i]);
    }
}

static void forward_block(struct tensor out, real *lse, const struct forward *f,
                          const struct attention *a, struct block q)
{
    const int64_t g = q.h / (a->H / a->G), end = q.place + q.n;
    struct lane_keys drops;
    int32_t first[QUERIES];

    const struct rows queries =
        rows_read(a->qkv, query_at(a, q.b, q.q0, q.h), a->row, q.n, a, f->queries);
    pack_lanes(f->packed, queries, q.n, a->width, a->scale);
    read_first(first, a, q);
    if (a->drop != NULL) {
        read_lane_keys(&drops, a, q);
    }
    for (int64_t i = 0; i < QUERIES; i++) {
        f->max[i] = LOWEST;
        f->total[i] = 0;
    }
    memset(f->sums, 0, (size_t)(QUERIES * a->width) * sizeof(real));
    for (int64_t k0 = first_key(a, q); k0 < end; k0 += KEYS) {
        const int64_t n = smaller(KEYS, end - k0), lane = first_lane(q, k0);
        const struct rows keys =
            rows_in_place(a->keys, key_at(a, q.b, k0, g), a->key_row, n, a, f->keys);
        const struct rows values =
            rows_read(a->keys, value_at(a, q.b, k0, g), a->key_row, n, a, f->values);
        read_scores(f->scores, a, q, first, f->packed, keys, k0, n);
        soften(f, lane, n);
        if (a->drop != NULL) {
            drop_scores(f, a, &drops, k0, n, lane);
        }
        decay_sums(f, q, lane, a->width);
        micro_multiply((struct grid){f->sums + lane * a->width, a->width},
                       (struct view){f->scores + lane, 1, QUERIES}, values, q.n - lane, a->width, n,
                       true);
    }
    write_output(out, lse, f, a, q);
}

void VEC(attention_forward)(struct queue *q, struct tensor out, struct tensor lse,
                            struct tensor qkv, struct tensor first, const struct attention_shape *s,
                            const struct dropout *drop, const struct attention_context *context)
{
    const struct attention a = attention_of(qkv, first, s, drop, context);
    const struct attention_shape whole = workspace_shape(s, context);
    const int64_t blocks = query_blocks(&a), tasks = a.B * a.H * blocks;

    check_workspace(q, &whole, qkv.type);
    check_any(out, a.B * a.S * a.H * a.K);
    check_real(lse, a.B * a.S * a.H);
    /* One head after the other, whose keys and values stay in the cache; its late queries, which see
     * most keys, go first, so that threads end together. */
#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic)
    for (int64_t t = 0; t < tasks; t++) {
        const int64_t head = t / blocks, block = blocks - 1 - t % blocks;
        const struct scratch mine = thread_scratch(q, &whole, qkv.type);
        const struct forward f = forward_scratch(mine, &a);
        forward_block(out, lse.data, &f, &a, query_block(&a, head / a.H, head % a.H, block));
    }
}

/* The caches of one sequence and key head, and the queries that share it. */
struct decoding {
    struct attention a;         /* S is the capacity, row the width of qkv */
    const struct tensor *cache; /* keys, values                            */
    int64_t row, b, g;          /* row of the call, its sequence, key head */
    int64_t group;              /* query heads of a key head               */
    int64_t from, end;          /* keys seen                               */
};

static int64_t cache_at(const struct decoding *d, int64_t key)
{
    return ((d->b * d->a.S + key) * d->a.G + d->g) * d->a.K;
}

/* Element values of one row of K from one tensor to another, through reals. */
static void copy_row(struct tensor y, int64_t to, struct tensor x, int64_t from, int64_t n)
{
    real yt[TILE], xt[TILE], *yv = tile_open(y, to, yt);

    memcpy(yv, tile_read(x, from, n, xt), (size_t)n * sizeof(real));
    tile_close(y, to, n, yv);
}

/* scores[j] = q . keys[j], times the scale. */
static void score_keys(real *scores, const real *q, struct rows keys, int64_t n,
                       const struct attention *a)
{
    for (int64_t j = 0; j < n; j++) {
        const real *k = keys.at + j * keys.row;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < a->K; d++) {
            sum += q[d] * k[d];
        }
        scores[j] = sum * a->scale;
    }
}

/* Takes a block of keys and values into head i's running sums. */
static void decode_block(const struct forward *f, int64_t i, struct rows keys, struct rows values,
                         int64_t n, const struct attention *a)
{
    real *sums = f->sums + i * a->width, max = f->max[i], total = 0;

    score_keys(f->scores, f->queries + i * a->width, keys, n, a);
    for (int64_t j = 0; j < n; j++) {
        max = f->scores[j] > max ? f->scores[j] : max;
    }
    const real decay = r_exp(f->max[i] - max);
#pragma omp simd
    for (int64_t d = 0; d < a->K; d++) {
        sums[d] *= decay;
    }
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < n; j++) {
        f->scores[j] = wide_exp(f->scores[j] - max);
        total += f->scores[j];
    }
    for (int64_t j = 0; j < n; j++) {
        const real p = f->scores[j], *v = values.at + j * values.row;
#pragma omp simd
        for (int64_t d = 0; d < a->K; d++) {
            sums[d] += p * v[d];
        }
    }
    f->total[i] = f->total[i] * decay + total;
    f->max[i] = max;
}

static void decode_heads(struct tensor out, const struct forward *f, const struct decoding *d)
{
    const struct attention *a = &d->a;
    const int64_t h0 = d->g * d->group, cache_row = a->G * a->K;
    real tile[TILE];

    for (int64_t i = 0; i < d->group; i++) {
        const real *v = tile_read(a->qkv, d->row * a->row + (h0 + i) * a->K, a->K, tile);
        memcpy(f->queries + i * a->width, v, (size_t)a->K * sizeof(real));
        memset(f->sums + i * a->width, 0, (size_t)a->width * sizeof(real));
        f->max[i] = LOWEST;
        f->total[i] = 0;
    }
    for (int64_t k0 = d->from; k0 < d->end; k0 += KEYS) {
        const int64_t n = smaller(KEYS, d->end - k0), at = cache_at(d, k0);
        const struct rows keys = rows_read(d->cache[0], at, cache_row, n, a, f->keys);
        const struct rows values = rows_read(d->cache[1], at, cache_row, n, a, f->values);
        for (int64_t i = 0; i < d->group; i++) {
            decode_block(f, i, keys, values, n, a);
        }
    }
    for (int64_t i = 0; i < d->group; i++) {
        const int64_t at = (d->row * a->H + h0 + i) * a->K;
        real *y = tile_open(out, at, tile);
        const real factor = REAL(1.0) / f->total[i], *sums = f->sums + i * a->width;
#pragma omp simd
        for (int64_t k = 0; k < a->K; k++) {
            y[k] = sums[k] * factor;
        }
        tile_close(out, at, a->K, y);
    }
}

/* Row t / G of the call and its key head t % G. */
static struct decoding decoding_of(const struct attention *a, const struct tensor cache[2],
                                   const struct tensor place[2], int64_t window, int64_t t)
{
    const int64_t row = t / a->G, end = ((const int32_t *)place[1].data)[row] + 1;

    return (struct decoding){.a = *a,
                             .cache = cache,
                             .row = row,
                             .b = ((const int32_t *)place[0].data)[row],
                             .g = t % a->G,
                             .group = a->H / a->G,
                             .from = window > 0 ? larger(0, end - window) : 0,
                             .end = end};
}

static void enter_row(const struct decoding *d)
{
    const struct attention *a = &d->a;
    const int64_t key = d->row * a->row + (a->H + d->g) * a->K;

    CHECK(d->end >= 1 && d->end <= a->S, "position %lld in a cache of %lld", (long long)d->end - 1,
          (long long)a->S);
    CHECK(d->b >= 0 && d->b < a->B, "sequence %lld of %lld", (long long)d->b, (long long)a->B);
    copy_row(d->cache[0], cache_at(d, d->end - 1), a->qkv, key, a->K);
    copy_row(d->cache[1], cache_at(d, d->end - 1), a->qkv, key + a->G * a->K, a->K);
}

void VEC(attention_decode)(struct queue *q, struct tensor out, const struct tensor cache[2],
                           struct tensor qkv, const struct tensor place[2], int64_t window,
                           const struct attention_shape *s)
{
    const int64_t rows = tensor_rows(qkv);
    const struct attention_shape flat = {rows, 1, s->H, s->G, s->K, s->scale};
    struct attention a = attention_of(qkv, place[1], &flat, NULL, NULL);

    a.B = s->B;
    a.S = s->S;
    check_workspace(q, s, qkv.type);
    check_any(out, rows * a.H * a.K);
    check_any(cache[0], a.B * a.S * a.G * a.K);
    check_any(cache[1], a.B * a.S * a.G * a.K);
    check_i32(place[0], rows);
    CHECK(a.H / a.G <= QUERIES, "%lld heads share one", (long long)(a.H / a.G));
#pragma omp parallel num_threads(cpu_threads())
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < rows * a.G; t++) {
            const struct decoding d = decoding_of(&a, cache, place, window, t);
            enter_row(&d);
        }
        const struct forward f = forward_scratch(thread_scratch(q, s, qkv.type), &a);
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < rows * a.G; t++) {
            const struct decoding d = decoding_of(&a, cache, place, window, t);
            decode_heads(out, &f, &d);
        }
    }
}
