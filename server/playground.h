/* playground.h - models that answer on devices that no job needs.
 *
 * One thread: it starts a process for a model that is asked (model_process.h), hands requests to it and
 * answers back (talk.h), tells models that nobody asks to leave when another needs their place, and those
 * on a device that a job is to have: those that answer get serve_grace_s to end. A device that a model is on
 * is lent, not leased: the supervisor says which ones may be, and nothing of it survives honed.
 */
#ifndef SERVER_PLAYGROUND_H
#define SERVER_PLAYGROUND_H

#include "server/app.h"
#include "server/machine.h"
#include "server/talk.h"

struct playground;

/* Errors: IO, NO_MEMORY. */
int playground_open(struct playground **out, const struct app *app, struct err *err);

/* End all talks and take no new ones; then wait until their connections are gone (http_close). */
void playground_shut(struct playground *p);

/* End the models and the thread. NULL is allowed. */
void playground_close(struct playground *p);

/* Devices that models are on. None is taken, until playground_lend is called. */
uint64_t playground_hold(struct playground *p);

/* Devices that models may be loaded on, and those of which they have to leave for a job. */
struct offer {
    uint64_t spare, wanted;
    uint64_t room[MACHINE_DEVICES]; /* bytes, where no model is loaded */
};

/* End playground_hold. `offer` NULL: as before. Waits a moment for models to leave wanted devices. */
void playground_lend(struct playground *p, const struct offer *offer);

/* Ask the model in a folder; *ask is taken over. Errors: as talk_begin. */
int playground_ask(struct playground *p, struct talk **out, struct openai_ask *ask, const char *dir,
                   struct err *err);

#endif
