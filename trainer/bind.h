/* bind.h - where the calling process runs and has its memory. */
#ifndef TRAINER_BIND_H
#define TRAINER_BIND_H

#include "trainer/protocol.h"

/* Run on the cores of the rank's place only, threads that are started later too, and take memory from its node as long as
 * that has any; on all of the plan's for rank -1, and where ranks have no places. What the system refuses is told in one line on stderr, and the run goes on unbound. */
void bind_process(const struct attempt_plan *plan, int rank);

#endif
