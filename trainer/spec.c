/* spec.c - reads, checks and writes the fields of spec.def, by one table.
 *
 * A whole number may be written 3 or 3.0 or 3e0, as JSON Schema has it; 3.5 is refused. The
 * default of a row is accepted as a value even where it stands for "decided by Hone" and lies
 * outside [low, high], so that what spec_json writes is a request that spec_parse reads. */
#include "trainer/spec.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/base/json.h"
#include "trainer/base/text.h"
#include "trainer/prompt_fields.h"
#include "trainer/ramp.h"
#include "trainer/rules.h"

enum { CONFIG_BYTES_MAX = 64 << 10, NAME_SHOWN = 60 };

/* Texts that may be longer than this may have several lines. */
enum { LINE_MAX_BYTES = 1024 };

enum row_kind { ROW_TEXT, ROW_OBJECT, ROW_INTEGER, ROW_NUMBER, ROW_CHOICE };

struct row {
    const char *name, *help;
    enum row_kind kind;
    size_t offset, size; /* of the member; size only of ROW_TEXT */
    int64_t preset_integer, low_integer, high_integer;
    double preset, low, high;
    const char *choice, *choices; /* default, and "a|b|c" */
};

#define MEMBER(field) .name = #field, .offset = offsetof(struct spec, field)

static const struct row rows[] = {
#define TEXT(field, n, text) {.kind = ROW_TEXT, .help = (text), .size = (n) + 1, MEMBER(field)},
#define OBJECT(field, text)  {.kind = ROW_OBJECT, .help = (text), MEMBER(field)},
#define INTEGER(field, p, l, h, text) \
    {.kind = ROW_INTEGER,             \
     .help = (text),                  \
     .preset_integer = (p),           \
     .low_integer = (l),              \
     .high_integer = (h),             \
     MEMBER(field)},
#define NUMBER(field, p, l, h, text) \
    {.kind = ROW_NUMBER, .help = (text), .preset = (p), .low = (l), .high = (h), MEMBER(field)},
#define CHOICE(field, p, list, text) \
    {.kind = ROW_CHOICE, .help = (text), .choice = (p), .choices = (list), MEMBER(field)},
#include "trainer/spec.def"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static const void *member(const struct spec *s, const struct row *row)
{
    return (const char *)s + row->offset;
}

static void *member_of(struct spec *s, const struct row *row)
{
    return (char *)s + row->offset;
}

/* Where word number `index` of "a|b|c" begins, and its length; NULL behind the last. */
static const char *choice_at(const char *choices, int index, size_t *length)
{
    const char *word = choices;

    for (int i = 0; i < index; i++) {
        word = strchr(word, '|');
        if (word == NULL) {
            return NULL;
        }
        word++;
    }
    *length = strcspn(word, "|");
    return word;
}

/* The index of `text` in "a|b|c", -1 when it is not there. */
static int choice_find(const char *choices, const char *text)
{
    size_t length;

    for (int i = 0;; i++) {
        const char *word = choice_at(choices, i, &length);
        if (word == NULL) {
            return -1;
        }
        if (strlen(text) == length && memcmp(word, text, length) == 0) {
            return i;
        }
    }
}

static void set_default(struct spec *s, const struct row *row)
{
    void *at = member_of(s, row);

    switch (row->kind) {
    case ROW_TEXT: memset(at, 0, row->size); break;
    case ROW_OBJECT: *(json_t **)at = NULL; break;
    case ROW_INTEGER: *(int64_t *)at = row->preset_integer; break;
    case ROW_NUMBER: *(double *)at = row->preset; break;
    case ROW_CHOICE: *(int *)at = choice_find(row->choices, row->choice); break;
    }
}

static int read_text(char *out, const struct row *row, const struct fields *f, struct err *err)
{
    const char *text = NULL;

    TRY(fields_text(f, row->name, FIELD_OPTIONAL, &text, err));
    if (text == NULL) {
        return 0;
    }
    const size_t length = json_string_length(json_object_get(f->object, row->name));
    if (length >= row->size) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, row->name, "%s has %zu bytes, at most %zu are allowed",
                          row->name, length, row->size - 1);
    }
    for (size_t i = 0; i < length;) {
        const bool blank = row->size > LINE_MAX_BYTES && strchr("\n\r\t", text[i]) != NULL;
        const size_t n = text[i] != '\0' && blank ? 1 : text_character(text + i, length - i);
        if (n == 0) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, row->name,
                              "%s must be UTF-8 without control characters; byte %zu is not",
                              row->name, i + 1);
        }
        i += n;
    }
    memcpy(out, text, length + 1);
    return 0;
}

