/* run_plan.h - what an attempt is given, written right before its launcher is started. */
#ifndef SERVER_RUN_PLAN_H
#define SERVER_RUN_PLAN_H

#include "server/app.h"
#include "server/inventory.h"
#include "server/jobs.h"

/* Write plan.json: inputs, cores and threads of the devices, the memory that was planned. *fits is false,
 * and nothing is written, when by `reading` the devices have less room than the job was planned with, or
 * may not be used any more. Errors: of references_plan, IO, DISK_FULL. */
int run_plan_write(const struct app *app, const char *dir, const struct job_ref *job,
                   uint64_t devices, const struct reading *reading, bool *fits, struct err *err);

#endif
