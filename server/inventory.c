/* inventory.c - the thread that reads what the machine is like. */
#include "server/inventory.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "server/cards.h"
#include "server/desk_load.h"
#include "server/log.h"
#include "server/margins.h"
#include "server/probe.h"
#include "server/room.h"
#include "server/self_test.h"
#include "trainer/protocol.h"

enum { TEST_S = 10, FIRST_TEST_S = 2 }; /* of the self test, at most */
enum { LOOK_MS = 1000, PATH = SETTING_TEXT + 320, MARK = 64 };

/* Begin of a key of `about`; behind it the device, and the value is a number of errors. */
#define FORGIVEN "forgiven:"

struct inventory {
    const struct app *app;
    char file[PATH];         /* "" when the machine was probed */
    struct machine *machine; /* owned; as it was at the start */
    struct cards *cards;     /* NULL: none */
    bool has_tester;
    pthread_t tester; /* the first self test of this machine */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wanted, read;
    bool closing;
    uint64_t asked, answered; /* readings: of the newest request, of `newest` */
    struct reading newest;
    struct timespec file_time; /* of the description that was read last */
    bool has_complained;       /* that it can't be read any more        */
    bool is_testing;
    struct self_test *test; /* owned; the newest */
};

/* Of a file: what it says of the moment, if the devices are still the same. */
static void read_file(struct inventory *v, struct reading *r)
{
    struct machine *m = NULL;
    struct stat s = {0};
    struct err err = {0};

    const bool changed = stat(v->file, &s) != 0 || s.st_mtim.tv_sec != v->file_time.tv_sec ||
                         s.st_mtim.tv_nsec != v->file_time.tv_nsec;
    if (!changed) {
        return;
    }
    m = malloc(sizeof *m);
    struct device_now *now = calloc(MACHINE_DEVICES, sizeof *now);
    bool same = m != NULL && now != NULL && machine_read(m, now, v->file, &err) == 0 &&
                m->device_count == v->machine->device_count;
    for (int i = 0; same && i < m->device_count; i++) {
        same = strcmp(m->devices[i].id, v->machine->devices[i].id) == 0;
    }
    if (same) {
        memcpy(r->now, now, MACHINE_DEVICES * sizeof *now);
        v->file_time = s.st_mtim;
    } else if (!v->has_complained) {
        log_line("machine: %s; what was read before counts",
                 err.text[0] != '\0' ? err.text : "the file has other devices now");
    }
    v->has_complained = !same;
    free(m);
    free(now);
}

/* Of a CPU slot: what runs on it holds is known by its cores; main memory is everybody's. */
static void read_slots(struct inventory *v, struct reading *r)
{
    for (int i = 0; i < v->machine->device_count; i++) {
        const struct device *d = &v->machine->devices[i];
        if (d->kind != DEVICE_CPU) {
            continue;
        }
        r->now[i] = (struct device_now){.utilization = -1,
                                        .temperature_c = -1,
                                        .power_w = -1,
                                        .ecc_errors = -1,
                                        .free_bytes = d->memory_bytes - d->reserved_bytes};
        r->now[i].free_bytes =
            r->now[i].free_bytes < r->main_free ? r->now[i].free_bytes : r->main_free;
        r->now[i].used_bytes = d->memory_bytes - r->now[i].free_bytes;
    }
}

