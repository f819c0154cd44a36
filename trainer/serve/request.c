/* request.c - a line that asks for text, checked. */
#include "trainer/serve/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/base/text.h"

static const char *const known[] = {"id",
                                    "cancel",
                                    "prompt",
                                    "messages",
                                    "tools",
                                    "max_tokens",
                                    "temperature",
                                    "top_p",
                                    "top_k",
                                    "min_p",
                                    "n",
                                    "seed",
                                    "stop",
                                    "logprobs",
                                    "echo",
                                    "ignore_eos",
                                    "logit_bias",
                                    "repetition_penalty",
                                    "frequency_penalty",
                                    "presence_penalty"};

/* Jansson's iterators only read, but take a pointer that is not const. */
static json_t *iterable(const json_t *object)
{
    const union {
        const json_t *borrowed;
        json_t *object;
    } u = {.borrowed = object};

    return u.object;
}

static int check_names(json_t *object, struct err *err)
{
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(known[i], name) != 0) {
            i++;
        }
        if (i == sizeof known / sizeof known[0]) {
            char shown[41];
            text_clean(shown, sizeof shown, name);
            return FAIL_PARAM(err, ERR_BAD_REQUEST, shown, "there is no field \"%s\"", shown);
        }
    }
    return 0;
}

static int read_id(struct serve_request *r, const struct fields *f, struct err *err)
{
    const char *id = NULL;

    r->cancel = json_object_get(f->object, "cancel") != NULL;
    TRY(fields_text(f, r->cancel ? "cancel" : "id", FIELD_REQUIRED, &id, err));
    if (id[0] == '\0' || strlen(id) >= sizeof r->id) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "id", "id must have 1 to %d bytes", REQUEST_ID - 1);
    }
    (void)snprintf(r->id, sizeof r->id, "%s", id);
    return 0;
}

static int read_ids(const json_t *ids, struct err *err)
{
    const json_t *id = NULL;
    size_t i = 0;

    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX) {
            return FAIL_PARAM(err, ERR_BAD_REQUEST, "prompt",
                              "prompt: element %zu is not a token id", i);
        }
    }
    return 0;
}

static int check_message(const json_t *message, size_t i, struct err *err)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const bool calls = json_is_array(json_object_get(message, "tool_calls"));
    bool known_role = false;

    for (size_t k = 0; k < sizeof roles / sizeof roles[0] && role != NULL; k++) {
        known_role = known_role || strcmp(roles[k], role) == 0;
    }
    if (!known_role) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages",
                          "messages[%zu]: role must be system, user, assistant or tool", i);
    }
    if (!json_is_string(content) && !(calls && (content == NULL || json_is_null(content)))) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages",
                          "messages[%zu]: content must be a string", i);
    }
    return 0;
}

static int check_messages(const json_t *messages, struct err *err)
{
    const json_t *message = NULL;
    size_t i = 0;

    if (json_array_size(messages) == 0) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages", "messages must not be empty");
    }
    json_array_foreach(messages, i, message)
    {
        TRY(check_message(message, i, err));
    }
    return 0;
}

static int read_prompt(struct serve_request *r, const struct fields *f, struct err *err)
{
    const json_t *prompt = json_object_get(f->object, "prompt");

    TRY(fields_array(f, "messages", FIELD_OPTIONAL, &r->messages, err));
    TRY(fields_array(f, "tools", FIELD_OPTIONAL, &r->tools, err));
    r->prompt = json_string_value(prompt);
    r->ids = json_is_array(prompt) ? prompt : NULL;
    if (prompt != NULL && r->prompt == NULL && r->ids == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "prompt",
                          "prompt must be a string or an array of token ids");
    }
    if ((prompt != NULL) == (r->messages != NULL)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, prompt != NULL ? "messages" : "prompt",
                          "give either prompt or messages");
    }
    if (r->messages != NULL) {
        return check_messages(r->messages, err);
    }
    return r->ids != NULL ? read_ids(r->ids, err) : 0;
}

static int read_stop(struct serve_request *r, const json_t *stop, struct err *err)
{
    const char *text = json_string_value(stop);

    if (text == NULL || text[0] == '\0' || strlen(text) > REQUEST_STOP_BYTES) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "stop",
                          "stop must be a string of 1 to %d bytes, or up to %d of them",
                          REQUEST_STOP_BYTES, REQUEST_STOPS);
    }
    r->stop[r->stops++] = text;
    return 0;
}

static int read_stops(struct serve_request *r, const json_t *stop, struct err *err)
{
    if (stop == NULL || json_is_null(stop)) {
        return 0;
    }
    if (!json_is_array(stop)) {
        return read_stop(r, stop, err);
    }
    if (json_array_size(stop) > REQUEST_STOPS) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "stop", "stop has %zu strings, %d are allowed",
                          json_array_size(stop), REQUEST_STOPS);
    }
    for (size_t i = 0; i < json_array_size(stop); i++) {
        TRY(read_stop(r, json_array_get(stop, i), err));
    }
    return 0;
}

