/* test_kernels_rows.c - norms, embedding, biases and rotary positions against plain loops. */
#include "tests/kernels.h"

static const struct kernels *k;

static const enum dtype types[] = {DTYPE_REAL, DTYPE_BF16, DTYPE_F16};
static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {70, 33}, {130, 64}, {5, 1500}, {9, 2049}};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]), CASES = 3 * SHAPES };

static double tolerance(enum dtype type)
{
    return type != DTYPE_REAL ? ROUNDED : 3 * EXACT;
}

/* One norm over x [R,D]; b and mean are NULL for RMSNorm. */
struct norm {
    int64_t R, D;
    double eps;
    const double *x, *w, *b, *dy;
    double *y, *mean, *rstd, *dx, *dw, *db;
};

static void norm_row(const struct norm *n, int64_t r)
{
    const double *x = n->x + r * n->D, *dy = n->dy + r * n->D;
    double mean = 0, square = 0, g = 0, gh = 0;

    for (int64_t d = 0; d < n->D && n->b != NULL; d++) {
        mean += x[d] / (double)n->D;
    }
    for (int64_t d = 0; d < n->D; d++) {
        square += (x[d] - mean) * (x[d] - mean) / (double)n->D;
    }
    const double s = 1 / sqrt(square + n->eps);
    for (int64_t d = 0; d < n->D; d++) {
        const double h = (x[d] - mean) * s;
        n->y[r * n->D + d] = h * n->w[d] + (n->b != NULL ? n->b[d] : 0);
        g += n->b != NULL ? dy[d] * n->w[d] / (double)n->D : 0;
        gh += dy[d] * n->w[d] * h / (double)n->D;
        n->dw[d] += dy[d] * h;
        n->db[d] += dy[d];
    }
    for (int64_t d = 0; d < n->D; d++) {
        n->dx[r * n->D + d] = s * (dy[d] * n->w[d] - g - (x[d] - mean) * s * gh);
    }
    n->mean[r] = mean;
    n->rstd[r] = s;
}

/* Tensors of one norm and the reference, computed. */
struct norm_case {
    struct tensor x, w, b, dy, y, mean, rstd, dx, dw, db;
    struct queue q;
    struct norm want;
};

static struct norm_case norm_case(int64_t R, int64_t D, enum dtype type, bool layer)
{
    struct norm_case c = {.x = take_random(type, R, D, 3),
                          .w = take_random(type, D, 1, 1),
                          .b = take_random(type, D, 1, 1),
                          .dy = take_random(type, R, D, 1),
                          .y = take_random(type, R, D, 1),
                          .mean = take(DTYPE_REAL, R, 1),
                          .rstd = take(DTYPE_REAL, R, 1),
                          .dx = take_random(type, R, D, 1),
                          .dw = take_random(DTYPE_REAL, D, 1, 1),
                          .db = take_random(DTYPE_REAL, D, 1, 1),
                          .q = take_queue(workspace_columns(R, D, 4))};

    /* A mean far from 0 would show a variance computed as a difference of squares. */
    for (int64_t i = 0; i < R * D && layer; i++) {
        set_at(c.x, i, value_at(c.x, i) + 20);
    }
    c.want = (struct norm){.R = R,
                           .D = D,
                           .eps = 1e-5,
                           .x = doubles_of(c.x),
                           .w = doubles_of(c.w),
                           .b = layer ? doubles_of(c.b) : NULL,
                           .dy = doubles_of(c.dy),
                           .y = take_doubles(R * D),
                           .mean = take_doubles(R),
                           .rstd = take_doubles(R),
                           .dx = take_doubles(R * D),
                           .dw = doubles_of(c.dw),
                           .db = doubles_of(c.db)};
    for (int64_t r = 0; r < R; r++) {
        norm_row(&c.want, r);
    }
    return c;
}

static void run_layernorm(struct norm_case *c)
{
    const struct tensor stats[2] = {c->mean, c->rstd};

    k->layernorm_forward(&c->q, c->y, c->mean, c->rstd, c->x, c->w, c->b, 1e-5);
    k->layernorm_backward(&c->q, c->dx, c->dw, c->db, c->dy, c->x, c->w, stats);
}

