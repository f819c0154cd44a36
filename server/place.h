/* place.h - which devices a job gets: by memory first, then by the links between them. Pure.
 *
 * A device fits when it is free and has room for what the job needs on each device. Of all sets that fit the
 * best connected one is taken: inside one NVLink group before PCIe, inside a memory node before across;
 * then the set that leaves the best groups whole for others; then the lowest numbers. Jobs never share a
 * device.
 */
#ifndef SERVER_PLACE_H
#define SERVER_PLACE_H

#include "server/machine.h"

/* What a job needs. */
struct need {
    int devices;    /* at least 1        */
    uint64_t bytes; /* on each of them   */
};

/* What placement sees of the machine. */
struct view {
    const struct machine *machine;
    uint64_t good; /* mask: devices that may be given out at all: usable, not
                                         * quarantined, not lost                                     */
    uint64_t busy; /* mask, part of good: foreign processes hold too much now   */
    uint64_t room
        [MACHINE_DEVICES]; /* bytes for a job now: free memory less margins; where a job runs what it will leave */
    uint64_t
        capacity[MACHINE_DEVICES]; /* bytes for a job once foreign processes are gone           */
};

/* The best set of n->devices devices out of `from` that have room; 0 when none fits. */
uint64_t place_now(const struct view *v, const struct need *n, uint64_t from);

/* Could it ever fit this machine, all devices in order and free? */
bool place_ever(const struct machine *m, const uint64_t capacity[MACHINE_DEVICES],
                const struct need *n);

/* Why these devices, in a sentence: "GPUs 0 and 1, joined by 4 NVLinks". */
void place_words(char *out, size_t size, const struct machine *m, uint64_t set);

#endif