static int read_bias(struct logit_bias *out, const char *name, const json_t *value, struct err *err)
{
    char *end = NULL;
    const long long id = strtoll(name, &end, 10);
    const double bias = json_number_value(value);

    if (name[0] < '0' || name[0] > '9' || *end != '\0' || id > INT32_MAX) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "logit_bias",
                          "logit_bias: a key is not a token id");
    }
    if (!json_is_number(value) || !(bias >= -100.0 && bias <= 100.0)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "logit_bias",
                          "logit_bias must have numbers from -100 to 100");
    }
    *out = (struct logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return 0;
}

static int read_biases(struct serve_request *r, const struct fields *f, struct err *err)
{
    const json_t *biases = NULL;
    const char *name = NULL;
    json_t *value = NULL;

    TRY(fields_object(f, "logit_bias", FIELD_OPTIONAL, &biases, err));
    const size_t count = json_object_size(biases);
    if (count == 0) {
        return 0;
    }
    if (count > REQUEST_BIASES) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "logit_bias",
                          "logit_bias has %zu tokens, %d are allowed", count, REQUEST_BIASES);
    }
    r->bias = calloc(count, sizeof *r->bias);
    if (r->bias == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for logit_bias");
    }
    json_object_foreach(iterable(biases), name, value)
    {
        TRY(read_bias(&r->bias[r->penalties.bias_count++], name, value, err));
    }
    r->penalties.bias = r->bias;
    return 0;
}

static int read_choices(struct serve_request *r, const struct fields *f, struct err *err)
{
    struct sampling *s = &r->sampling;
    struct penalties *p = &r->penalties;
    int64_t seed = INT64_MIN;

    TRY(fields_integer(f, "max_tokens", FIELD_OPTIONAL, 0, INT32_MAX, &r->max_tokens, err));
    TRY(fields_integer(f, "n", FIELD_OPTIONAL, 1, REQUEST_CHOICES, &r->n, err));
    TRY(fields_integer(f, "logprobs", FIELD_OPTIONAL, 0, LOGPROBS_MAX, &r->logprobs, err));
    TRY(fields_number(f, "temperature", FIELD_OPTIONAL, 0.0, 2.0, &s->temperature, err));
    TRY(fields_number(f, "top_p", FIELD_OPTIONAL, 0.0, 1.0, &s->top_p, err));
    TRY(fields_number(f, "min_p", FIELD_OPTIONAL, 0.0, 1.0, &s->min_p, err));
    TRY(fields_integer(f, "top_k", FIELD_OPTIONAL, 0, INT32_MAX, &s->top_k, err));
    TRY(fields_integer(f, "seed", FIELD_OPTIONAL, INT64_MIN, INT64_MAX, &seed, err));
    TRY(fields_number(f, "repetition_penalty", FIELD_OPTIONAL, 0.01, 100.0, &p->repetition, err));
    TRY(fields_number(f, "frequency_penalty", FIELD_OPTIONAL, -2.0, 2.0, &p->frequency, err));
    TRY(fields_number(f, "presence_penalty", FIELD_OPTIONAL, -2.0, 2.0, &p->presence, err));
    TRY(fields_bool(f, "echo", FIELD_OPTIONAL, &r->echo, err));
    TRY(fields_bool(f, "ignore_eos", FIELD_OPTIONAL, &r->ignore_eos, err));
    r->has_seed = json_is_integer(json_object_get(f->object, "seed"));
    s->seed = (uint64_t)seed;
    return 0;
}

int request_read(struct serve_request *out, json_t *object, struct err *err)
{
    const struct fields f = {.object = object, .where = "", .code = ERR_BAD_REQUEST};

    *out = (struct serve_request){.json = json_incref(object),
                                  .max_tokens = -1,
                                  .end = -1,
                                  .lead = "",
                                  .tail = "",
                                  .n = 1,
                                  .logprobs = -1,
                                  .sampling = {.temperature = 1.0, .top_p = 1.0},
                                  .penalties = {.repetition = 1.0}};
    if (!json_is_object(object)) {
        return FAIL(err, ERR_BAD_REQUEST, "a request is a JSON object");
    }
    TRY(read_id(out, &f, err));
    TRY(check_names(object, err));
    if (out->cancel) {
        return 0;
    }
    TRY(read_prompt(out, &f, err));
    TRY(read_choices(out, &f, err));
    TRY(read_stops(out, json_object_get(object, "stop"), err));
    return read_biases(out, &f, err);
}

int request_parse(struct serve_request *out, const char *line, size_t bytes, struct err *err)
{
    json_t *object = NULL;

    *out = (struct serve_request){0};
    const int rc = json_parse_text(&object, line, bytes, "request", err);
    if (rc != 0) {
        err->code = rc == ERR_BAD_FILE ? ERR_BAD_REQUEST : err->code;
        return (int)err->code;
    }
    const int read = request_read(out, object, err);
    json_decref(object);
    return read;
}

void request_fini(struct serve_request *r)
{
    json_decref(r->json);
    free(r->bias);
    *r = (struct serve_request){0};
}
