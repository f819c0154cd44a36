/* test_jinja_oracle.c - every template of jinja_oracle.py renders, or fails, as Jinja2 has it; skipped without it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/chat/chat.h"
#include "trainer/chat/jinja.h"

static const char *const pythons[] = {"python3", "/usr/bin/python3"};
static const struct jinja_limits limits = {20 * 1000 * 1000, (size_t)256 << 20, (size_t)64 << 20};

enum { COMMAND_MAX = 5000 };

static const char *python(void)
{
    char command[COMMAND_MAX];

    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++) {
        (void)snprintf(command, sizeof command, "%s -c 'import jinja2' 2>/dev/null", pythons[i]);
        if (system(command) == 0) { /* NOLINT(cert-env33-c): a fixed command */
            return pythons[i];
        }
    }
    return NULL;
}

static void write_builtins(const char *path)
{
    json_t *all = json_object();
    struct err err = {0};

    for (int i = 0; chat_builtin_name(i) != NULL; i++) {
        (void)json_object_set_new(all, chat_builtin_name(i), json_string(chat_builtin_text(i)));
    }
    CHECK(json_write_file(path, all, &err) == 0, "%s", err.text);
    json_decref(all);
}

/* Render one case as the trainer would. */
static int render(const json_t *test, struct jinja_output *out, struct err *err)
{
    struct jinja_variable variables[40];
    struct jinja_template *t = NULL;
    const char *text = json_string_value(json_object_get(test, "template")), *name;
    json_t *given = json_object_get(test, "variables"), *value;
    int count = 0;

    json_object_foreach(given, name, value)
    {
        CHECK(count < 40, "%s", name);
        variables[count++] = (struct jinja_variable){
            name, value, strcmp(name, "messages") == 0 ? JINJA_MESSAGES : JINJA_TOOLS};
    }
    *out = (struct jinja_output){0};
    int rc = jinja_parse(&t, text, strlen(text), err);
    if (rc == 0) {
        rc = jinja_render(t, variables, count, &limits, out, err);
    }
    jinja_free(t);
    return rc;
}

/* The runs must cover the text. */
static void check_runs(const struct jinja_output *out)
{
    size_t at = 0;

    for (size_t i = 0; i < out->run_count; i++) {
        EXPECT(out->runs[i].end > at);
        at = out->runs[i].end;
    }
    EXPECT(at == out->bytes);
}

static void check_case(const json_t *test)
{
    const char *name = json_string_value(json_object_get(test, "name"));
    const json_t *text = json_object_get(test, "text");
    const char *refusal = json_string_value(json_object_get(test, "error"));
    struct jinja_output out;
    struct err err = {0};

    const int rc = render(test, &out, &err);
    const bool same = text != NULL ? rc == 0 && out.bytes == json_string_length(text) &&
                                         memcmp(out.text, json_string_value(text), out.bytes) == 0
                                   : rc != 0 && (rc == ERR_BAD_REQUEST) == (refusal[0] != '\0');
    if (!same) {
        EXPECT_UNREACHED("not as Jinja2 has it");
        const char *why = json_string_value(json_object_get(test, "why"));
        printf("# %s\n# got  %s\n# want %s\n", name, rc == 0 ? out.text : err.text,
               text != NULL  ? json_string_value(text)
               : why != NULL ? why
                             : refusal);
    }
    if (rc == 0) {
        check_runs(&out);
    } else {
        EXPECT(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    }
    jinja_output_fini(&out);
}

static const char *interpreter;

static void every_case_is_as_jinja2_has_it(void)
{
    char command[COMMAND_MAX], *line = NULL;
    size_t room = 0;
    int count = 0;

    write_builtins(in_scratch("builtins.json"));
    (void)snprintf(command, sizeof command, "%s tests/jinja_oracle.py %s", interpreter,
                   in_scratch("builtins.json"));
    FILE *cases = popen(command, "r"); /* NOLINT(cert-env33-c): a fixed command */
    CHECK(cases != NULL, "no pipe");
    while (getline(&line, &room, cases) > 0) {
        json_t *test = json_loads(line, JSON_ALLOW_NUL, NULL);
        CHECK(test != NULL, "%s", line);
        check_case(test);
        json_decref(test);
        count++;
    }
    EXPECT(pclose(cases) == 0);
    EXPECT(count > 900);
    printf("# %d cases\n", count);
    free(line);
}

int main(void)
{
    interpreter = python();
    if (interpreter == NULL) {
        printf("1..0 # SKIP there is no python3-jinja2 here\n");
        return 0;
    }
    scratch_make();
    RUN(every_case_is_as_jinja2_has_it);
    scratch_remove();
    return tap_done();
}
