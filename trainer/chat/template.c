/* template.c - finding and opening a chat template, and learning its habits by a trial. */
#include "trainer/chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum { CONFIG_MAX = 64 << 20, NAMES_MAX = 300 };

static const struct {
    const char *name, *text;
} builtins[] = {
#define BUILTIN(name, text) {#name, text},
#include "trainer/chat/builtin.def"
};

enum { BUILTIN_COUNT = sizeof builtins / sizeof *builtins };

const char *chat_builtin_name(int index)
{
    return index >= 0 && index < BUILTIN_COUNT ? builtins[index].name : NULL;
}

const char *chat_builtin_text(int index)
{
    return index >= 0 && index < BUILTIN_COUNT ? builtins[index].text : NULL;
}

static const char *builtin_text(const char *name)
{
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strcmp(builtins[i].name, name) == 0) {
            return builtins[i].text;
        }
    }
    return NULL;
}

static int no_memory(struct err *err)
{
    return FAIL(err, ERR_NO_MEMORY, "there is no memory for a chat template");
}

static int set_text(struct chat_template *c, const char *text, size_t n, const char *source,
                    struct err *err)
{
    (void)snprintf(c->source, sizeof c->source, "%s", source);
    if (strlen(text) != n) {
        return FAIL(err, ERR_BAD_FILE, "%s: the chat template holds a NUL character", source);
    }
    c->text = strdup(text);
    return c->text == NULL ? no_memory(err) : 0;
}

/* The template of a list of {name, template} with that name; NULL for none. */
static const char *named_template(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(entry, "name"));
        if (own != NULL && strcmp(own, name) == 0) {
            return json_string_value(json_object_get(entry, "template"));
        }
    }
    return NULL;
}

/* Without the line end that Jinja takes off the end of a template. */
static int bare_length(const char *text)
{
    const size_t n = strlen(text);
    const bool ends = n > 0 && text[n - 1] == '\n', is_pair = ends && n > 1 && text[n - 2] == '\r';
    const size_t taken = ends ? (is_pair ? 2 : 1) : 0;
    return (int)(n - taken); /* at most CONFIG_MAX */
}

/* One template out of two. Each begins a line, as it did, for the line end is the tag's; `+` leaves the blanks at
 * its end alone. */
static int join_templates(struct chat_template *c, const char *with_tools, const char *without,
                          const char *source, struct err *err)
{
    char *text = NULL;

    if (asprintf(&text, "{%% if tools is not none %%}\n%.*s{%%+ else %%}\n%.*s{%%+ endif %%}",
                 bare_length(with_tools), with_tools, bare_length(without), without) < 0) {
        return no_memory(err);
    }
    const int rc = set_text(c, text, strlen(text), source, err);
    free(text);
    return rc;
}

/* tokenizer_config.json's chat_template, if it has one: a text or a list. */
static int take_config(struct chat_template *c, const json_t *config, struct err *err)
{
    static const char source[] = "tokenizer_config.json";
    const json_t *given = json_object_get(config, "chat_template");

    if (json_is_string(given)) {
        return set_text(c, json_string_value(given), json_string_length(given), source, err);
    }
    if (given == NULL || json_is_null(given)) {
        return 0;
    }
    const char *without = named_template(given, "default");
    const char *with_tools = named_template(given, "tool_use");
    if (without == NULL) {
        return FAIL(err, ERR_BAD_FILE,
                    "%s: chat_template is neither a text nor a list with one called \"default\"",
                    source);
    }
    return with_tools == NULL ? set_text(c, without, strlen(without), source, err)
                              : join_templates(c, with_tools, without, source, err);
}

/* A file of the folder, if it is there. */
static int read_optional(char **text, size_t *n, int dir, const char *name, struct err *err)
{
    int fd = -1;

    *text = NULL;
    int rc = io_open_beneath(&fd, dir, name, err);
    if (rc == ERR_NOT_FOUND) {
        return 0;
    }
    if (rc == 0) {
        rc = io_read_fd(text, n, fd, name, CONFIG_MAX, err);
        (void)close(fd);
    }
    return rc;
}

