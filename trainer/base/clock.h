/* clock.h - the time that only goes forward. */
#ifndef TRAINER_BASE_CLOCK_H
#define TRAINER_BASE_CLOCK_H

/* Seconds of CLOCK_MONOTONIC: for durations; it has no date and no jumps. */
double clock_seconds(void);

#endif