static int read_object(json_t **out, const struct row *row, const struct fields *f, struct err *err)
{
    const json_t *object = NULL;

    TRY(fields_object(f, row->name, FIELD_OPTIONAL, &object, err));
    if (object == NULL) {
        return 0;
    }
    const size_t bytes = json_dumpb(object, NULL, 0, JSON_COMPACT);
    if (bytes == 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, row->name, "%s can't be written as JSON", row->name);
    }
    if (bytes > CONFIG_BYTES_MAX) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, row->name, "%s has %zu bytes, at most %d are allowed",
                          row->name, bytes, CONFIG_BYTES_MAX);
    }
    *out = json_deep_copy(object);
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %s of %zu bytes", row->name, bytes);
    }
    return 0;
}

static int read_choice(int *out, const struct row *row, const struct fields *f, struct err *err)
{
    const char *text = NULL;
    char list[200];

    TRY(fields_text(f, row->name, FIELD_OPTIONAL, &text, err));
    if (text == NULL) {
        return 0;
    }
    const int index = choice_find(row->choices, text);
    if (index < 0) {
        (void)snprintf(list, sizeof list, "%s", row->choices);
        for (char *bar = strchr(list, '|'); bar != NULL; bar = strchr(bar, '|')) {
            *bar = ' ';
        }
        return FAIL_PARAM(err, ERR_BAD_SPEC, row->name, "%s must be one of: %s", row->name, list);
    }
    *out = index;
    return 0;
}

static int read_row(struct spec *s, const struct row *row, const struct fields *f, struct err *err)
{
    void *at = member_of(s, row);
    const json_t *value = json_object_get(f->object, row->name);

    switch (row->kind) {
    case ROW_TEXT: return read_text(at, row, f, err);
    case ROW_OBJECT: return read_object(at, row, f, err);
    case ROW_INTEGER:
        if (json_is_number(value) && json_number_value(value) == (double)row->preset_integer) {
            return 0;
        }
        return fields_integer(f, row->name, FIELD_OPTIONAL, row->low_integer, row->high_integer, at,
                              err);
    case ROW_NUMBER:
        if (json_is_number(value) && json_number_value(value) == row->preset) {
            return 0;
        }
        return fields_number(f, row->name, FIELD_OPTIONAL, row->low, row->high, at, err);
    case ROW_CHOICE: return read_choice(at, row, f, err);
    }
    CHECK(false, "row %s has kind %d", row->name, (int)row->kind);
}

/* Levenshtein distance; the first NAME_SHOWN bytes count. */
static int edit_distance(const char *a, const char *b)
{
    int row[NAME_SHOWN + 1];
    const int m = (int)strnlen(a, NAME_SHOWN), n = (int)strnlen(b, NAME_SHOWN);

    for (int j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= m; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int replace = diagonal + (a[i - 1] != b[j - 1]);
            const int drop = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < drop ? replace : drop;
        }
    }
    return row[n];
}

/* The known name that is most likely meant: few edits away, or ending in _NAME; else NULL. */
static const char *closest_name(const char *name)
{
    const size_t length = strlen(name);
    const int allowed = length < 6 ? 2 : (int)(length / 3);
    const char *closest = NULL;
    int least = allowed + 1;

    for (int i = 0; i < ROWS; i++) {
        const int distance = edit_distance(name, rows[i].name);
        if (distance < least) {
            least = distance;
            closest = rows[i].name;
        }
    }
    for (int i = 0; i < ROWS && closest == NULL; i++) {
        const size_t known = strlen(rows[i].name);
        const char *tail = rows[i].name + (known > length ? known - length : 0);
        if (known > length && length >= 4 && tail[-1] == '_' && strcmp(tail, name) == 0) {
            closest = rows[i].name;
        }
    }
    return closest;
}

static int refuse_unknown(const char *name, struct err *err)
{
    char shown[NAME_SHOWN + 1];

    text_clean(shown, sizeof shown, name);
    const char *closest = closest_name(name);
    return FAIL_PARAM(err, ERR_BAD_SPEC, shown, "there is no field \"%s\"%s%s%s", shown,
                      closest == NULL ? "" : "; did you mean \"", closest == NULL ? "" : closest,
                      closest == NULL ? "" : "\"?");
}

static int check_names(const json_t *request, struct err *err)
{
    /* Jansson's iterators only read, but take a pointer that is not const. */
    const union {
        const json_t *borrowed;
        json_t *object;
    } iterable = {.borrowed = request};

    for (void *at = json_object_iter(iterable.object); at != NULL;
         at = json_object_iter_next(iterable.object, at)) {
        const char *name = json_object_iter_key(at);
        int i = 0;
        while (i < ROWS && strcmp(rows[i].name, name) != 0) {
            i++;
        }
        if (i == ROWS) {
            return refuse_unknown(name, err);
        }
    }
    return 0;
}

