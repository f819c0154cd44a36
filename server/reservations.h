/* reservations.h - windows in which an administrator keeps devices for a user, or for nobody (maintenance).
 *
 * Runs are not ended for them: the queue starts nothing that would still run when a window begins (queue.h).
 * Windows that are over are removed by the next change.
 */
#ifndef SERVER_RESERVATIONS_H
#define SERVER_RESERVATIONS_H

#include <time.h>

#include "server/auth.h"
#include "server/machine.h"

enum { RESERVATIONS_MAX = 1000, RESERVATION_NOTE = 201, RESERVATION_SECONDS_MAX = 366 * 24 * 3600 };

struct reservation {
    int64_t from_at, to_at;
    uint64_t devices;   /* mask over the machine's */
    const char *user;   /* borrowed; NULL: nobody  */
    const char *note;   /* borrowed                */
    const char *by;     /* borrowed; who made it   */
    char id[RANDOM_ID]; /* out                     */
    json_t *object;     /* out: a new reference    */
};

/* Read {from_at?, to_at, devices: [ids] or "all", user?, note?}; texts are borrowed from `body`. Without from_at it
 * begins now. Errors: BAD_REQUEST, NOT_FOUND for a device that the machine does not have (param). */
int reservation_read(struct reservation *out, const struct machine *m, const json_t *body,
                     int64_t now, struct err *err);

/* The row. The object is that of routes.def, with `overlaps`: runs on its devices that may last into it.
 * Errors: NOT_FOUND (param user); BAD_STATE naming the reservation that has one of the devices in that time;
 * TOO_MANY. */
int reservation_add(struct tx *tx, struct reservation *r, const struct machine *m, int64_t now,
                    struct err *err);

/* Errors: NOT_FOUND. */
int reservation_remove(struct tx *tx, const char *id, int64_t now, struct err *err);

/* The object of a row with the columns RESERVATION_COLUMNS of reservations r LEFT JOIN users u. */
#define RESERVATION_COLUMNS                                                                 \
    "r.id, 'reservation' AS object, r.from_at, r.to_at, r.devices, u.name AS user, r.note," \
    " r.created_by, r.created_at"
json_t *reservation_object(sqlite3_stmt *row);

#endif