static int load_quarantine(sqlite3 *db, void *argument, struct err *err)
{
    struct inventory *v = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;
    uint64_t set = 0;

    TRY(db_query(&q, db, err, "SELECT device FROM quarantine", ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        const int i = machine_device(v->machine, db_text(q, 0));
        set |= i >= 0 ? UINT64_C(1) << i : 0;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    if (rc == 0) {
        pthread_mutex_lock(&v->lock);
        v->newest.quarantined = set;
        pthread_mutex_unlock(&v->lock);
    }
    return rc;
}

void inventory_reload(struct inventory *v)
{
    struct err err = {0};

    if (store_read(v->app->store, load_quarantine, v, &err) != 0) {
        log_line("machine: %s", err.text);
    }
}

/* A device that is lost or has errors stays out until an administrator says otherwise. */
static int quarantine_faults(struct tx *tx, void *argument, struct err *err)
{
    struct inventory *v = argument;
    char reason[200];

    for (int i = 0; i < v->machine->device_count; i++) {
        pthread_mutex_lock(&v->lock);
        const struct device_now *now = &v->newest.now[i];
        const bool fresh = now->fault != FAULT_NONE && (v->newest.quarantined >> i & 1U) == 0;
        (void)snprintf(reason, sizeof reason, "%s%s%s",
                       now->fault == FAULT_LOST ? "the device is lost" : "the device has errors",
                       now->fault_text[0] != '\0' ? ": " : "", now->fault_text);
        pthread_mutex_unlock(&v->lock);
        if (fresh) {
            log_line("machine: %s is quarantined: %s", v->machine->devices[i].id, reason);
            TRY(inventory_quarantine(v, tx, i, reason, NULL, err));
        }
    }
    return 0;
}

static bool has_fresh_fault(const struct inventory *v)
{
    for (int i = 0; i < v->machine->device_count; i++) {
        if (v->newest.now[i].fault != FAULT_NONE && (v->newest.quarantined >> i & 1U) == 0) {
            return true;
        }
    }
    return false;
}

static void take_reading(struct inventory *v)
{
    struct reading *r = malloc(sizeof *r);
    struct err err = {0};

    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&v->lock);
    *r = v->newest;
    const uint64_t asked = v->asked;
    pthread_mutex_unlock(&v->lock);
    r->at = (int64_t)time(NULL);
    r->main_free = probe_available("");
    if (v->file[0] != '\0') {
        read_file(v, r);
    } else {
        read_slots(v, r);
        cards_read(v->cards, r->now);
    }
    pthread_mutex_lock(&v->lock);
    r->quarantined = v->newest.quarantined;
    v->newest = *r;
    v->answered = asked;
    const bool fault = has_fresh_fault(v);
    pthread_cond_broadcast(&v->read);
    pthread_mutex_unlock(&v->lock);
    free(r);
    if (fault) {
        if (store_write(v->app->store, quarantine_faults, v, &err) != 0) {
            log_line("machine: %s", err.text);
        }
        inventory_reload(v);
    }
}

/* True while the thread goes on. */
static bool wait_for_turn(struct inventory *v)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_MS / 1000;
    pthread_mutex_lock(&v->lock);
    int rc = 0;
    while (!v->closing && v->asked == v->answered && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&v->wanted, &v->lock, &until);
    }
    const bool goes_on = !v->closing;
    pthread_mutex_unlock(&v->lock);
    return goes_on;
}

/* Measure, keep and show. Another that runs already is enough: BUSY. */
static int measure(struct inventory *v, double limit_s, struct err *err)
{
    char path[PATH];
    struct self_test *t = malloc(sizeof *t);

    if (t == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the self test");
    }
    pthread_mutex_lock(&v->lock);
    const bool is_first = !v->is_testing;
    v->is_testing = true;
    pthread_mutex_unlock(&v->lock);
    if (!is_first) {
        free(t);
        return FAIL(err, ERR_BUSY, "the self test is running already");
    }
    int rc = self_test_run(t, v->machine, limit_s, err);
    (void)snprintf(path, sizeof path, "%s/machine.json", v->app->settings->data);
    rc = rc != 0 ? rc : self_test_write(t, v->machine, path, err);
    pthread_mutex_lock(&v->lock);
    v->is_testing = false;
    if (rc == 0) {
        *v->test = *t;
    }
    pthread_mutex_unlock(&v->lock);
    free(t);
    return rc;
}

int inventory_self_test(struct inventory *v, struct err *err)
{
    if (v->file[0] != '\0') {
        return FAIL(err, ERR_BAD_STATE,
                    "the machine is described by a file: there is nothing to measure");
    }
    return measure(v, TEST_S, err);
}

/* What an earlier start measured counts for placement; while honed runs, that does not change. */
static bool recall_test(struct inventory *v)
{
    char path[PATH];

    (void)snprintf(path, sizeof path, "%s/machine.json", v->app->settings->data);
    const bool is_measured = v->file[0] == '\0' && self_test_read(v->test, v->machine, path);
    for (int i = 0; is_measured && i < v->machine->device_count; i++) {
        for (int j = 0; j < v->machine->device_count; j++) {
            v->machine->links[i][j].gb_per_s = v->test->gb_per_s[i][j];
        }
    }
    return is_measured;
}

