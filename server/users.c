/* users.c - what a user is, may hold, and uses now. */
#include "server/users.h"

#include <string.h>

#include "server/queue.h"
#include "trainer/base/json.h"

enum { AS_IT_IS = -1, TAKEN_BACK = -2, WEIGHT_MOST = 1000, LIMITS = 3 };

static const struct {
    const char *name;
    int64_t low, high;
} limit_fields[LIMITS] = {
    {"max_devices", 0, 64}, {"max_running", 0, 64}, {"max_queued", 1, 1000000}};

int limits_of(sqlite3 *db, int64_t user_id, const struct settings *s, struct limits *out,
              struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT weight, coalesce(max_devices,?), coalesce(max_running,?),"
                 " coalesce(max_queued,?) FROM users WHERE id=?",
                 "iiii", s->user_devices, s->user_running, s->max_jobs, user_id));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = FAIL(err, ERR_NOT_FOUND, "there is no such user");
    }
    if (rc == 0) {
        *out = (struct limits){.weight = sqlite3_column_double(q, 0),
                               .max_devices = sqlite3_column_int64(q, 1),
                               .max_running = sqlite3_column_int64(q, 2),
                               .max_queued = sqlite3_column_int64(q, 3)};
    }
    sqlite3_finalize(q);
    return rc;
}

/* What the user's jobs do and hold. */
static int read_use(sqlite3 *db, int64_t user_id, int64_t now, json_t **out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(
        &q, db, err,
        "SELECT (SELECT COUNT(*) FROM jobs INDEXED BY jobs_live_of WHERE user_id=?1"
        "  AND state IN('starting','running','stopping')"
        "  AND state NOT IN('succeeded','failed','cancelled')),"
        " (SELECT COUNT(*) FROM jobs INDEXED BY jobs_live_of WHERE user_id=?1 AND state='queued'"
        "  AND state NOT IN('succeeded','failed','cancelled')),"
        " (SELECT COUNT(*) FROM leases l JOIN jobs j ON j.seq=l.job_seq WHERE j.user_id=?1),"
        " (SELECT decayed FROM usage WHERE user_id=?1),"
        " (SELECT at FROM usage WHERE user_id=?1)",
        "i", user_id));
    int rc = db_next(q, &row, err);
    if (rc == 0) {
        const double used =
            queue_decay(sqlite3_column_double(q, 3), sqlite3_column_int64(q, 4), now);
        *out = json_pack("{s:I, s:I, s:I, s:I}", "running", (json_int_t)sqlite3_column_int64(q, 0),
                         "waiting", (json_int_t)sqlite3_column_int64(q, 1), "devices_held",
                         (json_int_t)sqlite3_column_int64(q, 2), "usage_s", (json_int_t)used);
        rc = *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a user");
    }
    sqlite3_finalize(q);
    return rc;
}

static int read_row(sqlite3 *db, int64_t user_id, json_t **out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, db, err,
                 "SELECT id, 'user' AS object, name, role, disabled, created_at, weight,"
                 " max_devices, max_running, max_queued FROM users WHERE id=?",
                 "i", user_id));
    int rc = db_next(q, &row, err);
    if (rc == 0 && !row) {
        rc = FAIL(err, ERR_NOT_FOUND, "there is no such user");
    }
    if (rc == 0) {
        *out = db_row_json(q);
        rc = *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a user");
    }
    sqlite3_finalize(q);
    return rc;
}

int user_object(sqlite3 *db, int64_t user_id, const struct settings *s, int64_t now, json_t **out,
                struct err *err)
{
    struct limits l = {0};
    json_t *use = NULL, *user = NULL;

