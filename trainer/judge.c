/* judge.c - comparing losses. */
#include "trainer/judge.h"

void judge_see(struct judge *j, int64_t step, double loss, double min_delta)
{
    if (step == 0) {
        return;
    }
    /* best_step stays 0 until there is a number; the comparisons of NaN with itself are false */
    j->lowest = j->best_step == 0 ? loss <= loss : loss < j->lowest_loss;
    if (j->lowest) {
        j->lowest_loss = loss;
    }
    if (j->best_step == 0 ? loss <= loss : loss < j->best_loss - min_delta) {
        j->best_step = step;
        j->best_loss = loss;
        j->waited = 0;
    } else {
        j->waited++;
    }
    j->step = step;
    j->loss = loss;
}

bool judge_gives_up(const struct judge *j, int64_t patience)
{
    return patience > 0 && j->waited >= patience;
}

bool judge_is_best(const struct judge *j, int64_t step)
{
    return step > 0 && j->step == step &&
           (j->saved_step == 0 ? j->loss <= j->loss : j->loss < j->saved_loss);
}

void judge_keep(struct judge *j)
{
    j->saved_step = j->step;
    j->saved_loss = j->loss;
}
