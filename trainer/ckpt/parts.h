/* parts.h - what files hold of a parameter, and where this rank's share of it lies: for state*.c alone.
 *
 * Files are those of the whole model, whatever the layout: their tensors are listed by planning it undivided, without
 * memory (model_whole). A rank finds its own in them as patches: rectangles of whole parameters.
 */
#ifndef TRAINER_CKPT_PARTS_H
#define TRAINER_CKPT_PARTS_H

#include "trainer/ckpt/rectangle.h"
#include "trainer/lora.h"
#include "trainer/model.h"

/* HEAD: the embedding of a tied model again, under the name of its head (lora.h). */
enum part { PART_WEIGHT, PART_HEAD, PART_MASTER, PART_M, PART_V };

enum { PART_NAME = LORA_NAME + 16 };

/* Whether a part of a weight is in the files of a checkpoint: of a model with adapters only these are, and what the
 * optimizer keeps only of what is trained; masters only where weights are rounded. */
bool part_exists(const struct model *m, const struct weight *w, enum part part);

/* Whether this rank, of those that hold the same numbers, is the one that writes the part of its i-th weight: among
 * tensor-parallel copies the first, of data-parallel ranks, whose parts are equal unless they are slices, each in turn. */
bool part_is_mine(const struct model *m, const struct weight *w, int i, enum part part);

/* Its matrix where it is not divided into slices (flat.h); absent when it has none. */
struct tensor part_matrix(const struct weight *w, enum part part);

/* Its name in the file. */
void part_name(char out[PART_NAME], const struct model *m, const struct weight *w, enum part part);

/* The tensor as the file has it: [outputs], [outputs, inputs] or, transposed, [inputs, outputs]. Returns 1 or 2. */
int part_file_shape(const struct param *p, int64_t shape[2]);

/* How many parameters, from the i-th on, share a file tensor. */
int part_sharing(const struct model *m, int i);

/* Rows [row0, row0 + rows) and columns [col0, col0 + cols) of a whole parameter. */
struct patch {
    void *at; /* rows lie `stride` elements apart */
    enum dtype type;
    int64_t stride, rows, cols, row0, col0;
};

/* Call `each` for the patches of a part that are in this rank's memory: rectangles, and where the state is divided,
 * stretches of rows that begin and end anywhere. Padding is in none. Passes on the first error. */
typedef int each_patch(void *context, const struct patch *p, struct err *err);
int part_patches(const struct model *m, const struct weight *w, enum part part, each_patch *each,
                 void *context, struct err *err);

#endif