/* Errors of cards that an administrator knows of. */
static int recall_forgiven(sqlite3 *db, void *argument, struct err *err)
{
    struct inventory *v = argument;
    char key[DEVICE_ID + 16];

    for (int i = 0; v->cards != NULL && i < v->machine->device_count; i++) {
        int64_t errors = 0;
        (void)snprintf(key, sizeof key, FORGIVEN "%s", v->machine->devices[i].id);
        TRY(db_integer(&errors, 0, db, err, "SELECT value FROM about WHERE key=?", "s", key));
        cards_forgive(v->cards, i, errors);
    }
    return 0;
}

static void *measure_once(void *argument)
{
    struct err err = {0};

    if (measure(argument, FIRST_TEST_S, &err) != 0) {
        log_line("machine: self test: %s", err.text);
    }
    return NULL;
}

static void *read_for_ever(void *argument)
{
    struct inventory *v = argument;

    while (wait_for_turn(v)) {
        take_reading(v);
    }
    return NULL;
}

/* DIR/machines/NAME.json of a shipped profile, where `--machine` names no file. */
static void find_file(char out[PATH], const struct settings *s)
{
    (void)snprintf(out, PATH, "%s", s->machine);
    if (strchr(s->machine, '/') == NULL && access(s->machine, R_OK) != 0) {
        static const char *const folders[] = {"../server/machines", "../machines"};
        char path[PATH];
        for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
            if (snprintf(path, sizeof path, "%s/%s/%s.json", s->web, folders[i], s->machine) <
                    (int)sizeof path &&
                access(path, R_OK) == 0) {
                memcpy(out, path, sizeof path);
                return;
            }
        }
    }
}

static int describe(struct inventory *v, struct err *err)
{
    const struct settings *s = v->app->settings;
    struct cores allowed;
    char jobs[PATH];

    if (s->machine[0] == '\0') {
        (void)snprintf(jobs, sizeof jobs, "%s/jobs", s->data);
        probe_allowed(&allowed);
        TRY(probe_machine(v->machine, "", &allowed, s, err));
        return cards_open(&v->cards, v->machine, jobs, err);
    }
    find_file(v->file, s);
    return machine_read(v->machine, v->newest.now, v->file, err);
}

static int start(struct inventory *v, struct err *err)
{
    pthread_condattr_t monotonic;

    TRY(describe(v, err));
    pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&v->wanted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&v->read, NULL);
    const bool is_measured = recall_test(v);
    TRY(store_read(v->app->store, recall_forgiven, v, err));
    inventory_reload(v);
    take_reading(v);
    if (pthread_create(&v->thread, NULL, read_for_ever, v) != 0) {
        return FAIL(err, ERR_NO_MEMORY, "no thread for the inventory");
    }
    v->has_tester = v->file[0] == '\0' && !is_measured &&
                    pthread_create(&v->tester, NULL, measure_once, v) == 0;
    return 0;
}

int inventory_open(struct inventory **out, const struct app *app, struct err *err)
{
    struct inventory *v = calloc(1, sizeof *v);

    if (v != NULL) {
        v->app = app;
        v->machine = calloc(1, sizeof *v->machine);
        v->test = calloc(1, sizeof *v->test);
    }
    if (v == NULL || v->machine == NULL || v->test == NULL) {
        if (v != NULL) {
            free(v->machine);
            free(v->test);
        }
        free(v);
        return FAIL(err, ERR_NO_MEMORY, "no memory for the inventory");
    }
    pthread_mutex_init(&v->lock, NULL);
    const int rc = start(v, err);
    if (rc != 0) {
        cards_close(v->cards);
        free(v->machine);
        free(v->test);
        free(v);
        return rc;
    }
    *out = v;
    return 0;
}

void inventory_close(struct inventory *v)
{
    if (v == NULL) {
        return;
    }
    pthread_mutex_lock(&v->lock);
    v->closing = true;
    pthread_cond_signal(&v->wanted);
    pthread_mutex_unlock(&v->lock);
    pthread_join(v->thread, NULL);
    if (v->has_tester) {
        pthread_join(v->tester, NULL);
    }
    cards_close(v->cards);
    pthread_cond_destroy(&v->wanted);
    pthread_cond_destroy(&v->read);
    pthread_mutex_destroy(&v->lock);
    free(v->machine);
    free(v->test);
    free(v);
}

