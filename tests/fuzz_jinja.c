/* fuzz_jinja.c - any bytes as a chat template: refused with a sentence, or it renders within its limits to runs that
 * cover the text, twice the same. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/chat/jinja.h"
#include "trainer/tokenizer/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"Be \xC3\xA9 "
    "<|im_end|>\"},{\"role\":\"user\",\"content\":\" Hi\\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":"
    "\"f\","
    "\"arguments\":{\"x\":[1,2.5,true,null,\"\xF0\x9F\x98\x80\"]}}}]},"
    "{\"role\":\"tool\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"a\\u0000b'"
    "\\\"\\\\\"}]";

/* Small, so that a run takes milliseconds. */
static const struct jinja_limits limits = {.steps = 50000, .memory = 1 << 22, .output = 1 << 20};

static void check_failure(const struct err *err, const struct jinja_output *out)
{
    CHECK(err->text[0] != '\0' && strchr(err->text, '\n') == NULL, "'%s'", err->text);
    CHECK(out->text == NULL && out->runs == NULL, "output of a failure");
}

static void check_output(const struct jinja_output *out)
{
    size_t at = 0;

    for (size_t i = 0; i < out->run_count; i++) {
        const struct jinja_tag tag = out->runs[i].tag;
        CHECK(out->runs[i].end > at, "run %zu is empty", i);
        CHECK(tag.from >= JINJA_FROM_TOOLS && tag.from < 5, "origin %d", tag.from);
        CHECK(tag.turn >= JINJA_NO_TURN && tag.turn < 5, "turn %d", tag.turn);
        at = out->runs[i].end;
    }
    CHECK(at == out->bytes && out->text[at] == '\0', "runs end at %zu of %zu", at, out->bytes);
    CHECK(out->bytes <= limits.output, "%zu bytes", out->bytes);
    CHECK(utf8_prefix(out->text, out->bytes, NULL) == out->bytes, "not UTF-8");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    json_t *messages = json_loads(conversation, JSON_ALLOW_NUL, NULL);
    const struct jinja_variable v[] = {
        {"messages", messages, JINJA_MESSAGES},
        {"tools", messages, JINJA_TOOLS},
        {"add_generation_prompt", json_true(), JINJA_OWN},
        {"eos_token", json_object_get(json_array_get(messages, 0), "role"), JINJA_OWN}};
    struct jinja_template *t;
    struct jinja_output a = {0}, b = {0};
    struct err err = {0};

    CHECK(messages != NULL, "no JSON");
    if (jinja_parse(&t, (const char *)bytes, n, &err) != 0) {
        check_failure(&err, &a);
        json_decref(messages);
        return 0;
    }
    const int rc = jinja_render(t, v, 4, &limits, &a, &err);
    CHECK(jinja_render(t, v, 4, &limits, &b, &err) == rc, "another end");
    if (rc != 0) {
        check_failure(&err, &a);
    } else {
        check_output(&a);
        CHECK(a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0, "another text");
    }
    jinja_output_fini(&a);
    jinja_output_fini(&b);
    jinja_free(t);
    json_decref(messages);
    return 0;
}
