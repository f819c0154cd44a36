/* attention_backward.c - causal attention, backward pass. Shapes: kernels/kernels.h.
 *
 * With P = exp(scores - lse), M what dropout multiplies P by, and D[i] = sum_d dout[i,d] out[i,d]:
 *   dV = (P M)^T dout,   dS = P (M (dout V^T) - D) scale,   dQ = dS K,   dK = dS^T Q
 * (Dao et al. 2022, arXiv:2205.14135, algorithm 4). One task is one key head of one sequence: it sums
 * dK and dV over its query heads and query blocks in order, so nothing depends on the threads.
 */
#include "kernels/cpu/vec/attention.h"
#include "kernels/cpu/vec/ops.h"
#include "kernels/cpu/vec/wide.h"

struct backward {
    real *packed, *packed_dout; /* [width][QUERIES]: queries, scaled; dout    */
    real *queries, *douts;      /* [QUERIES][width] tiles                 */
    real *keys, *values;        /* [KEYS][width] tiles                    */
    real *scores, *dscores;     /* [KEYS][QUERIES]                        */
    real *dqueries;             /* [QUERIES][width] sums                  */
    real *dkeys, *dvalues;      /* [T][width] sums                        */
    real *lse, *pull;           /* [QUERIES]; pull is D of the formula    */
};

/* The tensors of one call beside qkv. */
struct gradients {
    struct tensor dqkv, dout, out;
    const real *lse;
};

static struct backward backward_scratch(struct scratch s, const struct attention *a)
{
    struct backward f;

    f.packed = scratch_take(&s, QUERIES * a->width);
    f.packed_dout = scratch_take(&s, QUERIES * a->width);
    f.queries = scratch_take(&s, QUERIES * a->width);
    f.douts = scratch_take(&s, QUERIES * a->width);
    f.keys = scratch_take(&s, KEYS * a->width);
    f.values = scratch_take(&s, KEYS * a->width);
    f.dqueries = scratch_take(&s, QUERIES * a->width);
    f.scores = scratch_take(&s, (int64_t)KEYS * QUERIES);
    f.dscores = scratch_take(&s, (int64_t)KEYS * QUERIES);
    f.lse = scratch_take(&s, QUERIES);
    f.pull = scratch_take(&s, QUERIES);
    f.dkeys = scratch_take(&s, a->T * a->width);
    f.dvalues = scratch_take(&s, a->T * a->width);
    return f;
}

/* lse and D of a block's queries; 0 in lanes beyond it. */
static void read_statistics(const struct backward *f, const struct attention *a, struct block q,
                            const struct gradients *t)
{
    memset(f->lse, 0, QUERIES * sizeof(real));
    memset(f->pull, 0, QUERIES * sizeof(real));
    for (int64_t i = 0; i < q.n; i++) {
        const int64_t row = (q.b * a->S + q.q0 + i) * a->H + q.h;
        real dt[TILE], ot[TILE], sum = 0;
        const real *dout = tile_read(t->dout, row * a->K, a->K, dt);
        const real *out = tile_read(t->out, row * a->K, a->K, ot);
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < a->K; d++) {
            sum += dout[d] * out[d];
        }
        f->lse[i] = t->lse[row];
        f->pull[i] = sum;
    }
}

/* scores to P M, dscores from dout V^T to dS. */
static void pull_scores(const struct backward *f, const struct attention *a, int64_t lane,
                        int64_t n)
{
    const real *restrict lse = f->lse, *restrict pull = f->pull;

    for (int64_t j = 0; j < n; j++) {
        real *restrict s = f->scores + j * QUERIES, *restrict ds = f->dscores + j * QUERIES;
#pragma omp simd
        for (int64_t i = lane; i < QUERIES; i++) {
            s[i] = wide_exp(s[i] - lse[i]);
            ds[i] = s[i] * (ds[i] - pull[i]) * a->scale;
        }
    }
}

static void pull_dropped_scores(const struct backward *f, const struct attention *a,
                                const struct lane_keys *keys, int64_t k0, int64_t lane, int64_t n)
{
    const real *restrict lse = f->lse, *restrict pull = f->pull;

    for (int64_t j = 0; j < n; j++) {
        const uint32_t key = (uint32_t)(a->drop->pos0 + k0 + j);
        real *restrict s = f->scores + j * QUERIES, *restrict ds = f->dscores + j * QUERIES;
#pragma omp simd
        for (int64_t i = lane; i < QUERIES; i++) {
            const real p = wide_exp(s[i] - lse[i]), m = lane_factor(a, keys, key, i);
            s[i] = p * m;
            ds[i] = p * (m * ds[i] - pull[i]) * a->scale;
        }
    }
}

