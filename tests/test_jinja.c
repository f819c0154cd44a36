/* test_jinja.c - the template language: errors with their lines, limits, and where each byte comes from. What
 * templates print is compared with Jinja2 by test_jinja_oracle. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/chat/jinja.h"

static const struct jinja_limits limits = {
    .steps = 20 * 1000 * 1000, .memory = (size_t)256 << 20, .output = (size_t)64 << 20};

static json_t *messages;

static int render(const char *text, size_t bytes, struct jinja_output *out, struct err *err)
{
    const struct jinja_variable variables[] = {
        {"messages", messages, JINJA_MESSAGES},
        {"eos_token", json_object_get(json_array_get(messages, 3), "eos"), JINJA_OWN},
        {"tools", json_object_get(json_array_get(messages, 3), "tools"), JINJA_TOOLS}};
    struct jinja_template *t = NULL;

    *out = (struct jinja_output){0};
    int rc = jinja_parse(&t, text, bytes, err);
    EXPECT((rc == 0) == (t != NULL));
    if (rc == 0) {
        rc = jinja_render(t, variables, 3, &limits, out, err);
    }
    jinja_free(t);
    return rc;
}

static bool writes(const char *text, const char *want)
{
    struct jinja_output out;
    struct err err = {0};
    const bool same = render(text, strlen(text), &out, &err) == 0 && strcmp(out.text, want) == 0;

    if (!same) {
        printf("# %s\n# got %s\n# want %s\n", text, out.text != NULL ? out.text : err.text, want);
    }
    jinja_output_fini(&out);
    return same;
}

static bool fails(const char *text, const char *want)
{
    struct jinja_output out;
    struct err err = {0};
    const int rc = render(text, strlen(text), &out, &err);
    const bool same = rc != 0 && strcmp(err.text, want) == 0;

    if (!same) {
        printf("# %.200s\n# got %s\n# want %s\n", text, out.text != NULL ? out.text : err.text,
               want);
    }
    EXPECT(out.text == NULL || rc == 0);
    jinja_output_fini(&out);
    return same;
}

static void names_line_and_word_of_what_is_not_known(void)
{
    EXPECT(fails("a\n\n{{ x | wordwrap }}", "line 3: the filter 'wordwrap' is not known"));
    EXPECT(fails("a\n{% if x is filter %}{% endif %}", "line 2: the test 'filter' is not known"));
    EXPECT(fails("{% include 'x' %}", "line 1: the statement 'include' is not known here"));
    EXPECT(fails("{% extends 'x' %}", "line 1: the statement 'extends' is not known here"));
    EXPECT(fails("{% import 'x' as y %}", "line 1: the statement 'import' is not known here"));
    EXPECT(fails("{% block a %}{% endblock %}", "line 1: the statement 'block' is not known here"));
    EXPECT(fails("\n{{ 'a'.zfill(3) }}", "line 2: the method 'zfill' is not known"));
    EXPECT(
        fails("{% for x in y recursive %}{% endfor %}", "line 1: recursive loops are not known"));
    EXPECT(fails("{{ f(*x) }}", "line 1: * and ** in a call are not known"));
    EXPECT(fails("\n{% do x %}", "line 2: the statement 'do' is not known here"));
}

static void names_the_line_of_an_error_of_syntax(void)
{
    EXPECT(fails("a\n{{ b", "line 2: the tag has no end: }} is missing"));
    EXPECT(fails("a\n{% if b %}\nc\n", "line 3: the template ends before elif"));
    EXPECT(fails("a\n{# b", "line 2: the comment has no end: #} is missing"));
    EXPECT(fails("{% raw %}\n{{", "line 1: raw has no end: {% endraw %} is missing"));
    EXPECT(fails("\n\n{{ 1 + }}", "line 3: unexpected end of {{ }}"));
    EXPECT(fails("{{ (1] }}", "line 1: unexpected ']'"));
    EXPECT(fails("{{ 'a }}", "line 1: a string has no closing '"));
    EXPECT(fails("{{ 'a\nb' }}{{ ? }}", "line 2: a character that means nothing here: '?'"));
    EXPECT(fails("{{ 99999999999999999999 }}",
                 "line 1: a number is too large or not one that is known"));
    EXPECT(fails("{{ '\\x4' }}", "line 1: a string has an escape with too few hexadecimal digits"));
    EXPECT(fails("{% break %}", "line 1: break outside of a loop"));
    EXPECT(fails("{{ a b }}", "line 1: unexpected 'b'"));
    EXPECT(fails("{% endfor %}", "line 1: the statement 'endfor' is not known here"));
    EXPECT(fails("\xff", "line 1: the template is not UTF-8"));
}

static void names_the_line_where_a_rendering_fails(void)
{
    EXPECT(fails("a\n{{ b.c }}", "line 2: 'b' is undefined"));
    EXPECT(fails("\n\n{{ messages[0].nothing.more }}", "line 3: a dict has no 'nothing'"));
    EXPECT(fails("{% for m in messages %}\n{{ m.content + 1 }}{% endfor %}",
                 "line 2: a str and a int can't be combined by arithmetic"));
    EXPECT(fails("{{ 1 / 0 }}", "line 1: division by zero"));
    EXPECT(fails("{{ 9223372036854775807 + 1 }}", "line 1: a number does not fit 64 bits"));
    EXPECT(
        fails("{% macro m(a) %}\n{{ a.b }}{% endmacro %}\n{{ m(x) }}", "line 2: 'x' is undefined"));
    EXPECT(fails("{% set messages.x = 1 %}",
                 "line 1: only attributes of a namespace can be set, not 'x' of a list"));
    EXPECT(fails("{{ [].append(1) }}", "line 1: a list has no 'append'"));
    EXPECT(fails("{{ messages[0].update({}) }}", "line 1: a dict has no 'update'"));
    EXPECT(fails("{{ ''.__class__() }}", "line 1: a str has no '__class__'"));
}

static void speaks_the_words_of_raise_exception_but_no_data(void)
{
    struct jinja_output out;
    struct err err = {0};
    const char text[] =
        "{{ raise_exception('role ' ~ messages[0].role ~ '\n says ' ~ messages[0].content) }}";

    EXPECT(render(text, strlen(text), &out, &err) == ERR_BAD_REQUEST);
    EXPECT(strcmp(err.text, "the chat template refuses the conversation: role user? says ...") ==
           0);
    EXPECT(fails("{{ raise_exception(messages[0].content) }}",
                 "the chat template refuses the conversation: ..."));
    EXPECT(fails("{{ raise_exception('') }}",
                 "the chat template refuses the conversation: it does not say why"));
    /* a key that is data is not spelled out either */
    EXPECT(
        fails("{{ {}[messages[0].content].x }}", "line 1: a dict has no 'element of that name'"));
}

