/* chat.c - rendering conversations with a chat template. */
#include "trainer/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/spans.h"
#include "trainer/chat/template.h"

static const struct jinja_limits limits = {
    .steps = INT64_C(20000000), .memory = (size_t)256 << 20, .output = (size_t)64 << 20};

void rendered_fini(struct rendered *r)
{
    free(r->text);
    free(r->plain);
    free(r->trained);
    *r = (struct rendered){0};
}

/* Arguments of calls as objects, or as JSON in a string: templates expect one or the other. */
enum form { FORM_OBJECT, FORM_TEXT };

/* The arguments in that form; NULL when they have it, or have no other. */
static json_t *other_form(const json_t *arguments, enum form form)
{
    if (form == FORM_OBJECT && json_is_string(arguments)) {
        json_t *parsed = json_loadb(json_string_value(arguments), json_string_length(arguments),
                                    JSON_ALLOW_NUL, NULL);
        if (parsed != NULL && !json_is_object(parsed)) {
            json_decref(parsed);
            return NULL;
        }
        return parsed;
    }
    if (form == FORM_TEXT && json_is_object(arguments)) {
        char *text = json_dumps(arguments, 0);
        json_t *string = text == NULL ? NULL : json_string(text);
        free(text);
        return string;
    }
    return NULL;
}

/* json_copy reads only. */
union readable {
    const json_t *given;
    json_t *borrowed;
};

static json_t *copy(const json_t *json)
{
    union readable r = {.given = json};
    return json_copy(r.borrowed);
}

/* A copy of a call with its arguments in another form; NULL when nothing changes. */
static json_t *reform_call(const json_t *call, enum form form)
{
    const json_t *function = json_object_get(call, "function");
    const bool nested = json_is_object(function);
    json_t *arguments = other_form(json_object_get(nested ? function : call, "arguments"), form);

    if (arguments == NULL) {
        return NULL;
    }
    json_t *inner = copy(nested ? function : call);
    if (json_object_set_new(inner, "arguments", arguments) != 0 || !nested) {
        return inner;
    }
    json_t *outer = copy(call);
    (void)json_object_set_new(outer, "function", inner);
    return outer;
}

/* A copy of the messages with all arguments in that form; NULL when nothing changes. */
static json_t *reform(const json_t *messages, enum form form)
{
    json_t *changed = NULL;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        json_t *new_calls = NULL;
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *call = reform_call(json_array_get(calls, k), form);
            if (call != NULL) {
                new_calls = new_calls == NULL ? copy(calls) : new_calls;
                (void)json_array_set_new(new_calls, k, call);
            }
        }
        if (new_calls != NULL) {
            changed = changed == NULL ? copy(messages) : changed;
            json_t *message = copy(json_array_get(messages, i));
            (void)json_object_set_new(message, "tool_calls", new_calls);
            (void)json_array_set_new(changed, i, message);
        }
    }
    return changed;
}

static int evaluate(const struct chat_template *c, const json_t *messages, const json_t *tools,
                    bool add_generation_prompt, struct jinja_output *out, struct err *err)
{
    struct jinja_variable v[4 + CHAT_NAMED_SPECIALS] = {
        {"messages", messages, JINJA_MESSAGES},
        {"tools", tools == NULL ? json_null() : tools, JINJA_TOOLS},
        {"documents", json_null(), JINJA_OWN},
        {"add_generation_prompt", json_boolean(add_generation_prompt), JINJA_OWN},
    };
    int n = 4;

    for (int i = 0; i < CHAT_NAMED_SPECIALS; i++) {
        if (c->named[i].value != NULL) {
            v[n++] = (struct jinja_variable){c->named[i].name, c->named[i].value, JINJA_OWN};
        }
    }
    return jinja_render(c->jinja, v, n, &limits, out, err);
}

int chat_evaluate(const struct chat_template *c, const json_t *messages, const json_t *tools,
                  bool add_generation_prompt, struct jinja_output *out, struct err *err)
{
    json_t *objects = reform(messages, FORM_OBJECT);
    int rc =
        evaluate(c, objects != NULL ? objects : messages, tools, add_generation_prompt, out, err);

    if (rc == ERR_BAD_FILE) {
        /* Perhaps it wants the arguments as text. */
        struct err second;
        json_t *texts = reform(messages, FORM_TEXT);
        if ((objects != NULL || texts != NULL) &&
            evaluate(c, texts != NULL ? texts : messages, tools, add_generation_prompt, out,
                     &second) == 0) {
            rc = 0;
        }
        json_decref(texts);
    }
    json_decref(objects);
    return rc;
}

/* Who says each message, and whether it is trained. *out is the caller's to free. */
static int read_turns(struct chat_turn **out, const json_t *messages, struct err *err)
{
    const size_t n = json_array_size(messages);
    struct chat_turn *turns = calloc(n + 1, sizeof *turns);

    if (turns == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory for a conversation of %zu turns", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *weight = json_object_get(message, "weight");
        const bool is_zero =
            json_is_false(weight) || (json_is_number(weight) && json_number_value(weight) == 0.0);
        turns[i].is_assistant = role != NULL && strcmp(role, "assistant") == 0;
        turns[i].is_trained = !is_zero;
        turns[i].is_tool = role != NULL && strcmp(role, "tool") == 0;
    }
    *out = turns;
    return 0;
}

int chat_render_marked(const struct chat_template *c, const json_t *messages, const json_t *tools,
                       bool add_generation_prompt, struct jinja_output *o, struct rendered *out,
                       struct err *err)
{
    struct chat_turn *turns = NULL;

    TRY(read_turns(&turns, messages, err));
    int rc = chat_evaluate(c, messages, tools, add_generation_prompt, o, err);
    if (rc == 0) {
        const struct chat_marking m = {
            .output = o,
            .turns = turns,
            .turn_count = json_array_size(messages),
            .habits = &c->habits,
            .specials = c->specials,
            .special_count = c->special_count,
            .eos = c->eos,
            .by_generation = jinja_has_generation(c->jinja),
        };
        rc = chat_mark(out, &m, !add_generation_prompt, err);
    }
    free(turns);
    return rc;
}

int chat_template_render(const struct chat_template *c, const json_t *messages, const json_t *tools,
                         bool add_generation_prompt, struct rendered *out, struct err *err)
{
    struct jinja_output o = {0};
    struct err inner = {0};

    *out = (struct rendered){0};
    CHECK(json_is_array(messages), "messages are no array");
    const int rc = chat_render_marked(c, messages, tools, add_generation_prompt, &o, out, &inner);
    if (rc != 0) {
        jinja_output_fini(&o);
        return rc == ERR_BAD_FILE
                   ? FAIL(err, ERR_BAD_FILE, "the chat template can't render the conversation: %s",
                          inner.text)
                   : FAIL(err, inner.code, "%s", inner.text);
    }
    out->text = o.text;
    out->bytes = o.bytes;
    free(o.runs);
    return 0;
}
