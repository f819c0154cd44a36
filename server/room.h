/* room.h - how much of a device's memory a job may have, now and when the run that is there has left. Pure.
 *
 * What processes outside hold is nobody's to promise: it counts as theirs until they are gone, whether a run is on the
 * device or not. Memory of a card that no process owns up to shows only where no run is.
 */
#ifndef SERVER_ROOM_H
#define SERVER_ROOM_H

#include "server/machine.h"

/* Bytes that listed processes outside hold; of one that does not say how many all that are used. */
uint64_t room_foreign(const struct device *d, const struct device_now *now);

/* Do others compute on the card? A display takes a little of it, and is not meant. */
bool room_is_busy(const struct device *d, const struct device_now *now);

/* Of a device with memory of its own that no run holds. `capacity`: what jobs may have when nobody is there. */
uint64_t room_now(const struct device *d, const struct device_now *now, uint64_t capacity);

/* Of one that a run holds, once it has left. `is_told`: the description says it, runs do not show in it but by name. */
uint64_t room_after_run(const struct device *d, const struct device_now *now, uint64_t capacity,
                        bool is_told);

/* Main memory, which CPU slots share. */
struct main_memory {
    uint64_t free;      /* available, as the system says it                              */
    uint64_t touched;   /* by runs, at most what they were granted                       */
    uint64_t untouched; /* what they were granted besides                                */
    uint64_t loaned;    /* capacity of slots that models are on, which leave when asked  */
};

/* Of a CPU slot that no run holds; and of one that is held, once runs and models have left. */
uint64_t room_slot_now(const struct main_memory *m, uint64_t capacity);
uint64_t room_slot_after(const struct main_memory *m, uint64_t capacity);

#endif
