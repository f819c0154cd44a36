/* routes_users.c - /v1/users: who is let in, as what, and with which limits; /v1/me. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/list.h"
#include "server/stream.h"
#include "server/supervise.h"
#include "server/users.h"
#include "trainer/base/json.h"

/* A user and what becomes of him. */
struct user_order {
    const struct request *rq;
    const char *name;
    struct user_change change;
    enum role was;
    int64_t id;
    struct new_token token;
    json_t *user; /* out: a new reference */
};

static int read_user(sqlite3 *db, void *argument, struct err *err)
{
    struct user_order *o = argument;

    if (o->name != NULL) {
        TRY(user_find(db, o->name, &o->id, err));
    }
    return user_object(db, o->id, o->rq->app->settings, time(NULL), &o->user, err);
}

int handle_me(const struct request *rq, struct reply *rp, struct err *err)
{
    struct user_order o = {.rq = rq, .id = rq->who->user_id};

    TRY(store_read(rq->app->store, read_user, &o, err));
    rp->body = o.user;
    if (rq->who->csrf[0] != '\0') {
        (void)json_object_set_new(rp->body, "csrf", json_string(rq->who->csrf));
    }
    return 0;
}

/* The list's rows first, what each of them uses then: "use" and "limits" come from the settings too. */
static int complete_users(sqlite3 *db, void *argument, struct err *err)
{
    struct user_order *o = argument;
    json_t *row = NULL;
    size_t i = 0;

    json_array_foreach(o->user, i, row)
    {
        json_t *whole = NULL;
        TRY(user_object(db, json_integer_value(json_object_get(row, "id")), o->rq->app->settings,
                        time(NULL), &whole, err));
        if (json_array_set_new(o->user, i, whole) != 0) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a list");
        }
    }
    return 0;
}

int handle_users_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = "id",
        .from = "users WHERE ?1=0 AND ?2 IS NULL",
        .order = "id",
        .number = "SELECT id FROM users WHERE id=?",
        .limit = 100,
        .most = 1000,
    };
    struct user_order o = {.rq = rq};

    TRY(list_reply(rq, rp, &l, err));
    o.user = json_object_get(rp->body, "data");
    return store_read(rq->app->store, complete_users, &o, err);
}

static int do_user_add(struct tx *tx, void *argument, struct err *err)
{
    struct user_order *o = argument;
    const enum role role = o->change.role == ROLE_COUNT ? ROLE_MEMBER : o->change.role;

    TRY(user_add(tx, o->name, role, &o->id, err));
    TRY(user_change_apply(tx, o->id, &o->change, &o->was, err));
    TRY(token_add(tx, o->id, "first", 0, &o->token, err));
    return user_object(tx->db, o->id, o->rq->app->settings, time(NULL), &o->user, err);
}

int handle_user_new(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"name",        "role",        "disabled",   "weight",
                                        "max_devices", "max_running", "max_queued", NULL};
    const struct fields fields = {rq->body, "", ERR_BAD_REQUEST};
    struct user_order o = {.rq = rq};

    TRY(request_only(rq, known, err));
    TRY(fields_text(&fields, "name", FIELD_REQUIRED, &o.name, err));
    TRY(user_change_read(&o.change, rq->body, err));
    TRY(store_write(rq->app->store, do_user_add, &o, err));
    rp->status = 201;
    rp->body = o.user;
    return json_object_set_new(rp->body, "token", json_string(o.token.text)) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "no memory for a user");
}

/* For the audit log: the fields as they were sent; they are known ones with values that were checked. */
static void note_change(struct reply *rp, const struct request *rq)
{
    char *text = json_dumps(rq->body, JSON_COMPACT | JSON_ENSURE_ASCII);

    (void)snprintf(rp->changed, sizeof rp->changed, "%s", text != NULL ? text : "");
    free(text);
}

static int do_user_change(struct tx *tx, void *argument, struct err *err)
{
    struct user_order *o = argument;

    TRY(user_find(tx->db, o->name, &o->id, err));
    TRY(user_change_apply(tx, o->id, &o->change, &o->was, err));
    return user_object(tx->db, o->id, o->rq->app->settings, time(NULL), &o->user, err);
}

int handle_user_change(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"role",        "disabled",   "weight", "max_devices",
                                        "max_running", "max_queued", NULL};
    struct user_order o = {.rq = rq, .name = rq->param[0]};

    TRY(request_only(rq, known, err));
    TRY(user_change_read(&o.change, rq->body, err));
    TRY(store_write(rq->app->store, do_user_change, &o, err));
    rp->body = o.user;
    note_change(rp, rq);
    supervisor_kick(rq->app->supervisor); /* what waits for a limit may start now */
    if (o.change.disabled == 1 || (o.change.role != ROLE_COUNT && o.change.role != o.was)) {
        streams_revoke_user(rq->app->streams, o.id);
    }
    return 0;
}