/* Ends with an error, soon. */
static void ends_soon(const char *text, const char *want)
{
    const clock_t start = clock();

    EXPECT(fails(text, want));
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    EXPECT(seconds < 60.0); /* of processor time; tenths of one but under a sanitizer */
}

static void templates_that_never_end_are_ended(void)
{
    static const char steps[] = "line 1: the template takes too many steps: does it loop for ever?";
    static const char memory[] =
        "line 1: the template needs more than the 268435456 bytes of memory it may use";
    static const char output[] =
        "line 1: a text becomes longer than the 67108864 bytes it may have";

    ends_soon("{% for i in range(10**9) %}x{% endfor %}",
              "line 1: range has more than 100000 elements");
    ends_soon("{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
              memory);
    ends_soon("{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}", memory);
    ends_soon("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
              "{% endfor %}",
              memory);
    ends_soon("{{ 'x' * 10**15 }}", steps);
    ends_soon("{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * "
              "10**6 }}",
              output);
    ends_soon("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
              "{% endfor %}",
              memory);
    ends_soon("{{ [1] * 10**9 }}", memory);
    ends_soon("{% for i in range(99999) %}{{ "
              "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 99 }}"
              "{% endfor %}",
              memory);
    ends_soon("{{ '' | indent(10**9) }}", steps);
    ends_soon(
        "{% set a = 'x' * 5000 %}{% for i in range(99999) %}{% set b = a.split('x') %}{% endfor %}",
        memory);
    ends_soon("{% set a = 'aaaaaaaaaaaaaaaa' * 60000 %}{% for i in range(99999) %}{{ a.rfind('b') "
              "}}{% endfor %}",
              steps);
    ends_soon(
        "{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, x=i) %}"
        "{% if i in ns.d %}{% endif %}{% for k in range(99) %}{% set ns.d = dict({i: 1}, y=ns.d) %}"
        "{% endfor %}{% endfor %}",
        memory);
    ends_soon("{% for i in range(99999) %}{% if i in range(99999) | list and 'x' is string and 1 < "
              "2 < 3 < 4 < 5 %}"
              "{% endif %}{% endfor %}",
              memory);
    ends_soon("{% set r = range(9999) | list %}{% for i in range(99999) %}{% if -1 in r %}{% endif "
              "%}{% endfor %}",
              steps);
}

