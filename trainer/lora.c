/* lora.c - adapter_config.json, and the names in it. */
#include "trainer/lora.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trainer/also.h"
#include "trainer/base/json.h"
#include "trainer/base/text.h"
#include "trainer/params.h"

enum { CONFIG_BYTES = 1 << 20, SHOWN = 81 };

static const double ALPHA_LEAST = 1e-6, ALPHA_MOST = 1e6, DROPOUT_MOST = 0.9;

/* Whether the linear layer is one of this architecture's. */
static bool is_target(const struct arch *a, enum lora_target t)
{
    const bool fused = a->family == FAMILY_GPT2;

    switch (t) {
    case LORA_Q:
    case LORA_K:
    case LORA_V: return !fused;
    case LORA_QKV: return fused;
    case LORA_GATE: return a->gated && a->moe.E == 0;
    case LORA_UP:
    case LORA_DOWN: return a->moe.E == 0;
    case LORA_OUT:
    case LORA_TARGETS: break;
    }
    return t < LORA_TARGETS;
}

static unsigned all_targets(const struct arch *a)
{
    unsigned all = 0;

    for (int t = 0; t < LORA_TARGETS; t++) {
        all |= is_target(a, (enum lora_target)t) ? 1U << (unsigned)t : 0;
    }
    return all;
}

/* "model.layers.%d.self_attn.q_proj": what the adapters' weights are named after. */
static const char *module_path(const struct arch *a, enum lora_target t, size_t *length)
{
    static const char weight[] = ".weight";
    const char *name = param_get(param_lora_site(t).first, a).format;

    *length = strlen(name) - strlen(weight);
    return name;
}

/* The layers that a name means, as PEFT has it: a path that is the name or ends in a dot and the name. */
static unsigned targets_named(const struct arch *a, const char *name, size_t bytes)
{
    unsigned found = 0;

    for (int t = 0; t < LORA_TARGETS; t++) {
        size_t length = 0;
        if (!is_target(a, (enum lora_target)t)) {
            continue;
        }
        const char *path = module_path(a, (enum lora_target)t, &length);
        if (bytes > 0 && bytes < length && path[length - bytes - 1] == '.' &&
            strncmp(path + length - bytes, name, bytes) == 0) {
            found |= 1U << (unsigned)t;
        }
    }
    return found;
}

/* The shortest name of a target that means no layer without an adapter. */
static const char *target_name(const struct arch *a, enum lora_target t, size_t *length)
{
    size_t whole = 0;
    const char *path = module_path(a, t, &whole), *at = path + whole;

    while (at > path) {
        for (at--; at > path && at[-1] != '.';) {
            at--;
        }
        *length = whole - (size_t)(at - path);
        if ((targets_named(a, at, *length) & ~a->lora.targets) == 0) {
            break;
        }
    }
    return at;
}

static int unknown_target(const struct arch *a, const char *field, const char *name, size_t bytes,
                          enum err_code code, struct err *err)
{
    char text[SHOWN], shown[SHOWN], known[200] = "";
    struct arch all = *a;

    (void)snprintf(text, sizeof text, "%.*s", (int)(bytes < SHOWN ? bytes : SHOWN), name);
    text_clean(shown, sizeof shown, text);
    all.lora.targets = all_targets(a);
    for (int t = 0; t < LORA_TARGETS; t++) {
        size_t length = 0;
        if (is_target(a, (enum lora_target)t)) {
            const char *target = target_name(&all, (enum lora_target)t, &length);
            const size_t used = strlen(known);
            (void)snprintf(known + used, sizeof known - used, "%s%.*s", used > 0 ? " " : "",
                           (int)length, target);
        }
    }
    return FAIL_PARAM(err, code, field,
                      "%s: \"%s\" is no linear layer that can have an adapter in this model; there "
                      "are: %s",
                      field, shown, known);
}

static int read_list(unsigned *out, const struct arch *a, const char *list, struct err *err)
{
    const char *at = list;

    *out = 0;
    while (true) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, ",");
        size_t bytes = length;
        while (bytes > 0 && at[bytes - 1] == ' ') {
            bytes--;
        }
        const unsigned found = targets_named(a, at, bytes);
        if (found == 0) {
            return unknown_target(a, "lora_targets", at, bytes, ERR_BAD_SPEC, err);
        }
        *out |= found;
        if (at[length] == '\0') {
            return 0;
        }
        at += length + 1;
    }
}

