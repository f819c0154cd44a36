/* self_test.c - copies between memory that cores have touched first. */
#include "server/self_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "trainer/base/clock.h"
#include "trainer/base/json.h"
#include "trainer/base/sha256.h"

enum { THREADS = 4, ROUNDS = 3, PIECES = 32, FILE_BYTES = 1 << 20 };

static const size_t BUFFER = (size_t)32 << 20;
static const double ROUND_S = 0.02;

/* One thread: it writes `from` on a core of one slot and copies it on a core of the other. */
struct copier {
    pthread_t thread;
    int owner_core, core;
    char *from, *to; /* borrowed */
    double rate[ROUNDS];
};

static void move_to(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* not allowed: less exact */
}

/* Bytes a second that the thread copies for a while. */
static double copy_round(const struct copier *c)
{
    const double begin = clock_seconds();
    double now = begin;
    size_t bytes = 0;

    while (now - begin < ROUND_S) {
        const size_t at = bytes % BUFFER;
        memcpy(c->to + at, c->from + at, BUFFER / PIECES);
        bytes += BUFFER / PIECES;
        now = clock_seconds();
    }
    return (double)bytes / (now - begin);
}

static void *copy_for_a_while(void *argument)
{
    struct copier *c = argument;

    move_to(c->owner_core);
    memset(c->from, 1, BUFFER);
    move_to(c->core);
    memset(c->to, 2, BUFFER);
    for (int i = 0; i < ROUNDS; i++) {
        c->rate[i] = copy_round(c);
    }
    return NULL;
}

/* The k-th core of a slot. */
static int core_of(const struct device *d, int k)
{
    for (int c = 0; c < DEVICE_CORES; c++) {
        if (cores_has(&d->cores, c) && k-- == 0) {
            return c;
        }
    }
    return 0;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Start the threads, wait for them; the median of what they copied together. */
static int measure(struct copier *copiers, int count, double *bytes_per_s, struct err *err)
{
    double rate[ROUNDS] = {0};
    int running = 0;

    for (int k = 0; k < count; k++) {
        if (pthread_create(&copiers[k].thread, NULL, copy_for_a_while, &copiers[k]) != 0) {
            break;
        }
        running++;
    }
    for (int k = 0; k < running; k++) {
        (void)pthread_join(copiers[k].thread, NULL);
        for (int i = 0; i < ROUNDS; i++) {
            rate[i] += copiers[k].rate[i];
        }
    }
    qsort(rate, ROUNDS, sizeof rate[0], ascending);
    *bytes_per_s = rate[ROUNDS / 2];
    return running == count ? 0 : FAIL(err, ERR_IO, "threads of the self test can't be started");
}

/* From slot j's memory to slot i's. */
static int measure_pair(struct self_test *t, const struct machine *m, int i, int j, char *memory,
                        struct err *err)
{
    const struct device *a = &m->devices[i], *b = &m->devices[j];
    const int on_a = cores_count(&a->cores), on_b = cores_count(&b->cores);
    const int most = on_a < on_b ? on_a : on_b, count = most < THREADS ? most : THREADS;
    struct copier copiers[THREADS] = {0};
    double bytes_per_s = 0.0;

    if (count < 1) {
        return 0;
    }
    for (int k = 0; k < count; k++) {
        copiers[k].core = core_of(a, k * on_a / count);
        copiers[k].owner_core = core_of(b, k * on_b / count);
        copiers[k].from = memory + (size_t)(2 * k) * BUFFER;
        copiers[k].to = copiers[k].from + BUFFER;
    }
    TRY(measure(copiers, count, &bytes_per_s, err));
    t->gb_per_s[i][j] = t->gb_per_s[j][i] = bytes_per_s / 1e9;
    return 0;
}

/* Memory of its own for every pair, so that each is touched first by those who are measured. */
static int measure_fresh(struct self_test *t, const struct machine *m, int i, int j,
                         struct err *err)
{
    const size_t bytes = (size_t)2 * THREADS * BUFFER;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the self test");
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* faults of small pages would take longest */
    const int rc = measure_pair(t, m, i, j, memory, err);
    (void)munmap(memory, bytes);
    return rc;
}

int self_test_run(struct self_test *out, const struct machine *m, double limit_s, struct err *err)
{
    const double begin = clock_seconds();
    int rc = 0;

    memset(out, 0, sizeof *out);
    for (int i = 0; rc == 0 && i < m->device_count; i++) {
        for (int j = i; rc == 0 && j < m->device_count; j++) {
            if (m->devices[i].kind != DEVICE_CPU || m->devices[j].kind != DEVICE_CPU) {
                continue;
            }
            out->timed_out = out->timed_out || clock_seconds() - begin >= limit_s;
            rc = out->timed_out ? 0 : measure_fresh(out, m, i, j, err);
        }
    }
    out->ran_at = (int64_t)time(NULL);
    out->seconds = clock_seconds() - begin;
    return rc;
}

/* What makes results those of this machine: all that does not change by the minute, less what was measured. */
static int identify(const struct machine *m, char out[SHA256_TEXT], struct err *err)
{
    json_t *o = machine_json(m, NULL);

    (void)json_object_del(o, "links");
    (void)json_object_del(o, "disks");
    char *text = o == NULL ? NULL : json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(o);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the identity of the machine");
    }
    sha256_of(text, strlen(text), out);
    free(text);
    return 0;
}