static void deep_calls_and_values_are_ended(void)
{
    static const char deep[] = "line 1: calls or values are nested deeper than 800 levels";

    ends_soon("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", deep);
    ends_soon(
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        deep);
    ends_soon("{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% "
              "endfor %}"
              "{{ ns.s }}",
              deep);
    ends_soon("{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% "
              "endfor %}"
              "{{ ns.s | tojson }}",
              deep);
    ends_soon(
        "{% set ns = namespace(s=[], t=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}"
        "{% set ns.t = [ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
        deep);
}

static void deep_templates_are_refused(void)
{
    enum { LEVELS = 100000 };
    static const char *const parts[][3] = {
        {"(", "1", ")"},   {"[", "", "]"},    {"{1:", "1", "}"},   {"-", "1", ""},
        {"not ", "1", ""}, {"", "a", ".a"},   {"", "a", "|upper"}, {"", "a", "[0]"},
        {"", "a", "()"},   {"1+", "1", ""},   {"", "1", "**1"},    {"1 if 1 else ", "1", ""},
        {"f(", "1", ")"},  {"", "1", " if 1"}};
    char *text = malloc((size_t)LEVELS * 24 + 100);
    struct jinja_output out;
    struct err err;

    CHECK(text != NULL, "no memory");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t n = (size_t)sprintf(text, "{{ ");
        const size_t before = strlen(parts[i][0]), after = strlen(parts[i][2]);
        for (int k = 0; k < LEVELS / 2; k++) {
            memcpy(text + n, parts[i][0], before);
            n += before;
        }
        n += (size_t)sprintf(text + n, "%s", parts[i][1]);
        for (int k = 0; k < LEVELS / 2; k++) {
            memcpy(text + n, parts[i][2], after);
            n += after;
        }
        n += (size_t)sprintf(text + n, " }}");
        err.text[0] = '\0';
        EXPECT(render(text, n, &out, &err) == ERR_BAD_FILE);
        EXPECT(strstr(err.text, "nested deeper") != NULL);
    }
    size_t n = 0;
    for (int k = 0; k < LEVELS / 2; k++) {
        n += (size_t)sprintf(text + n, "{%% if 1 %%}");
    }
    EXPECT(render(text, n, &out, &err) == ERR_BAD_FILE &&
           strstr(err.text, "nested deeper") != NULL);
    free(text);
}

static void a_template_has_a_largest_size(void)
{
    char *text = malloc(JINJA_TEMPLATE_MAX + 1);
    struct jinja_output out;
    struct err err;

    CHECK(text != NULL, "no memory");
    memset(text, 'x', JINJA_TEMPLATE_MAX + 1);
    EXPECT(render(text, JINJA_TEMPLATE_MAX, &out, &err) == 0 && out.bytes == JINJA_TEMPLATE_MAX);
    jinja_output_fini(&out);
    EXPECT(render(text, JINJA_TEMPLATE_MAX + 1, &out, &err) == ERR_BAD_FILE);
    free(text);
}

