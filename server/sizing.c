/* sizing.c - what a job will need: the trainer's own plan, against the memory of this machine. */
#include "server/sizing.h"

#include <stdio.h>
#include <unistd.h>

#include "trainer/plan.h"

/* A change of a request that lowers what it needs. */
struct change {
    const char *field, *value;
    void (*apply)(struct spec *s);
    bool (*is_new)(const struct spec *s);
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

static const struct change changes[] = {
    {"micro_batch_size", "1", set_micro, has_larger_micro},
    {"recompute", "full", set_recompute, keeps_all},
    {"precision", "bf16", set_bf16, is_f32},
};

uint64_t sizing_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static int thread_count(const struct spec *spec)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return spec->threads > 0 ? (int)spec->threads : cores > 0 ? (int)cores : 1;
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

/* Single changes with which it fits: a JSON array of {field, value, memory_bytes}. */
static json_t *advise(const struct arch *a, const struct spec *spec, uint64_t room)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct spec one = *spec;
        struct plan p;
        struct err err = {0};
        if (!changes[i].is_new(spec)) {
            continue;
        }
        changes[i].apply(&one);
        if (plan_make(&p, a, &one, thread_count(spec), &err) == 0 && p.total <= room) {
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "field",
                                                        changes[i].field, "value", changes[i].value,
                                                        "memory_bytes", (json_int_t)p.total));
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

static int refuse(const struct arch *a, const struct spec *spec, const struct plan *p,
                  uint64_t room, struct err *err)
{
    char text[160];
    json_t *advice = advise(a, spec, room);

    advice_text(text, sizeof text, advice);
    json_decref(advice);
    return FAIL(err, ERR_DOES_NOT_FIT,
                "the job needs %.2f GiB and the machine has %.2f GiB; the largest part are %s with "
                "%.2f GiB%s",
                (double)p->total / 0x1p30, (double)room / 0x1p30, plan_largest(p),
                (double)plan_largest_bytes(p) / 0x1p30, text);
}

/* The plan of a request, and the architecture that it is of. */
static int measure(struct plan *out, struct arch *a, const struct spec *spec,
                   const json_t *references, struct err *err)
{
    TRY(find_arch(a, spec, references, err));
    return plan_make(out, a, spec, thread_count(spec), err);
}

int sizing_check(const struct app *app, const struct spec *spec, const json_t *references,
                 struct sizing *out, struct err *err)
{
    const uint64_t room = sizing_machine();
    struct arch a;
    struct plan p;

    (void)app;
    TRY(measure(&p, &a, spec, references, err));
    *out = (struct sizing){.memory_bytes = (int64_t)p.total, .parameters = p.parameters};
    return room != 0 && p.total > room ? refuse(&a, spec, &p, room, err) : 0;
}

int sizing_plan(const struct app *app, const struct spec *spec, const json_t *references,
                json_t **out, struct err *err)
{
    const uint64_t room = sizing_machine();
    struct arch a;
    struct plan p;

    (void)app;
    TRY(measure(&p, &a, spec, references, err));
    const bool fits = room == 0 || p.total <= room;
    json_t *extra =
        json_pack("{s:b, s:I, s:o}", "fits", (int)fits, "available_bytes", (json_int_t)room,
                  "advice", fits ? json_array() : advise(&a, spec, room));
    *out = plan_json(&p);
    if (*out == NULL || extra == NULL || json_object_update(*out, extra) != 0) {
        json_decref(extra);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    json_decref(extra);
    return 0;
}

int sizing_serve(const struct settings *s, const char *dir, int64_t *bytes, struct err *err)
{
    const uint64_t room = sizing_machine();
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const struct serve_sizes sizes = {.slots = s->serve_slots,
                                      .positions = s->serve_positions,
                                      .piece = SERVE_PIECE,
                                      .bf16 = s->serve_bf16};
    struct plan p;

    TRY(plan_serve_folder(&p, dir, &sizes, cores > 0 ? (int)cores : 1, err));
    *bytes = (int64_t)p.total;
    if (room != 0 && p.total > room) {
        return FAIL_PARAM(err, ERR_DOES_NOT_FIT, "model",
                          "the model needs %.2f GiB to be served and the machine has %.2f GiB",
                          (double)p.total / 0x1p30, (double)room / 0x1p30);
    }
    return 0;
}