int lora_choose(struct lora_choice *out, const struct arch *a, const struct spec *s,
                const char *adapter_dir, struct err *err)
{
    *out = (struct lora_choice){.r = 0};
    if (s->adapter[0] != '\0' && adapter_dir != NULL && adapter_dir[0] != '\0') {
        const int rc = lora_read(out, a, adapter_dir, err);
        if (rc != 0) {
            err_about(err, "adapter");
            return rc;
        }
    } else if (s->lora_rank > 0) {
        *out = (struct lora_choice){.r = s->lora_rank,
                                    .alpha = s->lora_alpha > 0.0 ? s->lora_alpha
                                                                 : 2.0 * (double)s->lora_rank,
                                    .rslora = s->lora_rslora != 0,
                                    .targets = all_targets(a)};
        if (s->lora_targets[0] != '\0' && strcmp(s->lora_targets, "all-linear") != 0) {
            TRY(read_list(&out->targets, a, s->lora_targets, err));
        }
        if (s->lora_also[0] != '\0' && strcmp(s->lora_also, "none") != 0) {
            TRY(also_choose(&out->also, a, s->lora_also, err));
        }
    }
    if (out->r > 0 && s->lora_dropout >= 0.0) {
        out->dropout = s->lora_dropout;
    }
    return 0;
}

/* Fields whose presence changes the computation, or the base model, in a way that Hone does not do: they must be absent,
 * null, false, 0 or empty. */
static int refuse_unsupported(const json_t *config, struct err *err)
{
    static const char *const must_be_off[] = {
        "use_dora",          "use_qalora",
        "lora_bias",         "rank_pattern",
        "alpha_pattern",     "layers_to_transform",
        "layer_replication", "exclude_modules",
        "target_parameters", "trainable_token_indices",
        "megatron_config",   "alora_invocation_tokens",
    };
    static const char *const changes_base[] = {"pissa", "olora", "corda", "loftq"};
    const char *init = json_string_value(json_object_get(config, "init_lora_weights"));
    const json_t *bias = json_object_get(config, "bias");

    for (size_t i = 0; i < sizeof must_be_off / sizeof must_be_off[0]; i++) {
        const json_t *v = json_object_get(config, must_be_off[i]);
        const bool empty = (json_is_array(v) && json_array_size(v) == 0) ||
                           (json_is_object(v) && json_object_size(v) == 0);
        if (v != NULL && !json_is_null(v) && !json_is_false(v) && !empty) {
            return FAIL(err, ERR_NO_MODEL, LORA_CONFIG ": %s is not supported", must_be_off[i]);
        }
    }
    if (bias != NULL && !json_is_null(bias) &&
        (!json_is_string(bias) || strcmp(json_string_value(bias), "none") != 0)) {
        return FAIL(err, ERR_NO_MODEL, LORA_CONFIG ": only bias \"none\" is supported");
    }
    for (size_t i = 0; init != NULL && i < sizeof changes_base / sizeof changes_base[0]; i++) {
        if (strncmp(init, changes_base[i], strlen(changes_base[i])) == 0) {
            return FAIL(err, ERR_NO_MODEL,
                        LORA_CONFIG ": init_lora_weights %s changes the base model and is not "
                                    "supported",
                        changes_base[i]);
        }
    }
    return 0;
}

static int read_targets(unsigned *out, const struct arch *a, const json_t *config, struct err *err)
{
    const json_t *list = json_object_get(config, "target_modules");

    *out = 0;
    if (json_is_string(list) && strcmp(json_string_value(list), "all-linear") == 0) {
        *out = all_targets(a);
        return 0;
    }
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return FAIL(err, ERR_NO_MODEL,
                    LORA_CONFIG ": target_modules must be a list of names or \"all-linear\"");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item)) {
            return FAIL(err, ERR_NO_MODEL, LORA_CONFIG ": target_modules must hold only names");
        }
        const char *name = json_string_value(item);
        const unsigned found = targets_named(a, name, strlen(name));
        if (found == 0) {
            return unknown_target(a, "target_modules", name, strlen(name), ERR_NO_MODEL, err);
        }
        *out |= found;
    }
    return 0;
}

