/* test_kernels_loss.c - cross entropy, AdamW and sums against plain loops. */
#include "tests/kernels.h"

static const struct kernels *k;

struct loss_case {
    int64_t R, V, vocab0, valid;
    struct tensor logits, labels, stats, loss, dlogits;
    double scale;
};

static struct loss_case loss_case(int64_t R, int64_t V, double size, enum dtype out)
{
    struct loss_case c = {.R = R,
                          .V = V,
                          .valid = V,
                          .logits = take_random(DTYPE_REAL, R, V, size),
                          .labels = take(DTYPE_I32, R, 1),
                          .stats = take_random(DTYPE_REAL, R, 3, 1),
                          .loss = take_random(DTYPE_REAL, R, 1, 1),
                          .dlogits = take_random(out, R, V, 1),
                          .scale = 0.37};

    for (int64_t r = 0; r < R; r++) {
        set_at(c.labels, r, r % 5 == 3 ? -100 : (double)(r * 1733 % V));
    }
    return c;
}

static void run_loss(const struct loss_case *c)
{
    k->cross_entropy_stats(NULL, c->stats, c->logits, c->labels, c->vocab0, c->valid);
    k->cross_entropy_loss(NULL, c->loss, c->stats, c->labels);
    k->cross_entropy_backward(NULL, c->dlogits, c->logits, c->stats, c->labels, c->vocab0, c->valid,
                              c->scale);
}

/* The whole vocabulary in one slice. */
static void check_loss(struct loss_case c)
{
    double *loss = take_doubles(c.R), *dlogits = take_doubles(c.R * c.V);

    for (int64_t r = 0; r < c.R; r++) {
        const int64_t label = (int64_t)value_at(c.labels, r);
        double max = -(double)INFINITY, sum = 0;
        for (int64_t v = 0; v < c.valid; v++) {
            max = fmax(max, value_at(c.logits, r * c.V + v));
        }
        for (int64_t v = 0; v < c.valid; v++) {
            sum += exp(value_at(c.logits, r * c.V + v) - max);
        }
        if (label < 0) {
            continue;
        }
        loss[r] = max + log(sum) - value_at(c.logits, r * c.V + label);
        for (int64_t v = 0; v < c.valid; v++) {
            const double p = exp(value_at(c.logits, r * c.V + v) - max) / sum;
            dlogits[r * c.V + v] = c.scale * (p - (v == label ? 1 : 0));
        }
    }
    run_loss(&c);
    EXPECT_CLOSE(c.loss, loss, 2 * EXACT);
    EXPECT_CLOSE(c.dlogits, dlogits, c.dlogits.type != DTYPE_REAL ? ROUNDED : 2 * EXACT);
    for (int64_t r = 0; r < c.R; r++) {
        EXPECT(value_at(c.labels, r) >= 0 || value_at(c.loss, r) == 0);
        for (int64_t v = 0; v < c.V; v++) {
            const bool trained = value_at(c.labels, r) >= 0 && v < c.valid;
            EXPECT(trained || value_at(c.dlogits, r * c.V + v) == 0);
        }
    }
    free_all();
}

/* By a search for the largest logit; every third label is made the largest. */
static void hits_are_labels_with_the_largest_logit(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {70, 5}, {33, 1024}, {60, 3001}};

    for (int i = 0; i < 4; i++) {
        const struct loss_case c = loss_case(sizes[i][0], sizes[i][1], 1, DTYPE_REAL);
        const struct tensor hits = take(DTYPE_F64, 1, 1);
        int64_t want = 0;
        for (int64_t r = 0; r < c.R; r++) {
            const int64_t label = (int64_t)value_at(c.labels, r);
            if (label >= 0 && r % 3 == 0) {
                set_at(c.logits, r * c.V + label, 2);
            }
            int64_t best = 0;
            for (int64_t v = 1; v < c.V; v++) {
                const bool more =
                    value_at(c.logits, r * c.V + v) > value_at(c.logits, r * c.V + best);
                best = more ? v : best;
            }
            want += label == best;
        }
        set_at(hits, 0, 5);
        run_loss(&c);
        k->cross_entropy_hits(NULL, hits, c.stats, c.labels);
        EXPECT(value_at(hits, 0) == (double)(want + 5));
        EXPECT(c.R == 1 || (want > c.R / 5 && want < c.R));
        free_all();
    }
}

static void cross_entropy_follows_its_formula(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {7, 5}, {13, 63}, {6, 64}, {9, 1024}, {11, 3001}};

    for (int i = 0; i < 12; i++) {
        kernels_cpu_threads(1 + i % 4);
        check_loss(loss_case(sizes[i / 2][0], sizes[i / 2][1], 4,
                             i % 2 == 0   ? DTYPE_REAL
                             : i % 4 == 1 ? DTYPE_BF16
                                          : DTYPE_F16));
    }
    kernels_cpu_threads(1);
}