static void run_rmsnorm(struct norm_case *c)
{
    k->rmsnorm_forward(&c->q, c->y, c->rstd, c->x, c->w, 1e-5);
    k->rmsnorm_backward(&c->q, c->dx, c->dw, c->dy, c->x, c->w, c->rstd);
}

static void check_norm(const struct norm_case *c, double loose)
{
    const double tol = tolerance(c->x.type) + loose;

    EXPECT_CLOSE(c->y, c->want.y, tol);
    EXPECT_CLOSE(c->rstd, c->want.rstd, 3 * EXACT + loose);
    EXPECT_CLOSE(c->dw, c->want.dw, 3 * EXACT + loose);
    /* With one column dx is a difference of equal numbers. */
    if (c->want.D > 1) {
        EXPECT_CLOSE(c->dx, c->want.dx, tol + loose);
    }
}

static void layernorm_follows_its_formula(void)
{
    for (int i = 0; i < CASES; i++) {
        struct norm_case c = norm_case(shapes[i / 3][0], shapes[i / 3][1], types[i % 3], true);
        kernels_cpu_threads(1 + i % 4);
        run_layernorm(&c);
        check_norm(&c, 10 * EXACT);
        EXPECT_CLOSE(c.mean, c.want.mean, 3 * EXACT);
        EXPECT_CLOSE(c.db, c.want.db, 3 * EXACT);
        free_all();
    }
    kernels_cpu_threads(1);
}

static void rmsnorm_follows_its_formula(void)
{
    for (int i = 0; i < CASES; i++) {
        struct norm_case c = norm_case(shapes[i / 3][0], shapes[i / 3][1], types[i % 3], false);
        kernels_cpu_threads(1 + i % 4);
        run_rmsnorm(&c);
        check_norm(&c, 0);
        free_all();
    }
    kernels_cpu_threads(1);
}

static void norms_do_not_depend_on_threads(void)
{
    struct norm_case a = norm_case(203, 1030, DTYPE_REAL, true);
    struct norm_case b = a;

    b.y = copy_of(a.y);
    b.dx = copy_of(a.dx);
    b.dw = copy_of(a.dw);
    b.db = copy_of(a.db);
    run_layernorm(&a);
    kernels_cpu_threads(3);
    run_layernorm(&b);
    EXPECT(same_bytes(a.y, b.y) && same_bytes(a.dx, b.dx));
    EXPECT(same_bytes(a.dw, b.dw) && same_bytes(a.db, b.db));
    run_rmsnorm(&b);
    kernels_cpu_threads(1);
    run_rmsnorm(&a);
    EXPECT(same_bytes(a.dx, b.dx) && same_bytes(a.dw, b.dw));
    free_all();
}

/* Ids of which some lie outside the slice [4, 4 + rows) and some repeat. */
static struct tensor some_ids(int64_t R, int64_t rows)
{
    const struct tensor ids = take(DTYPE_I32, R, 1);

    for (int64_t r = 0; r < R; r++) {
        set_at(ids, r, (double)(r * 7 % (rows + 8)));
    }
    return ids;
}

static void check_embedding(int64_t R, int64_t D, enum dtype type, bool placed)
{
    const int64_t rows = 11, places = 6;
    const struct tensor ids = some_ids(R, rows), pos = take(DTYPE_I32, R, 1);
    const struct tensor w = take_random(type, rows, D, 1), p = take_random(type, places, D, 1);
    const struct tensor y = take_random(type, R, D, 1), dy = take_random(type, R, D, 1);
    const struct tensor dw = take_random(DTYPE_REAL, rows, D, 1), none = tensor_none();
    const struct tensor dp = take_random(DTYPE_REAL, places, D, 1);
    double *want = take_doubles(R * D), *want_w = doubles_of(dw), *want_p = doubles_of(dp);

    for (int64_t i = 0; i < R * D; i++) {
        const int64_t r = i / D, d = i % D, row = (int64_t)value_at(ids, r) - 4;
        set_at(pos, r, (double)(r % places));
        if (row >= 0 && row < rows) {
            want[i] = value_at(w, row * D + d);
            want_w[row * D + d] += value_at(dy, i);
        }
        if (placed) {
            want[i] += value_at(p, r % places * D + d);
            want_p[r % places * D + d] += value_at(dy, i);
        }
    }
    k->embedding_forward(NULL, y, ids, w, 4, placed ? pos : none, placed ? p : none);
    k->embedding_backward(NULL, dw, placed ? dp : none, dy, ids, 4, placed ? pos : none);
    EXPECT_CLOSE(y, want, placed ? tolerance(type) : 0);
    EXPECT_CLOSE(dw, want_w, EXACT);
    EXPECT_CLOSE(dp, want_p, EXACT);
    free_all();
}

