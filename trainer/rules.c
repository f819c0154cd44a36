/* rules.c - reads rules.def. */
#include "trainer/rules.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/plan.h"
#include "trainer/ramp.h"

/* Numbers that rows speak of. Where the request leaves one open, one that breaks nothing. */
struct rule_sizes {
    long long devices, tp, cp, pp, dp;
    long long model;         /* devices that one copy of the model is divided over */
    long long micro, global; /* samples */
    long long micros;        /* of a data-parallel rank in a step */
    long long stages, group; /* on a rank; as given, 0: not */
    long long passes;        /* microbatches that pass a virtual stage at a time */
    long long L, H, G, F, sequence;
    bool is_renormalised; /* their weights add up to 1 */
    long long stage;      /* devices of a pipeline stage */
    long long ep, etp;    /* ranks that experts are divided over; of each of them */
    long long E, k;       /* experts, and those of a token */
    long long X, Y;       /* their width, that of what is beside them */
    bool is_placed, splits_rows;
};

enum when { REQUEST, MODEL };

struct row {
    enum when when;
    const char *field;
    ptrdiff_t offset; /* of a whole number in struct spec; -1: other fields */
    bool (*holds)(const struct rule_sizes *z);
    void (*say)(char *out, size_t size, const struct rule_sizes *z);
};

enum { TEXT_BYTES = 400, WORKS_BYTES = 80, FAR = 65536, DEVICES_MAX = 64 };

#define RULE(id, when, field, holds, ...)                                    \
    static bool id##_holds(const struct rule_sizes *z)                       \
    {                                                                        \
        return holds;                                                        \
    }                                                                        \
    static void id##_say(char *out, size_t size, const struct rule_sizes *z) \
    {                                                                        \
        (void)snprintf(out, size, __VA_ARGS__);                              \
    }
#include "trainer/rules.def"

/* Where a whole number is in a request; -1 for other fields. */
#define OFFSET(field)                                           \
    _Generic(((struct spec *)NULL)->field, int64_t              \
             : (ptrdiff_t)offsetof(struct spec, field), default \
             : -1)

static const struct row rows[RULE_COUNT] = {
#define RULE(id, when, field, holds, ...) {when, #field, OFFSET(field), id##_holds, id##_say},
#include "trainer/rules.def"
};

/* Data-parallel ranks; as if they were whole where they are not. */
static int64_t copies_of(const struct spec *s)
{
    const int64_t model =
        s->tensor_model_parallel_size * s->context_parallel_size * s->pipeline_model_parallel_size;
    const int64_t copies = plan_devices(s) / model;

    return copies > 0 ? copies : 1;
}

/* The steps of a request. */
static struct ramp ramp_of(const struct spec *s)
{
    struct ramp r;
    struct err err = {0};

    CHECK(ramp_read(&r, s->batch_size_schedule, s->global_batch_size, 1, &err) == 0, "%s",
          err.text);
    return r;
}

int64_t rules_micro_batch(const struct spec *s)
{
    const struct ramp r = ramp_of(s);
    const int64_t each = ramp_divisor(&r) / copies_of(s), stages = s->pipeline_model_parallel_size;
    int64_t micro = 8;

    if (s->micro_batch_size > 0) {
        return s->micro_batch_size;
    }
    while (micro > 1 && (each % micro != 0 || each / micro < stages)) {
        micro /= 2;
    }
    return micro;
}

/* One of the sizes that steps of a request have; microbatches fit all of them. */
struct batch {
    int64_t size, micro;
};

/* The i-th of its schedule. False: there are no more. */
static bool batch_at(struct batch *out, const struct spec *s, int i)
{
    const struct ramp r = ramp_of(s);

    if (i >= r.count) {
        return false;
    }
    *out = (struct batch){r.size[i], rules_micro_batch(s)};
    return true;
}

static struct rule_sizes sizes_of(const struct spec *s, const struct arch *a, const struct batch *b)
{
    struct rule_sizes z = {.tp = s->tensor_model_parallel_size,
                           .cp = s->context_parallel_size,
                           .pp = s->pipeline_model_parallel_size,
                           .stages = s->num_virtual_stages_per_pipeline_rank,
                           .group = s->microbatch_group_size_per_virtual_pipeline_stage,
                           .is_placed = s->layers_per_stage[0] != '\0',
                           .splits_rows = s->sequence_parallel == SEQUENCE_PARALLEL,
                           .dp = copies_of(s),
                           .micro = b->micro,
                           .global = b->size,
                           .sequence = s->sequence_length};

