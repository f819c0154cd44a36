/* openai_ask.c - requests of OpenAI's shapes into lines for `hone-train serve`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/openai.h"
#include "trainer/base/json.h"
#include "trainer/base/text.h"
#include "trainer/serve/request.h"

enum { MAX_TOKENS_PRESET = 16 };

/* What becomes of a field. */
enum deed {
    DEED_COPY,   /* the model is asked the same          */
    DEED_OWN,    /* read here                            */
    DEED_IGNORE, /* of no effect on what is answered     */
    DEED_REFUSE,
};

enum { TEXT = 1, CHAT = 2, BOTH = 3 };

static const struct {
    const char *name;
    int where;
    enum deed deed;
} table[] = {
    {"model", BOTH, DEED_OWN},
    {"prompt", TEXT, DEED_OWN},
    {"messages", CHAT, DEED_OWN},
    {"stream", BOTH, DEED_OWN},
    {"stream_options", BOTH, DEED_OWN},
    {"n", BOTH, DEED_COPY},
    {"max_tokens", BOTH, DEED_COPY},
    {"max_completion_tokens", CHAT, DEED_OWN},
    {"temperature", BOTH, DEED_COPY},
    {"top_p", BOTH, DEED_COPY},
    {"seed", BOTH, DEED_COPY},
    {"stop", BOTH, DEED_COPY},
    {"frequency_penalty", BOTH, DEED_COPY},
    {"presence_penalty", BOTH, DEED_COPY},
    {"logit_bias", BOTH, DEED_COPY},
    {"logprobs", TEXT, DEED_COPY},
    {"logprobs", CHAT, DEED_OWN},
    {"top_logprobs", CHAT, DEED_OWN},
    {"echo", TEXT, DEED_COPY},
    {"best_of", TEXT, DEED_OWN},
    {"top_k", BOTH, DEED_COPY},
    {"min_p", BOTH, DEED_COPY},
    {"repetition_penalty", BOTH, DEED_COPY},
    {"ignore_eos", BOTH, DEED_COPY},
    {"response_format", CHAT, DEED_OWN},
    {"modalities", CHAT, DEED_OWN},
    {"user", BOTH, DEED_IGNORE},
    {"metadata", CHAT, DEED_IGNORE},
    {"store", CHAT, DEED_IGNORE},
    {"service_tier", CHAT, DEED_IGNORE},
    {"parallel_tool_calls", CHAT, DEED_IGNORE},
    {"safety_identifier", CHAT, DEED_IGNORE},
    {"prompt_cache_key", CHAT, DEED_IGNORE},
    {"suffix", TEXT, DEED_REFUSE},
    {"tools", CHAT, DEED_REFUSE},
    {"tool_choice", CHAT, DEED_REFUSE},
    {"functions", CHAT, DEED_REFUSE},
    {"function_call", CHAT, DEED_REFUSE},
    {"audio", CHAT, DEED_REFUSE},
    {"prediction", CHAT, DEED_REFUSE},
    {"web_search_options", CHAT, DEED_REFUSE},
};

/* A request on its way. */
struct reading {
    struct openai_ask *out;
    struct fields fields;
    json_t *line; /* owned: what all prompts are asked with */
};

static int find_field(const char *name, int where)
{
    const int count = sizeof table / sizeof table[0];
    int i = 0;

    while (i < count && (strcmp(table[i].name, name) != 0 || (table[i].where & where) == 0)) {
        i++;
    }
    return i < count ? i : -1;
}

static int take_field(const struct reading *r, const char *name, json_t *value, struct err *err)
{
    const int at = find_field(name, r->out->chat ? CHAT : TEXT);
    char shown[41];

    if (at < 0) {
        text_clean(shown, sizeof shown, name);
        return FAIL_PARAM(err, ERR_BAD_REQUEST, shown, "there is no field \"%s\"", shown);
    }
    if (json_is_null(value)) {
        return 0;
    }
    switch (table[at].deed) {
    case DEED_COPY:
        return json_object_set(r->line, name, value) == 0
                   ? 0
                   : FAIL(err, ERR_NO_MEMORY, "no memory for a request");
    case DEED_REFUSE:
        return FAIL_PARAM(err, ERR_BAD_REQUEST, name, "%s is not supported by this server", name);
    case DEED_OWN:
    case DEED_IGNORE: break;
    }
    return 0;
}

