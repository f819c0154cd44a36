/* test_curve.c - points and buckets: every answer agrees with a plain sum over the points. */
#include "server/curve.h"

#include <stdlib.h>

#include "tests/server.h"

enum { POINTS = 5000 };

static double loss_at(int64_t step)
{
    return step % 97 == 0 ? (double)NAN : 10.0 / (1.0 + (double)step * 0.01) + (double)(step % 7);
}

/* Points [from, to] of a job. */
struct span {
    int64_t from, to, every;
};

static int put_points(struct tx *tx, void *argument, struct err *err)
{
    const struct span *s = argument;
    struct curve_writer w;

    TRY(curve_begin(&w, tx, err));
    int rc = 0;
    for (int64_t step = s->from; step <= s->to && rc == 0; step += s->every) {
        const struct curve_point p = {.step = step,
                                      .loss = loss_at(step),
                                      .lr = 1e-3 * (double)step,
                                      .grad_norm = 0.5,
                                      .tokens_per_s = 100};
        rc = curve_add(&w, 1, &p, err);
    }
    curve_end(&w);
    return rc;
}

static int cut(struct tx *tx, void *argument, struct err *err)
{
    return curve_cut(tx, 1, *(const int64_t *)argument, err);
}

struct wish {
    int64_t from, to, points;
    json_t *out;
};

static int ask(sqlite3 *db, void *argument, struct err *err)
{
    struct wish *w = argument;

    return curve_read(db, 1, w->from, w->to, w->points, &w->out, err);
}

static double value_of(const json_t *curve, const char *key, size_t i)
{
    const json_t *v = json_array_get(json_object_get(curve, key), i);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Point i of the answer is the sum over the steps (before, step]. */
static void agrees_at(const json_t *curve, size_t i, int64_t before, int64_t step)
{
    double sum = 0, low = 1e300, high = -1e300;
    int64_t count = 0;

    for (int64_t k = before + 1; k <= step; k++) {
        if (isfinite(loss_at(k))) {
            sum += loss_at(k);
            low = fmin(low, loss_at(k));
            high = fmax(high, loss_at(k));
            count++;
        }
    }
    if (count == 0) {
        EXPECT(isnan(value_of(curve, "loss", i)) && isnan(value_of(curve, "loss_max", i)));
    } else {
        EXPECT_NEAR(value_of(curve, "loss", i), sum / (double)count, 1e-9);
        EXPECT_NEAR(value_of(curve, "loss_min", i), low, 1e-9);
        EXPECT_NEAR(value_of(curve, "loss_max", i), high, 1e-9);
    }
    EXPECT_NEAR(value_of(curve, "lr", i), 1e-3 * (double)step, 1e-9);
    EXPECT_NEAR(value_of(curve, "grad_norm", i), 0.5, 1e-9);
    EXPECT_NEAR(value_of(curve, "tokens_per_s", i), 100, 1e-9);
}

static void agrees(struct store *s, int64_t from, int64_t to, int64_t points, int64_t last)
{
    struct wish w = {.from = from, .to = to, .points = points};
    struct err err = {0};

    EXPECT(store_read(s, ask, &w, &err) == 0);
    const json_t *steps = json_object_get(w.out, "steps");
    const size_t n = json_array_size(steps);
    EXPECT(n >= 1 && n <= (size_t)points);
    EXPECT(json_integer_value(json_object_get(w.out, "last_step")) == last);
    const int64_t every = json_integer_value(json_object_get(w.out, "every"));
    int64_t before = n > 1 ? json_integer_value(json_array_get(steps, 0)) : 0;
    for (size_t i = 1; i < n; i++) {
        const int64_t step = json_integer_value(json_array_get(steps, i));
        EXPECT(step > before && step - before <= every);
        agrees_at(w.out, i, before, step);
        before = step;
    }
    json_decref(w.out);
}

static void buckets_agree_with_the_points(void)
{
    struct store *s = open_store_with_job("buckets", "job-a");
    struct span all = {1, POINTS, 1};
    struct err err = {0};

    EXPECT(store_write(s, put_points, &all, &err) == 0);
    agrees(s, 0, INT64_C(1) << 40, 10, POINTS);
    agrees(s, 0, INT64_C(1) << 40, 100, POINTS);
    agrees(s, 0, INT64_C(1) << 40, 1000, POINTS);
    agrees(s, 0, INT64_C(1) << 40, 10000, POINTS);
    agrees(s, 1000, 2000, 37, POINTS);
    agrees(s, 0, INT64_C(1) << 40, 1, POINTS);
    store_close(s);
}

static void a_cut_leaves_what_was_never_longer(void)
{
    static const int64_t cuts[] = {4999, 4096, 4095, 300, 256, 255, 17, 16, 15, 1};
    struct store *s = open_store_with_job("cut", "job-a");
    struct span all = {1, POINTS, 1};
    struct err err = {0};

    EXPECT(store_write(s, put_points, &all, &err) == 0);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        int64_t step = cuts[i];
        EXPECT(store_write(s, cut, &step, &err) == 0);
        agrees(s, 0, INT64_C(1) << 40, 10, step);
        agrees(s, 0, INT64_C(1) << 40, 5000, step);
    }
    /* and goes on from there as if nothing had been */
    struct span rest = {2, 600, 1};
    EXPECT(store_write(s, put_points, &rest, &err) == 0);
    agrees(s, 0, INT64_C(1) << 40, 20, 600);
    store_close(s);
}

static void a_point_twice_counts_once(void)
{
    struct store *s = open_store_with_job("twice", "job-a");
    struct span all = {1, 500, 1}, again = {100, 300, 1};
    struct err err = {0};

    EXPECT(store_write(s, put_points, &all, &err) == 0);
    EXPECT(store_write(s, put_points, &again, &err) == 0);
    agrees(s, 0, INT64_C(1) << 40, 10, 500);
    store_close(s);
}

static void a_curve_without_points_is_empty(void)
{
    struct store *s = open_store_with_job("empty", "job-a");
    struct wish w = {.from = 0, .to = 100, .points = 10};
    struct err err = {0};

    EXPECT(store_read(s, ask, &w, &err) == 0);
    EXPECT(json_array_size(json_object_get(w.out, "steps")) == 0);
    EXPECT(json_integer_value(json_object_get(w.out, "last_step")) == 0);
    json_decref(w.out);
    store_close(s);
}

/* A loss that is no number is null, and neighbours do not suffer. */
static void infinite_losses_are_null(void)
{
    struct store *s = open_store_with_job("nan", "job-a");
    struct span one = {97, 97, 1};
    struct wish w = {.from = 0, .to = 1000, .points = 10};
    struct err err = {0};

    EXPECT(store_write(s, put_points, &one, &err) == 0);
    EXPECT(store_read(s, ask, &w, &err) == 0);
    EXPECT(json_is_null(json_array_get(json_object_get(w.out, "loss"), 0)));
    EXPECT(json_is_null(json_array_get(json_object_get(w.out, "loss_min"), 0)));
    EXPECT_NEAR(value_of(w.out, "grad_norm", 0), 0.5, 1e-12);
    json_decref(w.out);
    store_close(s);
}

int main(void)
{
    scratch_make();
    RUN(buckets_agree_with_the_points);
    RUN(a_cut_leaves_what_was_never_longer);
    RUN(a_point_twice_counts_once);
    RUN(a_curve_without_points_is_empty);
    RUN(infinite_losses_are_null);
    scratch_remove();
    return tap_done();
}
