/* test_kernels_attention.c - attention against the unfused formula, forward, backward, decoding. */
#include "kernels/dropout.h"
#include "tests/kernels.h"

static const struct kernels *k;

struct problem {
    struct attention_shape s;
    struct tensor qkv, out, lse, first, dout, dqkv;
    struct queue q;
    const struct dropout *drop;
};

struct answer {
    double *out, *lse, *dqkv;
};

/* `reach` > 0 is a sliding window; `document` > 0 starts a new document every so many rows. */
static struct problem problem_of(struct attention_shape s, enum dtype type, int64_t reach,
                                 int64_t document)
{
    const int64_t R = s.B * s.S, row = (s.H + 2 * s.G) * s.K;
    struct problem p = {.s = s};

    p.qkv = take_random(type, R, row, 1.5);
    p.dout = take_random(type, R, s.H * s.K, 1);
    p.out = take(type, R, s.H * s.K);
    p.lse = take(DTYPE_REAL, R, s.H);
    p.dqkv = take_random(type, R, row, 1);
    p.first = take(DTYPE_I32, R, 1);
    p.q = take_queue(workspace_attention(&s, type, 4));
    for (int64_t r = 0; r < R; r++) {
        const int64_t at = r % s.S;
        int64_t first = reach > 0 && at >= reach ? at - reach + 1 : 0;
        if (document > 0 && at / document * document > first) {
            first = at / document * document;
        }
        set_at(p.first, r, (double)first);
    }
    return p;
}

/* What dropout multiplies a probability by. */
static double factor_of(const struct problem *p, int64_t row, int64_t h, int64_t key)
{
    const struct dropout *d = p->drop;

    if (d == NULL) {
        return 1;
    }
    const struct dropout_key head =
        dropout_head_key(dropout_row_key(d, row), (uint32_t)(d->feature0 + h));
    const bool kept = dropout_word(head, (uint32_t)(d->pos0 + key)) >= dropout_threshold(d);
    return kept ? 1 / (1 - d->p) : 0;
}

/* One query of one head: its probabilities, its output, and, given dout, its part of dqkv. */
static void answer_row(const struct problem *p, const struct answer *w, const double *x,
                       const double *dout, const int64_t row_head[2])
{
    const struct attention_shape s = p->s;
    const int64_t r = row_head[0], h = row_head[1], g = h / (s.H / s.G), K = s.K;
    const int64_t row = (s.H + 2 * s.G) * K, base = r / s.S * s.S, last = r % s.S;
    const int64_t from = (int64_t)value_at(p->first, r);
    const double *query = x + r * row + h * K, *dy = dout + (r * s.H + h) * K;
    double *prob = malloc((size_t)s.S * sizeof(*prob)), max = -1e300, sum = 0, pull = 0;

    if (prob == NULL || from > last) {
        abort();
    }
    for (int64_t j = from; j <= last; j++) {
        const double *key = x + (base + j) * row + (s.H + g) * K;
        prob[j] = 0;
        for (int64_t d = 0; d < K; d++) {
            prob[j] += query[d] * key[d] * s.scale;
        }
        max = prob[j] > max ? prob[j] : max;
    }
    for (int64_t j = from; j <= last; j++) {
        prob[j] = exp(prob[j] - max);
        sum += prob[j];
    }
    w->lse[r * s.H + h] = max + log(sum);
    for (int64_t j = from; j <= last; j++) {
        const double m = factor_of(p, r, h, j), *v = x + (base + j) * row + (s.H + s.G + g) * K;
        prob[j] /= sum;
        for (int64_t d = 0; d < K; d++) {
            w->out[(r * s.H + h) * K + d] += prob[j] * m * v[d];
            pull += prob[j] * m * v[d] * dy[d];
        }
    }
    for (int64_t j = from; j <= last; j++) {
        const int64_t key = (base + j) * row + (s.H + g) * K, value = key + s.G * K;
        const double m = factor_of(p, r, h, j);
        double dp = 0;
        for (int64_t d = 0; d < K; d++) {
            dp += m * dy[d] * x[value + d];
            w->dqkv[value + d] += prob[j] * m * dy[d];
        }
        const double ds = prob[j] * (dp - pull) * s.scale;
        for (int64_t d = 0; d < K; d++) {
            w->dqkv[r * row + h * K + d] += ds * x[key + d];
            w->dqkv[key + d] += ds * query[d];
        }
    }
    free(prob);
}