static void padding_takes_no_part(void)
{
    struct loss_case c = loss_case(8, 1300, 4, DTYPE_REAL);

    c.valid = 1100;
    for (int64_t r = 0; r < c.R; r++) {
        set_at(c.labels, r, (double)(r * 1733 % c.valid));
        for (int64_t v = c.valid; v < c.V; v++) {
            set_at(c.logits, r * c.V + v, v % 2 == 0 ? 1e6 : (double)NAN);
        }
    }
    check_loss(c);
}

static void large_logits_do_not_overflow(void)
{
    check_loss(loss_case(9, 700, 1e4, DTYPE_REAL));
    check_loss(loss_case(9, 2700, 3e4, DTYPE_REAL));
}

static void a_maximum_may_come_in_any_tile(void)
{
    struct loss_case c = loss_case(4, 3000, 1, DTYPE_REAL);

    set_at(c.logits, 2999, 200);
    set_at(c.logits, 3000 + 1500, 200);
    set_at(c.logits, 6000, 200);
    check_loss(c);
}

static void rows_without_training_leave_no_gradient_even_if_all(void)
{
    struct loss_case c = loss_case(5, 90, 3, DTYPE_BF16);

    for (int64_t r = 0; r < 5; r++) {
        set_at(c.labels, r, -100);
    }
    set_at(c.logits, 7, (double)NAN);
    run_loss(&c);
    for (int64_t i = 0; i < 450; i++) {
        EXPECT(value_at(c.dlogits, i) == 0 && value_at(c.loss, i / 90) == 0);
    }
    free_all();
}

static void what_is_not_a_number_reaches_loss_and_gradient(void)
{
    struct loss_case c = loss_case(2, 1500, 3, DTYPE_REAL);
    const struct tensor sum = take(DTYPE_F64, 1, 1);

    set_at(c.logits, 1200, (double)NAN);
    run_loss(&c);
    EXPECT(value_at(c.loss, 0) != value_at(c.loss, 0));
    EXPECT(value_at(c.loss, 1) == value_at(c.loss, 1));
    k->sum_squares(NULL, sum, c.dlogits);
    EXPECT(value_at(sum, 0) != value_at(sum, 0));
    free_all();
}

static void works_in_place(void)
{
    struct loss_case c = loss_case(6, 1111, 3, DTYPE_REAL), d = c;

    d.dlogits = d.logits = copy_of(c.logits);
    run_loss(&c);
    run_loss(&d);
    EXPECT(same_bytes(c.dlogits, d.dlogits));
    free_all();
}

/* Two ranks hold halves of the vocabulary and combine their statistics; the last columns are padding. */
static void slices_of_the_vocabulary_make_the_whole(void)
{
    struct loss_case whole = loss_case(10, 600, 5, DTYPE_REAL), part[3];

    whole.valid = 350; /* the third slice is padding only */
    for (int64_t r = 0; r < 10; r++) {
        set_at(whole.labels, r, (double)(r * 37 % 350));
    }
    set_at(whole.labels, 1, 199); /* the last of a slice, and the first of the next */
    set_at(whole.labels, 2, 200);
    run_loss(&whole);
    for (int64_t i = 0; i < 3; i++) {
        part[i] = loss_case(10, 200, 1, DTYPE_REAL);
        part[i].labels = whole.labels;
        part[i].vocab0 = 200 * i;
        part[i].valid = 350;
        for (int64_t j = 0; j < 2000; j++) {
            set_at(part[i].logits, j, value_at(whole.logits, j / 200 * 600 + 200 * i + j % 200));
        }
        k->cross_entropy_stats(NULL, part[i].stats, part[i].logits, part[i].labels, 200 * i, 350);
    }
    /* the third slice is padding alone from row 350 of 600 on, and its largest is minus infinity */
    const struct tensor stats = take(DTYPE_REAL, 10, 3), parts = take(DTYPE_REAL, 30, 3);
    for (int64_t i = 0; i < 90; i++) {
        set_at(parts, i, value_at(part[i / 30].stats, i % 30));
    }
    k->cross_entropy_merge(NULL, stats, parts);
    EXPECT_CLOSE(stats, doubles_of(whole.stats), EXACT);
    for (int64_t i = 0; i < 3; i++) {
        k->cross_entropy_backward(NULL, part[i].dlogits, part[i].logits, stats, whole.labels,
                                  200 * i, 350, whole.scale);
        for (int64_t j = 0; j < 2000; j++) {
            const double want = value_at(whole.dlogits, j / 200 * 600 + 200 * i + j % 200);
            EXPECT_NEAR(value_at(part[i].dlogits, j), want, EXACT);
        }
    }
    free_all();
}

