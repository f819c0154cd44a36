/* grid.c - a grid of values over fields of a request. */
#include "server/grid.h"

#include <stdio.h>
#include <string.h>

#include "server/text.h"
#include "trainer/base/json.h"
#include "trainer/base/text.h"

enum { VALUE_SHOWN = 40 };

static int read_values(struct grid_field *f, const json_t *values, size_t *bytes, struct err *err)
{
    *bytes = 0;
    if (!json_is_array(values) || json_array_size(values) == 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid",
                          "each field of grid has a list of at least one value");
    }
    if (json_array_size(values) > GRID_POINTS) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid", "grid has more than %d points, the most",
                          GRID_POINTS);
    }
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        if (!json_is_number(v) && !json_is_string(v) && !json_is_object(v)) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid",
                              "values in grid are numbers, texts or objects");
        }
        for (size_t k = 0; k < i; k++) {
            if (json_equal(v, json_array_get(values, k))) {
                return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid",
                                  "values %zu and %zu of a field of grid are the same", k + 1,
                                  i + 1);
            }
        }
        const size_t size = json_dumpb(v, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
        *bytes = size > *bytes ? size : *bytes;
    }
    f->values = values;
    return 0;
}

int grid_read(struct grid *out, const json_t *object, struct err *err)
{
    const char *name;
    json_t *values;

    *out = (struct grid){.point_count = 1};
    if (json_object_size(object) == 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid", "grid has no field");
    }
    json_object_foreach(json_unconst(object), name, values)
    {
        struct grid_field *f = &out->fields[out->field_count];
        size_t bytes = 0;
        if (out->field_count == GRID_FIELDS) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid",
                              "grid has more than %d fields, the most", GRID_FIELDS);
        }
        f->name = name;
        TRY(read_values(f, values, &bytes, err));
        out->bytes += strlen(name) + bytes + 4;
        out->point_count *= (int)json_array_size(values); /* at most GRID_POINTS squared */
        if (out->point_count > GRID_POINTS) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "grid",
                              "grid has more than %d points, the most", GRID_POINTS);
        }
        out->field_count++;
    }
    return 0;
}

/* Which value of field f a point has. */
static size_t value_index(const struct grid *g, int point, int f)
{
    for (int i = g->field_count - 1; i > f; i--) {
        point /= (int)json_array_size(g->fields[i].values);
    }
    return (size_t)point % json_array_size(g->fields[f].values);
}

json_t *grid_point(const struct grid *g, int point)
{
    json_t *out = json_object();

    for (int f = 0; f < g->field_count; f++) {
        json_t *v = json_array_get(g->fields[f].values, value_index(g, point, f));
        if (json_object_set(out, g->fields[f].name, v) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* "learning_rate=0.001"; values that are no short word are told by their number, "config=#2". */
static size_t show_value(char *out, size_t size, const struct grid_field *f, size_t index)
{
    const json_t *v = json_array_get(f->values, index);
    const char *text = json_string_value(v);

    if (json_is_integer(v)) {
        return (size_t)snprintf(out, size, "%s=%lld", f->name, (long long)json_integer_value(v));
    }
    if (json_is_real(v)) {
        return (size_t)snprintf(out, size, "%s=%g", f->name, json_real_value(v));
    }
    if (text != NULL && strlen(text) <= VALUE_SHOWN && text_is_plain(text)) {
        return (size_t)snprintf(out, size, "%s=%s", f->name, text);
    }
    return (size_t)snprintf(out, size, "%s=#%zu", f->name, index + 1);
}

void grid_name(char *out, size_t size, const struct grid *g, int point, const char *base)
{
    char brief[16], cut[256];
    size_t n = (size_t)snprintf(out, size, "%s", base);

    for (int f = 0; f < g->field_count && n < size; f++) {
        n += (size_t)snprintf(out + n, size - n, f == 0 ? " [" : " ");
        n += n < size ? show_value(out + n, size - n, &g->fields[f], value_index(g, point, f)) : 0;
    }
    if (n + 1 < size) {
        (void)snprintf(out + n, size - n, "]");
        return;
    }
    const size_t tail = (size_t)snprintf(brief, sizeof brief, " [#%d]", point);
    const size_t room = size - tail < sizeof cut ? size - tail : sizeof cut;
    text_clean(cut, room, base);
    (void)snprintf(out, size, "%s%s", cut, brief);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    size_t i = 0;

    while (i < count && strcmp(names[i], name) != 0) {
        i++;
    }
    return i < count;
}

/* Over the fields that are among the names, or over those that are not. */
static int combination(const struct grid *g, int point, const char *const *names, size_t count,
                       bool among)
{
    int number = 0;

    for (int f = 0; f < g->field_count; f++) {
        if (is_among(g->fields[f].name, names, count) == among) {
            number =
                number * (int)json_array_size(g->fields[f].values) + (int)value_index(g, point, f);
        }
    }
    return number;
}

int grid_files(const struct grid *g, int point)
{
    static const char *const names[] = {"training_file", "validation_file", "model",  "adapter",
                                        "tokenizer",     "on_problem",      "method", "config"};

    return combination(g, point, names, sizeof names / sizeof names[0], true);
}

int grid_shape(const struct grid *g, int point)
{
    static const char *const harmless[] = {
        "name",          "max_steps",       "n_epochs",     "learning_rate",
        "lr_schedule",   "wsd_decay_steps", "warmup_steps", "min_learning_rate",
        "weight_decay",  "wsd_decay_style", "adam_beta1",   "adam_beta2",
        "adam_eps",      "clip_grad",       "seed",         "log_interval",
        "eval_interval", "save_interval",   "priority",     "time_limit_s",
        "at_time_limit", "preemptible",     "begin_at",     "visibility",
    };

    return combination(g, point, harmless, sizeof harmless / sizeof harmless[0], false);
}