static int read_config(json_t **config, int dir, struct err *err)
{
    char *text = NULL;
    size_t n = 0;

    *config = NULL;
    int rc = read_optional(&text, &n, dir, "tokenizer_config.json", err);
    if (rc == 0 && text != NULL) {
        rc = json_parse_text(config, text, n, "tokenizer_config.json", err);
    }
    free(text);
    return rc;
}

static int take_file(struct chat_template *c, int dir, struct err *err)
{
    char *text = NULL;
    size_t n = 0;

    int rc = read_optional(&text, &n, dir, "chat_template.jinja", err);
    if (rc == 0 && text != NULL) {
        rc = set_text(c, text, n, "chat_template.jinja", err);
    }
    free(text);
    return rc;
}

/* A token that the configuration names: a text, or an object whose content it is. */
static json_t *configured(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, name);
    const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;

    return json_is_string(text) ? json_stringn(json_string_value(text), json_string_length(text))
                                : NULL;
}

static json_t *token_text(const struct tokenizer *t, int32_t id)
{
    size_t bytes = 0;
    const char *text = id < 0 ? NULL : tokenizer_token(t, id, &bytes);

    return text == NULL ? NULL : json_stringn(text, bytes);
}

static void name_specials(struct chat_template *c, const struct tokenizer *t, const json_t *config)
{
    static const char *const names[CHAT_NAMED_SPECIALS] = {
        "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"};
    const int32_t known[] = {tokenizer_bos(t), tokenizer_eos(t), tokenizer_pad(t)};

    for (size_t i = 0; i < CHAT_NAMED_SPECIALS; i++) {
        c->named[i] = (struct chat_named){names[i], i < sizeof known / sizeof *known
                                                        ? token_text(t, known[i])
                                                        : configured(config, names[i])};
    }
}

static int list_specials(struct chat_template *c, const struct tokenizer *t, struct err *err)
{
    const int32_t size = (int32_t)tokenizer_size(t); /* ids are 32-bit */
    size_t n = 0;

    c->eos = tokenizer_eos(t);
    for (int32_t id = 0; id < size; id++) {
        n += tokenizer_is_special(t, id) || id == c->eos;
    }
    c->specials = calloc(n + 1, sizeof *c->specials);
    if (c->specials == NULL) {
        return no_memory(err);
    }
    for (int32_t id = 0; id < size; id++) {
        struct chat_special s = {.id = id};
        s.text =
            tokenizer_is_special(t, id) || id == c->eos ? tokenizer_token(t, id, &s.bytes) : NULL;
        if (s.text != NULL && s.bytes > 0) {
            c->specials[c->special_count++] = s;
        }
    }
    return 0;
}

static json_t *trial(bool answered)
{
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");

    if (messages != NULL && answered) {
        json_t *answer = json_pack("{s:s,s:s}", "role", "assistant", "content", "y");
        (void)json_array_append_new(messages, answer);
    }
    return messages;
}

static char *copy_bytes(const char *at, size_t n)
{
    char *text = malloc(n + 1);

    if (text != NULL) {
        if (n > 0) {
            memcpy(text, at, n);
        }
        text[n] = '\0';
    }
    return text;
}

/* Where the text begins that the template writes behind its loop over messages; the end when there is none. */
static size_t behind_the_loop(const struct jinja_output *o)
{
    size_t run = o->run_count;

    while (run > 0 && o->runs[run - 1].tag.turn == JINJA_NO_TURN &&
           o->runs[run - 1].tag.from == JINJA_FROM_TEMPLATE) {
        run--;
    }
    return run == 0 ? o->bytes : o->runs[run - 1].end;
}

/* What add_generation_prompt adds to a question; where it adds nothing, what always follows the last turn. A
 * template that refuses the trial keeps that to itself. */
