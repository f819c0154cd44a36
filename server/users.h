/* users.h - what a user is, may hold, and uses now.
 *
 * A limit is NULL in the store where the settings' counts, so that a change of the settings is a change for
 * all who were given nothing else. Lowering a limit ends nothing: it counts for what starts or is submitted
 * from then on.
 */
#ifndef SERVER_USERS_H
#define SERVER_USERS_H

#include "server/auth.h"
#include "server/settings.h"

struct limits {
    double weight;       /* of fair share; 1 unless an admin gave another                */
    int64_t max_devices; /* held at a time by running jobs; 0: no limit                  */
    int64_t max_running; /* jobs that run at a time; 0: no limit                         */
    int64_t max_queued;  /* jobs that have not ended; what submit refuses to exceed      */
};

/* What counts for the user: his own limits, or those of the settings. Errors: NOT_FOUND; of the store. */
int limits_of(sqlite3 *db, int64_t user_id, const struct settings *s, struct limits *out,
              struct err *err);

/* {id, object, name, role, disabled, created_at, weight, max_devices, max_running, max_queued (own ones or
 * null), limits {those that count}, use {running, waiting, devices_held, usage_s (device seconds, of which half
 * is forgotten every 7 days)}}; a new reference. Errors: NOT_FOUND. */
int user_object(sqlite3 *db, int64_t user_id, const struct settings *s, int64_t now, json_t **out,
                struct err *err);

/* The fields of a user that an admin sets, read from an object that may have others too: role, disabled, weight,
 * max_devices, max_running, max_queued. Not all need be there; a limit that is null is taken back.
 * Errors: BAD_REQUEST naming the field. */
struct user_change {
    enum role role; /* ROLE_COUNT: as it is                                */
    int disabled;   /* -1: as it is                                        */
    double weight;  /* 0: as it is                                         */
    int64_t limits[3];
};
int user_change_read(struct user_change *out, const json_t *body, struct err *err);

/* Apply it; *was is the role before. Errors: BAD_STATE when nobody would be left who is an enabled admin. */
int user_change_apply(struct tx *tx, int64_t user_id, const struct user_change *c, enum role *was,
                      struct err *err);

#endif
