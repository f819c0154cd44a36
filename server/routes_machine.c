/* routes_machine.c - /v1/machine, and devices that are taken out of use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/authorise.h"
#include "server/inventory.h"
#include "server/jobs.h"
#include "server/margins.h"
#include "server/route.h"
#include "server/supervise.h"
#include "server/text.h"

enum { REASON = 200 };

/* A machine on its way to who asks. */
struct look {
    const struct request *rq;
    const struct machine *machine;
    struct reading *reading;
    struct view *view;
    json_t *devices, *constants; /* borrowed */
};

static int put(json_t *object, const char *key, json_t *value, struct err *err)
{
    return json_object_set_new(object, key, value) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "no memory for a machine");
}

/* The job that holds the device, as much of it as who asks may know; null for none. */
static int add_holder(sqlite3 *db, const struct look *l, const char *id, json_t *device, bool *held,
                      struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT j.id, j.name, u.name, j.user_id, j.private FROM leases l"
                 " JOIN jobs j ON j.seq=l.job_seq JOIN users u ON u.id=j.user_id WHERE l.device=?",
                 "s", id));
    int rc = db_next(q, &row, err);
    json_t *job = json_null();
    if (rc == 0 && row) {
        const bool may = may_do(l->rq->who, DEED_SEE_JOB, sqlite3_column_int64(q, 3),
                                sqlite3_column_int(q, 4) != 0);
        job = may ? json_pack("{s:s, s:s, s:s}", "id", db_text(q, 0), "name", db_text(q, 1),
                              "owner", db_text(q, 2))
                  : json_pack("{s:n, s:n, s:n}", "id", "name", "owner");
    }
    *held = rc == 0 && row;
    sqlite3_finalize(q);
    return rc != 0 ? rc : put(device, "job", job, err);
}

static int quarantine_reason(sqlite3 *db, const char *id, char out[REASON], struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err, "SELECT reason, by_user FROM quarantine WHERE device=?", "s", id));
    const int rc = db_next(q, &row, err);
    if (rc == 0 && row) {
        const bool by = sqlite3_column_type(q, 1) != SQLITE_NULL;
        (void)snprintf(out, REASON, "%.120s%s%.64s", db_text(q, 0), by ? "; by " : "",
                       by ? db_text(q, 1) : "");
    }
    sqlite3_finalize(q);
    return rc;
}

static void busy_reason(const struct device_now *now, char out[REASON])
{
    for (int i = 0; i < now->process_count && i < DEVICE_PROCESSES; i++) {
        const struct device_process *p = &now->processes[i];
        if (!p->is_ours) {
            (void)snprintf(out, REASON, "process %lld of %s holds %.2f GiB outside Hone",
                           (long long)p->pid, p->user[0] != '\0' ? p->user : "somebody",
                           (double)p->bytes / 0x1p30);
            return;
        }
    }
}

/* One word for what may be done with it now, and why. */
static int add_state(sqlite3 *db, const struct look *l, int i, json_t *device, struct err *err)
{
    const struct device *d = &l->machine->devices[i];
    const struct device_now *now = &l->reading->now[i];
    const uint64_t bit = UINT64_C(1) << i;
    const char *state = "free";
    char reason[REASON] = "";
    bool held = false;

    TRY(add_holder(db, l, d->id, device, &held, err));
    if (now->fault == FAULT_LOST) {
        state = "lost";
        (void)snprintf(reason, sizeof reason, "%.160s", now->fault_text);
    } else if (!d->is_usable) {
        state = "unusable";
        (void)snprintf(reason, sizeof reason, "%.160s", d->reason);
    } else if ((l->reading->quarantined & bit) != 0) {
        state = "quarantined";
        TRY(quarantine_reason(db, d->id, reason, err));
    } else if (held) {
        state = "leased";
    } else if ((l->view->busy & bit) != 0) {
        state = "busy";
        busy_reason(now, reason);
    }
    TRY(put(device, "index", json_integer(i), err));
    TRY(put(device, "state", json_string(state), err));
    TRY(put(device, "reason", reason[0] != '\0' ? json_string(reason) : json_null(), err));
    TRY(put(device, "capacity_bytes", json_integer((json_int_t)l->view->capacity[i]), err));
    return put(device, "room_bytes",
               json_integer(strcmp(state, "free") == 0 ? (json_int_t)l->view->room[i] : 0), err);
}

