/* sizing.h - what a job will need, before it is queued. */
#ifndef SERVER_SIZING_H
#define SERVER_SIZING_H

#include "server/app.h"
#include "server/machine.h"
#include "trainer/spec.h"

struct sizing {
    int64_t memory_bytes, parameters; /* 0 where not known                                */
    int64_t device_bytes;             /* on each of `devices`, for placement              */
    int devices;
};

/* A job has a rank on each of its devices; they are alike, so each device must have what the rank that needs most takes.
 *
 * Refuse what could not fit even if all devices of the machine were in order and free. `references` as of references_find. Errors: DOES_NOT_FIT, BAD_SPEC. */
int sizing_check(const struct app *app, const struct spec *spec, const json_t *references,
                 struct sizing *out, struct err *err);

/* The answer of POST /v1/plan (routes.def). Errors: as sizing_check. */
int sizing_plan(const struct app *app, const struct spec *spec, const json_t *references,
                json_t **out, struct err *err);

/* Bytes that serving the model in a folder takes. Errors: NO_MODEL; DOES_NOT_FIT when no device of the machine has as
 * many. */
int sizing_serve(const struct settings *s, const struct machine *m, const char *dir, int64_t *bytes,
                 struct err *err);

/* Bytes of main memory of the machine; 0 when they can't be told. */
uint64_t sizing_machine(void);

#endif
