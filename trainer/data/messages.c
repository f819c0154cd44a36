/* messages.c - roles by many names, contents in parts, calls in three shapes. */
#include "trainer/data/messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "trainer/base/json.h"

/* A call as a turn of its own (ShareGPT's function_call): its content is JSON of the call. */
static const char call[] = "call";

/* clang-format off */
static const struct { const char *word, *role; } roles[] = {
    {"user",          "user"},      {"human",       "user"},
    {"assistant",     "assistant"}, {"gpt",         "assistant"}, {"chatbot", "assistant"},
    {"bot",           "assistant"}, {"model",       "assistant"},
    {"system",        "system"},    {"developer",   "system"},
    {"tool",          "tool"},      {"function",    "tool"},      {"observation", "tool"},
    {"function_call", call},
};
/* clang-format on */

bool complain(struct complaint *c, enum reason reason, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    c->reason = reason;
    (void)vsnprintf(c->where, sizeof c->where, format, arguments);
    va_end(arguments);
    return false;
}

static bool no_memory(struct complaint *c)
{
    return complain(c, REASON_COUNT, "no memory");
}

/* Put a new reference into an object. */
static bool put(json_t *object, const char *key, json_t *value, struct complaint *c)
{
    return json_object_set_new(object, key, value) == 0 || no_memory(c);
}

/* A member that is there and not null, or NULL. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_null(value) ? NULL : value;
}

/* The value shared: a normalised message holds the row's own strings. */
static json_t *share(const json_t *value)
{
    return json_incref(json_unconst(value));
}

static const char *find_role(const json_t *value)
{
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcasecmp(json_string_value(value), roles[i].word) == 0) {
            return roles[i].role;
        }
    }
    return NULL;
}

static bool read_role(const char **role, const json_t *m, const char *where, struct complaint *c)
{
    const json_t *value = member(m, "role");

    value = value != NULL ? value : member(m, "from");
    if (value == NULL) {
        return complain(c, REASON_missing_field, "%s.role", where);
    }
    if (!json_is_string(value)) {
        return complain(c, REASON_wrong_type, "%s.role must be a string", where);
    }
    *role = find_role(value);
    return *role != NULL || complain(c, REASON_wrong_role, "%s.role", where);
}

/* One part of a content that is a list: its text. */
static const json_t *part_text(const json_t *part)
{
    static const char *const types[] = {"text", "input_text", "output_text"};
    const char *type = json_string_value(json_object_get(part, "type"));

    if (json_is_string(part)) {
        return part;
    }
    for (size_t i = 0; type != NULL && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i]) == 0) {
            const json_t *text = json_object_get(part, "text");
            return json_is_string(text) ? text : NULL;
        }
    }
    return NULL;
}

/* The texts of all parts behind each other. */
static bool join_parts(json_t **out, const json_t *parts, const char *where, struct complaint *c)
{
    char *joined = NULL;
    size_t n = 0, i;
    json_t *part;
    FILE *f = open_memstream(&joined, &n);

    if (f == NULL) {
        return no_memory(c);
    }
    bool good = true;
    json_array_foreach(parts, i, part)
    {
        const json_t *text = part_text(part);
        if (text == NULL) {
            good = complain(c, REASON_not_text, "%s.content[%zu]", where, i);
            break;
        }
        (void)fwrite(json_string_value(text), 1, json_string_length(text), f);
    }
    good = (fclose(f) == 0 || no_memory(c)) && good;
    *out = good ? json_stringn(joined, n) : NULL;
    free(joined);
    return good && (*out != NULL || no_memory(c));
}

/* A new reference to the content as a string; "" where calls stand for it. */
static bool read_content(json_t **out, const json_t *m, const char *where, struct complaint *c)
{
    const json_t *value = member(m, "content");

    value = value != NULL ? value : member(m, "value");
    if (json_is_string(value)) {
        *out = share(value);
        return true;
    }
    if (json_is_array(value)) {
        return join_parts(out, value, where, c);
    }
    if (value != NULL) {
        return complain(c, REASON_wrong_type, "%s.content must be a string", where);
    }
    if (member(m, "tool_calls") == NULL && member(m, "function_call") == NULL) {
        return complain(c, REASON_missing_field, "%s.content", where);
    }
    *out = json_string("");
    return *out != NULL || no_memory(c);
}

/* JSON in a string, or NULL when it is none. */
static json_t *parse_string(const json_t *string)
{
    json_t *value = NULL;
    struct err err;

    if (!json_has_at_most(json_string_value(string), json_string_length(string), JSON_VALUES_MAX)) {
        return NULL;
    }
    return json_parse_text(&value, json_string_value(string), json_string_length(string), "",
                           &err) == 0
               ? value
               : NULL;
}

