/* reservations.c - windows in which an administrator keeps devices. */
#include "server/reservations.h"

#include <stdio.h>
#include <string.h>

#include "server/desk_load.h"
#include "server/text.h"
#include "trainer/base/json.h"

/* A client's clock may be a little behind ours. */
enum { BEHIND_SECONDS = 60, DEVICES_TEXT = MACHINE_DEVICES * DEVICE_ID };

static int take_device(uint64_t *mask, const struct machine *m, const json_t *id, struct err *err)
{
    const char *text = json_string_value(id);
    const int d = text != NULL ? machine_device(m, text) : -1;

    if (text == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "devices",
                          "devices is \"all\" or a list of ids of devices");
    }
    if (d < 0) {
        return FAIL_PARAM(err, ERR_NOT_FOUND, "devices",
                          "devices names one that this machine does not have");
    }
    if ((*mask >> d & 1) != 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "devices", "devices names %s twice",
                          m->devices[d].id);
    }
    *mask |= UINT64_C(1) << d;
    return 0;
}

static int read_devices(uint64_t *mask, const struct machine *m, const json_t *devices,
                        struct err *err)
{
    const char *text = json_string_value(devices);

    *mask = 0;
    if (text != NULL && strcmp(text, "all") == 0) {
        *mask =
            m->device_count >= MACHINE_DEVICES ? UINT64_MAX : (UINT64_C(1) << m->device_count) - 1;
        return 0;
    }
    if (!json_is_array(devices) || json_array_size(devices) == 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "devices",
                          "devices is \"all\" or a list of ids of devices");
    }
    for (size_t i = 0; i < json_array_size(devices); i++) {
        TRY(take_device(mask, m, json_array_get(devices, i), err));
    }
    return 0;
}

static int check_times(const struct reservation *r, int64_t now, struct err *err)
{
    if (r->from_at < now - BEHIND_SECONDS) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "from_at", "from_at has passed; now is %lld",
                          (long long)now);
    }
    if (r->to_at <= r->from_at || r->to_at <= now) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "to_at", "to_at must be after from_at and now");
    }
    if (r->to_at - now > RESERVATION_SECONDS_MAX) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "to_at", "to_at is more than a year ahead");
    }
    return 0;
}

int reservation_read(struct reservation *out, const struct machine *m, const json_t *body,
                     int64_t now, struct err *err)
{
    const struct fields f = {body, "", ERR_BAD_REQUEST};

    *out = (struct reservation){.from_at = now, .note = ""};
    TRY(fields_integer(&f, "from_at", FIELD_OPTIONAL, 0, INT64_C(4102444800), &out->from_at, err));
    TRY(fields_integer(&f, "to_at", FIELD_REQUIRED, 0, INT64_C(4102444800), &out->to_at, err));
    TRY(fields_text(&f, "user", FIELD_OPTIONAL, &out->user, err));
    TRY(fields_text(&f, "note", FIELD_OPTIONAL, &out->note, err));
    TRY(check_times(out, now, err));
    if (strlen(out->note) >= RESERVATION_NOTE || !text_is_plain(out->note)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "note",
                          "note has at most %d bytes, all of which can be shown",
                          RESERVATION_NOTE - 1);
    }
    return read_devices(&out->devices, m, json_object_get(body, "devices"), err);
}

static int prune(struct tx *tx, int64_t now, struct err *err)
{
    return db_run(tx->db, err, "DELETE FROM reservations WHERE to_at<=?", "i", now);
}

