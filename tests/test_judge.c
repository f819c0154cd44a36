/* test_judge.c - when a run gives up, and which checkpoint is its best. */
#include "trainer/judge.h"

#include <math.h>

#include "tests/tap.h"

static void a_run_gives_up_after_so_many_evaluations_without_improvement(void)
{
    static const double losses[] = {3.0, 2.0, 2.5, 1.5, 1.6, 1.7, 1.8};
    static const int waited[] = {0, 0, 1, 0, 1, 2, 3};
    struct judge j = {0};

    judge_see(&j, 0, 0.1, 0.0); /* the model that the run starts from */
    EXPECT(j.step == 0 && !judge_gives_up(&j, 1));
    for (int i = 0; i < 7; i++) {
        judge_see(&j, 10 * (i + 1), losses[i], 0.0);
        EXPECT(j.waited == waited[i]);
        EXPECT(judge_gives_up(&j, 2) == (waited[i] >= 2) && !judge_gives_up(&j, 0));
        EXPECT(j.lowest == (waited[i] == 0));
    }
    EXPECT(j.best_step == 40 && j.best_loss <= 1.5 && j.best_loss >= 1.5);
}

static void small_improvements_do_not_count(void)
{
    struct judge j = {0};

    judge_see(&j, 1, 3.0, 0.1);
    judge_see(&j, 2, 2.95, 0.1);
    EXPECT(j.waited == 1 && j.lowest && j.best_step == 1);
    judge_see(&j, 3, 2.89, 0.1); /* two small steps make one */
    EXPECT(j.waited == 0 && j.best_step == 3);
    judge_see(&j, 4, 2.89, 0.0);
    EXPECT(j.waited == 1 && !j.lowest);
}

static void what_is_no_number_is_no_improvement(void)
{
    struct judge j = {0};

    judge_see(&j, 1, (double)NAN, 0.0);
    EXPECT(j.waited == 1 && !j.lowest && !judge_is_best(&j, 1));
    judge_see(&j, 2, 2.0, 0.0);
    EXPECT(j.waited == 0 && j.lowest && judge_is_best(&j, 2));
    judge_see(&j, 3, (double)NAN, 0.0);
    EXPECT(j.waited == 1 && !j.lowest && j.best_step == 2);
}

static void the_best_checkpoint_is_the_evaluated_one_with_the_lowest_loss(void)
{
    struct judge j = {0};

    EXPECT(!judge_is_best(&j, 0) && !judge_is_best(&j, 5));
    judge_see(&j, 5, 2.0, 0.0);
    EXPECT(judge_is_best(&j, 5) && !judge_is_best(&j, 6));
    judge_keep(&j);
    judge_see(&j, 10, 1.0, 0.0); /* not saved */
    judge_see(&j, 15, 1.5, 0.0);
    EXPECT(judge_is_best(&j, 15));
    judge_keep(&j);
    judge_see(&j, 20, 1.5, 0.0);
    EXPECT(!judge_is_best(&j, 20) && j.saved_step == 15);
}

int main(void)
{
    RUN(a_run_gives_up_after_so_many_evaluations_without_improvement);
    RUN(small_improvements_do_not_count);
    RUN(what_is_no_number_is_no_improvement);
    RUN(the_best_checkpoint_is_the_evaluated_one_with_the_lowest_loss);
    return tap_done();
}
