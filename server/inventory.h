/* inventory.h - the machine and what it is like now: one thread reads it, anybody asks for a copy.
 *
 * Sources: NVML by dlopen, `nvidia-smi` as a second one, /sys and /proc for processors, memory and CPU
 * slots; or `--machine FILE`, which is read again whenever it changes. A device that is lost or has
 * uncorrectable errors is quarantined (a row, so that it stays so over a restart) until an administrator
 * releases it; one with foreign processes is busy and comes back by itself.
 */
#ifndef SERVER_INVENTORY_H
#define SERVER_INVENTORY_H

#include "server/app.h"
#include "server/machine.h"
#include "server/place.h"

struct inventory;

/* A moment. Machine and list stay as they are while honed runs: only `now` changes (a file that changes the
 * list of devices is refused with a line in the log). */
struct reading {
    int64_t at; /* seconds since 1970 */
    struct device_now now[MACHINE_DEVICES];
    uint64_t quarantined; /* mask */
    uint64_t main_free;   /* bytes of main memory that are available */
};

/* Errors: BAD_FILE (--machine), IO, NO_MEMORY. */
int inventory_open(struct inventory **out, const struct app *app, struct err *err);
void inventory_close(struct inventory *v); /* NULL is allowed */

/* Borrowed for the life of the inventory. */
const struct machine *inventory_machine(const struct inventory *v);

/* Copy the newest reading. inventory_refresh reads anew first, and waits for it: right before a launch. */
void inventory_get(struct inventory *v, struct reading *out);
void inventory_refresh(struct inventory *v, struct reading *out);

/* Measure how fast devices reach each other, now; waits up to 10 s. Placement uses it from the next start of honed on.
 * Errors: BUSY (it runs already), BAD_STATE (the machine is a file's), IO, NO_MEMORY. */
int inventory_self_test(struct inventory *v, struct err *err);

/* Set or end the quarantine of a device. Errors: NOT_FOUND for a device that there is not. */
int inventory_quarantine(struct inventory *v, struct tx *tx, int device, const char *reason,
                         const char *by_user, struct err *err);
int inventory_release(struct inventory *v, struct tx *tx, int device, struct err *err);

/* Read anew which devices are quarantined, after a commit of the above. */
void inventory_reload(struct inventory *v);

/* What placement may give out (place.h): `held` are devices that runs or models hold; their room is
 * what these will leave, without what processes outside hold there (room.h). Margins of `margins` (store) are taken off. */
int inventory_view(const struct inventory *v, const struct reading *r, sqlite3 *db, uint64_t held,
                   struct view *out, struct err *err);

/* GET /v1/machine, without leases; a new reference. NULL: no memory. */
json_t *inventory_json(struct inventory *v);

#endif