/* No device is reserved twice at a time. */
static int check_free(struct tx *tx, const struct reservation *r, const struct machine *m,
                      struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;
    int64_t count = 0;

    TRY(db_integer(&count, 0, tx->db, err, "SELECT COUNT(*) FROM reservations", ""));
    if (count >= RESERVATIONS_MAX) {
        return FAIL(err, ERR_TOO_MANY, "there are %d reservations, the most", RESERVATIONS_MAX);
    }
    TRY(db_query(&q, tx->db, err,
                 "SELECT id, devices FROM reservations WHERE from_at<? AND to_at>? ORDER BY seq",
                 "ii", r->to_at, r->from_at));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        const uint64_t both = desk_device_mask(m, db_text(q, 1)) & r->devices;
        rc = both != 0 ? FAIL_PARAM(err, ERR_BAD_STATE, "devices",
                                    "%s is reserved in that time already, by %s",
                                    m->devices[__builtin_ctzll(both)].id, db_text(q, 0))
                       : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

static void write_devices(char out[DEVICES_TEXT], const struct machine *m, uint64_t devices)
{
    size_t n = 0;

    out[0] = '\0';
    for (int d = 0; d < m->device_count; d++) {
        if ((devices >> d & 1) != 0) {
            n += (size_t)snprintf(out + n, DEVICES_TEXT - n, "%s%s", n == 0 ? "" : ",",
                                  m->devices[d].id);
        }
    }
}

json_t *reservation_object(sqlite3_stmt *row)
{
    json_t *out = db_row_json(row), *list = json_array();
    const char *at = json_string_value(json_object_get(out, "devices"));

    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ",");
        (void)json_array_append_new(list, json_stringn(at, n));
        at += n;
        at += *at == ',';
    }
    if (out == NULL || json_object_set_new(out, "devices", list) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* Runs on its devices that may last into it, each once; its own user's are at home there. */
static int list_overlaps(struct tx *tx, const struct reservation *r, int64_t user_id,
                         const struct machine *m, struct err *err)
{
    json_t *list = json_array();
    sqlite3_stmt *q = NULL;
    bool row = true;
    int64_t last = -1;

    int rc = json_object_set_new(r->object, "overlaps", list) != 0
                 ? FAIL(err, ERR_NO_MEMORY, "no memory for a reservation")
                 : db_query(&q, tx->db, err,
                            "SELECT j.seq, l.device, j.id, j.name, u.name,"
                            " a.started_at+max(j.time_limit_s-j.ran_s,0) AS ends_by_at"
                            " FROM leases l JOIN jobs j ON j.seq=l.job_seq"
                            " JOIN users u ON u.id=j.user_id"
                            " JOIN attempts a ON a.job_seq=j.seq AND a.n=l.attempt"
                            " WHERE ends_by_at>? AND j.user_id<>? ORDER BY j.seq",
                            "ii", r->from_at, user_id);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    while (rc == 0 && row) {
        const int d = machine_device(m, db_text(q, 1));
        if (d >= 0 && (r->devices >> d & 1) != 0 && sqlite3_column_int64(q, 0) != last) {
            last = sqlite3_column_int64(q, 0);
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "job",
                                                        db_text(q, 2), "name", db_text(q, 3),
                                                        "owner", db_text(q, 4), "ends_by_at",
                                                        (json_int_t)sqlite3_column_int64(q, 5)));
        }
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

static int read_back(struct tx *tx, struct reservation *r, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = false;

    TRY(db_query(&q, tx->db, err,
                 "SELECT " RESERVATION_COLUMNS " FROM reservations r"
                 " LEFT JOIN users u ON u.id=r.user_id WHERE r.id=?",
                 "s", r->id));
    int rc = db_next(q, &row, err);
    if (rc == 0) {
        r->object = reservation_object(q);
        rc = r->object != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a reservation");
    }
    sqlite3_finalize(q);
    return rc;
}

int reservation_add(struct tx *tx, struct reservation *r, const struct machine *m, int64_t now,
                    struct err *err)
{
    char devices[DEVICES_TEXT];
    int64_t user_id = 0;

    TRY(prune(tx, now, err));
    if (r->user != NULL && user_find(tx->db, r->user, &user_id, err) != 0) {
        err_about(err, "user");
        return (int)err->code;
    }
    TRY(check_free(tx, r, m, err));
    write_devices(devices, m, r->devices);
    random_id(r->id, "resv");
    TRY(db_run(tx->db, err,
               "INSERT INTO reservations(id, from_at, to_at, devices, user_id, note, created_by,"
               " created_at) VALUES(?,?,?,?,NULLIF(?,0),?,?,?)",
               "siisissi", r->id, r->from_at, r->to_at, devices, user_id, r->note, r->by, now));
    TRY(read_back(tx, r, err));
    const int rc = list_overlaps(tx, r, user_id, m, err);
    if (rc != 0) {
        json_decref(r->object);
        r->object = NULL;
    }
    return rc;
}

int reservation_remove(struct tx *tx, const char *id, int64_t now, struct err *err)
{
    TRY(db_run(tx->db, err, "DELETE FROM reservations WHERE id=?", "s", id));
    if (sqlite3_changes(tx->db) != 1) {
        return FAIL(err, ERR_NOT_FOUND, "there is no reservation %.40s", id);
    }
    return prune(tx, now, err);
}