static int take_fields(const struct reading *r, const json_t *body, struct err *err)
{
    /* Jansson's iterators only read, but take a pointer that is not const. */
    const union {
        const json_t *borrowed;
        json_t *object;
    } iterable = {.borrowed = body};
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach(iterable.object, name, value)
    {
        TRY(take_field(r, name, value, err));
    }
    return 0;
}

static const json_t *given(const struct reading *r, const char *name)
{
    const json_t *value = json_object_get(r->fields.object, name);

    return json_is_null(value) ? NULL : value;
}

static int set_line(const struct reading *r, const char *name, json_t *value, struct err *err)
{
    return json_object_set_new(r->line, name, value) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "no memory for a request");
}

static int read_stream(const struct reading *r, struct err *err)
{
    const json_t *options = NULL;

    TRY(fields_bool(&r->fields, "stream", FIELD_OPTIONAL, &r->out->stream, err));
    TRY(fields_object(&r->fields, "stream_options", FIELD_OPTIONAL, &options, err));
    if (options != NULL && !r->out->stream) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "stream_options",
                          "stream_options is for stream: true only");
    }
    const struct fields inner = {
        .object = options, .where = "stream_options", .code = ERR_BAD_REQUEST};
    return options == NULL
               ? 0
               : fields_bool(&inner, "include_usage", FIELD_OPTIONAL, &r->out->include_usage, err);
}

/* logprobs: true and top_logprobs: k are the model's logprobs: k. */
static int read_chat_logprobs(const struct reading *r, struct err *err)
{
    int64_t top = 0;
    bool wanted = false;

    TRY(fields_bool(&r->fields, "logprobs", FIELD_OPTIONAL, &wanted, err));
    TRY(fields_integer(&r->fields, "top_logprobs", FIELD_OPTIONAL, 0, LOGPROBS_MAX, &top, err));
    if (given(r, "top_logprobs") != NULL && !wanted) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "top_logprobs",
                          "top_logprobs is for logprobs: true only");
    }
    return wanted ? set_line(r, "logprobs", json_integer(top), err) : 0;
}

/* Text is all that models here write. */
static int check_kinds(const struct reading *r, struct err *err)
{
    const json_t *format = given(r, "response_format"), *kinds = given(r, "modalities");
    const char *type = json_string_value(json_object_get(format, "type"));

    if (format != NULL && (type == NULL || strcmp(type, "text") != 0)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "response_format",
                          "response_format: only {\"type\": \"text\"} is supported");
    }
    const char *kind = json_string_value(json_array_get(kinds, 0));
    if (kinds != NULL &&
        (json_array_size(kinds) != 1 || kind == NULL || strcmp(kind, "text") != 0)) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "modalities",
                          "modalities: only [\"text\"] is supported");
    }
    return 0;
}

static int read_max_tokens(const struct reading *r, struct err *err)
{
    int64_t most = 0;

    if (given(r, "max_completion_tokens") != NULL) {
        TRY(fields_integer(&r->fields, "max_completion_tokens", FIELD_REQUIRED, 0, INT32_MAX, &most,
                           err));
        return set_line(r, "max_tokens", json_integer(most), err);
    }
    if (given(r, "max_tokens") == NULL && !r->out->chat) {
        return set_line(r, "max_tokens", json_integer(MAX_TOKENS_PRESET), err);
    }
    return 0;
}

static int read_options(struct reading *r, struct err *err)
{
    int64_t n = 1, best_of = 0;
    const char *model = NULL;

    TRY(fields_text(&r->fields, "model", FIELD_REQUIRED, &model, err));
    if (model[0] == '\0' || strlen(model) >= OPENAI_MODEL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "model", "model must have 1 to %d bytes",
                          OPENAI_MODEL - 1);
    }
    (void)snprintf(r->out->model, sizeof r->out->model, "%s", model);
    TRY(read_stream(r, err));
    TRY(read_max_tokens(r, err));
    TRY(fields_integer(&r->fields, "n", FIELD_OPTIONAL, 1, REQUEST_CHOICES, &n, err));
    r->out->n = (int)n;
    if (r->out->chat) {
        TRY(read_chat_logprobs(r, err));
        return check_kinds(r, err);
    }
    TRY(fields_integer(&r->fields, "best_of", FIELD_OPTIONAL, 1, REQUEST_CHOICES, &best_of, err));
    return best_of <= n ? 0
                        : FAIL_PARAM(err, ERR_BAD_REQUEST, "best_of",
                                     "best_of beyond n is not supported by this server");
}

