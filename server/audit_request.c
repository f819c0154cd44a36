/* audit_request.c - which requests are written into the audit log, and as what. */
#include "server/audit_request.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/caretaker.h"
#include "server/guard.h"

/* These take a body and change nothing. */
static handler *const harmless[] = {handle_plan, handle_preview, handle_completions,
                                    handle_chat_completions};

static bool changes(const struct request *rq)
{
    if (rq->in->method == METHOD_GET || rq->in->method == METHOD_HEAD) {
        return false;
    }
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        if (rq->route->call == harmless[i]) {
            return false;
        }
    }
    return true;
}

static bool counts(const struct request *rq, int rc)
{
    struct timespec now;

    if (rq->route == NULL) {
        return false;
    }
    if (rq->route->call == handle_login && (rc == ERR_UNAUTHORIZED || rc == ERR_TOO_MANY)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        return guard_is_news(rq->app->guard, rq->peer, now.tv_sec);
    }
    return rc == 0 ? changes(rq) : rc == ERR_FORBIDDEN && rq->who->user_id != 0;
}

/* What the address names, else what was made: its id, or its name where the id is a number. */
static void name_object(char out[AUDIT_TEXT], const struct request *rq, const struct reply *rp)
{
    const json_t *id = json_object_get(rp->body, "id");
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < ROUTE_PARAMS && rq->param[i] != NULL && used < AUDIT_TEXT / 2; i++) {
        used += (size_t)snprintf(out + used, AUDIT_TEXT - used, "%s%.80s", i > 0 ? "/" : "",
                                 rq->param[i]);
    }
    if (used == 0 && id != NULL) {
        const json_t *name = json_is_string(id) ? id : json_object_get(rp->body, "name");
        used += (size_t)snprintf(out, AUDIT_TEXT, "%.120s",
                                 json_is_string(name) ? json_string_value(name) : "");
    }
    if (rp->changed[0] != '\0') {
        (void)snprintf(out + used, AUDIT_TEXT - used, "%s%s", used > 0 ? " " : "", rp->changed);
    }
}

void audit_request(const struct request *rq, const struct reply *rp, int rc, bool wait)
{
    char object[AUDIT_TEXT];
    struct identity who = *rq->who;

    if (!counts(rq, rc)) {
        return;
    }
    name_object(object, rq, rp);
    if (who.user_id == 0) { /* who signs in is known when he has */
        const char *name =
            json_string_value(json_object_get(json_object_get(rp->body, "user"), "name"));
        (void)snprintf(who.name, sizeof who.name, "%s", rc == 0 && name != NULL ? name : "");
    }
    const struct audit_entry e = {
        .who = &who,
        .address = rq->peer,
        .action = rq->route->name,
        .object = object,
        .result = rc == 0 ? "ok" : err_word((enum err_code)rc),
    };
    caretaker_note(rq->app->caretaker, &e, wait);
}
