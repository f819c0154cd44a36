/* authorise.h - who may do what: one function, one table (rights.def), everything else is refused.
 *
 *    viewer   sees what is visible lab-wide: jobs, curves, queue, machine; changes nothing
 *    member   that, and own files, jobs, models
 *    admin    everything
 *
 * What a run wrote or made (log, sample texts, checkpoints, what it said of its data) is its owner's, also when
 * the job is visible: the laboratory shares that it runs, its request and its curve.
 */
#ifndef SERVER_AUTHORISE_H
#define SERVER_AUTHORISE_H

#include "server/auth.h"

enum deed {
    DEED_SEE_JOB,     /* object, curve, events, place in the queue              */
    DEED_READ_JOB,    /* log, samples, checkpoints: the owner's, like files     */
    DEED_CHANGE_JOB,  /* cancel, save, pause, resume, order among one's own     */
    DEED_RAISE_JOB,   /* priority to urgent, another user's place               */
    DEED_READ_FILE,   /* an uploaded file and what is in it                     */
    DEED_CHANGE_FILE, /* delete it                                              */
    DEED_SUBMIT,      /* jobs, files, arrays, answers of models                 */
    DEED_MANAGE,      /* users, limits, quarantine, reservations, audit log     */
    DEED_COUNT
};

/* Whether `who` may do it to a thing of `owner_id` that is private or not. For a deed that is done to nothing
 * yet, the owner is who asks. False for NULL and for nobody (user_id 0). */
bool may_do(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private);

/* FORBIDDEN with a sentence, or NOT_FOUND where `who` may not even know of the thing; `what` names it in the
 * latter, as "job job-...". 0 when it is allowed. */
int authorise(const struct identity *who, enum deed deed, int64_t owner_id, bool is_private,
              const char *what, struct err *err);

#endif