static void embedding_takes_rows_and_adds_them_back(void)
{
    for (int i = 0; i < CASES * 2; i++) {
        kernels_cpu_threads(1 + i % 4);
        check_embedding(shapes[i / 6][0], shapes[i / 6][1], types[i % 3], i / 3 % 2 != 0);
    }
    kernels_cpu_threads(1);
}

/* What is not trained has no gradient; the others are as they would be beside it. */
static void gradients_may_be_absent(void)
{
    const struct tensor none = tensor_none();
    struct norm_case a = norm_case(17, 1030, DTYPE_REAL, true);
    const struct tensor stats[2] = {a.mean, a.rstd}, dx = copy_of(a.dx), db = copy_of(a.db);
    const struct tensor ids = some_ids(17, 11), pos = take(DTYPE_I32, 17, 1);
    const struct tensor dp = take_random(DTYPE_REAL, 6, 1030, 1), same_dp = copy_of(dp);
    const struct tensor dw = take_random(DTYPE_REAL, 11, 1030, 1);

    run_layernorm(&a);
    k->layernorm_backward(&a.q, dx, none, db, a.dy, a.x, a.w, stats);
    EXPECT(same_bytes(dx, a.dx) && same_bytes(db, a.db));
    k->layernorm_backward(&a.q, dx, none, none, a.dy, a.x, a.w, stats);
    EXPECT(same_bytes(dx, a.dx));
    run_rmsnorm(&a);
    k->rmsnorm_backward(&a.q, dx, none, a.dy, a.x, a.w, a.rstd);
    EXPECT(same_bytes(dx, a.dx));
    k->embedding_backward(NULL, dw, dp, a.dy, ids, 4, pos);
    k->embedding_backward(NULL, none, same_dp, a.dy, ids, 4, pos);
    EXPECT(same_bytes(dp, same_dp));
    free_all();
}

static void bias_is_added_to_rows_and_summed_over_them(void)
{
    for (int i = 0; i < CASES; i++) {
        const int64_t R = shapes[i / 3][0], N = shapes[i / 3][1];
        const enum dtype type = types[i % 3];
        const struct tensor y = take_random(type, R, N, 1), b = take_random(type, N, 1, 1);
        const struct tensor dy = take_random(type, R, N, 1), db = take_random(DTYPE_REAL, N, 1, 1);
        struct queue q = take_queue(workspace_columns(R, N, 4));
        double *want = doubles_of(y), *want_b = doubles_of(db);
        for (int64_t j = 0; j < R * N; j++) {
            want[j] += value_at(b, j % N);
            want_b[j % N] += value_at(dy, j);
        }
        kernels_cpu_threads(1 + i % 4);
        k->bias_forward(&q, y, b);
        k->bias_backward(&q, db, dy);
        EXPECT_CLOSE(y, want, type != DTYPE_REAL ? ROUNDED : EXACT);
        EXPECT_CLOSE(db, want_b, EXACT);
        free_all();
    }
    kernels_cpu_threads(1);
}

