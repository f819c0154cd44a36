/* also.c - names of modules, and the decision to train embeddings. */
#include "trainer/also.h"

#include <stdio.h>
#include <string.h>

#include "trainer/base/text.h"
#include "trainer/chat/chat.h"
#include "trainer/params.h"
#include "trainer/patterns.h"
#include "trainer/trained.h"
#include "trainer/twins.h"

enum { SHOWN = 81, LISTED = 300 };

/* What may be trained whole: all that is no linear layer inside a block. */
static const enum param_id wholes[] = {PARAM_EMBED,   PARAM_POSITION, PARAM_NORM1_W,
                                       PARAM_NORM1_B, PARAM_NORM2_W,  PARAM_NORM2_B,
                                       PARAM_NORM_W,  PARAM_NORM_B,   PARAM_HEAD};
enum { WHOLES = sizeof wholes / sizeof wholes[0] };

/* "model.layers.%d.input_layernorm": the module of a parameter. False when the architecture has no such module. */
static bool module_path(char out[PARAM_NAME], const struct arch *a, enum param_id id)
{
    const struct param p = param_get(id, a);

    if (!p.exists && !(id == PARAM_HEAD && a->tied)) {
        return false;
    }
    (void)snprintf(out, PARAM_NAME, "%s", p.format);
    *strrchr(out, '.') = '\0';
    return true;
}

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL ? dot + 1 : path;
}

/* What is trained when this parameter is. */
static uint32_t bit_of(const struct arch *a, enum param_id id)
{
    return 1U << (unsigned)(id == PARAM_HEAD && a->tied ? PARAM_EMBED : id);
}

static void list_known(char out[LISTED], const struct arch *a)
{
    char path[PARAM_NAME];

    out[0] = '\0';
    for (int i = 0; i < WHOLES; i++) {
        const size_t used = strlen(out);
        const bool first_of_module =
            wholes[i] != PARAM_NORM1_B && wholes[i] != PARAM_NORM2_B && wholes[i] != PARAM_NORM_B;
        if (first_of_module && module_path(path, a, wholes[i])) {
            (void)snprintf(out + used, LISTED - used, "%s%s", used > 0 ? " " : "", last_name(path));
        }
    }
}

static int unknown(const struct arch *a, const char *field, const char *name, size_t bytes,
                   enum err_code code, struct err *err)
{
    char text[SHOWN], shown[SHOWN], known[LISTED];

    (void)snprintf(text, sizeof text, "%.*s", (int)(bytes < SHOWN ? bytes : SHOWN), name);
    text_clean(shown, sizeof shown, text);
    list_known(known, a);
    return FAIL_PARAM(err, code, field,
                      "%s: \"%s\" is no module that can be trained whole beside adapters in this "
                      "model; there are: %s",
                      field, shown, known);
}

int also_choose(uint32_t *out, const struct arch *a, const char *list, struct err *err)
{
    char path[PARAM_NAME];
    size_t length = 0;
    int i = 0;

    *out = 0;
    for (const char *at = pattern_at(list, i, &length); at != NULL;
         at = pattern_at(list, ++i, &length)) {
        uint32_t found = 0;
        for (int k = 0; k < WHOLES && length > 0; k++) {
            if (module_path(path, a, wholes[k]) && (pattern_matches(at, length, path) ||
                                                    pattern_matches(at, length, last_name(path)))) {
                found |= bit_of(a, wholes[k]);
            }
        }
        if (found == 0) {
            return unknown(a, "lora_also", at, length, ERR_BAD_SPEC, err);
        }
        *out |= found;
    }
    return 0;
}

/* What PEFT takes a name for: every module whose path ends in it, at a dot or not. */
static uint32_t ending_in(const struct arch *a, const char *name, bool *head)
{
    const size_t bytes = strlen(name);
    char path[PARAM_NAME];
    uint32_t found = 0;

    for (int k = 0; k < WHOLES && bytes > 0; k++) {
        const size_t length = module_path(path, a, wholes[k]) ? strlen(path) : 0;
        if (length >= bytes && strcmp(path + length - bytes, name) == 0) {
            found |= bit_of(a, wholes[k]);
            *head = *head || wholes[k] == PARAM_HEAD;
        }
    }
    return found;
}