/* "t:<b>0:Hi u-2:..." : the runs of the output, by origin, with the turn behind a slash. */
static bool comes_from(const char *text, const char *want)
{
    struct jinja_output out;
    struct err err = {0};
    char got[1000];
    size_t n = 0, at = 0;

    got[0] = '\0';
    CHECK(render(text, strlen(text), &out, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < out.run_count; at = out.runs[i++].end) {
        const struct jinja_tag tag = out.runs[i].tag;
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%d/%d%s:%.*s", i > 0 ? " " : "", tag.from,
                              tag.turn, tag.generation ? "g" : "", (int)(out.runs[i].end - at),
                              out.text + at);
    }
    const bool same = strcmp(got, want) == 0;
    if (!same) {
        printf("# %s\n# got  %s\n# want %s\n", text, got, want);
    }
    jinja_output_fini(&out);
    return same;
}

static void bytes_remember_their_message(void)
{
    EXPECT(comes_from("<{{ messages[0].content }}>", "-1/-1:< 0/-1: Hi  -1/-1:>"));
    EXPECT(comes_from("{{ messages[0].content.strip() ~ '|' ~ messages[1].content }}",
                      "0/-1:Hi -1/-1:| 1/-1:Yo"));
    EXPECT(comes_from("{{ (messages[0].content + messages[1].content)[1:5] }}", "0/-1:Hi  1/-1:Y"));
    EXPECT(comes_from("{{ messages[0].content | upper | trim | replace('I', 'A') }}",
                      "0/-1:H -1/-1:A"));
    EXPECT(comes_from("{{ messages[1].content | tojson }}", "1/-1:\"Yo\""));
    EXPECT(comes_from("{{ {'k': messages[1].content, 'l': 1} | tojson }}",
                      "1/-1:{\"k\": \"Yo\", \"l\": 1}"));
    EXPECT(comes_from("{{ [1, 'x'] }}", "-1/-1:[1, 'x']"));
    EXPECT(comes_from("{{ tools[0].name }}{{ tools[0].n }}", "-2/-1:<s>5"));
    EXPECT(comes_from("{{ tools | tojson }}", "-2/-1:[{\"name\": \"<s>\", \"n\": 5}]"));
    EXPECT(comes_from("{{ eos_token }}", "-1/-1:</s>"));
    EXPECT(comes_from("<{{ messages[0].role }}>", "-1/-1:<user>"));
    EXPECT(comes_from("{{ messages[2].role }}", "2/-1:</s>")); /* no role that there is */
    EXPECT(comes_from("{% for k, v in messages[1].items() %}{{ k }}={{ v }};{% endfor %}",
                      "1/-1:role -1/-1:=assistant; 1/-1:content -1/-1:= 1/-1:Yo -1/-1:;"));
    EXPECT(comes_from("{{ messages[:2] | map(attribute='content') | join('+') }}",
                      "0/-1: Hi  -1/-1:+ 1/-1:Yo"));
    EXPECT(comes_from("{{ '%s=%s' % (messages[1].content, 1) }}", "1/-1:Yo -1/-1:=1"));
    EXPECT(comes_from("{{ '{}!'.format(messages[1].content) }}", "1/-1:Yo -1/-1:!"));
    EXPECT(comes_from("{{ messages[1].content | list | join }}", "1/-1:Yo"));
    EXPECT(
        comes_from("{% set x %}a{{ messages[1].content }}{% endset %}{{ x }}", "-1/-1:a 1/-1:Yo"));
    EXPECT(comes_from("{% macro m(t) %}({{ t }}){% endmacro %}{{ m(messages[1].content) }}",
                      "-1/-1:( 1/-1:Yo -1/-1:)"));
}

