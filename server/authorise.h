/* authorise.h - who may do what: one function, one table (rights.def), everything else is refused.
 *
 *    viewer   sees what is visible lab-wide: jobs, curves, queue, machine; changes nothing
 *    member   that, and own files, jobs, models
 *    admin    everything
 */
#ifndef SERVER_AUTHORISE_H
#define SERVER_AUTHORISE_H

#include "server/auth.h"

enum deed {
    DEED_SEE_JOB,    /* object, curve, events, place in the queue              */
    DEED_READ_JOB,   /* log, checkpoints: the owner's, like files              */
    DEED_CHANGE_JOB, /* cancel, save, pause, resume, order among one's own     */
    DEED_RAISE_JOB,  /* priority to urgent, another user's place               */
    DEED_SUBMIT,     /* jobs, files, arrays, answers of models                 */
    DEED_MANAGE,     /* users, limits, quarantine, reservations, audit log     */
    DEED_COUNT
};

/* Whether `who` may do it to a thing of `owner_id` that is private or not. */
bool may_do(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private);

/* FORBIDDEN with a sentence, or NOT_FOUND where `who` may not even know of the thing; `what` names it in the
 * latter, as "job job-...". 0 when it is allowed. */
int authorise(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private,
              const char *what, struct err *err);

#endif
