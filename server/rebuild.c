/* rebuild.c - a new store from the job folders. */
#include "server/rebuild.h"

int rebuild(const struct settings *s, struct err *err)
{
    (void)s;
    return FAIL(err, ERR_BAD_STATE, "rebuild is not built in");
}
