/* pieces.h - the vector of gradients (flat.h) as pieces of trained weights: where a stretch of it, a bucket or a
 * slice, begins and ends inside parameters. */
#ifndef TRAINER_PIECES_H
#define TRAINER_PIECES_H

#include "trainer/model.h"

bool weight_is_trained(const struct weight *w);

/* The elements of the vector that are a weight's; count 0 where it is not trained. */
struct stretch weight_stretch(const struct weight *w);

/* Whether some of its gradient, which is trained, lies in a stretch of a vector. */
bool weight_is_in(const struct weight *w, enum vector_id vector, struct stretch of);

/* Elements [from, from + count) of a tensor as a vector. */
struct tensor piece_tensor(struct tensor t, int64_t from, int64_t count);

/* Call `each` for every piece of a trained weight that lies in the stretch of a vector, in the order of planning. */
typedef void each_piece(const struct model *m, const struct weight *w, struct stretch piece,
                        void *context);
void pieces_each(const struct model *m, enum vector_id vector, struct stretch of, each_piece *each,
                 void *context);

/* Whether what the optimizer keeps of a vector is divided into slices. */
bool vector_is_divided(const struct model *m, enum vector_id vector);

#endif
