/* run_plan.c - what an attempt is given. */
#include "server/run_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/desk.h"
#include "server/references.h"

struct making {
    const struct app *app;
    const char *dir;
    const struct job_ref *job;
    uint64_t devices;
    const struct reading *reading;
    bool fits;
};

/* Have the devices what the job was planned with, now? */
static int look_at_devices(struct making *k, sqlite3 *db, int64_t bytes, struct err *err)
{
    const struct machine *m = inventory_machine(k->app->inventory);
    struct view *view = malloc(sizeof *view);
    uint64_t held = 0;

    if (view == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    int rc = desk_held(db, m, &held, err);
    rc = rc != 0 ? rc
                 : inventory_view(k->app->inventory, k->reading, db, held & ~k->devices, view, err);
    k->fits = rc == 0 && (view->good & k->devices) == k->devices;
    for (int d = 0; d < m->device_count && k->fits; d++) {
        k->fits = (k->devices >> d & 1U) == 0 || view->room[d] >= (uint64_t)bytes;
    }
    free(view);
    return rc;
}

/* Which devices these are, and the memory node, where all of them are near one of several. Each rank has a thread for each
 * core of the smallest CPU slot, hyperthreads not counted, unless the request says how many. */
static void give_place(struct attempt_plan *plan, const struct machine *m, uint64_t devices)
{
    size_t n = 0;
    bool is_one = m->node_count > 1;
    int cores = 0;

    plan->memory_node = -1;
    for (int d = 0; d < m->device_count; d++) {
        const struct device *one = &m->devices[d];

        if ((devices >> d & 1U) == 0) {
            continue;
        }
        is_one = is_one && one->node >= 0 && (plan->devices == 0 || plan->memory_node == one->node);
        plan->memory_node = is_one ? one->node : -1;
        plan->devices++;
        plan->gpus += one->kind == DEVICE_GPU;
        cores = one->kind == DEVICE_CPU && (cores == 0 || one->core_count < cores) ? one->core_count
                                                                                   : cores;
        if (n < sizeof plan->device_ids) {
            n += (size_t)snprintf(plan->device_ids + n, sizeof plan->device_ids - n, "%s%s",
                                  n == 0 ? "" : ",", one->id);
        }
    }
    if (plan->threads == 0 && cores > 0) {
        plan->threads = cores < JOB_CORES_MAX ? cores : JOB_CORES_MAX;
    }
}

/* Where each rank is at home: on the devices in their order, each with its cores behind those of the one before. Cores
 * beyond JOB_CORES_MAX are left out: a rank that has none may run on all of them. */
static void give_places(struct attempt_plan *plan, const struct machine *m, uint64_t devices)
{
    for (int d = 0; d < m->device_count && plan->place_count < JOB_RANKS_MAX; d++) {
        if ((devices >> d & 1U) == 0) {
            continue;
        }
        struct rank_place *p = &plan->places[plan->place_count++];
        *p = (struct rank_place){.first = plan->core_count,
                                 .node = m->node_count > 1 ? m->devices[d].node : -1};
        for (int c = 0; c < DEVICE_CORES && plan->core_count < JOB_CORES_MAX; c++) {
            if ((m->devices[d].cores.word[c / 64] >> c % 64 & 1U) != 0) {
                plan->cores[plan->core_count++] = c;
            }
        }
        p->count = plan->core_count - p->first;
    }
}

static int fill(struct making *k, sqlite3 *db, sqlite3_stmt *row, struct attempt_plan *plan,
                struct err *err)
{
    const int64_t bytes = sqlite3_column_int64(row, 2);
    json_t *references = json_loads(db_text(row, 0), 0, NULL);
    json_t *resolved = json_loads(db_text(row, 1), 0, NULL);

    plan->attempt = k->job->attempt;
    plan->threads = (int)json_integer_value(json_object_get(resolved, "threads"));
    plan->memory_bytes = bytes * __builtin_popcountll(k->devices);
    give_place(plan, inventory_machine(k->app->inventory), k->devices);
    give_places(plan, inventory_machine(k->app->inventory), k->devices);
    (void)snprintf(plan->cache, sizeof plan->cache, "%s/cache", k->app->settings->data);
    int rc = references_plan(references, plan, err);
    rc = rc != 0 ? rc : look_at_devices(k, db, bytes, err);
    json_decref(references);
    json_decref(resolved);
    return rc;
}

static int make_plan(sqlite3 *db, void *argument, struct err *err)
{
    struct making *k = argument;
    struct attempt_plan *plan = calloc(1, sizeof *plan);
    sqlite3_stmt *q = NULL;
    bool row = false;

    if (plan == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    int rc = db_query(&q, db, err, "SELECT inputs, resolved, device_bytes FROM jobs WHERE seq=?",
                      "i", k->job->seq);
    rc = rc != 0 ? rc : db_next(q, &row, err);
    rc = rc != 0 ? rc : fill(k, db, q, plan, err);
    if (rc == 0 && k->fits) {
        rc = attempt_plan_write(k->dir, plan, err);
    }
    sqlite3_finalize(q);
    free(plan);
    return rc;
}

int run_plan_write(const struct app *app, const char *dir, const struct job_ref *job,
                   uint64_t devices, const struct reading *reading, bool *fits, struct err *err)
{
    struct making k = {.app = app, .dir = dir, .job = job, .devices = devices, .reading = reading};

    const int rc = store_read(app->store, make_plan, &k, err);
    *fits = k.fits;
    return rc;
}
