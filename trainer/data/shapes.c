/* shapes.c - from rows of many shapes to examples of four kinds.
 *
 * A shape is known by the columns that it needs; the first of the table whose columns are all there and not null is taken. So
 * a row with instruction, output and text (as Alpaca has them) is a conversation, and not a text.
 */
#include "trainer/data/shapes.h"

#include <string.h>

#include "trainer/base/json.h"

enum { NEEDS = 3, MAY = 7 };

struct shape {
    const char *name;
    enum example_kind kind; /* COMPLETION becomes CHAT where prompt and completion are messages */
    const char *needs[NEEDS];
    const char *may[MAY]; /* other columns that are used */
    bool (*convert)(struct converted *out, const json_t *row, struct complaint *c);
};

/* A column that is there and not null, or NULL. */
static const json_t *column(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);

    return json_is_null(value) ? NULL : value;
}

static bool no_memory(struct complaint *c)
{
    return complain(c, REASON_COUNT, "no memory");
}

static bool string_column(const json_t **out, const json_t *row, const char *name,
                          struct complaint *c)
{
    const json_t *value = column(row, name);

    if (value != NULL && !json_is_string(value)) {
        return complain(c, REASON_wrong_type, "%s must be a string", name);
    }
    *out = value;
    return true;
}

static bool is_filled(const json_t *string)
{
    return json_string_length(string) > 0;
}

static bool begin_messages(json_t **out, struct complaint *c)
{
    *out = json_array();
    return *out != NULL || no_memory(c);
}

/* A system prompt in a column of its own. */
static bool add_system(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *text = NULL;

    return string_column(&text, row, "system", c) &&
           (!is_filled(text) || messages_add_text(v->messages, "system", text, &v->turns, c));
}

/* LLaMA-Factory's history: pairs of what was said before. */
static bool add_history(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *history = column(row, "history");
    json_t *pair;
    size_t i;

    if (history != NULL && !json_is_array(history)) {
        return complain(c, REASON_wrong_type, "history must be a list of pairs");
    }
    json_array_foreach(history, i, pair)
    {
        const json_t *asked = json_array_get(pair, 0), *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(asked) || !json_is_string(answer)) {
            return complain(c, REASON_wrong_type, "history[%zu] must be a pair of strings", i);
        }
        if (!messages_add_text(v->messages, "user", asked, &v->turns, c) ||
            !messages_add_text(v->messages, "assistant", answer, &v->turns, c)) {
            return false;
        }
    }
    return true;
}

static bool add_tools(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *tools = column(row, "tools");

    return tools_convert(&v->tools, tools != NULL ? tools : column(row, "functions"),
                         tools != NULL ? "tools" : "functions", c);
}

/* The user's turn: a column, and what it is about in another one, apart by an empty line. */
static bool add_question(struct converted *v, const json_t *row, const char *question,
                         const char *input, struct complaint *c)
{
    const json_t *asked = NULL, *about = NULL;

    if (!string_column(&asked, row, question, c) ||
        (input != NULL && !string_column(&about, row, input, c))) {
        return false;
    }
    if (!is_filled(about)) {
        return messages_add_text(v->messages, "user", asked, &v->turns, c);
    }
    if (!is_filled(asked)) {
        return messages_add_text(v->messages, "user", about, &v->turns, c);
    }
    json_t *both = json_sprintf("%s\n\n%s", json_string_value(asked), json_string_value(about));
    const bool good =
        both == NULL ? no_memory(c) : messages_add_text(v->messages, "user", both, &v->turns, c);
    json_decref(both);
    return good;
}

/* All rows of one question and one answer. */
static bool convert_pair(struct converted *v, const json_t *row, struct complaint *c)
{
    const char *const *names = v->shape->needs;
    const json_t *answer = NULL;
    const bool about = strcmp(names[0], "instruction") == 0;
    const char *input = column(row, "input") != NULL ? "input" : "context";

    v->example.kind = EXAMPLE_CHAT;
    return begin_messages(&v->messages, c) && add_system(v, row, c) && add_history(v, row, c) &&
           add_question(v, row, names[0], about ? input : NULL, c) &&
           string_column(&answer, row, names[1], c) &&
           messages_add_text(v->messages, "assistant", answer, &v->turns, c) &&
           add_tools(v, row, c);
}