/* Of a tied model PEFT trains the one and keeps the other as it was, unless it is told of both or to tie them again. */
static int check_tied(uint32_t also, bool head, const struct arch *a, const json_t *config,
                      struct err *err)
{
    const bool embedding = (also & bit_of(a, PARAM_EMBED)) != 0;

    if (a->tied && embedding && !head &&
        !json_is_true(json_object_get(config, "ensure_weight_tying"))) {
        return FAIL(err, ERR_NO_MODEL,
                    "adapter_config.json: modules_to_save has the embedding without lm_head, which "
                    "this model ties to it: an embedding apart from its head is not supported");
    }
    return 0;
}

int also_read(uint32_t *out, const struct arch *a, const json_t *config, struct err *err)
{
    const json_t *list = json_object_get(config, "modules_to_save");
    bool head = false;

    *out = 0;
    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list)) {
        return FAIL(err, ERR_NO_MODEL, "adapter_config.json: modules_to_save must be a list");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL) {
            return FAIL(err, ERR_NO_MODEL,
                        "adapter_config.json: modules_to_save must hold only names");
        }
        const uint32_t found = ending_in(a, name, &head);
        if (found == 0) {
            return unknown(a, "modules_to_save", name, strlen(name), ERR_NO_MODEL, err);
        }
        *out |= found;
    }
    return check_tied(*out, head, a, config, err);
}

/* The shortest end of the path that means nothing that is not trained. */
static const char *shortest(const struct arch *a, const char *path)
{
    const char *at = last_name(path);
    bool head = false;

    while (at > path && (ending_in(a, at, &head) & ~a->lora.also) != 0) {
        for (at--; at > path && at[-1] != '.';) {
            at--;
        }
    }
    return at;
}

json_t *also_names(const struct arch *a)
{
    json_t *names = a->lora.also != 0 ? json_array() : json_null();
    char path[PARAM_NAME], before[PARAM_NAME] = "";

    for (int i = 0; i < WHOLES; i++) {
        if ((a->lora.also & bit_of(a, wholes[i])) == 0 || !module_path(path, a, wholes[i]) ||
            strcmp(path, before) == 0) {
            continue;
        }
        (void)json_array_append_new(names, json_string(shortest(a, path)));
        (void)snprintf(before, sizeof before, "%s", path);
    }
    return names;
}

/* The token that ends an answer; -1: none is known. */
static int64_t end_of_answers(const struct spec *s, const struct plan_folders *f)
{
    const char *dir = f->tokenizer != NULL && f->tokenizer[0] != '\0' ? f->tokenizer : f->model;
    const char *given = s->chat_template[0] != '\0' ? s->chat_template : NULL;
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct err ignored = {0};
    int64_t end = -1;

    if (tokenizer_open(&t, dir, &ignored) != 0) {
        return -1;
    }
    if (chat_template_open(&c, dir, given, t, &ignored) == 0) {
        end = chat_template_end(c);
        chat_template_close(c);
    }
    end = end >= 0 ? end : tokenizer_eos(t);
    tokenizer_close(t);
    return end;
}

/* Whether the request's `freeze` keeps the output weights as they are. */
static bool is_frozen(const struct arch *a, const struct spec *s)
{
    const enum param_id head = a->tied ? PARAM_EMBED : PARAM_HEAD;
    struct dims d = {.arch = *a, .training = true, .freeze = s->freeze};

    d.arch.lora.also = UINT32_MAX;
    return s->freeze[0] != '\0' && !trained_has(&d, head, 0);
}

void also_decide(struct arch *a, struct also_reason *why, const struct spec *s,
                 const struct plan_folders *f)
{
    const bool open = s->lora_rank > 0 && s->lora_also[0] == '\0' && s->method != TRAIN_PRETRAIN;

    const uint32_t embeddings = bit_of(a, PARAM_EMBED) | bit_of(a, PARAM_HEAD);

    *why = (struct also_reason){.token = -1};
    if (!open || f->model == NULL || f->model[0] == '\0') {
        return;
    }
    why->token = end_of_answers(s, f);
    if (why->token < 0 || is_frozen(a, s)) {
        return;
    }
    why->twins = twins_in_folder(a, f->model, why->token);
    if (why->twins > 0) {
        a->lora.also |= embeddings;
    }
}
