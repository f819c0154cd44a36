/* flat.h - the gradients of a rank as one long vector, cut into buckets, and these into slices.
 *
 * The distributed optimizer (Rajbhandari et al. 2020, arXiv:1910.02054, stage 1): of every bucket each
 * data-parallel rank has one slice, in rank order. It alone keeps the sum of the gradients of its slice, the
 * moments and the masters, and updates those weights; then all ranks gather them. A slice may begin and end
 * inside a parameter.
 *
 * The vector is the region of gradients as it lies in memory: a parameter begins at a multiple of 64 elements,
 * gaps are 0. State of slices (moments, masters) lies bucket after bucket without gaps.
 */
#ifndef TRAINER_FLAT_H
#define TRAINER_FLAT_H

#include <stdint.h>

/* The gradients of experts are summed over fewer ranks than the others: they are a vector of their own. */
enum vector_id { VECTOR_DENSE, VECTOR_EXPERTS, VECTORS };

enum { FLAT_ALIGN = 64, FLAT_BUCKET = 1 << 22 /* elements of a bucket unless told otherwise */ };

struct flat {
    int64_t count;  /* elements of the vector, a multiple of slices x FLAT_ALIGN       */
    int64_t bucket; /* elements of a bucket, likewise; the last may have fewer         */
    int slices, mine;
};

/* Elements [at, at + count) of the vector. */
struct stretch {
    int64_t at, count;
};

/* `used` elements of gradients, over so many ranks; `bucket` is rounded up. */
struct flat flat_make(int64_t used, int64_t bucket, int slices, int mine);

int flat_buckets(const struct flat *f);
struct stretch flat_bucket(const struct flat *f, int b);
struct stretch flat_slice(const struct flat *f, int b);            /* this rank's      */
int64_t flat_state(const struct flat *f, int b);                   /* where its state begins */
struct stretch stretch_common(struct stretch a, struct stretch b); /* count 0: nothing */

#endif