/* One block of queries against one block of keys, whose scores and dscores are ready. */
static void add_products(const struct backward *f, const struct attention *a, struct block q,
                         const struct rows x[3], int64_t k0, int64_t n)
{
    const int64_t lane = first_lane(q, k0), seen = q.n - lane, width = a->width;
    const struct rows queries = {x[0].at + lane * x[0].row, x[0].row}, keys = x[1];
    const struct rows douts = {x[2].at + lane * x[2].row, x[2].row};

    micro_multiply((struct grid){f->dvalues + k0 * width, width},
                   (struct view){f->scores + lane, QUERIES, 1}, douts, n, width, seen, true);
    micro_multiply((struct grid){f->dkeys + k0 * width, width},
                   (struct view){f->dscores + lane, QUERIES, 1}, queries, n, width, seen, true);
    micro_multiply((struct grid){f->dqueries + lane * width, width},
                   (struct view){f->dscores + lane, 1, QUERIES}, keys, seen, width, n, true);
}

/* n rows of K sums of `width`, into rows of `row` elements from element `at` on. */
static void write_rows(struct tensor to, int64_t at, int64_t row, const real *sums, int64_t n,
                       const struct attention *a)
{
    real tile[TILE];

    for (int64_t i = 0; i < n; i++) {
        real *y = tile_open(to, at + i * row, tile);
        memcpy(y, sums + i * a->width, (size_t)a->K * sizeof(real));
        tile_close(to, at + i * row, a->K, y);
    }
}

static void backward_block(const struct backward *f, const struct attention *a, struct block q,
                           const struct gradients *t)
{
    const int64_t g = q.h / (a->H / a->G), end = q.place + q.n;
    const int64_t dout_at = ((q.b * a->S + q.q0) * a->H + q.h) * a->K;
    struct lane_keys drops;
    int32_t first[QUERIES];
    struct rows x[3];

    x[0] = rows_read(a->qkv, query_at(a, q.b, q.q0, q.h), a->row, q.n, a, f->queries);
    x[2] = rows_read(t->dout, dout_at, a->H * a->K, q.n, a, f->douts);
    pack_lanes(f->packed, x[0], q.n, a->width, a->scale);
    pack_lanes(f->packed_dout, x[2], q.n, a->width, 1);
    read_statistics(f, a, q, t);
    read_first(first, a, q);
    if (a->drop != NULL) {
        read_lane_keys(&drops, a, q);
    }
    memset(f->dqueries, 0, (size_t)(QUERIES * a->width) * sizeof(real));
    for (int64_t k0 = first_key(a, q); k0 < end; k0 += KEYS) {
        const int64_t n = smaller(KEYS, end - k0), lane = first_lane(q, k0);
        const struct rows values =
            rows_in_place(a->keys, value_at(a, q.b, k0, g), a->key_row, n, a, f->values);
        x[1] = rows_read(a->keys, key_at(a, q.b, k0, g), a->key_row, n, a, f->keys);
        read_scores(f->scores, a, q, first, f->packed, x[1], k0, n);
        micro_multiply(
            (struct grid){f->dscores + lane, QUERIES}, (struct view){values.at, values.row, 1},
            (struct rows){f->packed_dout + lane, QUERIES}, n, QUERIES - lane, a->K, false);
        if (a->drop != NULL) {
            pull_dropped_scores(f, a, &drops, k0, lane, n);
        } else {
            pull_scores(f, a, lane, n);
        }
        add_products(f, a, q, x, k0, n);
    }
    write_rows(t->dqkv, query_at(a, q.b, q.q0, q.h), a->row, f->dqueries, q.n, a);
}

void VEC(attention_backward)(struct queue *q, struct tensor dqkv, struct tensor dout,
                             const struct tensor saved[3], struct tensor first,
                             const struct attention_shape *s, const struct dropout *drop,
                             const struct attention_context *context)
{
    const struct attention a = attention_of(saved[2], first, s, drop, context);
    const struct attention_shape whole = workspace_shape(s, context);
    const struct tensor dkeys = context != NULL ? context->dkeys : dqkv;
    const struct gradients t = {dqkv, dout, saved[0], saved[1].data};
    const int64_t group = a.H / a.G;

    check_workspace(q, &whole, dqkv.type);
    check_any(dqkv, a.B * a.S * a.row);
    check_any(dkeys, a.B * a.T * a.key_row);
    check_any(dout, a.B * a.S * a.H * a.K);
    check_any(saved[0], a.B * a.S * a.H * a.K);
    check_real(saved[1], a.B * a.S * a.H);
#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic)
    for (int64_t task = 0; task < a.B * a.G; task++) {
        const struct backward f = backward_scratch(thread_scratch(q, &whole, dqkv.type), &a);
        const int64_t b = task / a.G, g = task % a.G;
        memset(f.dkeys, 0, (size_t)(a.T * a.width) * sizeof(real));
        memset(f.dvalues, 0, (size_t)(a.T * a.width) * sizeof(real));
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
            for (int64_t i = 0; i < query_blocks(&a); i++) {
                backward_block(&f, &a, query_block(&a, b, h, i), &t);
            }
        }
        write_rows(dkeys, key_at(&a, b, 0, g), a.key_row, f.dkeys, a.T, &a);
        write_rows(dkeys, value_at(&a, b, 0, g), a.key_row, f.dvalues, a.T, &a);
    }
}
