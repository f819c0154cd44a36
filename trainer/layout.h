/* layout.h - where every tensor of a rank lives, decided before anything is allocated.
 *
 * A layout is filled by running the model's plan functions. It is run twice:
 *
 *   measure   base addresses NULL: only sizes add up. The server does this to size a job.
 *   bind      the same calls again, now with memory behind them. A rank does this at start.
 *
 * Since both are one code path, the bytes the server predicts are the bytes the rank allocates; the
 * fingerprint, a hash of every take in order, says so. Nothing is allocated after that: a training step
 * cannot run out of arena memory.
 */
#ifndef TRAINER_LAYOUT_H
#define TRAINER_LAYOUT_H

#include "kernels/tensor.h"

enum life {
#define REGION(id, word, help) LIFE_##id,
#include "trainer/regions.def"
    LIFE_COUNT
};

struct region {
    char *base;  /* NULL while measuring     */
    size_t used; /* bytes taken so far       */
    size_t peak; /* largest `used` ever seen */
};

struct layout {
    struct region region[LIFE_COUNT];
    uint64_t fingerprint;
};

/* Take a [rows, cols] tensor from a region, aligned to 256 bytes. Never fails. */
struct tensor layout_take(struct layout *lo, enum life life, enum dtype type, int64_t rows,
                          int64_t cols);

/* Everything taken from `life` between a mark and its release may be overlaid by later takes. */
size_t layout_mark(const struct layout *lo, enum life life);
void layout_release(struct layout *lo, enum life life, size_t mark);

/* Start over with real memory. base[i] must hold the peak that measuring found for region i. */
void layout_bind(struct layout *lo, void *const base[LIFE_COUNT]);

/* Sum of the peaks of all regions, in bytes. */
size_t layout_bytes(const struct layout *lo);

const char *life_name(enum life life); /* "weights" */

#endif