    *out = NULL;
    TRY(limits_of(db, user_id, s, &l, err));
    TRY(read_use(db, user_id, now, &use, err));
    const int rc = read_row(db, user_id, &user, err);
    if (rc != 0) {
        json_decref(use);
        return rc;
    }
    const bool disabled = json_integer_value(json_object_get(user, "disabled")) != 0;
    int bad = json_object_set_new(user, "disabled", json_boolean(disabled));
    bad |= json_object_set_new(user, "use", use);
    bad |= json_object_set_new(
        user, "limits",
        json_pack("{s:I, s:I, s:I}", "max_devices", (json_int_t)l.max_devices, "max_running",
                  (json_int_t)l.max_running, "max_queued", (json_int_t)l.max_queued));
    if (bad != 0) {
        json_decref(user);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a user");
    }
    *out = user;
    return 0;
}

int user_change_read(struct user_change *out, const json_t *body, struct err *err)
{
    const struct fields f = {body, "", ERR_BAD_REQUEST};
    const char *role = NULL;
    bool disabled = false;

    *out = (struct user_change){.role = ROLE_COUNT, .disabled = -1};
    TRY(fields_text(&f, "role", FIELD_OPTIONAL, &role, err));
    if (role != NULL) {
        out->role = role_from_word(role);
        if (out->role == ROLE_COUNT) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "role", "role must be admin, member or viewer");
        }
    }
    TRY(fields_bool(&f, "disabled", FIELD_OPTIONAL, &disabled, err));
    if (json_is_boolean(json_object_get(body, "disabled"))) {
        out->disabled = disabled;
    }
    TRY(fields_number(&f, "weight", FIELD_OPTIONAL, 0.001, WEIGHT_MOST, &out->weight, err));
    for (int i = 0; i < LIMITS; i++) {
        out->limits[i] =
            json_is_null(json_object_get(body, limit_fields[i].name)) ? TAKEN_BACK : AS_IT_IS;
        TRY(fields_integer(&f, limit_fields[i].name, FIELD_OPTIONAL, limit_fields[i].low,
                           limit_fields[i].high, &out->limits[i], err));
    }
    return 0;
}

/* Somebody must be left who can undo the change. */
static int check_admins(struct tx *tx, struct err *err)
{
    int64_t admins = 0;

    TRY(db_integer(&admins, 0, tx->db, err,
                   "SELECT COUNT(*) FROM users WHERE role='admin' AND NOT disabled", ""));
    return admins > 0 ? 0
                      : FAIL(err, ERR_BAD_STATE,
                             "this is the last admin who is not disabled; make another user admin "
                             "first");
}

int user_change_apply(struct tx *tx, int64_t user_id, const struct user_change *c, enum role *was,
                      struct err *err)
{
    static const char *const set[LIMITS] = {"UPDATE users SET max_devices=? WHERE id=?",
                                            "UPDATE users SET max_running=? WHERE id=?",
                                            "UPDATE users SET max_queued=? WHERE id=?"};
    static const char *const take_back[LIMITS] = {"UPDATE users SET max_devices=NULL WHERE id=?",
                                                  "UPDATE users SET max_running=NULL WHERE id=?",
                                                  "UPDATE users SET max_queued=NULL WHERE id=?"};
    json_t *before = NULL;

    TRY(read_row(tx->db, user_id, &before, err));
    *was = role_from_word(json_string_value(json_object_get(before, "role")));
    json_decref(before);
    TRY(db_run(tx->db, err,
               "UPDATE users SET role=coalesce(?,role), disabled=coalesce(NULLIF(?,-1),disabled),"
               " weight=coalesce(NULLIF(?,0.0),weight) WHERE id=?",
               "siri", c->role == ROLE_COUNT ? NULL : role_word(c->role), (int64_t)c->disabled,
               c->weight, user_id));
    for (int i = 0; i < LIMITS; i++) {
        if (c->limits[i] == TAKEN_BACK) {
            TRY(db_run(tx->db, err, take_back[i], "i", user_id));
        } else if (c->limits[i] != AS_IT_IS) {
            TRY(db_run(tx->db, err, set[i], "ii", c->limits[i], user_id));
        }
    }
    return check_admins(tx, err);
}
