/* routes_reservations.c - /v1/reservations: devices kept for a user, or for nobody. */
#include <string.h>
#include <time.h>

#include "server/inventory.h"
#include "server/list.h"
#include "server/reservations.h"
#include "server/supervise.h"

static int reservation_row(sqlite3 *db, sqlite3_stmt *row, const struct identity *who, json_t **out,
                           struct err *err)
{
    (void)db;
    (void)who;
    *out = reservation_object(row);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a reservation");
}

int handle_reservations_list(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct listing l = {
        .columns = RESERVATION_COLUMNS,
        .from = "reservations r LEFT JOIN users u ON u.id=r.user_id"
                " WHERE ?1=0 AND ?2 IS NULL AND r.to_at>CAST(strftime('%s','now') AS INTEGER)",
        .order = "r.seq",
        .number = "SELECT seq FROM reservations WHERE id=?",
        .make = reservation_row,
        .limit = 100,
        .most = RESERVATIONS_MAX,
    };

    return list_reply(rq, rp, &l, err);
}

struct reservation_order {
    const struct request *rq;
    struct reservation r;
};

static int do_add(struct tx *tx, void *argument, struct err *err)
{
    struct reservation_order *o = argument;

    return reservation_add(tx, &o->r, inventory_machine(o->rq->app->inventory), time(NULL), err);
}

int handle_reservation_new(const struct request *rq, struct reply *rp, struct err *err)
{
    static const char *const known[] = {"from_at", "to_at", "devices", "user", "note", NULL};
    struct reservation_order o = {.rq = rq};

    TRY(request_only(rq, known, err));
    TRY(reservation_read(&o.r, inventory_machine(rq->app->inventory), rq->body, time(NULL), err));
    o.r.by = rq->who->name;
    TRY(store_write(rq->app->store, do_add, &o, err));
    supervisor_kick(rq->app->supervisor);
    rp->status = 201;
    rp->body = o.r.object;
    reply_add(rp, "Location", "/v1/reservations/%s", o.r.id);
    return 0;
}

static int do_remove(struct tx *tx, void *argument, struct err *err)
{
    const struct reservation_order *o = argument;

    return reservation_remove(tx, o->rq->param[0], time(NULL), err);
}

int handle_reservation_end(const struct request *rq, struct reply *rp, struct err *err)
{
    struct reservation_order o = {.rq = rq};

    TRY(store_write(rq->app->store, do_remove, &o, err));
    supervisor_kick(rq->app->supervisor);
    rp->body =
        json_pack("{s:s, s:s, s:b}", "id", rq->param[0], "object", "reservation", "deleted", 1);
    return 0;
}