/* messages or conversations; a system prompt may stand beside them. */
static bool convert_chat(struct converted *v, const json_t *row, struct complaint *c)
{
    const char *name = v->shape->needs[0];

    v->example.kind = EXAMPLE_CHAT;
    return begin_messages(&v->messages, c) && add_system(v, row, c) &&
           messages_add(v->messages, column(row, name), name, false, &v->turns, c) &&
           add_tools(v, row, c);
}

static bool convert_text(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *text = NULL;

    if (!string_column(&text, row, "text", c)) {
        return false;
    }
    v->example.kind = EXAMPLE_TEXT;
    v->example.text = json_string_value(text);
    v->example.bytes = json_string_length(text);
    return true;
}

/* Messages of an answer or a prompt, however it is written: a string, one message, a list of them. */
static bool add_any(json_t *out, const json_t *value, const char *role, const char *name,
                    bool masked, struct turns *turns, struct complaint *c)
{
    if (json_is_string(value)) {
        return messages_add_text(out, role, value, turns, c);
    }
    if (!json_is_object(value)) {
        return messages_add(out, value, name, masked, turns, c);
    }
    json_t *list = json_pack("[O]", value);
    const bool good = list == NULL ? no_memory(c) : messages_add(out, list, name, masked, turns, c);
    json_decref(list);
    return good;
}

static bool convert_completion(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *prompt = column(row, "prompt"), *completion = column(row, "completion");

    if (json_is_string(prompt) && json_is_string(completion)) {
        v->example.kind = EXAMPLE_COMPLETION;
        v->example.prompt = json_string_value(prompt);
        v->example.prompt_bytes = json_string_length(prompt);
        v->example.completion = json_string_value(completion);
        v->example.completion_bytes = json_string_length(completion);
        return true;
    }
    v->example.kind = EXAMPLE_CHAT;
    return begin_messages(&v->messages, c) &&
           add_any(v->messages, prompt, "user", "prompt", true, &v->turns, c) &&
           add_any(v->messages, completion, "assistant", "completion", false, &v->turns, c) &&
           add_tools(v, row, c);
}

/* OpenAI's: input has the messages, both outputs are lists of them. */
static bool convert_preferred(struct converted *v, const json_t *row, struct complaint *c)
{
    const json_t *input = column(row, "input");
    const json_t *asked = json_is_object(input) ? column(input, "messages") : input;
    struct turns before = {0};

    v->example.kind = EXAMPLE_PREFERENCE;
    if (asked == NULL) {
        return complain(c, REASON_missing_field, "input.messages");
    }
    return begin_messages(&v->messages, c) && begin_messages(&v->chosen, c) &&
           begin_messages(&v->rejected, c) &&
           add_any(v->messages, asked, "user", "input.messages", false, &before, c) &&
           add_any(v->chosen, column(row, "preferred_output"), "assistant", "preferred_output",
                   false, &v->turns, c) &&
           add_any(v->rejected, column(row, "non_preferred_output"), "assistant",
                   "non_preferred_output", false, &v->turns, c) &&
           add_tools(v, json_is_object(input) && column(input, "tools") != NULL ? input : row, c);
}

/* What both answers begin with is what was asked: move it to the messages. */
static bool take_common(struct converted *v, struct complaint *c)
{
    while (json_array_size(v->chosen) > 0 && json_array_size(v->rejected) > 0 &&
           json_equal(json_array_get(v->chosen, 0), json_array_get(v->rejected, 0))) {
        const bool last = json_array_size(v->chosen) == 1 || json_array_size(v->rejected) == 1;
        if (last) {
            break; /* an answer has to be left */
        }
        if (json_array_append(v->messages, json_array_get(v->chosen, 0)) != 0) {
            return no_memory(c);
        }
        (void)json_array_remove(v->chosen, 0);
        (void)json_array_remove(v->rejected, 0);
    }
    return true;
}

/* Whether an answer is a list that repeats the question: it begins with another turn than an answer. */
static bool holds_question(const json_t *answer)
{
    const char *role = json_string_value(json_object_get(json_array_get(answer, 0), "role"));

    return role != NULL && (strcmp(role, "user") == 0 || strcmp(role, "system") == 0);
}

