/* sizing.c - what a job will need: the trainer's own plan, against the memory of this machine. */
#include "server/sizing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/inventory.h"
#include "trainer/plan.h"

/* A change of a request that lowers what it needs. */
struct change {
    const char *field, *value;
    void (*apply)(struct spec *s);
    bool (*is_new)(const struct spec *s);
};

/* What a job could have if all devices were in order and free. */
struct room {
    const struct machine *machine; /* NULL: not known, anything fits */
    uint64_t capacity[MACHINE_DEVICES];
    uint64_t now[MACHINE_DEVICES]; /* at the moment; 0 for held, busy and bad ones */
};

static void set_recompute(struct spec *s)
{
    s->recompute = RECOMPUTE_FULL;
}

static bool keeps_all(const struct spec *s)
{
    return s->recompute == RECOMPUTE_NONE;
}

static void set_micro(struct spec *s)
{
    s->micro_batch_size = 1;
}

static bool has_larger_micro(const struct spec *s)
{
    return s->micro_batch_size != 1;
}

static void set_bf16(struct spec *s)
{
    s->precision = PRECISION_BF16;
}

static bool is_f32(const struct spec *s)
{
    return s->precision == PRECISION_F32;
}

static void set_lora(struct spec *s)
{
    s->lora_rank = 8;
}

/* Adapters of a model that is there already. */
static bool trains_a_model(const struct spec *s)
{
    return s->model[0] != '\0' && s->config == NULL && s->lora_rank == 0 && s->adapter[0] == '\0';
}

static void set_sliced(struct spec *s)
{
    s->use_distributed_optimizer = DISTRIBUTED_YES;
}

static bool has_copies(const struct spec *s)
{
    return plan_mesh(s).dp > 1 && s->use_distributed_optimizer == DISTRIBUTED_NO;
}

static void set_two_parts(struct spec *s)
{
    s->tensor_model_parallel_size = 2;
}

static void set_four_parts(struct spec *s)
{
    s->tensor_model_parallel_size = 4;
}

static bool has_one_part(const struct spec *s)
{
    return s->tensor_model_parallel_size == 1;
}

static bool has_few_parts(const struct spec *s)
{
    return s->tensor_model_parallel_size < 4;
}

static void set_two_stages(struct spec *s)
{
    s->pipeline_model_parallel_size = 2;
}

static void set_four_stages(struct spec *s)
{
    s->pipeline_model_parallel_size = 4;
}

static bool has_one_stage(const struct spec *s)
{
    return s->pipeline_model_parallel_size == 1;
}

static bool has_few_stages(const struct spec *s)
{
    return s->pipeline_model_parallel_size < 4;
}

static const struct change changes[] = {
    {"micro_batch_size", "1", set_micro, has_larger_micro},
    {"recompute", "full", set_recompute, keeps_all},
    {"precision", "bf16", set_bf16, is_f32},
    {"lora_rank", "8", set_lora, trains_a_model},
    {"use_distributed_optimizer", "yes", set_sliced, has_copies},
    {"tensor_model_parallel_size", "2", set_two_parts, has_one_part},
    {"tensor_model_parallel_size", "4", set_four_parts, has_few_parts},
    {"pipeline_model_parallel_size", "2", set_two_stages, has_one_stage},
    {"pipeline_model_parallel_size", "4", set_four_stages, has_few_stages},
};

uint64_t sizing_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* Read what devices have; the margins that were learned are taken off. */
struct look {
    const struct app *app;
    struct room *room;
};