static void bytes_remember_their_turn(void)
{
    EXPECT(comes_from("{% for m in messages[:2] %}<{{ m.content }}>{% endfor %}.",
                      "-1/0:< 0/0: Hi  -1/0:> -1/1:< 1/1:Yo -1/1:> -1/-1:."));
    EXPECT(
        comes_from("{% for m in messages[:2] %}{% for c in 'ab' %}{{ c }}{% endfor %}{% endfor %}",
                   "-1/0:ab -1/1:ab"));
    EXPECT(comes_from(
        "{% set ns = namespace(s='') %}{% for m in messages[:2] %}{% set ns.s = ns.s ~ '<' ~ "
        "m.content ~ '>' %}{% endfor %}{{ ns.s }}",
        "-1/0:< 0/-1: Hi  -1/0:> -1/1:< 1/-1:Yo -1/1:>"));
    EXPECT(comes_from(
        "{% macro m(t) %}({{ t }}){% endmacro %}{% for x in messages[1:2] %}{{ m(x.content) }}"
        "{% endfor %}",
        "-1/1:( 1/1:Yo -1/1:)"));
    EXPECT(comes_from(
        "{% for m in messages[:2] if m.role == 'assistant' %}{{ m.content }}{% endfor %}",
        "1/1:Yo"));
    EXPECT(comes_from(
        "{% for m in messages[1:2] %}a{% generation %}{{ m.content }}b{% endgeneration %}c"
        "{% endfor %}",
        "-1/1:a 1/1g:Yo -1/1g:b -1/1:c"));
}

static void the_time_is_the_present_one(void)
{
    char want[16];
    const time_t now = time(NULL);
    struct tm local;

    CHECK(localtime_r(&now, &local) != NULL && strftime(want, sizeof want, "%Y", &local) > 0,
          "no time");
    EXPECT(writes("{{ strftime_now('%Y') }}", want));
    EXPECT(fails("{{ strftime_now(1) }}",
                 "line 1: the format of strftime_now must be a string, not a int"));
}

static void one_template_renders_the_same_again(void)
{
    static const char text[] =
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{{ ns.n }}{{ m.role }}{% endfor %}";
    const struct jinja_variable v[] = {{"messages", messages, JINJA_MESSAGES}};
    struct jinja_template *t;
    struct jinja_output a = {0}, b = {0};
    struct err err;

    CHECK(jinja_parse(&t, text, sizeof text - 1, &err) == 0, "%s", err.text);
    EXPECT(!jinja_has_generation(t));
    EXPECT(jinja_render(t, v, 1, &limits, &a, &err) == 0 &&
           jinja_render(t, v, 1, &limits, &b, &err) == 0);
    EXPECT(a.text != NULL && b.text != NULL && strcmp(a.text, b.text) == 0);
    jinja_output_fini(&a);
    jinja_output_fini(&b);
    jinja_free(t);
}

int main(void)
{
    messages = json_loads(
        "[{\"role\":\"user\",\"content\":\" Hi \"},{\"role\":\"assistant\",\"content\":\"Yo\"},"
        "{\"role\":\"</s>\",\"content\":\"\"},"
        "{\"eos\":\"</s>\",\"tools\":[{\"name\":\"<s>\",\"n\":5}]}]",
        0, NULL);
    CHECK(messages != NULL, "no JSON");
    RUN(names_line_and_word_of_what_is_not_known);
    RUN(names_the_line_of_an_error_of_syntax);
    RUN(names_the_line_where_a_rendering_fails);
    RUN(speaks_the_words_of_raise_exception_but_no_data);
    RUN(templates_that_never_end_are_ended);
    RUN(deep_calls_and_values_are_ended);
    RUN(deep_templates_are_refused);
    RUN(a_template_has_a_largest_size);
    RUN(bytes_remember_their_message);
    RUN(bytes_remember_their_turn);
    RUN(the_time_is_the_present_one);
    RUN(one_template_renders_the_same_again);
    json_decref(messages);
    return tap_done();
}
