/* test_reservations.c - windows in which devices are kept: what is read, what may not overlap, which runs it meets. */
#include "server/reservations.h"

#include <stdio.h>
#include <string.h>

#include "tests/server.h"

enum { NOW = 1000000 };

static struct machine machine;
static struct store *store;

static bool reads(struct reservation *r, const char *text, enum err_code code, const char *param)
{
    struct err err = {0};
    json_t *body = json_loads(text, 0, NULL);

    CHECK(body != NULL, "%s", text);
    const int rc = reservation_read(r, &machine, body, NOW, &err);
    EXPECT(rc == (int)code && strcmp(err.param, param) == 0);
    json_decref(body);
    return rc == 0;
}

static void reads_devices_and_times(void)
{
    struct reservation r;

    EXPECT(reads(&r, "{\"to_at\":1000500,\"devices\":\"all\"}", 0, ""));
    EXPECT(r.from_at == NOW && r.to_at == 1000500 && r.devices == 7 && r.user == NULL);
    EXPECT(
        reads(&r, "{\"from_at\":999941,\"to_at\":1000500,\"devices\":[\"cpu2\",\"cpu0\"]}", 0, ""));
    EXPECT(r.from_at == 999941 && r.devices == 5);
    EXPECT(reads(&r, "{\"from_at\":1000500,\"to_at\":32622400,\"devices\":[\"cpu1\"]}", 0, ""));
}