static int find_held(sqlite3 *db, const struct machine *m, uint64_t *held, struct err *err)
{
    sqlite3_stmt *q = NULL;
    bool row = true;

    *held = 0;
    TRY(db_query(&q, db, err, "SELECT device FROM leases", ""));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        const int i = machine_device(m, db_text(q, 0));
        *held |= i >= 0 ? UINT64_C(1) << i : 0;
        rc = db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

static int look_at_devices(sqlite3 *db, void *argument, struct err *err)
{
    const struct look *l = argument;
    struct room *room = l->room;
    struct reading *reading = calloc(1, sizeof *reading);
    struct view *view = calloc(1, sizeof *view);
    uint64_t held = 0;
    int rc = 0;

    if (reading == NULL || view == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    if (rc == 0) {
        room->machine = inventory_machine(l->app->inventory);
        inventory_get(l->app->inventory, reading);
        rc = find_held(db, room->machine, &held, err);
        rc = rc != 0 ? rc : inventory_view(l->app->inventory, reading, db, held, view, err);
    }
    for (int i = 0; rc == 0 && i < room->machine->device_count; i++) {
        const bool open = ((view->good & ~view->busy & ~held) >> i & 1U) != 0;
        room->capacity[i] = view->capacity[i];
        room->now[i] = open ? view->room[i] : 0;
    }
    free(reading);
    free(view);
    return rc;
}

static int find_room(const struct app *app, struct room *out, struct err *err)
{
    struct look l = {app, out};

    memset(out, 0, sizeof *out);
    return app->inventory == NULL ? 0 : store_read(app->store, look_at_devices, &l, err);
}

/* Of each rank: those of the slot that has most, since more threads need more memory. */
static int thread_count(const struct room *room, const struct spec *spec)
{
    const long machine = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = 0;

    if (spec->threads > 0) {
        return (int)spec->threads;
    }
    for (int i = 0; room->machine != NULL && i < room->machine->device_count; i++) {
        const struct device *d = &room->machine->devices[i];
        const bool counts = d->is_usable && d->kind == DEVICE_CPU;
        cores = counts && d->core_count > cores ? d->core_count : cores;
    }
    return cores > 0 ? cores : machine > 0 ? (int)machine : 1;
}

/* Of all ranks. */
static uint64_t bytes_together(const struct plan *p)
{
    return p->total * (uint64_t)p->ranks;
}

static bool fits_ever(const struct room *room, const struct plan *p)
{
    const struct need need = {p->ranks, p->total};

    return room->machine == NULL || place_ever(room->machine, room->capacity, &need);
}

/* Usable devices of that kind with at least so much for a job. */
static int count_usable(const struct room *room, enum device_kind kind, uint64_t bytes)
{
    int n = 0;

    for (int i = 0; room->machine != NULL && i < room->machine->device_count; i++) {
        const struct device *d = &room->machine->devices[i];
        n += d->is_usable && d->kind == kind && room->capacity[i] >= bytes;
    }
    return n;
}

/* The most that `devices` devices of one kind all have. */
static uint64_t largest(const struct room *room, int devices)
{
    uint64_t most = 0;

    for (int i = 0; room->machine != NULL && i < room->machine->device_count; i++) {
        const struct device *d = &room->machine->devices[i];
        const uint64_t bytes = room->capacity[i];
        if (d->is_usable && bytes > most && count_usable(room, d->kind, bytes) >= devices) {
            most = bytes;
        }
    }
    return most;
}

static const char *path_of(const json_t *references, const char *field)
{
    return json_string_value(json_object_get(json_object_get(references, field), "path"));
}

static int find_arch(struct arch *out, const struct spec *spec, const json_t *references,
                     struct err *err)
{
    const struct plan_folders folders = {
        .model = spec->config == NULL ? path_of(references, "model") : NULL,
        .tokenizer = path_of(references, "tokenizer"),
        .adapter = path_of(references, "adapter")};
    const int rc = plan_request_arch(out, spec, &folders, err);

    if (rc != 0 && err->param[0] == '\0') {
        err_about(err, spec->config == NULL ? "model" : "config");
    }
    return rc;
}

/* Single changes with which it fits, three at most: a JSON array of {field, value, memory_bytes}. */
static json_t *advise(const struct arch *a, const struct spec *spec, const json_t *references,
                      const struct room *room)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof changes / sizeof changes[0] && json_array_size(list) < 3; i++) {
        struct spec one = *spec;
        struct arch adapted = *a;
        struct plan p;
        struct err err = {0};
        if (!changes[i].is_new(spec)) {
            continue;
        }
        changes[i].apply(&one);
        int rc = changes[i].apply == set_lora ? find_arch(&adapted, &one, references, &err) : 0;
        rc = rc != 0 ? rc : plan_make(&p, &adapted, &one, thread_count(room, &one), &err);
        if (rc == 0 && fits_ever(room, &p)) {
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:I}", "field", changes[i].field, "value",
                                changes[i].value, "memory_bytes", (json_int_t)bytes_together(&p)));
        }
    }
    return list;
}

/* The advice as the end of a sentence. */
static void advice_text(char *out, size_t size, const json_t *advice)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(advice) && n < size; i++) {
        const json_t *one = json_array_get(advice, i);
        n += (size_t)snprintf(out + n, size - n, "%s%s %s", i == 0 ? "; it fits with " : " or ",
                              json_string_value(json_object_get(one, "field")),
                              json_string_value(json_object_get(one, "value")));
    }
}

static int refuse_count(const struct plan *p, const struct room *room, struct err *err)
{
    const int gpus = count_usable(room, DEVICE_GPU, 0), slots = count_usable(room, DEVICE_CPU, 0);
    const int usable = gpus > slots ? gpus : slots; /* a job is on devices of one kind */

    if (p->ranks <= usable) {
        return 0;
    }
    return FAIL_PARAM(err, ERR_DOES_NOT_FIT, "devices",
                      "the job asks for %d device%s and this machine has %d%s that it can train on",
                      p->ranks, p->ranks == 1 ? "" : "s", usable,
                      gpus > 0 && slots > 0 ? " of one kind" : "");
}