static struct answer answer_of(const struct problem *p)
{
    const struct attention_shape s = p->s;
    const int64_t R = s.B * s.S;
    const struct answer w = {take_doubles(R * s.H * s.K), take_doubles(R * s.H),
                             take_doubles(tensor_count(p->qkv))};
    const double *x = doubles_of(p->qkv), *dout = doubles_of(p->dout);

    for (int64_t i = 0; i < R * s.H; i++) {
        const int64_t row_head[2] = {i / s.H, i % s.H};
        answer_row(p, &w, x, dout, row_head);
    }
    return w;
}

static void run_both(struct problem *p)
{
    const struct tensor saved[3] = {p->out, p->lse, p->qkv};

    k->attention_forward(&p->q, p->out, p->lse, p->qkv, p->first, &p->s, p->drop, NULL);
    k->attention_backward(&p->q, p->dqkv, p->dout, saved, p->first, &p->s, p->drop, NULL);
}

static void check_problem(struct problem p)
{
    const struct answer w = answer_of(&p);
    const bool rounded = p.qkv.type != DTYPE_REAL;

    run_both(&p);
    EXPECT_CLOSE(p.out, w.out, rounded ? ROUNDED : 2 * EXACT);
    EXPECT_CLOSE(p.lse, w.lse, 2 * EXACT);
    EXPECT_CLOSE(p.dqkv, w.dqkv, rounded ? 3 * ROUNDED : 4 * EXACT);
    free_all();
}

static struct attention_shape shape_of(int64_t B, int64_t S, int64_t H, int64_t G, int64_t K)
{
    return (struct attention_shape){B, S, H, G, K, 1.0 / sqrt((double)K)};
}

static void follows_the_formula_for_odd_sizes(void)
{
    static const int64_t cases[][5] = {{1, 1, 1, 1, 8},    {2, 5, 3, 3, 16},   {1, 64, 2, 2, 64},
                                       {1, 65, 2, 1, 32},  {2, 130, 1, 1, 24}, {1, 200, 4, 2, 33},
                                       {1, 97, 1, 1, 128}, {1, 70, 6, 2, 9},   {1, 130, 1, 1, 256}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t *c = cases[i];
        kernels_cpu_threads(1 + (int)i % 4);
        check_problem(problem_of(shape_of(c[0], c[1], c[2], c[3], c[4]), DTYPE_REAL, 0, 0));
        check_problem(problem_of(shape_of(c[0], c[1], c[2], c[3], c[4]), DTYPE_BF16, 0, 0));
        check_problem(problem_of(shape_of(c[0], c[1], c[2], c[3], c[4]), DTYPE_F16, 0, 0));
    }
    kernels_cpu_threads(1);
}

static void sees_only_its_window_and_document(void)
{
    static const int64_t reaches[][2] = {{1, 0}, {7, 0}, {100, 0}, {0, 50}, {0, 1}, {30, 77}};

    for (size_t i = 0; i < sizeof(reaches) / sizeof(reaches[0]); i++) {
        check_problem(
            problem_of(shape_of(2, 190, 2, 1, 16), DTYPE_REAL, reaches[i][0], reaches[i][1]));
    }
}

static void drops_by_place(void)
{
    const struct dropout d = {.p = 0.3,
                              .seed = 5,
                              .step = 2,
                              .sample0 = 7,
                              .pos0 = 3,
                              .S = 100,
                              .layer = 1,
                              .site = 2,
                              .feature0 = 4};
    struct problem p = problem_of(shape_of(2, 100, 4, 2, 24), DTYPE_REAL, 60, 0);

    p.drop = &d;
    check_problem(p);
}

/* One rank of `ranks` that share a sequence: its queries are those of two stretches of it. */
struct part {
    struct problem p;
    struct attention_context context;
    struct dropout drop;
};

static void copy_row(struct tensor to, int64_t row, struct tensor from, int64_t at, int64_t col)
{
    for (int64_t i = 0; i < tensor_cols(to); i++) {
        set_at(to, row * tensor_cols(to) + i, value_at(from, at * tensor_cols(from) + col + i));
    }
}

/* The row of the whole problem of row r of a part. */
static int64_t whole_row(const struct part *x, int64_t r)
{
    const int64_t S = x->p.s.S, i = r % S;

    return r / S * x->context.T + x->context.place0 + i + (i >= S / 2 ? x->context.skip : 0);
}

static struct part part_of(const struct problem *whole, int rank, int ranks)
{
    const struct attention_shape s = whole->s;
    const int64_t half = s.S / (2 * ranks), row = (s.H + 2 * s.G) * s.K, R = s.B * 2 * half;
    const enum dtype type = whole->qkv.type;
    struct part x = {
        .p = *whole,
        .context = {.T = s.S, .place0 = rank * half, .skip = 2 * (ranks - 1 - rank) * half}};

