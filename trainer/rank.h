/* rank.h - a run from the inside: load, train, evaluate, save, leave. */
#ifndef TRAINER_RANK_H
#define TRAINER_RANK_H

#include "trainer/launch.h"

/* The two steps of a job (launch.h). */
int rank_prepare(const struct job_folder *job, int rank, struct events *events, struct err *err);
int rank_run(const struct job_folder *job, int rank, struct events *events, struct err *err);

#endif