static int refuse(const struct arch *a, const struct spec *spec, const json_t *references,
                  const struct plan *p, const struct room *room, struct err *err)
{
    char text[160], each[48] = "", count[16] = "";

    TRY(refuse_count(p, room, err));
    if (p->ranks > 1) {
        (void)snprintf(each, sizeof each, " on each of its %d devices", p->ranks);
        (void)snprintf(count, sizeof count, "%d ", p->ranks);
    }
    json_t *advice = advise(a, spec, references, room);
    advice_text(text, sizeof text, advice);
    json_decref(advice);
    return FAIL(err, ERR_DOES_NOT_FIT,
                "the job needs %.2f GiB%s and the machine has %sdevices of %.2f GiB at most; the "
                "largest part are %s with %.2f GiB%s",
                (double)p->total / 0x1p30, each, count, (double)largest(room, p->ranks) / 0x1p30,
                plan_largest(p), (double)plan_largest_bytes(p) / 0x1p30, text);
}

/* The plan of a request, and the architecture that it is of. */
static int measure(struct plan *out, struct arch *a, const struct spec *spec,
                   const json_t *references, const struct room *room, struct err *err)
{
    TRY(find_arch(a, spec, references, err));
    return plan_make(out, a, spec, thread_count(room, spec), err);
}

int sizing_check(const struct app *app, const struct spec *spec, const json_t *references,
                 struct sizing *out, struct err *err)
{
    struct room room = {.machine = NULL};
    struct arch a;
    struct plan p;

    TRY(find_room(app, &room, err));
    TRY(measure(&p, &a, spec, references, &room, err));
    *out = (struct sizing){.memory_bytes = (int64_t)bytes_together(&p),
                           .parameters = p.parameters,
                           .device_bytes = (int64_t)p.total,
                           .devices = p.ranks};
    return fits_ever(&room, &p) ? 0 : refuse(&a, spec, references, &p, &room, err);
}

/* Every device: what it could give, and gives now. */
static json_t *devices_json(const struct room *room)
{
    json_t *list = json_array();

    for (int i = 0; room->machine != NULL && i < room->machine->device_count; i++) {
        const struct device *d = &room->machine->devices[i];
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I, s:I}", "id", d->id,
                                                    "name", d->name, "usable", (int)d->is_usable,
                                                    "capacity_bytes", (json_int_t)room->capacity[i],
                                                    "room_bytes", (json_int_t)room->now[i]));
    }
    return list;
}

static bool fits_now(const struct room *room, const struct plan *p)
{
    const struct need need = {.devices = p->ranks, .bytes = p->total};

    return room->machine == NULL || place_ever(room->machine, room->now, &need);
}

int sizing_plan(const struct app *app, const struct spec *spec, const json_t *references,
                json_t **out, struct err *err)
{
    struct room room = {.machine = NULL};
    struct arch a;
    struct plan p;

    TRY(find_room(app, &room, err));
    TRY(measure(&p, &a, spec, references, &room, err));
    const bool fits = fits_ever(&room, &p);
    const uint64_t available =
        room.machine == NULL ? sizing_machine() : largest(&room, p.ranks) * (uint64_t)p.ranks;
    json_t *extra = json_pack("{s:b, s:b, s:I, s:I, s:I, s:o, s:o}", "fits", (int)fits, "fits_now",
                              (int)(fits && fits_now(&room, &p)), "available_bytes",
                              (json_int_t)available, "devices", (json_int_t)p.ranks, "device_bytes",
                              (json_int_t)p.total, "on", devices_json(&room), "advice",
                              fits ? json_array() : advise(&a, spec, references, &room));
    *out = plan_json(&p);
    if (*out == NULL || extra == NULL || json_object_update(*out, extra) != 0) {
        json_decref(extra);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    json_decref(extra);
    return 0;
}

int sizing_serve(const struct settings *s, const struct machine *m, const char *dir, int64_t *bytes,
                 struct err *err)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const struct serve_sizes sizes = {.slots = s->serve_slots,
                                      .positions = s->serve_positions,
                                      .piece = SERVE_PIECE,
                                      .bf16 = s->serve_bf16};
    uint64_t room = 0;
    struct plan p;

    for (int i = 0; i < m->device_count; i++) {
        const struct device *d = &m->devices[i];
        const uint64_t bytes_of = d->memory_bytes - d->reserved_bytes;
        room = d->is_usable && bytes_of > room ? bytes_of : room;
    }
    TRY(plan_serve_folder(&p, dir, &sizes, cores > 0 ? (int)cores : 1, err));
    *bytes = (int64_t)p.total;
    if (p.total > room) {
        return FAIL_PARAM(err, ERR_DOES_NOT_FIT, "model",
                          "the model needs %.2f GiB to be served and the machine has devices of "
                          "%.2f GiB at most",
                          (double)p.total / 0x1p30, (double)room / 0x1p30);
    }
    return 0;
}
