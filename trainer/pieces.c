/* pieces.c - stretches of the vector of gradients, weight by weight. */
#include "trainer/pieces.h"

bool weight_is_trained(const struct weight *w)
{
    return tensor_count(w->dw) > 0;
}

struct stretch weight_stretch(const struct weight *w)
{
    return (struct stretch){w->flat, weight_is_trained(w) ? tensor_count(w->dw) : 0};
}

bool weight_is_in(const struct weight *w, enum vector_id vector, struct stretch of)
{
    return w->vector == vector && stretch_common(of, weight_stretch(w)).count > 0;
}

struct tensor piece_tensor(struct tensor t, int64_t from, int64_t count)
{
    char *at = (char *)t.data + (size_t)from * dtype_size(t.type);

    return tensor_make(at, t.type, count, 1);
}

bool vector_is_divided(const struct model *m, enum vector_id vector)
{
    return m->vectors[vector].flat.slices > 1;
}

void pieces_each(const struct model *m, enum vector_id vector, struct stretch of, each_piece *each,
                 void *context)
{
    for (int i = 0; i < m->weight_count; i++) {
        const struct weight *w = &m->weights[i];
        const struct stretch piece = stretch_common(of, weight_stretch(w));
        if (w->vector == vector && piece.count > 0) {
            each(m, w, piece, context);
        }
    }
}