static void learn_prompt(struct chat_template *c)
{
    struct jinja_output without = {0}, with = {0};
    json_t *messages = trial(false);
    struct err err;

    if (messages != NULL && chat_evaluate(c, messages, NULL, false, &without, &err) == 0 &&
        chat_evaluate(c, messages, NULL, true, &with, &err) == 0 && with.bytes >= without.bytes &&
        memcmp(with.text, without.text, without.bytes) == 0) {
        struct chat_habits *h = &c->habits;
        size_t begin = with.bytes > without.bytes ? without.bytes : behind_the_loop(&with);
        if (strspn(with.text + begin, " \n") == with.bytes - begin) {
            begin = with.bytes; /* white space asks for nothing */
        }
        h->prompt_bytes = with.bytes - begin;
        h->prompt = copy_bytes(with.text + begin, h->prompt_bytes);
        h->knows_prompt = h->prompt != NULL;
    }
    jinja_output_fini(&without);
    jinja_output_fini(&with);
    json_decref(messages);
}

/* A question, a call of a tool and its answer; the call comes with a content that is empty or null. */
static json_t *trial_of_tool(bool is_null)
{
    return json_pack("[{s:s,s:s}, {s:s,s:s?,s:[{s:s,s:s,s:{s:s,s:{}}}]}, {s:s,s:s,s:s,s:s}]",
                     "role", "user", "content", "x", "role", "assistant", "content",
                     is_null ? NULL : "", "tool_calls", "id", "call00001", "type", "function",
                     "function", "name", "f", "arguments", "role", "tool", "content", "z", "name",
                     "f", "tool_call_id", "call00001");
}

/* What the template writes behind its loop when the last message is a tool's. */
static void learn_after_tool(struct chat_template *c)
{
    struct chat_habits *h = &c->habits;

    for (int is_null = 0; is_null < 2 && h->after_tool == NULL; is_null++) {
        struct jinja_output o = {0};
        json_t *messages = trial_of_tool(is_null != 0);
        struct err err;
        if (messages != NULL && chat_evaluate(c, messages, NULL, true, &o, &err) == 0) {
            const size_t begin = behind_the_loop(&o);
            if (strspn(o.text + begin, " \n") < o.bytes - begin) {
                h->after_tool_bytes = o.bytes - begin;
                h->after_tool = copy_bytes(o.text + begin, h->after_tool_bytes);
            }
        }
        jinja_output_fini(&o);
        json_decref(messages);
    }
}

/* What of the head of an answer is not in the generation prompt, so that a model writes it. */
static void learn_lead(struct chat_template *c)
{
    const struct chat_habits *h = &c->habits;

    if (h->head != NULL && h->knows_prompt && h->head_bytes >= h->prompt_bytes &&
        memcmp(h->head, h->prompt, h->prompt_bytes) == 0) {
        c->lead = copy_bytes(h->head + h->prompt_bytes, h->head_bytes - h->prompt_bytes);
    }
}

/* What stands before and behind the answer "y" of the trial. */
static void learn_turn(struct chat_template *c, const struct jinja_output *o,
                       const struct rendered *r)
{
    const struct chat_marking m = {
        .output = o, .specials = c->specials, .special_count = c->special_count, .eos = c->eos};
    size_t run = 0, at = 0;

    while (run < o->run_count && o->runs[run].tag.from != 1) {
        run++;
    }
    if (run == o->run_count) {
        return;
    }
    size_t head = run;
    while (head > 0 && o->runs[head - 1].tag.turn == 1 &&
           o->runs[head - 1].tag.from == JINJA_FROM_TEMPLATE) {
        head--;
    }
    const size_t content = run == 0 ? 0 : o->runs[run - 1].end;
    const size_t begin = head == 0 ? 0 : o->runs[head - 1].end;
    const size_t end = o->runs[run].end;
    if (o->runs[run].tag.turn == 1) {
        c->habits.head_bytes = content - begin;
        c->habits.head = copy_bytes(o->text + begin, content - begin);
    }
    const size_t stop = r->trained_count == 0 ? o->bytes : r->trained[r->trained_count - 1].end;
    const struct chat_special *s = stop < end ? NULL : chat_find_special(&m, end, stop, &at);
    c->end = s == NULL ? -1 : s->id;
    c->end_text = stop < end ? NULL : copy_bytes(o->text + end, stop - end);
    c->tail = s == NULL ? NULL : copy_bytes(o->text + end, at - end);
    learn_lead(c);
}