int lora_parse(struct lora_choice *out, const struct arch *a, const json_t *config, struct err *err)
{
    const struct fields f = {config, LORA_CONFIG, ERR_NO_MODEL};
    const char *type = NULL;

    if (!json_is_object(config)) {
        return FAIL(err, ERR_NO_MODEL, LORA_CONFIG " is not a JSON object");
    }
    TRY(fields_text(&f, "peft_type", FIELD_REQUIRED, &type, err));
    if (strcmp(type, "LORA") != 0) {
        return FAIL(err, ERR_NO_MODEL, LORA_CONFIG ": peft_type must be LORA");
    }
    *out = (struct lora_choice){.alpha = 8.0}; /* PEFT's own default */
    TRY(refuse_unsupported(config, err));
    TRY(fields_integer(&f, "r", FIELD_REQUIRED, 1, LORA_RANK_MAX, &out->r, err));
    TRY(fields_number(&f, "lora_alpha", FIELD_OPTIONAL, ALPHA_LEAST, ALPHA_MOST, &out->alpha, err));
    TRY(fields_number(&f, "lora_dropout", FIELD_OPTIONAL, 0.0, DROPOUT_MOST, &out->dropout, err));
    TRY(fields_bool(&f, "use_rslora", FIELD_OPTIONAL, &out->rslora, err));
    TRY(also_read(&out->also, a, config, err));
    return read_targets(&out->targets, a, config, err);
}

static int parse_config(json_t **config, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, dir, LORA_CONFIG, err));
    const int rc = json_parse_file(config, path, CONFIG_BYTES, err);
    if (rc == ERR_NOT_FOUND) {
        return FAIL(err, ERR_NO_MODEL, "the adapter's folder has no " LORA_CONFIG);
    }
    if (rc == ERR_BAD_FILE || rc == ERR_TOO_LARGE) {
        err->code = ERR_NO_MODEL;
        return ERR_NO_MODEL;
    }
    return rc;
}

int lora_read(struct lora_choice *out, const struct arch *a, const char *dir, struct err *err)
{
    json_t *config = NULL;

    TRY(parse_config(&config, dir, err));
    const int rc = lora_parse(out, a, config, err);
    json_decref(config);
    return rc;
}

bool lora_is_adapter(const char *dir)
{
    char path[IO_PATH_MAX];
    struct err ignored = {0};

    return io_join(path, sizeof path, dir, LORA_CONFIG, &ignored) == 0 && access(path, F_OK) == 0;
}

int lora_base(char base[IO_PATH_MAX], const char *dir, struct err *err)
{
    char config_path[IO_PATH_MAX], shown[SHOWN];
    json_t *config = NULL;
    struct err ignored = {0};

    TRY(parse_config(&config, dir, err));
    const char *name = json_string_value(json_object_get(config, "base_model_name_or_path"));
    int rc = 0;
    text_clean(shown, sizeof shown, name != NULL ? name : "");
    if (name == NULL || name[0] == '\0') {
        rc = FAIL(err, ERR_NO_MODEL, LORA_CONFIG ": base_model_name_or_path is missing");
    } else if (name[0] == '/') {
        rc = io_join(base, IO_PATH_MAX, name, ".", err);
    } else {
        rc = io_join(base, IO_PATH_MAX, dir, name, err);
    }
    json_decref(config);
    TRY(rc);
    if (io_join(config_path, sizeof config_path, base, "config.json", &ignored) != 0 ||
        access(config_path, R_OK) != 0) {
        return FAIL(err, ERR_NO_MODEL,
                    "the base model of the adapter, \"%s\", is not a model folder on this machine",
                    shown);
    }
    return 0;
}

void lora_name(char out[LORA_NAME], const struct arch *a, enum param_id id, int layer)
{
    const struct param p = param_get(id, a);
    char name[PARAM_NAME];

    param_name(name, &p, layer);
    (void)snprintf(out, LORA_NAME, "%s%s", param_is_adapter(id) ? "" : "base_model.model.", name);
}

bool lora_holds(const struct arch *a, enum param_id id)
{
    return param_get(id, a).exists && (param_is_adapter(id) || param_is_also(a, id));
}

/* One tensor as a row of the table wants it. */
static int check_tensor(const struct safetensors *st, const struct arch *a, enum param_id id,
                        int layer, struct err *err)
{
    const struct param p = param_get(id, a);
    char name[LORA_NAME];

    lora_name(name, a, id, layer);
    const struct st_tensor *t = safetensors_find(st, name);
    if (t == NULL) {
        return FAIL(err, ERR_NO_MODEL, LORA_WEIGHTS " has no tensor %s", name);
    }
    if (t->dims != (p.vector ? 1 : 2) || st_rows(t) != p.rows || st_cols(t) != p.cols ||
        !st_dtype_is_float(t->dtype)) {
        return FAIL(err, ERR_NO_MODEL,
                    "%s in " LORA_WEIGHTS " is not a matrix of %lld x %lld floats, as the base "
                    "model and " LORA_CONFIG " say",
                    name, (long long)p.rows, (long long)p.cols);
    }
    return 0;
}