/* {"name", "arguments"} with or without the wrapping: a new call in the shape of example.h; NULL when it is none. */
static json_t *convert_call(const json_t *given)
{
    const json_t *function = member(given, "function");
    const json_t *id = member(given, "id");

    function = json_is_object(function) ? function : given;
    const json_t *name = member(function, "name");
    const json_t *arguments = member(function, "arguments");
    if (!json_is_string(name) ||
        (arguments != NULL && !json_is_string(arguments) && !json_is_object(arguments))) {
        return NULL;
    }
    json_t *value = json_is_string(arguments) ? parse_string(arguments) : NULL;
    if (!json_is_object(value)) { /* an object as it is, a string that is none, or nothing */
        json_decref(value);
        value = arguments != NULL ? share(arguments) : json_object();
    }
    return json_pack("{s:s, s:{s:O, s:o}, s:O*}", "type", "function", "function", "name", name,
                     "arguments", value, "id", json_is_string(id) ? id : NULL);
}

/* One call or a list of them, as a new list; NULL when one is of another shape. */
static json_t *convert_calls(const json_t *given)
{
    json_t *calls = json_array();
    json_t *one;
    size_t i;

    if (calls == NULL) {
        return NULL;
    }
    if (json_is_object(given)) {
        if (json_array_append_new(calls, convert_call(given)) != 0) {
            json_decref(calls);
            return NULL;
        }
        return calls;
    }
    json_array_foreach(given, i, one)
    {
        if (!json_is_object(one) || json_array_append_new(calls, convert_call(one)) != 0) {
            json_decref(calls);
            return NULL;
        }
    }
    if (json_array_size(calls) == 0) {
        json_decref(calls);
        return NULL;
    }
    return calls;
}

/* tool_calls, or the older function_call, of an assistant's message. */
static bool read_calls(json_t *out, const json_t *m, const char *where, struct complaint *c)
{
    const json_t *given = member(m, "tool_calls");

    given = given != NULL ? given : member(m, "function_call");
    if (given == NULL || (json_is_array(given) && json_array_size(given) == 0)) {
        return true;
    }
    json_t *calls = convert_calls(given);
    if (calls == NULL) {
        return complain(c, REASON_wrong_tools, "%s.tool_calls", where);
    }
    return put(out, "tool_calls", calls, c);
}

static bool read_weight(json_t *out, const json_t *m, bool masked, const char *where,
                        struct complaint *c)
{
    const json_t *weight = member(m, "weight");
    const double value = json_number_value(weight);

    if (weight != NULL &&
        (!json_is_number(weight) || (value < 1.0 && value > 0.0) || value < 0.0 || value > 1.0)) {
        return complain(c, REASON_wrong_weight, "%s.weight", where);
    }
    if (weight == NULL && !masked) {
        return true;
    }
    return put(out, "weight", json_integer(masked || value < 0.5 ? 0 : 1), c);
}

/* Strings that templates read beside the content. */
static bool read_strings(json_t *out, const json_t *m, const char *where, struct complaint *c)
{
    static const char *const keys[] = {"name", "tool_call_id", "reasoning_content"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = member(m, keys[i]);
        if (value != NULL && !json_is_string(value)) {
            return complain(c, REASON_wrong_type, "%s.%s must be a string", where, keys[i]);
        }
        if (value != NULL && !put(out, keys[i], share(value), c)) {
            return false;
        }
    }
    return true;
}

static bool is_blank(const json_t *string)
{
    const char *s = json_string_value(string);

    return s == NULL || s[strspn(s, " \t\r\n")] == '\0';
}

bool holds_placeholder(const char *text)
{
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    const char *at = text != NULL ? strstr(text, "{{") : NULL;

    for (; at != NULL; at = strstr(at, "{{")) {
        at += 2;
        at += strspn(at, " ");
        const size_t letters = strspn(at, word);
        at += letters;
        at += strspn(at, " ");
        if (letters > 0 && strncmp(at, "}}", 2) == 0) {
            return true;
        }
    }
    return false;
}

static void count_turn(const json_t *m, struct turns *turns)
{
    const json_t *weight = json_object_get(m, "weight");
    const char *role = json_string_value(json_object_get(m, "role"));
    const bool empty =
        is_blank(json_object_get(m, "content")) && json_object_get(m, "tool_calls") == NULL;

    turns->empty += empty ? 1 : 0;
    if (role == NULL) {
        return;
    }
    turns->placeholder =
        turns->placeholder || holds_placeholder(json_string_value(json_object_get(m, "content")));
    turns->repeated = turns->repeated || (turns->last == *role && *role != 't');
    turns->assistant_first = turns->assistant_first || (*role == 'a' && turns->user == 0);
    turns->user += *role == 'u' ? 1 : 0;
    turns->last = *role;
    if (*role == 'a') {
        turns->assistant++;
        turns->learned += !empty && (weight == NULL || json_integer_value(weight) != 0) ? 1 : 0;
    }
}