static int read_leases(sqlite3 *db, void *argument, struct err *err)
{
    struct look *l = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;
    uint64_t held = 0;
    json_t *margins = NULL;

    TRY(db_query(&q, db, err, "SELECT device FROM leases", ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        const int i = machine_device(l->machine, db_text(q, 0));
        held |= i >= 0 ? UINT64_C(1) << i : 0;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    rc = rc != 0 ? rc : inventory_view(l->rq->app->inventory, l->reading, db, held, l->view, err);
    rc = rc != 0 ? rc : margins_json(&margins, db, err);
    rc = rc != 0 ? rc : put(l->constants, "margins", margins, err);
    for (int i = 0; rc == 0 && i < l->machine->device_count; i++) {
        rc = add_state(db, l, i, json_array_get(l->devices, (size_t)i), err);
    }
    return rc;
}

int handle_machine(const struct request *rq, struct reply *rp, struct err *err)
{
    struct look l = {.rq = rq, .machine = inventory_machine(rq->app->inventory)};
    int rc = 0;

    l.reading = calloc(1, sizeof *l.reading);
    l.view = calloc(1, sizeof *l.view);
    rp->body = inventory_json(rq->app->inventory);
    if (l.reading == NULL || l.view == NULL || rp->body == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a machine");
    } else {
        inventory_get(rq->app->inventory, l.reading);
        l.devices = json_object_get(rp->body, "devices");
        l.constants = json_object_get(rp->body, "constants");
        rc = store_read(rq->app->store, read_leases, &l, err);
    }
    free(l.reading);
    free(l.view);
    return rc;
}

int handle_machine_self_test(const struct request *rq, struct reply *rp, struct err *err)
{
    TRY(inventory_self_test(rq->app->inventory, err));
    return handle_machine(rq, rp, err);
}

/* What an administrator does with a device. */
struct order {
    const struct request *rq;
    int device;
    const char *reason; /* NULL: it is released */
};

static int write_order(struct tx *tx, void *argument, struct err *err)
{
    const struct order *o = argument;

    return o->reason != NULL ? inventory_quarantine(o->rq->app->inventory, tx, o->device, o->reason,
                                                    o->rq->who->name, err)
                             : inventory_release(o->rq->app->inventory, tx, o->device, err);
}

static int do_order(const struct request *rq, struct reply *rp, const char *reason, struct err *err)
{
    const struct machine *m = inventory_machine(rq->app->inventory);
    struct order o = {.rq = rq, .device = machine_device(m, rq->param[0]), .reason = reason};
    struct reply whole = {.fd = -1};

    if (o.device < 0) {
        return FAIL(err, ERR_NOT_FOUND, "there is no device %.60s", rq->param[0]);
    }
    TRY(store_write(rq->app->store, write_order, &o, err));
    inventory_reload(rq->app->inventory);
    supervisor_kick(rq->app->supervisor);
    TRY(handle_machine(rq, &whole, err));
    rp->body =
        json_incref(json_array_get(json_object_get(whole.body, "devices"), (size_t)o.device));
    json_decref(whole.body);
    return 0;
}

int handle_device_quarantine(const struct request *rq, struct reply *rp, struct err *err)
{
    const char *reason = json_string_value(json_object_get(rq->body, "reason"));

    if (reason == NULL || reason[0] == '\0' || strlen(reason) > 120 || !text_is_plain(reason)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "reason",
                          "reason says in up to 120 characters why the device is not to be used");
    }
    return do_order(rq, rp, reason, err);
}

int handle_device_release(const struct request *rq, struct reply *rp, struct err *err)
{
    return do_order(rq, rp, NULL, err);
}
