/* dropout.h - which elements dropout keeps: a hash of seed and place, the same on every backend.
 *
 * A 64-bit key is mixed from (seed, step, sample, position, layer, site), once per row. A 32-bit word
 * per element is hashed from that key and the index of its feature; the element is kept where the
 * word is at or above the threshold. The mixers are splitmix64 (Steele et al. 2014) and the 32-bit
 * integer hash "lowbias32" with the second half of the key between its two multiplications.
 */
#ifndef KERNELS_DROPOUT_H
#define KERNELS_DROPOUT_H

#include "kernels/kernels.h"

#ifdef __CUDACC__
    #define DROPOUT_FUNCTION static inline __host__ __device__
#else
    #define DROPOUT_FUNCTION static inline
#endif

struct dropout_key {
    uint32_t a, b;
};

DROPOUT_FUNCTION uint64_t dropout_mix(uint64_t key, uint64_t value)
{
    uint64_t z = (key ^ value) + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The place of row number i of a sequence. */
DROPOUT_FUNCTION int64_t dropout_place(const struct dropout *d, int64_t i)
{
    return d->place0 + i + (i >= d->S / 2 ? d->skip : 0);
}

/* The key of row `row` of a call. */
DROPOUT_FUNCTION struct dropout_key dropout_row_key(const struct dropout *d, int64_t row)
{
    struct dropout_key key;
    uint64_t z = dropout_mix(UINT64_C(0), d->seed);

    row += d->row0;
    z = dropout_mix(z, (uint64_t)d->step);
    z = dropout_mix(z, (uint64_t)(d->sample0 + row / d->S));
    z = dropout_mix(z, (uint64_t)(d->pos0 + dropout_place(d, row % d->S)));
    z = dropout_mix(z, ((uint64_t)(uint32_t)d->layer << 32) | (uint64_t)(uint32_t)d->site);
    key.a = (uint32_t)z;
    key.b = (uint32_t)(z >> 32);
    return key;
}

/* The word of feature number `feature` of a row. */
DROPOUT_FUNCTION uint32_t dropout_word(struct dropout_key key, uint32_t feature)
{
    uint32_t x = feature * UINT32_C(0x9e3779b9) + key.a;

    x = (x ^ (x >> 16)) * UINT32_C(0x7feb352d);
    x = (x ^ (x >> 15)) + key.b;
    x = (x ^ (x >> 15)) * UINT32_C(0x846ca68b);
    return x ^ (x >> 16);
}

/* The key of head `head` of a row: attention drops by head, then by key position. */
DROPOUT_FUNCTION struct dropout_key dropout_head_key(struct dropout_key row, uint32_t head)
{
    struct dropout_key swapped, key;

    swapped.a = row.b;
    swapped.b = row.a;
    key.a = dropout_word(row, head);
    key.b = dropout_word(swapped, head);
    return key;
}

/* Elements whose word is below it are dropped: a part p of all words. */
DROPOUT_FUNCTION uint32_t dropout_threshold(const struct dropout *d)
{
    return (uint32_t)(d->p * 4294967296.0);
}

#endif
