/* playground.h - models that answer while no job needs the machine.
 *
 * One thread: it starts a process for a model that is asked (model_process.h), hands requests to it and
 * answers back (talk.h), tells models that nobody asks to leave when another needs their place, and all of
 * them when a job is to run: those that answer get serve_grace_s to end. Nothing of it survives honed.
 */
#ifndef SERVER_PLAYGROUND_H
#define SERVER_PLAYGROUND_H

#include "server/app.h"
#include "server/talk.h"

struct playground;

/* Errors: IO, NO_MEMORY. */
int playground_open(struct playground **out, const struct app *app, struct err *err);

/* End all talks and take no new ones; then wait until their connections are gone (http_close). */
void playground_shut(struct playground *p);

/* End the models and the thread. NULL is allowed. */
void playground_close(struct playground *p);

/* `wanted`: a job needs the machine, now or next. True when no model is loaded; when there is one, it is
 * waited for a moment. */
bool playground_make_room(struct playground *p, bool wanted);

/* Ask the model in a folder; *ask is taken over. Errors: as talk_begin. */
int playground_ask(struct playground *p, struct talk **out, struct openai_ask *ask, const char *dir,
                   struct err *err);

#endif