    x.p.s.S = 2 * half;
    x.p.qkv = take_random(type, R, row, 9); /* its keys and values mean nothing */
    x.p.dqkv = take_random(type, R, row, 1);
    x.p.dout = take(type, R, s.H * s.K);
    x.p.out = take(type, R, s.H * s.K);
    x.p.lse = take(DTYPE_REAL, R, s.H);
    x.p.first = take(DTYPE_I32, R, 1);
    x.context.keys = take(type, s.B * s.S, 2 * s.G * s.K);
    x.context.dkeys = take_random(type, s.B * s.S, 2 * s.G * s.K, 1);
    for (int64_t r = 0; r < R; r++) {
        const int64_t from = whole_row(&x, r);
        for (int64_t i = 0; i < s.H * s.K; i++) {
            set_at(x.p.qkv, r * row + i, value_at(whole->qkv, from * row + i));
        }
        copy_row(x.p.dout, r, whole->dout, from, 0);
        copy_row(x.p.first, r, whole->first, from, 0);
    }
    for (int64_t r = 0; r < s.B * s.S; r++) {
        copy_row(x.context.keys, r, whole->qkv, r, s.H * s.K);
    }
    return x;
}

/* Runs it; adds its part of the gradients of keys and values to those of all. */
static void run_part(struct part *x, const struct answer *w, double *dkeys, double tolerance)
{
    const struct attention_shape s = x->p.s;
    const struct tensor saved[3] = {x->p.out, x->p.lse, x->p.qkv};
    const int64_t out = s.H * s.K, row = out + 2 * s.G * s.K;

    if (x->p.drop != NULL) {
        x->drop = *x->p.drop;
        x->drop.S = s.S;
        x->drop.place0 = x->context.place0;
        x->drop.skip = x->context.skip;
        x->p.drop = &x->drop;
    }
    k->attention_forward(&x->p.q, x->p.out, x->p.lse, x->p.qkv, x->p.first, &s, x->p.drop,
                         &x->context);
    k->attention_backward(&x->p.q, x->p.dqkv, x->p.dout, saved, x->p.first, &s, x->p.drop,
                          &x->context);
    for (int64_t r = 0; r < s.B * s.S; r++) {
        const int64_t at = whole_row(x, r);
        for (int64_t i = 0; i < out; i++) {
            EXPECT_NEAR(value_at(x->p.out, r * out + i), w->out[at * out + i], tolerance);
            EXPECT_NEAR(value_at(x->p.dqkv, r * row + i), w->dqkv[at * row + i], tolerance);
        }
        for (int64_t h = 0; h < s.H; h++) {
            EXPECT_NEAR(value_at(x->p.lse, r * s.H + h), w->lse[at * s.H + h], tolerance);
        }
    }
    for (int64_t i = 0; i < tensor_count(x->context.dkeys); i++) {
        dkeys[i] += value_at(x->context.dkeys, i);
    }
}

static void check_parts(struct problem whole, int ranks)
{
    const struct attention_shape s = whole.s;
    const struct answer w = answer_of(&whole);
    const double tolerance = whole.qkv.type == DTYPE_BF16 ? 0.1 : 200 * EXACT;
    const int64_t keys = 2 * s.G * s.K, row = s.H * s.K + keys;
    double *dkeys = take_doubles(s.B * s.S * keys);

    for (int rank = 0; rank < ranks; rank++) {
        struct part x = part_of(&whole, rank, ranks);
        run_part(&x, &w, dkeys, tolerance);
    }
    for (int64_t i = 0; i < s.B * s.S * keys; i++) {
        EXPECT_NEAR(dkeys[i], w.dqkv[i / keys * row + s.H * s.K + i % keys], tolerance);
    }
    free_all();
}

static void parts_of_a_sequence_make_the_whole(void)
{
    const struct dropout d = {
        .p = 0.3, .seed = 5, .step = 2, .sample0 = 7, .pos0 = 3, .S = 120, .layer = 1, .site = 2};

    check_parts(problem_of(shape_of(2, 120, 4, 2, 24), DTYPE_REAL, 0, 0), 2);
    check_parts(problem_of(shape_of(1, 120, 2, 1, 16), DTYPE_REAL, 40, 50), 3);
    check_parts(problem_of(shape_of(1, 400, 1, 1, 9), DTYPE_REAL, 0, 130), 2);
    check_parts(problem_of(shape_of(2, 120, 2, 2, 16), DTYPE_BF16, 0, 0), 2);
    struct problem p = problem_of(shape_of(2, 120, 4, 2, 24), DTYPE_REAL, 60, 0);
    p.drop = &d;
    check_parts(p, 2);
}