static void refuses_times_and_devices_that_make_no_sense(void)
{
    struct reservation r;

    EXPECT(!reads(&r, "{\"devices\":\"all\"}", ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"to_at\":\"later\",\"devices\":\"all\"}", ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"to_at\":1000000,\"devices\":\"all\"}", ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"to_at\":32622401,\"devices\":\"all\"}", ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"from_at\":1000500,\"to_at\":32622401,\"devices\":\"all\"}",
                  ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"to_at\":99999999999999,\"devices\":\"all\"}", ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"from_at\":999939,\"to_at\":1000500,\"devices\":\"all\"}", ERR_BAD_REQUEST,
                  "from_at"));
    EXPECT(!reads(&r, "{\"from_at\":1000600,\"to_at\":1000500,\"devices\":\"all\"}",
                  ERR_BAD_REQUEST, "to_at"));
    EXPECT(!reads(&r, "{\"to_at\":1000500}", ERR_BAD_REQUEST, "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":\"some\"}", ERR_BAD_REQUEST, "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":[]}", ERR_BAD_REQUEST, "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":[1]}", ERR_BAD_REQUEST, "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":[\"cpu0\",\"cpu0\"]}", ERR_BAD_REQUEST,
                  "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":[\"cpu3\"]}", ERR_NOT_FOUND, "devices"));
    EXPECT(!reads(&r, "{\"to_at\":1000500,\"devices\":\"all\",\"note\":\"a\\nb\"}", ERR_BAD_REQUEST,
                  "note"));
    EXPECT(
        !reads(&r, "{\"to_at\":1000500,\"devices\":\"all\",\"user\":7}", ERR_BAD_REQUEST, "user"));
}

struct asked {
    struct reservation r;
    int64_t now;
};

static int do_add(struct tx *tx, void *argument, struct err *err)
{
    struct asked *a = argument;

    return reservation_add(tx, &a->r, &machine, a->now, err);
}

/* The object of a new reservation, NULL when it is refused with `code`. */
static json_t *add(int64_t from_at, int64_t to_at, uint64_t devices, const char *user, int64_t now,
                   enum err_code code)
{
    struct asked a = {{.from_at = from_at,
                       .to_at = to_at,
                       .devices = devices,
                       .user = user,
                       .note = "for a test",
                       .by = "root"},
                      now};
    struct err err = {0};

    EXPECT(store_write(store, do_add, &a, &err) == (int)code);
    EXPECT((a.r.object != NULL) == (code == 0));
    return a.r.object;
}

static int clear(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    return db_run(tx->db, err, "DELETE FROM reservations", "");
}

static int count(sqlite3 *db, void *out, struct err *err)
{
    return db_integer(out, 0, db, err, "SELECT COUNT(*) FROM reservations", "");
}

static void a_device_is_reserved_once_at_a_time(void)
{
    struct err err = {0};
    int64_t left = 0;

    EXPECT(store_write(store, clear, NULL, &err) == 0);
    json_t *first = add(NOW + 100, NOW + 200, 3, NULL, NOW, 0);
    EXPECT(json_array_size(json_object_get(first, "devices")) == 2);
    EXPECT(json_is_null(json_object_get(first, "user")));
    json_decref(first);
    (void)add(NOW + 150, NOW + 160, 2, NULL, NOW, ERR_BAD_STATE);
    (void)add(NOW, NOW + 101, 1, "ann", NOW, ERR_BAD_STATE);
    (void)add(NOW + 199, NOW + 300, 1, NULL, NOW, ERR_BAD_STATE);
    json_decref(add(NOW, NOW + 100, 3, NULL, NOW, 0));
    json_decref(add(NOW + 200, NOW + 300, 3, NULL, NOW, 0));
    json_decref(add(NOW + 100, NOW + 200, 4, NULL, NOW, 0));
    (void)add(NOW, NOW + 50, 4, "nobody", NOW, ERR_NOT_FOUND);
    EXPECT(store_read(store, count, &left, &err) == 0 && left == 4);
    json_decref(add(NOW + 900, NOW + 950, 7, NULL, NOW + 200, 0));
    EXPECT(store_read(store, count, &left, &err) == 0 && left == 2);
}

/* Ann's run holds cpu1 since NOW and may hold it for 500 seconds more. */
static int add_run(struct tx *tx, void *unused, struct err *err)
{
    (void)unused;
    TRY(db_run(tx->db, err, "UPDATE jobs SET state='running', time_limit_s=600, ran_s=100", ""));
    TRY(db_run(tx->db, err,
               "INSERT INTO attempts(job_seq, n, devices, device_count, started_at)"
               " VALUES(1,1,'cpu1',1,?)",
               "i", (int64_t)NOW));
    return db_run(tx->db, err,
                  "INSERT INTO leases(device, job_seq, attempt, granted_at) VALUES('cpu1',1,1,?)",
                  "i", (int64_t)NOW);
}

/* How many runs the answer lists. */
static size_t overlaps(int64_t from_at, uint64_t devices, const char *user)
{
    struct err err = {0};

    EXPECT(store_write(store, clear, NULL, &err) == 0);
    json_t *object = add(from_at, from_at + 10, devices, user, NOW, 0);
    const size_t n = json_array_size(json_object_get(object, "overlaps"));
    json_decref(object);
    return n;
}

static void runs_that_may_last_into_it_are_listed(void)
{
    struct err err = {0};

    EXPECT(store_write(store, add_run, NULL, &err) == 0);
    EXPECT(overlaps(NOW + 499, 7, NULL) == 1);
    EXPECT(overlaps(NOW + 500, 7, NULL) == 0);
    EXPECT(overlaps(NOW, 2, NULL) == 1);
    EXPECT(overlaps(NOW, 5, NULL) == 0);
    EXPECT(overlaps(NOW, 7, "ann") == 0);
}

int main(void)
{
    machine.device_count = 3;
    for (int d = 0; d < machine.device_count; d++) {
        (void)snprintf(machine.devices[d].id, sizeof machine.devices[d].id, "cpu%d", d);
    }
    scratch_make();
    store = open_store_with_job("reservations", "job-aaaaaaaaaaaaaa");
    RUN(reads_devices_and_times);
    RUN(refuses_times_and_devices_that_make_no_sense);
    RUN(a_device_is_reserved_once_at_a_time);
    RUN(runs_that_may_last_into_it_are_listed);
    store_close(store);
    scratch_remove();
    return tap_done();
}