/* What was asked, in one of the columns that people use; none where the answers repeat it. */
static bool add_asked(struct converted *v, const json_t *row, struct complaint *c)
{
    static const char *const names[] = {"prompt", "messages", "conversations", "question"};
    struct turns before = {0};

    if (!add_system(v, row, c) || !add_history(v, row, c)) {
        return false;
    }
    if (column(row, "instruction") != NULL) {
        return add_question(v, row, "instruction", "input", c);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (column(row, names[i]) != NULL) {
            return add_any(v->messages, column(row, names[i]), "user", names[i], false, &before, c);
        }
    }
    return complain(c, REASON_missing_field, "prompt");
}

/* chosen and rejected: strings, messages, or whole conversations; the question beside them or in them. */
static bool convert_chosen(struct converted *v, const json_t *row, struct complaint *c)
{
    const bool of_pairs = strcmp(v->shape->needs[0], "chosen") != 0;
    const char *chosen = v->shape->needs[of_pairs ? 1 : 0];
    const char *rejected = v->shape->needs[of_pairs ? 2 : 1];

    v->example.kind = EXAMPLE_PREFERENCE;
    if (!begin_messages(&v->messages, c) || !begin_messages(&v->chosen, c) ||
        !begin_messages(&v->rejected, c) ||
        !add_any(v->chosen, column(row, chosen), "assistant", chosen, false, &v->turns, c) ||
        !add_any(v->rejected, column(row, rejected), "assistant", rejected, false, &v->turns, c)) {
        return false;
    }
    const bool whole = holds_question(v->chosen) && holds_question(v->rejected);
    if (!(whole ? take_common(v, c) : add_asked(v, row, c))) {
        return false;
    }
    return add_tools(v, row, c);
}

/* clang-format off */
static const struct shape shapes[] = {
    {"preferred_output",  EXAMPLE_PREFERENCE, {"preferred_output", "non_preferred_output", "input"}, {"tools"}, convert_preferred},
    {"chosen_rejected",   EXAMPLE_PREFERENCE, {"chosen", "rejected"},
     {"prompt", "messages", "conversations", "question", "instruction", "input", "system"}, convert_chosen},
    {"paired_responses",  EXAMPLE_PREFERENCE, {"question", "response_j", "response_k"},    {0},       convert_chosen},
    {"messages",          EXAMPLE_CHAT,       {"messages"},      {"tools", "functions", "system"},    convert_chat},
    {"conversations",     EXAMPLE_CHAT,       {"conversations"}, {"tools", "functions", "system"},    convert_chat},
    {"conversation",      EXAMPLE_CHAT,       {"conversation"},  {"tools", "functions", "system"},    convert_chat},
    {"alpaca",            EXAMPLE_CHAT,       {"instruction", "output"},
     {"input", "context", "system", "history", "tools"},                                              convert_pair},
    {"instruction_response", EXAMPLE_CHAT,    {"instruction", "response"},
     {"input", "context", "system", "history", "tools"},                                              convert_pair},
    {"query_response",    EXAMPLE_CHAT,       {"query", "response"}, {"system", "history", "tools"},  convert_pair},
    {"question_answer",   EXAMPLE_CHAT,       {"question", "answer"}, {"system", "history", "tools"}, convert_pair},
    {"question_response", EXAMPLE_CHAT,       {"question", "response"}, {"system", "history", "tools"}, convert_pair},
    {"prompt_completion", EXAMPLE_COMPLETION, {"prompt", "completion"}, {"tools"},                    convert_completion},
    {"prompt_response",   EXAMPLE_CHAT,       {"prompt", "response"}, {"system", "history", "tools"}, convert_pair},
    {"text",              EXAMPLE_TEXT,       {"text"},          {0},                                 convert_text},
};
/* clang-format on */

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

const char *shape_name(const struct shape *s)
{
    return s->name;
}

/* The first column of the shape that the row lacks; NULL when it has all. */
static const char *lacking(const struct shape *s, const json_t *row)
{
    for (int k = 0; k < NEEDS && s->needs[k] != NULL; k++) {
        if (column(row, s->needs[k]) == NULL) {
            return s->needs[k];
        }
    }
    return NULL;
}

/* Columns of the shape that the row has, null or not. */
static int having(const struct shape *s, const json_t *row)
{
    int n = 0;

    for (int k = 0; k < NEEDS && s->needs[k] != NULL; k++) {
        n += json_object_get(row, s->needs[k]) != NULL ? 1 : 0;
    }
    return n;
}