/* Where the weights, the tokenizer and the text come from. */
static int check_sources(const struct spec *s, struct err *err)
{
    const bool has_model = s->model[0] != '\0', has_config = s->config != NULL;
    const bool has_tokenizer = s->tokenizer[0] != '\0', trains = s->tokenizer_vocab_size > 0;

    if (s->training_file[0] == '\0') {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "training_file",
                          "training_file is missing: a file id or root:path");
    }
    if (has_model && has_config) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "config",
                          "give model or config, not both: config starts from random weights");
    }
    if (!has_model && !has_config) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "model",
                          "model is missing; for a new model with random weights give config");
    }
    if (has_tokenizer && trains) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "tokenizer_vocab_size",
                          "give tokenizer or tokenizer_vocab_size, not both");
    }
    if (has_config && !has_tokenizer && !trains) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "tokenizer",
                          "with config, give tokenizer, or tokenizer_vocab_size to train one");
    }
    if (has_model && trains) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "tokenizer_vocab_size",
                          "a newly trained tokenizer does not match the weights of model; "
                          "tokenizer_vocab_size goes with config");
    }
    return 0;
}

/* What comes with adapters, and only with them. */
static int check_adapters(const struct spec *s, struct err *err)
{
    const bool has_adapter = s->adapter[0] != '\0', has_rank = s->lora_rank > 0;
    const char *detail = s->lora_alpha > 0.0          ? "lora_alpha"
                         : s->lora_targets[0] != '\0' ? "lora_targets"
                         : s->lora_rslora != 0        ? "lora_rslora"
                         : s->lora_also[0] != '\0'    ? "lora_also"
                                                      : NULL;

    if (has_adapter && (has_rank || detail != NULL)) {
        const char *field = has_rank ? "lora_rank" : detail;
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "adapter brings its own rank, alpha and layers: leave %s out", field);
    }
    if (!has_adapter && !has_rank && (detail != NULL || s->lora_dropout >= 0.0)) {
        const char *field = detail != NULL ? detail : "lora_dropout";
        return FAIL_PARAM(err, ERR_BAD_SPEC, field, "%s goes with lora_rank or adapter", field);
    }
    if ((has_adapter || has_rank) && s->config != NULL) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, has_rank ? "lora_rank" : "adapter",
                          "an adapter is trained on the weights of model; config has only random "
                          "ones");
    }
    return 0;
}

static int check_evaluations(const struct spec *s, struct err *err)
{
    if (s->early_stopping_min_delta > 0.0 && s->early_stopping_patience == 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "early_stopping_min_delta",
                          "early_stopping_min_delta goes with early_stopping_patience");
    }
    return s->sample_prompts != NULL ? prompt_fields_check(s->sample_prompts, err) : 0;
}

static int check_scale(const struct spec *s, struct err *err)
{
    if (s->loss_scale > 0.0 && s->precision != PRECISION_FP16) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "loss_scale", "loss_scale goes with precision=fp16");
    }
    if (s->initial_loss_scale < s->min_loss_scale) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "min_loss_scale",
                          "min_loss_scale %g is above initial_loss_scale %g", s->min_loss_scale,
                          s->initial_loss_scale);
    }
    return 0;
}

static int check_steps(const struct spec *s, struct err *err)
{
    if (s->max_steps > 0 && s->n_epochs > 0.0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "n_epochs", "give max_steps or n_epochs, not both");
    }
    if (s->min_learning_rate > s->learning_rate) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "min_learning_rate",
                          "min_learning_rate %g is above learning_rate %g", s->min_learning_rate,
                          s->learning_rate);
    }
    if (s->max_steps == 0) {
        return 0;
    }
    if (s->warmup_steps > s->max_steps) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "warmup_steps",
                          "warmup_steps %lld is above max_steps %lld", (long long)s->warmup_steps,
                          (long long)s->max_steps);
    }
    const int64_t warmup = s->warmup_steps > 0 ? s->warmup_steps : 0;
    if (s->lr_schedule == LR_WSD && s->wsd_decay_steps > s->max_steps - warmup) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "wsd_decay_steps",
                          "warmup_steps %lld and wsd_decay_steps %lld are more than max_steps %lld",
                          (long long)warmup, (long long)s->wsd_decay_steps,
                          (long long)s->max_steps);
    }
    return 0;
}