static void learn_habits(struct chat_template *c)
{
    struct jinja_output o = {0};
    struct rendered r = {0};
    struct err err;

    learn_prompt(c);
    learn_after_tool(c);
    json_t *messages = trial(true);
    if (messages != NULL && chat_render_marked(c, messages, NULL, false, &o, &r, &err) == 0) {
        learn_turn(c, &o, &r);
    }
    jinja_output_fini(&o);
    rendered_fini(&r);
    json_decref(messages);
    if (c->end_text == NULL) {
        c->end_text = copy_bytes("", 0);
    }
}

static int find_given(struct chat_template *c, const char *given, struct err *err)
{
    const char *text = builtin_text(given);
    char source[CHAT_SOURCE_MAX], names[NAMES_MAX] = "";
    size_t n = 0;

    if (text != NULL) {
        (void)snprintf(source, sizeof source, "built-in %s", given);
        return set_text(c, text, strlen(text), source, err);
    }
    if (strstr(given, "{{") != NULL || strstr(given, "{%") != NULL) {
        return set_text(c, given, strlen(given), "given", err);
    }
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i == 0 ? "" : ", ",
                              builtins[i].name);
    }
    return FAIL_PARAM(err, ERR_BAD_SPEC, "chat_template",
                      "chat_template is neither Jinja text nor one of %s", names);
}

static int find(struct chat_template *c, const char *dir, const char *given, json_t **config,
                struct err *err)
{
    int fd = -1, rc = 0;

    if (dir != NULL) {
        TRY(io_open_dir(&fd, dir, err));
        rc = read_config(config, fd, err);
        if (rc == 0 && given == NULL) {
            rc = take_file(c, fd, err);
        }
        (void)close(fd);
        TRY(rc);
    }
    if (given != NULL) {
        return find_given(c, given, err);
    }
    if (c->text == NULL) {
        TRY(take_config(c, *config, err));
    }
    return c->text != NULL ? 0 : find_given(c, "plain", err);
}

static int parse(struct chat_template *c, bool is_given, struct err *err)
{
    struct err inner = {0};
    const int rc = jinja_parse(&c->jinja, c->text, strlen(c->text), &inner);

    if (rc == 0 || rc == ERR_NO_MEMORY) {
        return rc == 0 ? 0 : no_memory(err);
    }
    if (is_given) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "chat_template", "chat_template %s", inner.text);
    }
    return FAIL(err, ERR_BAD_FILE, "%s: the chat template, %s", c->source, inner.text);
}

int chat_template_open(struct chat_template **out, const char *dir, const char *given,
                       const struct tokenizer *t, struct err *err)
{
    struct chat_template *c = calloc(1, sizeof *c);
    json_t *config = NULL;

    *out = NULL;
    if (c == NULL) {
        return no_memory(err);
    }
    c->end = -1;
    int rc = find(c, dir, given, &config, err);
    if (rc == 0) {
        rc = parse(c, given != NULL, err);
    }
    if (rc == 0) {
        name_specials(c, t, config);
        rc = list_specials(c, t, err);
    }
    json_decref(config);
    if (rc == 0) {
        learn_habits(c);
        rc = c->end_text == NULL ? no_memory(err) : 0;
    }
    if (rc != 0) {
        chat_template_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void chat_template_close(struct chat_template *c)
{
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < CHAT_NAMED_SPECIALS; i++) {
        json_decref(c->named[i].value);
    }
    jinja_free(c->jinja);
    free(c->habits.prompt);
    free(c->habits.after_tool);
    free(c->habits.head);
    free(c->specials);
    free(c->end_text);
    free(c->lead);
    free(c->tail);
    free(c->text);
    free(c);
}

const char *chat_template_source(const struct chat_template *c)
{
    return c->source;
}

const char *chat_template_text(const struct chat_template *c)
{
    return c->text;
}

int32_t chat_template_end(const struct chat_template *c)
{
    return c->end;
}

const char *chat_template_end_text(const struct chat_template *c)
{
    return c->end_text;
}

const char *chat_template_lead(const struct chat_template *c)
{
    return c->lead != NULL ? c->lead : "";
}

const char *chat_template_tail(const struct chat_template *c)
{
    return c->tail != NULL ? c->tail : "";
}
