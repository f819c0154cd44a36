/* references.h - what the words of a request stand for on this machine.
 *
 *    training_file, validation_file   a file id of the user, or root:path
 *    model, tokenizer                 root:path, or JOB or JOB:STEP of an own run
 *
 * They are looked up once, at submit, and kept with the job as
 * {field: {"path", "bytes", "modified_ns", "file" (id, when it is one)}}; folders have a path only.
 */
#ifndef SERVER_REFERENCES_H
#define SERVER_REFERENCES_H

#include "server/app.h"
#include "server/auth.h"
#include "server/roots.h"
#include "trainer/protocol.h"
#include "trainer/spec.h"

/* Errors, each with the field as param: BAD_TRAINING_FILE, BAD_VALIDATION_FILE, NO_MODEL, BAD_SPEC. */
int references_find(const struct app *app, const struct identity *who, const struct spec *spec,
                    json_t **out, struct err *err);

/* The folder of a model that is to answer: root:path, JOB, JOB:STEP or JOB:best. Errors: NOT_FOUND (param model). */
int references_model(const struct app *app, const struct identity *who, const char *name,
                     char path[ROOT_PATH], struct err *err);

/* Enter them into the plan of an attempt. Errors: BAD_TRAINING_FILE, BAD_VALIDATION_FILE when a file is
 * not what it was at submit. */
int references_plan(const json_t *references, struct attempt_plan *plan, struct err *err);

#endif