int self_test_write(const struct self_test *t, const struct machine *m, const char *path,
                    struct err *err)
{
    char identity[SHA256_TEXT];
    json_t *rows = json_array();

    int rc = identify(m, identity, err);
    for (int i = 0; i < m->device_count; i++) {
        json_t *row = json_array();
        for (int j = 0; j < m->device_count; j++) {
            (void)json_array_append_new(row, json_real(t->gb_per_s[i][j]));
        }
        (void)json_array_append_new(rows, row);
    }
    json_t *o = json_pack("{s:s, s:I, s:f, s:b, s:o}", "identity", identity, "ran_at",
                          (json_int_t)t->ran_at, "seconds", t->seconds, "timed_out",
                          (int)t->timed_out, "gb_per_s", rows);
    if (rc == 0) {
        rc = o == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for results of the self test")
                       : json_write_file(path, o, err);
    }
    json_decref(o);
    return rc;
}

static bool take_results(struct self_test *out, const struct machine *m, const json_t *o)
{
    const json_t *rows = json_object_get(o, "gb_per_s");

    out->ran_at = json_integer_value(json_object_get(o, "ran_at"));
    out->seconds = json_number_value(json_object_get(o, "seconds"));
    out->timed_out = json_is_true(json_object_get(o, "timed_out"));
    for (int i = 0; i < m->device_count; i++) {
        const json_t *row = json_array_get(rows, (size_t)i);
        for (int j = 0; j < m->device_count; j++) {
            const json_t *value = json_array_get(row, (size_t)j);
            const double rate = json_number_value(value);
            if (!json_is_number(value) || !(rate >= 0.0 && rate < 1e6)) {
                return false;
            }
            out->gb_per_s[i][j] = rate;
        }
    }
    return out->ran_at > 0;
}

bool self_test_read(struct self_test *out, const struct machine *m, const char *path)
{
    char identity[SHA256_TEXT];
    json_t *o = NULL;
    struct err ignored = {0};

    memset(out, 0, sizeof *out);
    if (json_parse_file(&o, path, FILE_BYTES, &ignored) != 0 ||
        identify(m, identity, &ignored) != 0) {
        json_decref(o);
        return false;
    }
    const char *of = json_string_value(json_object_get(o, "identity"));
    const bool found = of != NULL && strcmp(of, identity) == 0 && take_results(out, m, o);
    json_decref(o);
    if (!found) {
        memset(out, 0, sizeof *out);
    }
    return found;
}

json_t *self_test_json(const struct self_test *t, const struct machine *m)
{
    bool has_cards = false;

    for (int i = 0; i < m->device_count; i++) {
        has_cards = has_cards || m->devices[i].kind == DEVICE_GPU;
    }
    return json_pack("{s:I, s:f, s:b, s:s?}", "ran_at", (json_int_t)t->ran_at, "seconds",
                     t->seconds, "timed_out", (int)t->timed_out, "note",
                     has_cards ? "cards are not measured: this build has no CUDA back end" : NULL);
}
