/* memory.h - the memory behind a layout.
 *
 * One private mapping per region, on huge pages where the system gives them, touched before the first
 * step: the first touch of ordinary pages costs 3.5 s per GiB on some machines (reference/cpu.md).
 */
#ifndef TRAINER_MEMORY_H
#define TRAINER_MEMORY_H

#include "trainer/base/err.h"
#include "trainer/layout.h"

struct memory {
    void *base[LIFE_COUNT]; /* NULL for an empty region */
    size_t bytes[LIFE_COUNT];
};

/* Map what `lo` has measured, filled with zeros. Errors: NO_MEMORY naming the largest region. */
int memory_open(struct memory *out, const struct layout *lo, struct err *err);
void memory_close(struct memory *mem);

#endif
