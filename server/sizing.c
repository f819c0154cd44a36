/* sizing.c - what a job will need. The planner is not linked yet: nothing is known, nothing refused. */
#include "server/sizing.h"

int sizing_check(const struct app *app, const struct spec *spec, const json_t *references,
                 struct sizing *out, struct err *err)
{
    (void)app;
    (void)spec;
    (void)references;
    (void)err;
    *out = (struct sizing){0};
    return 0;
}

int sizing_plan(const struct app *app, const struct spec *spec, const json_t *references,
                json_t **out, struct err *err)
{
    (void)app;
    (void)spec;
    (void)references;
    *out = NULL;
    return FAIL(err, ERR_BAD_STATE, "sizing is not built in");
}