/* The head that a PEFT folder of a tied model has beside its embedding; NULL: it has none. */
static const struct st_tensor *find_tied(const struct safetensors *st, const struct arch *a)
{
    char name[LORA_NAME];

    lora_name(name, a, PARAM_HEAD, 0);
    return a->tied && param_is_also(a, PARAM_EMBED) ? safetensors_find(st, name) : NULL;
}

/* It must be the embedding. */
static int check_tied(const struct safetensors *st, const struct arch *a, struct err *err)
{
    const struct st_tensor *head = find_tied(st, a), *embedding = NULL;
    enum { PIECE = 4096 };
    char name[LORA_NAME], left[PIECE], right[PIECE];

    if (head == NULL) {
        return 0;
    }
    lora_name(name, a, PARAM_EMBED, 0);
    embedding = safetensors_find(st, name);
    bool same = head->dtype == embedding->dtype && head->bytes == embedding->bytes;
    for (uint64_t at = 0; same && at < head->bytes; at += PIECE) {
        const size_t n = head->bytes - at < PIECE ? (size_t)(head->bytes - at) : PIECE;
        TRY(safetensors_read_bytes(head, at, left, n, err));
        TRY(safetensors_read_bytes(embedding, at, right, n, err));
        same = memcmp(left, right, n) == 0;
    }
    return same ? 0
                : FAIL(err, ERR_NO_MODEL,
                       LORA_WEIGHTS " has a head that is not its embedding, though the model ties "
                                    "them: such an adapter is not supported");
}

static bool is_known(const struct arch *a, const char *name)
{
    char known[LORA_NAME];

    for (int i = 0; i < PARAM_COUNT; i++) {
        const enum param_id id = (enum param_id)i;
        const int64_t layers = param_get(id, a).in_layer ? a->L : 1;
        for (int64_t l = 0; lora_holds(a, id) && l < layers; l++) {
            lora_name(known, a, id, (int)l);
            if (strcmp(known, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static int check_tensors(const struct safetensors *st, const struct arch *a, struct err *err)
{
    char shown[SHOWN];
    int64_t wanted = 0;

    for (int i = 0; i < PARAM_COUNT; i++) {
        const enum param_id id = (enum param_id)i;
        const int64_t layers = param_get(id, a).in_layer ? a->L : 1;
        for (int64_t l = 0; lora_holds(a, id) && l < layers; l++) {
            TRY(check_tensor(st, a, id, (int)l, err));
            wanted++;
        }
    }
    TRY(check_tied(st, a, err));
    wanted += find_tied(st, a) != NULL;
    for (int64_t i = 0; safetensors_count(st) != wanted && i < safetensors_count(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        if (t != find_tied(st, a) && !is_known(a, t->name)) {
            text_clean(shown, sizeof shown, t->name);
            return FAIL(err, ERR_NO_MODEL,
                        LORA_WEIGHTS " has the tensor %s, which is no adapter that " LORA_CONFIG
                                     " names",
                        shown);
        }
    }
    return 0;
}

int lora_open(struct safetensors **out, const struct arch *a, const char *dir, struct err *err)
{
    struct safetensors *st = NULL;
    char path[IO_PATH_MAX];

    TRY(io_join(path, sizeof path, dir, LORA_WEIGHTS, err));
    int rc = safetensors_open(&st, path, err);
    if (rc == ERR_NOT_FOUND) {
        return FAIL(err, ERR_NO_MODEL, "the adapter's folder has no " LORA_WEIGHTS);
    }
    TRY(rc);
    rc = check_tensors(st, a, err);
    if (rc != 0) {
        safetensors_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

/* The names of the adapted layers, each once. */
static json_t *names_json(const struct arch *a)
{
    json_t *names = json_array();
    unsigned named = 0;

    for (int t = 0; t < LORA_TARGETS; t++) {
        size_t length = 0;
        if (!param_has_lora(a, (enum lora_target)t) || (named >> (unsigned)t & 1U) != 0) {
            continue;
        }
        const char *name = target_name(a, (enum lora_target)t, &length);
        named |= targets_named(a, name, length);
        (void)json_array_append_new(names, json_stringn(name, length));
    }
    return names;
}

json_t *lora_config(const struct arch *a, const char *base)
{
    const struct lora_choice *l = &a->lora;

    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:b, s:b, s:s, s:b, s:b, s:o, s:o}",
                     "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base,
                     "r", (json_int_t)l->r, "lora_alpha", l->alpha, "lora_dropout", l->dropout,
                     "use_rslora", (int)l->rslora, "fan_in_fan_out", a->family == FAMILY_GPT2,
                     "bias", "none", "inference_mode", 1, "init_lora_weights", 1, "target_modules",
                     names_json(a), "modules_to_save", also_names(a));
}
