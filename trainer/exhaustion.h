/* exhaustion.h - did the machine run out of memory? Asked when a rank was killed, since the system tells nobody why.
 *
 * Evidence is, within the last EXHAUSTION_LOOKS looks: the counter of kills for memory of the attempt's control
 * group grew, or where that is not counted the machine's in /proc/vmstat; or hardly any memory was available.
 */
#ifndef TRAINER_EXHAUSTION_H
#define TRAINER_EXHAUSTION_H

#include <stdbool.h>
#include <stdint.h>

enum { EXHAUSTION_LOOKS = 10, EXHAUSTION_PAUSE_MS = 1000 }; /* the caller looks that often */

struct exhaustion {
    const char *root, *group;        /* borrowed */
    int looks;                       /* so far   */
    int64_t kills[EXHAUSTION_LOOKS]; /* a ring   */
    int64_t free[EXHAUSTION_LOOKS];  /* bytes    */
    int64_t total;                   /* bytes; 0: not known */
};

/* `root` is "" (tests: a folder with proc/vmstat and proc/meminfo), `group` of group_make or "". */
void exhaustion_begin(struct exhaustion *x, const char *root, const char *group);
void exhaustion_look(struct exhaustion *x);

/* Looks once more and judges. */
bool exhaustion_found(struct exhaustion *x);

/* The least memory that was available in those looks, bytes; -1 where the system does not say. */
int64_t exhaustion_free(const struct exhaustion *x);

#endif