static void check_rope(int64_t heads, int64_t K, enum dtype type)
{
    const int64_t R = 13, spare = 5, N = heads * K + spare, half = K / 2;
    const struct tensor x = take_random(type, R, N, 1), old = copy_of(x);
    const struct tensor cosines = take_random(DTYPE_REAL, 20, half, 1);
    const struct tensor sines = take_random(DTYPE_REAL, 20, half, 1), pos = take(DTYPE_I32, R, 1);
    double *want = doubles_of(x), *back = doubles_of(x);

    for (int64_t i = 0; i < R * heads * half; i++) {
        const int64_t r = i / (heads * half), h = i / half % heads, j = i % half;
        const int64_t place = r * 3 % 20, at = r * N + h * K + j;
        const double c = value_at(cosines, place * half + j);
        const double s = value_at(sines, place * half + j);
        const double u = value_at(old, at), v = value_at(old, at + half);
        set_at(pos, r, (double)place);
        want[at] = u * c - v * s;
        want[at + half] = v * c + u * s;
        back[at] = u * c + v * s;
        back[at + half] = v * c - u * s;
    }
    k->rope(NULL, x, heads, pos, cosines, sines, false);
    EXPECT_CLOSE(x, want, tolerance(type));
    memcpy(x.data, old.data, tensor_bytes(x));
    k->rope(NULL, x, heads, pos, cosines, sines, true);
    EXPECT_CLOSE(x, back, tolerance(type));
    for (int64_t r = 0; r < R; r++) {
        const int64_t at = r * N + heads * K;
        EXPECT(value_at(x, at) == value_at(old, at)); /* beyond the heads: untouched */
    }
    free_all();
}

static void rope_turns_pairs_both_ways(void)
{
    for (int i = 0; i < 3; i++) {
        check_rope(1, 2, types[i]);
        check_rope(3, 10, types[i]);
        check_rope(4, 64, types[i]);
        check_rope(2, 600, types[i]);
    }
}

#ifdef HONE_DOUBLE
enum { LAYER, RMS };

/* sum(y dy) after moving one element of x or w. */
static double moved_loss(struct norm_case *c, int kind, struct tensor moved, int64_t i, double step)
{
    const double old = value_at(moved, i);
    double loss = 0;

    set_at(moved, i, old + step);
    if (kind == LAYER) {
        k->layernorm_forward(&c->q, c->y, c->mean, c->rstd, c->x, c->w, c->b, 1e-5);
    } else {
        k->rmsnorm_forward(&c->q, c->y, c->rstd, c->x, c->w, 1e-5);
    }
    set_at(moved, i, old);
    for (int64_t j = 0; j < tensor_count(c->y); j++) {
        loss += value_at(c->y, j) * value_at(c->dy, j);
    }
    return loss;
}

static void check_slopes(struct norm_case *c, int kind, struct tensor moved, struct tensor slopes)
{
    const double step = 1e-5;

    for (int64_t i = 0; i < tensor_count(moved); i++) {
        const double up = moved_loss(c, kind, moved, i, step);
        const double down = moved_loss(c, kind, moved, i, -step);
        EXPECT_NEAR(value_at(slopes, i), (up - down) / (2 * step), 1e-8);
    }
}

static void norm_gradients_are_finite_differences(void)
{
    for (int kind = LAYER; kind <= RMS; kind++) {
        struct norm_case c = norm_case(3, 7, DTYPE_REAL, kind == LAYER);
        k->zero(&c.q, c.dw);
        k->zero(&c.q, c.db);
        if (kind == LAYER) {
            run_layernorm(&c);
        } else {
            run_rmsnorm(&c);
        }
        const struct tensor dx = copy_of(c.dx), dw = copy_of(c.dw), db = copy_of(c.db);
        check_slopes(&c, kind, c.x, dx);
        check_slopes(&c, kind, c.w, dw);
        if (kind == LAYER) {
            check_slopes(&c, kind, c.b, db);
        }
        free_all();
    }
}
#endif

static void run_tests(const struct kernels *table)
{
    k = table;
    RUN(layernorm_follows_its_formula);
    RUN(rmsnorm_follows_its_formula);
    RUN(norms_do_not_depend_on_threads);
    RUN(embedding_takes_rows_and_adds_them_back);
    RUN(gradients_may_be_absent);
    RUN(bias_is_added_to_rows_and_summed_over_them);
    RUN(rope_turns_pairs_both_ways);
#ifdef HONE_DOUBLE
    RUN(norm_gradients_are_finite_differences);
#endif
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