    z.model = z.tp * z.cp * z.pp;
    z.devices = plan_devices(s);
    z.stage = z.devices / z.pp;
    z.ep = s->expert_model_parallel_size;
    z.etp = s->expert_tensor_parallel_size > 0 ? s->expert_tensor_parallel_size : z.tp;
    z.micros = z.global / (z.micro * z.dp);
    z.passes = z.group > 0 ? z.group : z.pp;
    if (a != NULL) {
        z.L = a->L;
        z.H = a->H;
        z.G = a->G;
        z.F = a->F;
        z.E = a->moe.E;
        z.k = a->moe.k;
        z.is_renormalised = a->moe.renormalise;
        z.X = a->moe.X;
        z.Y = a->moe.Y;
        z.sequence = z.sequence > 0 ? z.sequence : plan_sequence(a);
    }
    return z;
}

static bool breaks(enum rule rule, const struct spec *s, const struct arch *a,
                   const struct batch *b)
{
    const struct rule_sizes z = sizes_of(s, a, b);

    return (a != NULL || rows[rule].when == REQUEST) && !rows[rule].holds(&z);
}

/* The first row that breaks, and the steps in which it does. */
static enum rule find_broken(struct batch *b, const struct spec *s, const struct arch *a)
{
    for (int i = 0; batch_at(b, s, i); i++) {
        for (int rule = 0; rule < (int)RULE_COUNT; rule++) {
            if (breaks((enum rule)rule, s, a, b)) {
                return (enum rule)rule;
            }
        }
    }
    return RULE_COUNT;
}

enum rule rules_broken(const struct spec *s, const struct arch *a)
{
    struct batch b;

    return find_broken(&b, s, a);
}

/* Does a changed request keep the row, those above it and those about the same field, in steps of every size? */
static bool mends(enum rule rule, const struct spec *s, const struct arch *a)
{
    struct batch b;
    bool all = true;

    for (int size = 0; all && batch_at(&b, s, size); size++) {
        for (int i = 0; i < (int)RULE_COUNT && all; i++) {
            const bool counts = i <= (int)rule || rows[i].offset == rows[rule].offset;
            all = !counts || !breaks((enum rule)i, s, a, &b);
        }
    }
    return all;
}

/* The nearest value of the row's field, in steps of `step`, with which it would hold; 0: none. */
static int64_t nearest(enum rule rule, const struct spec *s, const struct arch *a, int64_t step)
{
    struct spec other = *s; /* borrows */
    void *at = (char *)&other + rows[rule].offset;
    int64_t *field = at;

    for (*field += step; *field >= 1 && *field <= FAR; *field += step) {
        if (mends(rule, &other, a)) {
            return *field;
        }
    }
    return 0;
}

static void say_what_works(char out[WORKS_BYTES], enum rule rule, const struct spec *s,
                           const struct arch *a)
{
    const long long below = rows[rule].offset < 0 ? 0 : nearest(rule, s, a, -1),
                    above = rows[rule].offset < 0 ? 0 : nearest(rule, s, a, 1);

    out[0] = '\0';
    if (below > 0 && above > 0) {
        (void)snprintf(out, WORKS_BYTES, "; %lld or %lld would work", below, above);
    } else if (below + above > 0) {
        (void)snprintf(out, WORKS_BYTES, "; %lld would work", below + above);
    }
}

/* A request whose steps all are of one size of its schedule; borrows. */
static struct spec of_one_size(const struct spec *s, const struct batch *b)
{
    struct spec one = *s;

    one.batch_size_schedule[0] = '\0';
    one.global_batch_size = b->size;
    one.micro_batch_size = b->micro;
    return one;
}

int rules_check(const struct spec *s, const struct arch *a, struct err *err)
{
    char text[TEXT_BYTES], works[WORKS_BYTES];
    struct batch b;
    const enum rule rule = find_broken(&b, s, a);

    if (rule == RULE_COUNT) {
        return 0;
    }
    const struct rule_sizes z = sizes_of(s, a, &b);
    rows[rule].say(text, sizeof text, &z);
    if (s->batch_size_schedule[0] != '\0' && strcmp(rows[rule].field, "global_batch_size") == 0) {
        const struct spec one = of_one_size(s, &b);
        say_what_works(works, rule, &one, a);
        return FAIL_PARAM(err, ERR_BAD_SPEC, "batch_size_schedule",
                          "in the steps of %lld samples of batch_size_schedule, %s%s",
                          (long long)b.size, text, works);
    }
    say_what_works(works, rule, s, a);
    return FAIL_PARAM(err, ERR_BAD_SPEC, rows[rule].field, "%s%s", text, works);
}