static void check_adamw(enum dtype type)
{
    const int64_t n = 3001;
    const struct adamw a = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .scale = 0.3};
    const struct tensor p = take_random(DTYPE_REAL, n, 1, 1), m = take(DTYPE_REAL, n, 1);
    const struct tensor v = take(DTYPE_REAL, n, 1), low = take(type, n, 1);
    double *want = doubles_of(p), *mean = take_doubles(n), *square = take_doubles(n);

    for (int t = 1; t <= 4; t++) {
        const struct tensor g = take_random(DTYPE_REAL, n, 1, 2);
        struct adamw step = a;
        step.t = t;
        for (int64_t i = 0; i < n; i++) {
            const double grad = value_at(g, i) * 0.3;
            want[i] *= 1 - 0.01 * 0.1;
            mean[i] = 0.9 * mean[i] + 0.1 * grad;
            square[i] = 0.95 * square[i] + 0.05 * grad * grad;
            want[i] -= 0.01 * (mean[i] / (1 - pow(0.9, t))) /
                       (sqrt(square[i] / (1 - pow(0.95, t))) + 1e-8);
        }
        kernels_cpu_threads(t);
        k->adamw(NULL, p, m, v, t == 2 ? tensor_none() : low, g, &step);
        EXPECT_CLOSE(p, want, EXACT);
        EXPECT_CLOSE(m, mean, EXACT);
        EXPECT_CLOSE(v, square, EXACT);
    }
    for (int64_t i = 0; i < n; i++) {
        const uint16_t want_low =
            type == DTYPE_BF16 ? nearest_bf16(value_at(p, i)) : nearest_small(type, value_at(p, i));
        EXPECT(((const uint16_t *)low.data)[i] == want_low);
    }
    kernels_cpu_threads(1);
    free_all();
}

static void adamw_follows_its_formula(void)
{
    check_adamw(DTYPE_BF16);
    check_adamw(DTYPE_F16);
}

static void adamw_does_not_move_without_gradient_or_decay(void)
{
    const struct adamw a = {
        .lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .scale = 1, .t = 1};
    const struct tensor p = take_random(DTYPE_REAL, 50, 1, 1), old = copy_of(p);
    const struct tensor m = take(DTYPE_REAL, 50, 1), v = take(DTYPE_REAL, 50, 1);
    const struct tensor g = take(DTYPE_REAL, 50, 1);

    k->adamw(NULL, p, m, v, tensor_none(), g, &a);
    EXPECT(same_bytes(p, old));
    free_all();
}

static void sums_add_to_what_is_there(void)
{
    static const int64_t counts[] = {0, 1, 17, 1024, 70001, 200000};

    for (int i = 0; i < 6; i++) {
        const struct tensor x = take_random(DTYPE_REAL, counts[i], 1, 2);
        const struct tensor square = take(DTYPE_F64, 1, 1), sum = take(DTYPE_F64, 1, 1);
        double want = 3, want_square = 3;
        set_at(square, 0, 3);
        set_at(sum, 0, 3);
        for (int64_t j = 0; j < counts[i]; j++) {
            want += value_at(x, j);
            want_square += value_at(x, j) * value_at(x, j);
        }
        k->sum_squares(NULL, square, x);
        k->sum(NULL, sum, x);
        EXPECT_NEAR(value_at(square, 0), want_square, 1e-12);
        EXPECT_NEAR(value_at(sum, 0), want, 1e-12);
        for (int threads = 2; threads <= 4; threads++) {
            const struct tensor again = take(DTYPE_F64, 1, 1);
            set_at(again, 0, 3);
            kernels_cpu_threads(threads);
            k->sum_squares(NULL, again, x);
            EXPECT(same_bytes(again, square));
        }
        kernels_cpu_threads(1);
        free_all();
    }
}

static void squares_do_not_overflow_a_float(void)
{
    const struct tensor x = take(DTYPE_REAL, 3, 1), sum = take(DTYPE_F64, 1, 1);

    set_at(x, 1, 1e30);
    k->sum_squares(NULL, sum, x);
    EXPECT_NEAR(value_at(sum, 0) / 1e60, 1, 1e-6);
    free_all();
}

static void run_cross_entropy(void)
{
    RUN(cross_entropy_follows_its_formula);
    RUN(hits_are_labels_with_the_largest_logit);
    RUN(padding_takes_no_part);
    RUN(large_logits_do_not_overflow);
    RUN(a_maximum_may_come_in_any_tile);
    RUN(rows_without_training_leave_no_gradient_even_if_all);
    RUN(what_is_not_a_number_reaches_loss_and_gradient);
    RUN(works_in_place);
    RUN(slices_of_the_vocabulary_make_the_whole);
}

static void run_tests(const struct kernels *table)
{
    k = table;
    run_cross_entropy();
    RUN(adamw_follows_its_formula);
    RUN(adamw_does_not_move_without_gradient_or_decay);
    RUN(sums_add_to_what_is_there);
    RUN(squares_do_not_overflow_a_float);
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