/* Whether a column is a list of objects: examples inside an example. */
static bool holds_lists(const json_t *row)
{
    const char *name;
    json_t *value;

    json_object_foreach(json_unconst(row), name, value)
    {
        if (json_is_object(json_array_get(value, 0))) {
            return true;
        }
    }
    return false;
}

/* No shape fits: the one that comes nearest says what is missing. */
static bool refuse(const json_t *row, const struct shape *likely, struct complaint *c)
{
    const struct shape *near = likely != NULL && having(likely, row) > 0 ? likely : NULL;

    for (int i = 0; near == NULL && i < SHAPES; i++) {
        near = having(&shapes[i], row) > 0 ? &shapes[i] : NULL;
    }
    if (holds_lists(row)) {
        return complain(c, REASON_nested_examples, "%s", "");
    }
    return near == NULL ? complain(c, REASON_unknown_columns, "%s", "")
                        : complain(c, REASON_missing_field, "%s", lacking(near, row));
}

static bool is_used(const struct shape *s, const char *name)
{
    for (int k = 0; k < NEEDS && s->needs[k] != NULL; k++) {
        if (strcmp(name, s->needs[k]) == 0) {
            return true;
        }
    }
    for (int k = 0; k < MAY && s->may[k] != NULL; k++) {
        if (strcmp(name, s->may[k]) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_extra(const struct shape *s, const json_t *row)
{
    const char *name;
    json_t *value;

    json_object_foreach(json_unconst(row), name, value)
    {
        if (!is_used(s, name)) {
            return true;
        }
    }
    return false;
}

static bool convert_object(struct converted *out, const json_t *row, const struct shape *likely,
                           struct complaint *c)
{
    for (int i = 0; i < SHAPES && out->shape == NULL; i++) {
        out->shape = lacking(&shapes[i], row) == NULL ? &shapes[i] : NULL;
    }
    if (out->shape == NULL) {
        return refuse(row, likely, c);
    }
    out->extra = has_extra(out->shape, row);
    return out->shape->convert(out, row, c);
}

bool shape_convert(struct converted *out, const json_t *row, const struct shape *likely,
                   struct complaint *c)
{
    *out = (struct converted){0};
    *c = (struct complaint){0};
    json_t *wrapped = NULL;
    if (json_is_array(row) && json_is_object(json_array_get(row, 0))) {
        wrapped = json_pack("{s:O}", "messages", row); /* a bare list of messages */
        row = wrapped;
    }
    const bool good = json_is_object(row) ? convert_object(out, row, likely, c)
                                          : complain(c, REASON_not_an_object, "%s", "");
    json_decref(wrapped);
    if (!good) {
        converted_fini(out);
        return false;
    }
    out->example.messages = out->messages;
    out->example.tools = out->tools;
    out->example.chosen = out->chosen;
    out->example.rejected = out->rejected;
    return true;
}

void converted_fini(struct converted *v)
{
    json_decref(v->messages);
    json_decref(v->tools);
    json_decref(v->chosen);
    json_decref(v->rejected);
    *v = (struct converted){0};
}

static bool has_assistant(const json_t *messages)
{
    json_t *m;
    size_t i;

    json_array_foreach(messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role != NULL && strcmp(role, "assistant") == 0) {
            return true;
        }
    }
    return false;
}

enum reason shape_lesson(const struct converted *v)
{
    switch (v->example.kind) {
    case EXAMPLE_TEXT: return v->example.bytes == 0 ? REASON_empty_text : REASON_COUNT;
    case EXAMPLE_COMPLETION:
        return v->example.completion_bytes == 0 ? REASON_all_masked : REASON_COUNT;
    case EXAMPLE_CHAT:
        if (json_array_size(v->messages) == 0) {
            return REASON_no_messages;
        }
        return v->turns.assistant == 0 ? REASON_no_assistant
               : v->turns.learned == 0 ? REASON_all_masked
                                       : REASON_COUNT;
    case EXAMPLE_PREFERENCE:
        return !has_assistant(v->chosen) || !has_assistant(v->rejected) ||
                       json_equal(v->chosen, v->rejected)
                   ? REASON_no_difference
                   : REASON_COUNT;
    case EXAMPLE_KIND_COUNT: break;
    }
    return REASON_COUNT;
}
