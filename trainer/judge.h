/* judge.h - what evaluations say about a run: whether it still gets better, and which checkpoint is the best.
 *
 * The evaluation before the first step is of the model that the run starts from and does not count.
 */
#ifndef TRAINER_JUDGE_H
#define TRAINER_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

/* Saved with a checkpoint, so that a resumed run goes on with it. */
struct judge {
    int64_t step;      /* of the newest evaluation; 0: there is none                            */
    double loss;       /* its loss                                                              */
    bool lowest;       /* it is the lowest of all                                               */
    int64_t best_step; /* of the last evaluation that was better by more than min_delta; 0: none */
    double best_loss, lowest_loss;
    int64_t waited;     /* evaluations since best_step                                      */
    int64_t saved_step; /* of the best checkpoint; 0: none                                  */
    double saved_loss;
};

/* An evaluation. A loss that is no number is never an improvement. */
void judge_see(struct judge *j, int64_t step, double loss, double min_delta);

/* Whether `patience` > 0 evaluations went by without an improvement. */
bool judge_gives_up(const struct judge *j, int64_t patience);

/* Whether a checkpoint of this step is the best so far: evaluated, with a lower loss than the others that were saved. */
bool judge_is_best(const struct judge *j, int64_t step);

/* The checkpoint of the newest evaluation is saved as the best. */
void judge_keep(struct judge *j);

#endif
