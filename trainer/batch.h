/* batch.h - the tokens of a step in memory: each microbatch as wide as it must be, of every sequence this rank's places. */
#ifndef TRAINER_BATCH_H
#define TRAINER_BATCH_H

#include "trainer/data/data.h"
#include "trainer/model.h"

/* The tokens of this rank's microbatches, sliding windows included. width[i], of [micros], becomes the places of a
 * sequence that a step works on: those behind reach no loss. */
void batch_load(const struct model *m, const struct data_rows *rows, int64_t *width);

/* One sequence of n tokens as microbatch 0, without labels; returns its width, at least n: tokens behind are seen by none
 * before. */
int64_t batch_tokens(const struct model *m, const int32_t *ids, int64_t n);

/* Which of the ranks that share sequences has a place of one of `width`, and what number it has there. */
int64_t batch_find(const struct dims *d, int64_t width, int64_t place, int *cp_rank);

#endif