static void survives_large_scores(void)
{
    struct problem p = problem_of(shape_of(1, 80, 2, 2, 16), DTYPE_REAL, 0, 0);

    for (int64_t i = 0; i < tensor_count(p.qkv); i++) {
        set_at(p.qkv, i, value_at(p.qkv, i) * (i % 96 < 64 ? 60 : 1));
    }
    const struct answer w = answer_of(&p);
    run_both(&p);
    EXPECT_CLOSE(p.out, w.out, 1e3 * EXACT);
    EXPECT_CLOSE(p.lse, w.lse, 2 * EXACT);
    EXPECT_CLOSE(p.dqkv, w.dqkv, 1e3 * EXACT);
    free_all();
}

static void does_not_depend_on_threads(void)
{
    struct problem p = problem_of(shape_of(2, 150, 4, 2, 40), DTYPE_REAL, 0, 0);

    run_both(&p);
    const struct tensor out = copy_of(p.out), dqkv = copy_of(p.dqkv), lse = copy_of(p.lse);
    for (int threads = 2; threads <= 4; threads++) {
        kernels_cpu_threads(threads);
        run_both(&p);
        EXPECT(same_bytes(out, p.out) && same_bytes(lse, p.lse) && same_bytes(dqkv, p.dqkv));
    }
    kernels_cpu_threads(1);
    free_all();
}

static void a_query_that_is_not_a_number_spoils_its_row_only(void)
{
    struct problem p = problem_of(shape_of(1, 80, 1, 1, 16), DTYPE_REAL, 0, 0);

    set_at(p.qkv, 40 * 48 + 3, (double)NAN);
    k->attention_forward(&p.q, p.out, p.lse, p.qkv, p.first, &p.s, NULL, NULL);
    for (int64_t i = 0; i < 1280; i++) {
        EXPECT((value_at(p.out, i) != value_at(p.out, i)) == (i / 16 == 40));
    }
    free_all();
}

/* Sequence b lies in slot B - 1 - b of the cache. */
static void place_row(const struct tensor place[2], int64_t row, int64_t slot, int64_t pos)
{
    set_at(place[0], row, (double)slot);
    set_at(place[1], row, (double)pos);
}

/* Decoding one token at a time gives the rows of the forward pass. */
static void check_decoding(struct attention_shape s, enum dtype type, int64_t window)
{
    struct problem p = problem_of(s, type, window, 0);
    const struct attention_shape capacity = {s.B, s.S + 3, s.H, s.G, s.K, s.scale};
    const struct tensor cache[2] = {take_random(type, s.B * (s.S + 3), s.G * s.K, 9),
                                    take_random(type, s.B * (s.S + 3), s.G * s.K, 9)};
    const struct tensor row = take(type, s.B, (s.H + 2 * s.G) * s.K);
    const struct tensor place[2] = {take(DTYPE_I32, s.B, 1), take(DTYPE_I32, s.B, 1)};
    const struct tensor out = take(type, s.B, s.H * s.K);
    const size_t bytes = tensor_bytes(row) / (size_t)s.B, wide = tensor_bytes(out) / (size_t)s.B;
    struct queue q = take_queue(workspace_attention(&capacity, type, 4));

    k->attention_forward(&p.q, p.out, p.lse, p.qkv, p.first, &s, NULL, NULL);
    for (int64_t t = 0; t < s.S; t++) {
        for (int64_t b = 0; b < s.B; b++) {
            memcpy((char *)row.data + (size_t)b * bytes,
                   (const char *)p.qkv.data + (size_t)(b * s.S + t) * bytes, bytes);
            place_row(place, b, s.B - 1 - b, t);
        }
        k->attention_decode(&q, out, cache, row, place, window, &capacity);
        for (int64_t b = 0; b < s.B; b++) {
            const struct tensor got = tensor_slice(out, b, 1);
            const struct tensor want = tensor_slice(p.out, b * s.S + t, 1);
            CHECK(tensor_bytes(want) == wide, "rows of %zu bytes", wide);
            EXPECT_CLOSE(got, doubles_of(want), type != DTYPE_REAL ? 2 * ROUNDED : 4 * EXACT);
            taken_count--;
            free(taken[taken_count]);
        }
    }
    free_all();
}