/* A turn that is a call: what its content says, or, where that is no call, the content as it is. */
static bool turn_into_call(json_t *out, struct complaint *c)
{
    json_t *given = parse_string(json_object_get(out, "content"));
    json_t *calls = given != NULL ? convert_calls(given) : NULL;

    json_decref(given);
    return calls == NULL ||
           (put(out, "tool_calls", calls, c) && put(out, "content", json_string(""), c));
}

static bool fill_message(json_t *out, const json_t *m, bool masked, const char *where,
                         struct complaint *c)
{
    const char *role = "";
    json_t *content = NULL;

    if (!read_role(&role, m, where, c)) {
        return false;
    }
    const bool is_call = role == call;
    const bool is_assistant = is_call || strcmp(role, "assistant") == 0;
    if (!put(out, "role", json_string(is_call ? "assistant" : role), c) ||
        !read_content(&content, m, where, c) || !put(out, "content", content, c) ||
        !read_strings(out, m, where, c)) {
        return false;
    }
    if (is_assistant && (!read_calls(out, m, where, c) || !read_weight(out, m, masked, where, c))) {
        return false;
    }
    return !is_call || turn_into_call(out, c);
}

bool messages_add(json_t *out, const json_t *list, const char *column, bool masked,
                  struct turns *turns, struct complaint *c)
{
    json_t *m;
    size_t i;

    if (!json_is_array(list)) {
        return complain(c, REASON_wrong_type, "%s must be a list of messages", column);
    }
    json_array_foreach(list, i, m)
    {
        char where[64];
        (void)snprintf(where, sizeof where, "%s[%zu]", column, i);
        if (!json_is_object(m)) {
            return complain(c, REASON_wrong_type, "%s must be an object with role and content",
                            where);
        }
        json_t *made = json_object();
        if (made == NULL) {
            return no_memory(c);
        }
        if (!fill_message(made, m, masked, where, c)) {
            json_decref(made);
            return false;
        }
        count_turn(made, turns);
        if (json_array_append_new(out, made) != 0) {
            return no_memory(c);
        }
    }
    return true;
}

bool messages_add_text(json_t *out, const char *role, const json_t *text, struct turns *turns,
                       struct complaint *c)
{
    json_t *made = json_pack("{s:s, s:O}", "role", role, "content", text);

    if (made == NULL) {
        return no_memory(c);
    }
    count_turn(made, turns);
    return json_array_append_new(out, made) == 0 || no_memory(c);
}

static json_t *convert_tool(const json_t *given)
{
    const json_t *function = member(given, "function");
    const char *type = json_string_value(json_object_get(given, "type"));

    const json_t *name = member(json_is_object(function) ? function : given, "name");

    if (!json_is_string(name)) {
        return NULL;
    }
    if (json_is_object(function)) {
        return share(given);
    }
    if (type != NULL && strcmp(type, "function") != 0) {
        return NULL;
    }
    return json_pack("{s:s, s:O}", "type", "function", "function", given);
}

static bool convert_tool_list(json_t **out, const json_t *list, const char *column,
                              struct complaint *c)
{
    json_t *made = json_array();
    json_t *tool;
    size_t i;

    if (made == NULL) {
        return no_memory(c);
    }
    json_array_foreach(list, i, tool)
    {
        if (!json_is_object(tool) || json_array_append_new(made, convert_tool(tool)) != 0) {
            json_decref(made);
            return complain(c, REASON_wrong_tools, "%s[%zu]", column, i);
        }
    }
    if (json_array_size(made) == 0) {
        json_decref(made);
        made = NULL;
    }
    *out = made;
    return true;
}

bool tools_convert(json_t **out, const json_t *tools, const char *column, struct complaint *c)
{
    json_t *parsed = NULL;

    *out = NULL;
    if (tools == NULL || json_is_null(tools) || (json_is_string(tools) && is_blank(tools))) {
        return true;
    }
    if (json_is_string(tools)) {
        parsed = parse_string(tools);
        tools = parsed;
    }
    const bool good = json_is_array(tools) ? convert_tool_list(out, tools, column, c)
                                           : complain(c, REASON_wrong_tools, "%s", column);
    json_decref(parsed);
    return good;
}