/* The batch of a schedule is the largest of its steps. */
static int check_batches(struct spec *s, const json_t *request, struct err *err)
{
    const json_t *given = json_object_get(request, "global_batch_size");
    struct ramp r;

    if (s->batch_size_schedule[0] == '\0') {
        return 0;
    }
    TRY(ramp_read(&r, s->batch_size_schedule, 0, 1, err));
    if (json_is_integer(given) && s->global_batch_size != ramp_largest(&r)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "global_batch_size",
                          "batch_size_schedule says how many samples steps have, at most %lld: "
                          "leave global_batch_size %lld out",
                          (long long)ramp_largest(&r), (long long)s->global_batch_size);
    }
    s->global_batch_size = ramp_largest(&r);
    return 0;
}

static int parse_into(struct spec *s, const json_t *request, struct err *err)
{
    const struct fields f = {.object = request, .where = "", .code = ERR_BAD_SPEC};

    TRY(check_names(request, err));
    for (int i = 0; i < ROWS; i++) {
        TRY(read_row(s, &rows[i], &f, err));
    }
    TRY(check_sources(s, err));
    TRY(check_adapters(s, err));
    TRY(check_evaluations(s, err));
    TRY(check_scale(s, err));
    TRY(check_steps(s, err));
    TRY(check_batches(s, request, err));
    return rules_check(s, NULL, err);
}

int spec_parse(struct spec *out, const json_t *request, struct err *err)
{
    for (int i = 0; i < ROWS; i++) {
        set_default(out, &rows[i]);
    }
    if (!json_is_object(request)) {
        return FAIL(err, ERR_BAD_SPEC, "a job request must be a JSON object");
    }
    const int rc = parse_into(out, request, err);
    if (rc != 0) {
        spec_free(out);
    }
    return rc;
}

void spec_free(struct spec *s)
{
    if (s == NULL) {
        return;
    }
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].kind == ROW_OBJECT) {
            json_t **object = member_of(s, &rows[i]);
            json_decref(*object);
            *object = NULL;
        }
    }
}

static json_t *row_value(const struct spec *s, const struct row *row)
{
    const void *at = member(s, row);
    size_t length = 0;

    switch (row->kind) {
    case ROW_TEXT: return *(const char *)at == '\0' ? json_null() : json_string(at);
    case ROW_OBJECT: {
        json_t *const *object = at;
        return *object == NULL ? json_null() : json_deep_copy(*object);
    }
    case ROW_INTEGER: return json_integer(*(const int64_t *)at);
    case ROW_NUMBER: return json_real(*(const double *)at);
    case ROW_CHOICE: {
        const char *word = choice_at(row->choices, *(const int *)at, &length);
        return word == NULL ? NULL : json_stringn(word, length);
    }
    }
    CHECK(false, "row %s has kind %d", row->name, (int)row->kind);
}

json_t *spec_json(const struct spec *s)
{
    json_t *object = json_object();

    for (int i = 0; i < ROWS; i++) {
        if (json_object_set_new(object, rows[i].name, row_value(s, &rows[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *choices_json(const char *choices)
{
    json_t *list = json_array();
    size_t length;

    for (int i = 0;; i++) {
        const char *word = choice_at(choices, i, &length);
        if (word == NULL) {
            return list;
        }
        if (json_array_append_new(list, json_stringn(word, length)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
}

/* A default outside [low, high] stands for "decided by Hone" and is not shown as a value. */
static json_t *row_schema(const struct row *row)
{
    const bool shows_integer = row->preset_integer >= row->low_integer;
    const bool shows_number = row->preset >= row->low;

    switch (row->kind) {
    case ROW_TEXT:
        return json_pack("{s:s, s:n, s:I, s:s}", "type", "string", "default", "maxLength",
                         (json_int_t)(row->size - 1), "description", row->help);
    case ROW_OBJECT:
        return json_pack("{s:s, s:n, s:s}", "type", "object", "default", "description", row->help);
    case ROW_INTEGER:
        return json_pack("{s:s, s:o, s:I, s:I, s:s}", "type", "integer", "default",
                         shows_integer ? json_integer(row->preset_integer) : json_null(), "minimum",
                         (json_int_t)row->low_integer, "maximum", (json_int_t)row->high_integer,
                         "description", row->help);
    case ROW_NUMBER:
        return json_pack("{s:s, s:o, s:f, s:f, s:s}", "type", "number", "default",
                         shows_number ? json_real(row->preset) : json_null(), "minimum", row->low,
                         "maximum", row->high, "description", row->help);
    case ROW_CHOICE:
        return json_pack("{s:s, s:s, s:o, s:s}", "type", "string", "default", row->choice, "enum",
                         choices_json(row->choices), "description", row->help);
    }
    CHECK(false, "row %s has kind %d", row->name, (int)row->kind);
}

json_t *spec_schema(void)
{
    json_t *object = json_object();

    for (int i = 0; i < ROWS; i++) {
        if (json_object_set_new(object, rows[i].name, row_schema(&rows[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