/* Check a line as the model will, and write it down. */
static int put_line(const struct reading *r, struct err *err)
{
    struct serve_request checked;
    struct openai_ask *a = r->out;
    char id[16];

    (void)snprintf(id, sizeof id, "%d", a->prompts++);
    TRY(set_line(r, "id", json_string(id), err));
    const int rc = request_read(&checked, r->line, err);
    request_fini(&checked);
    if (rc != 0) {
        return rc;
    }
    char *text = json_dumps(r->line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const size_t had = a->lines == NULL ? 0 : strlen(a->lines);
    char *more = text == NULL ? NULL : realloc(a->lines, had + strlen(text) + 2);
    if (more == NULL) {
        free(text);
        return FAIL(err, ERR_NO_MEMORY, "no memory for a request");
    }
    a->lines = more;
    (void)sprintf(more + had, "%s\n", text);
    free(text);
    return 0;
}

/* A text, the ids of one, or several of either. */
static int read_prompts(const struct reading *r, struct err *err)
{
    const json_t *prompt = given(r, "prompt"), *one = NULL;
    const json_t *first = json_array_get(prompt, 0);
    size_t i = 0;

    if (prompt == NULL) {
        TRY(set_line(r, "prompt", json_string(""), err));
        return put_line(r, err);
    }
    if (!json_is_array(prompt) || json_is_integer(first)) {
        TRY(set_line(r, "prompt", json_deep_copy(prompt), err));
        return put_line(r, err);
    }
    if (json_array_size(prompt) == 0 || json_array_size(prompt) > OPENAI_PROMPTS) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "prompt",
                          "prompt must be a string, token ids, or 1 to %d of either",
                          OPENAI_PROMPTS);
    }
    json_array_foreach(prompt, i, one)
    {
        TRY(set_line(r, "prompt", json_deep_copy(one), err));
        TRY(put_line(r, err));
    }
    return 0;
}

/* {"type": "text", "text"} parts into one string, a new reference; *bad is the type of another kind. */
static json_t *join_parts(const json_t *parts, bool *bad)
{
    const json_t *part = NULL;
    json_t *all = json_string("");
    size_t i = 0;

    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text = json_string_value(json_object_get(part, "text"));
        if (type == NULL || text == NULL || strcmp(type, "text") != 0) {
            *bad = true;
            break;
        }
        json_t *longer = json_sprintf("%s%s", json_string_value(all), text);
        json_decref(all);
        all = longer;
    }
    return all;
}

static int read_message(json_t *message, size_t i, struct err *err)
{
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    bool bad = false;

    if (!json_is_object(message) || role == NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages",
                          "messages[%zu] must be an object with a role", i);
    }
    if (json_object_get(message, "audio") != NULL ||
        json_object_get(message, "function_call") != NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages",
                          "messages[%zu]: audio and function_call are not supported", i);
    }
    if (strcmp(role, "developer") == 0) { /* the new name of system */
        (void)json_object_set_new(message, "role", json_string("system"));
    }
    if (content == NULL || json_is_null(content) || json_is_string(content)) {
        return 0;
    }
    json_t *text = json_is_array(content) ? join_parts(content, &bad) : NULL;
    if (text == NULL || bad) {
        json_decref(text);
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "messages",
                          "messages[%zu]: content must be a string or parts of type text; images, "
                          "audio and files are not supported",
                          i);
    }
    return json_object_set_new(message, "content", text) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "no memory for a message");
}

static int read_messages(const struct reading *r, struct err *err)
{
    const json_t *messages = NULL;
    json_t *message = NULL;
    size_t i = 0;

    TRY(fields_array(&r->fields, "messages", FIELD_REQUIRED, &messages, err));
    json_t *copy = json_deep_copy(messages);
    TRY(set_line(r, "messages", copy, err));
    json_array_foreach(copy, i, message)
    {
        TRY(read_message(message, i, err));
    }
    return put_line(r, err);
}

int openai_ask_read(struct openai_ask *out, const json_t *body, bool chat, struct err *err)
{
    struct reading r = {
        .out = out,
        .fields = {.object = body, .where = "", .code = ERR_BAD_REQUEST},
        .line = json_object(),
    };

    *out = (struct openai_ask){.chat = chat};
    int rc = r.line == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a request") : 0;
    rc = rc != 0 ? rc : take_fields(&r, body, err);
    rc = rc != 0 ? rc : read_options(&r, err);
    rc = rc != 0 ? rc : chat ? read_messages(&r, err) : read_prompts(&r, err);
    json_decref(r.line);
    return rc;
}

void openai_ask_fini(struct openai_ask *a)
{
    free(a->lines);
    a->lines = NULL;
}