static void decodes_what_the_forward_pass_computes(void)
{
    kernels_cpu_threads(2);
    check_decoding(shape_of(2, 90, 4, 2, 17), DTYPE_REAL, 0);
    check_decoding(shape_of(1, 70, 3, 1, 64), DTYPE_REAL, 20);
    check_decoding(shape_of(2, 70, 2, 2, 32), DTYPE_BF16, 0);
    kernels_cpu_threads(1);
}

/* Many tokens of several sequences in one call, in any order: each row is what it is when the tokens
 * come one by one, bit for bit. */
static void check_mixed(struct attention_shape s, enum dtype type)
{
    const int64_t R = s.B * s.S, wide = (s.H + 2 * s.G) * s.K;
    const struct tensor qkv = take_random(type, R, wide, 1), out = take(type, R, s.H * s.K);
    const struct tensor place[2] = {take(DTYPE_I32, R, 1), take(DTYPE_I32, R, 1)};
    const struct tensor cache[2] = {take(type, s.B, s.S * s.G * s.K),
                                    take(type, s.B, s.S * s.G * s.K)};
    const struct tensor again[2] = {take(type, s.B, s.S * s.G * s.K),
                                    take(type, s.B, s.S * s.G * s.K)};
    const struct tensor one = take(type, 1, s.H * s.K);
    struct queue q = take_queue(workspace_attention(&s, type, 4));

    for (int64_t r = 0; r < R; r++) {
        place_row(place, r, r % s.B, s.S - 1 - r / s.B); /* the last tokens first */
    }
    k->attention_decode(&q, out, cache, qkv, place, 0, &s);
    for (int64_t r = R - 1; r >= 0; r--) {
        const struct tensor at[2] = {tensor_slice(place[0], r, 1), tensor_slice(place[1], r, 1)};
        k->attention_decode(&q, one, again, tensor_slice(qkv, r, 1), at, 0, &s);
        EXPECT(memcmp(one.data, tensor_slice(out, r, 1).data, tensor_bytes(one)) == 0);
    }
    EXPECT(same_bytes(cache[0], again[0]) && same_bytes(cache[1], again[1]));
    free_all();
}

static void a_row_does_not_depend_on_the_others_of_the_call(void)
{
    kernels_cpu_threads(2);
    check_mixed(shape_of(3, 45, 4, 2, 17), DTYPE_REAL);
    check_mixed(shape_of(2, 40, 3, 1, 64), DTYPE_BF16);
    kernels_cpu_threads(1);
}

#ifdef HONE_DOUBLE
/* The loss sum(out dout) moved by a small step in one element of qkv. */
static double moved_loss(struct problem *p, int64_t i, double step)
{
    const double old = value_at(p->qkv, i);
    double loss = 0;

    set_at(p->qkv, i, old + step);
    k->attention_forward(&p->q, p->out, p->lse, p->qkv, p->first, &p->s, p->drop, NULL);
    set_at(p->qkv, i, old);
    for (int64_t j = 0; j < tensor_count(p->out); j++) {
        loss += value_at(p->out, j) * value_at(p->dout, j);
    }
    return loss;
}

static void gradients_are_finite_differences(void)
{
    const struct dropout d = {.p = 0.25, .seed = 9, .S = 70};

    for (int drop = 0; drop < 2; drop++) {
        struct problem p = problem_of(shape_of(1, 70, 4, 2, 10), DTYPE_REAL, 50, 0);
        p.drop = drop != 0 ? &d : NULL;
        run_both(&p);
        for (int64_t i = 0; i < tensor_count(p.qkv); i += 37) {
            const double step = 1e-5;
            const double slope = (moved_loss(&p, i, step) - moved_loss(&p, i, -step)) / (2 * step);
            EXPECT_NEAR(value_at(p.dqkv, i), slope, 1e-7);
        }
        free_all();
    }
}
#endif

static void run_tests(const struct kernels *table)
{
    k = table;
    RUN(follows_the_formula_for_odd_sizes);
    RUN(sees_only_its_window_and_document);
    RUN(drops_by_place);
    RUN(parts_of_a_sequence_make_the_whole);
    RUN(survives_large_scores);
    RUN(does_not_depend_on_threads);
    RUN(a_query_that_is_not_a_number_spoils_its_row_only);
    RUN(decodes_what_the_forward_pass_computes);
    RUN(a_row_does_not_depend_on_the_others_of_the_call);
#ifdef HONE_DOUBLE
    RUN(gradients_are_finite_differences);
#endif
}

int main(void)
{
    return run_on_every_isa(run_tests);
}