const struct machine *inventory_machine(const struct inventory *v)
{
    return v->machine;
}

void inventory_get(struct inventory *v, struct reading *out)
{
    pthread_mutex_lock(&v->lock);
    *out = v->newest;
    pthread_mutex_unlock(&v->lock);
}

void inventory_refresh(struct inventory *v, struct reading *out)
{
    pthread_mutex_lock(&v->lock);
    const uint64_t mine = ++v->asked;
    pthread_cond_signal(&v->wanted);
    while (v->answered < mine && !v->closing) {
        pthread_cond_wait(&v->read, &v->lock);
    }
    *out = v->newest;
    pthread_mutex_unlock(&v->lock);
}

int inventory_quarantine(struct inventory *v, struct tx *tx, int device, const char *reason,
                         const char *by_user, struct err *err)
{
    CHECK((unsigned)device < (unsigned)v->machine->device_count, "device %d", device);
    return db_run(tx->db, err,
                  "INSERT INTO quarantine(device, since, reason, by_user) VALUES(?,?,?,?)"
                  " ON CONFLICT(device) DO UPDATE SET reason=excluded.reason,"
                  " by_user=excluded.by_user",
                  "siss", v->machine->devices[device].id, (int64_t)time(NULL), reason, by_user);
}

int inventory_release(struct inventory *v, struct tx *tx, int device, struct err *err)
{
    CHECK((unsigned)device < (unsigned)v->machine->device_count, "device %d", device);
    const char *id = v->machine->devices[device].id;
    char key[DEVICE_ID + 16], value[32];

    pthread_mutex_lock(&v->lock);
    const int64_t errors = v->newest.now[device].ecc_errors;
    pthread_mutex_unlock(&v->lock);
    if (errors > 0) {
        (void)snprintf(key, sizeof key, FORGIVEN "%s", id);
        (void)snprintf(value, sizeof value, "%lld", (long long)errors);
        TRY(db_run(tx->db, err,
                   "INSERT INTO about(key, value) VALUES(?,?)"
                   " ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                   "ss", key, value));
        cards_forgive(v->cards, device, errors);
    }
    return db_run(tx->db, err, "DELETE FROM quarantine WHERE device=?", "s", id);
}

static uint64_t resident_pages(pid_t pid)
{
    char name[MARK], text[MARK], *end = NULL;

    (void)snprintf(name, sizeof name, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(name, "re");
    if (f == NULL) {
        return 0;
    }
    const bool got = fgets(text, sizeof text, f) != NULL;
    (void)fclose(f);
    (void)strtoull(got ? text : "0", &end, 10); /* the first number is its size */
    return got ? (uint64_t)strtoull(end, NULL, 10) : 0;
}

/* Bytes that the processes of a session hold; a launcher and its ranks are one. */
static uint64_t session_bytes(pid_t session)
{
    DIR *dir = session > 0 ? opendir("/proc") : NULL;
    uint64_t pages = 0;

    if (dir == NULL) {
        return 0;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && getsid(pid) == session) {
            pages += resident_pages(pid);
        }
    }
    (void)closedir(dir);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What the runs on `held` devices were granted of main memory, and what of it they have touched. The slots of the others
 * in `held` are lent to models. */
static int find_granted(sqlite3 *db, const struct inventory *v, uint64_t held, uint64_t *leased,
                        struct main_memory *out, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 /* by leases, which are few: a plan that walks the jobs reads all of them */
                 "SELECT j.id, j.device_bytes, group_concat(l.device) FROM leases l"
                 " CROSS JOIN jobs j ON j.seq=l.job_seq GROUP BY l.job_seq",
                 ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        char dir[PATH];
        (void)snprintf(dir, sizeof dir, "%s/jobs/%s", v->app->settings->data, db_text(q, 0));
        const uint64_t counted = desk_device_mask(v->machine, db_text(q, 2)) & held;
        const uint64_t granted =
            (uint64_t)sqlite3_column_int64(q, 1) * (uint64_t)__builtin_popcountll(counted);
        const uint64_t resident = granted > 0 ? session_bytes(job_pid_launcher(dir)) : 0;
        const uint64_t touched = resident < granted ? resident : granted;
        *leased |= counted;
        out->touched += touched;
        out->untouched += granted - touched;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

static int view_device(const struct inventory *v, const struct reading *r, sqlite3 *db, int i,
                       struct view *out, struct err *err)
{
    const struct device *d = &v->machine->devices[i];
    const struct device_now *now = &r->now[i];
    const uint64_t bit = UINT64_C(1) << i;
    uint64_t margin = 0;

    TRY(margins_of(db, margins_card(d), &margin, err));
    const uint64_t kept = d->reserved_bytes + margin;
    out->capacity[i] = d->memory_bytes > kept ? d->memory_bytes - kept : 0;
    if (d->is_usable && now->fault == FAULT_NONE && (r->quarantined & bit) == 0) {
        out->good |= bit;
    }
    if (d->kind == DEVICE_GPU && room_is_busy(d, now)) {
        out->busy |= out->good & bit;
    }
    return 0;
}

int inventory_view(const struct inventory *v, const struct reading *r, sqlite3 *db, uint64_t held,
                   struct view *out, struct err *err)
{
    const bool is_file = v->file[0] != '\0';
    struct main_memory main = {.free = r->main_free};
    uint64_t leased = 0;

    *out = (struct view){.machine = v->machine};
    for (int i = 0; i < v->machine->device_count; i++) {
        TRY(view_device(v, r, db, i, out, err));
    }
    if (!is_file) {
        TRY(find_granted(db, v, held, &leased, &main, err));
    }
    for (int i = 0; i < v->machine->device_count; i++) {
        const bool is_lent = ((held & ~leased) >> i & 1U) != 0;
        main.loaned += is_lent && v->machine->devices[i].kind == DEVICE_CPU ? out->capacity[i] : 0;
    }
    for (int i = 0; i < v->machine->device_count; i++) {
        const struct device *d = &v->machine->devices[i];
        const uint64_t all = out->capacity[i];
        const bool is_held = (held >> i & 1U) != 0;
        if (d->kind == DEVICE_GPU || is_file) {
            out->room[i] = is_held ? room_after_run(d, &r->now[i], all, is_file)
                                   : room_now(d, &r->now[i], all);
        } else {
            out->room[i] = is_held ? room_slot_after(&main, all) : room_slot_now(&main, all);
        }
    }
    return 0;
}

/* Results of the newest self test into the links, and when it ran; null without one. */
static bool add_test(struct inventory *v, json_t *o)
{
    json_t *rows = json_object_get(o, "links");

    pthread_mutex_lock(&v->lock);
    for (int i = 0; i < v->machine->device_count; i++) {
        for (int j = 0; j < v->machine->device_count; j++) {
            json_t *one = json_array_get(json_array_get(rows, (size_t)i), (size_t)j);
            if (v->test->gb_per_s[i][j] > 0.0) {
                (void)json_object_set_new(one, "gb_per_s", json_real(v->test->gb_per_s[i][j]));
            }
        }
    }
    json_t *test = v->test->ran_at > 0 ? self_test_json(v->test, v->machine) : json_null();
    pthread_mutex_unlock(&v->lock);
    return json_object_set_new(o, "self_test", test) == 0;
}

json_t *inventory_json(struct inventory *v)
{
    struct reading *r = malloc(sizeof *r);

    if (r == NULL) {
        return NULL;
    }
    inventory_get(v, r);
    json_t *o = machine_json(v->machine, r->now);
    json_t *extra = json_pack("{s:s, s:s, s:I, s:I, s:{s:I, s:i}}", "object", "machine", "source",
                              v->file[0] != '\0' ? "file" : "probed", "memory_free_bytes",
                              (json_int_t)r->main_free, "updated_at", (json_int_t)r->at,
                              "constants", "page_bytes", (json_int_t)sysconf(_SC_PAGESIZE),
                              "threads", (int)sysconf(_SC_NPROCESSORS_ONLN));
    free(r);
    if (o == NULL || extra == NULL || json_object_update(o, extra) != 0 || !add_test(v, o)) {
        json_decref(o);
        json_decref(extra);
        return NULL;
    }
    json_decref(extra);
    return o;
}
